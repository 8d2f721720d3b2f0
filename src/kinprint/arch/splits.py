"""Split fused tensors, and experts stored as one tensor with three axes: find the rows of each role, and which way they lie."""

from collections.abc import Mapping

from kinprint.arch.roles import Axis, Role
from kinprint.arch.templates import NameRule, Split
from kinprint.text import Text

Intervals = tuple[tuple[int, int], ...]
REST = "rest"
MOST_EXPERTS = 9_999  # more have no place in a name
MOST_MATRICES = 1 << 18  # of a model; the largest have 70,000
_MOST_GROUPS = 4096  # attention heads, in the finest split there is


def plan_split(split: Split, length: int, dims: Mapping[str, int]) -> tuple[Intervals, ...] | Text:
    """Find the index intervals of every part of a fused axis, in the split's order, or the reason why it cannot be split."""
    # `dims` holds the known sizes. In a plain concatenation one of them may be unknown: the stored length determines it.
    repeat = 1 if split.repeat is None else dims.get(split.repeat)
    if repeat is None:
        return Text("config gives no {names}", names=split.repeat)
    unknown = {size for _, size in split.parts if size not in dims}
    # With interleaved groups a missing size means that the config contradicts itself (a width that its number of heads
    # does not divide), and solving for it would trust the wrong half; but `rest` is what is left of a group by definition.
    if len(unknown) > (1 if split.repeat is None or unknown == {REST} else 0):
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


def is_transposed(rule: NameRule, sides: tuple[int, int], width: int | None, swapped: bool) -> bool | Text:
    """Return whether matrices are stored in × out, or why that cannot be told."""
    # One side is the width of the residual stream. If it is where the architecture file does not expect it, the stack was
    # written the other way round: newer versions of transformers transposed the experts of some families. If both sides are so
    # wide, the model's other stacks decide (`swapped`: they are not as the file says).
    at = rule.roles[0].info.axes.index(Axis.RESIDUAL)
    expected = 1 - at if rule.transposed else at
    if width is None or sides[0] == sides[1] == width:
        return rule.transposed != swapped
    if width not in sides:
        return Text("matrices of {a} × {b} do not fit a width of {n}", a=sides[0], b=sides[1], n=width)
    return rule.transposed if sides[expected] == width else not rule.transposed


def plan_stack(
    rule: NameRule, sides: tuple[int, ...], axis: int, dims: Mapping[str, int]
) -> tuple[tuple[Role, Intervals | None, tuple[int, ...]], ...] | Text:
    """Return the roles in one matrix or vector, their intervals along stored axis `axis`, logical shapes, or why there are none."""
    others = sides[:axis] + sides[axis + 1 :]
    if rule.split is None:
        assert rule.role is not None
        return ((rule.role, None, (sides[axis], *others)),)
    plan = plan_split(rule.split, sides[axis], dims)
    if isinstance(plan, Text):
        return plan
    shapes = [(sum(stop - start for start, stop in rows), *others) for rows in plan]
    return tuple(zip(rule.roles, plan, shapes, strict=True))
