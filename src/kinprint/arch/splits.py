"""Split fused tensors: find the rows of each role."""

from collections.abc import Mapping

from kinprint.arch.templates import Split
from kinprint.text import Text

Intervals = tuple[tuple[int, int], ...]
_MOST_GROUPS = 4096  # attention heads, in the finest split there is


def plan_split(split: Split, length: int, dims: Mapping[str, int]) -> tuple[Intervals, ...] | Text:
    """Find the index intervals of every part of a fused axis, in the split's order, or the reason why it cannot be split."""
    # `dims` holds the known sizes. In a plain concatenation one of them may be unknown: the stored length determines it.
    repeat = 1 if split.repeat is None else dims.get(split.repeat)
    if repeat is None:
        return Text("config gives no {names}", names=split.repeat)
    unknown = {size for _, size in split.parts if size not in dims}
    # With interleaved groups a missing size means that the config contradicts itself (a width that its number of heads
    # does not divide), and solving for it would trust the wrong half.
    if len(unknown) > (1 if split.repeat is None else 0):
        return Text("config gives no {names}", names=" and no ".join(sorted(unknown)))
    sizes = [dims.get(size) for _, size in split.parts]
    known = sum(size for size in sizes if size is not None)
    group, remainder = divmod(length, repeat)
    parts = " + ".join(size for _, size in split.parts)
    misfit = Text("sizes {sizes}, {n} times, do not add up to {m}", sizes=parts, n=repeat, m=length)
    if remainder or repeat > _MOST_GROUPS or (not unknown and known != group):
        return misfit
    if unknown:
        solved, remainder = divmod(group - known, sizes.count(None))
        if remainder or solved <= 0:
            return misfit
        sizes = [solved if size is None else size for size in sizes]
    plans, start = [], 0
    for size in sizes:
        assert size is not None
        plans.append(tuple((start + at * group, start + at * group + size) for at in range(repeat)))
        start += size
    return tuple(plans)
