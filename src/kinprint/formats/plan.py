"""Plan reads: which elements of which tensors, as coalesced byte ranges per file. Pure: nothing here reads.

A TensorSlice is any set of element runs of one tensor: the whole, some rows, or windows placed by a hash. A plan turns
slices into few ranges, and knows beforehand how many bytes will move.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np

from kinprint._util.records import dataclass
from kinprint.formats.dtypes import Array, block_of
from kinprint.formats.tensors import Streamed, TensorInfo
from kinprint.refs import ByteRange, join_runs

MAX_GAP_BYTES = 16_384  # reading through a small gap costs less than another request; a larger one would not
MAX_RANGE_BYTES = 16 << 20  # longer ranges are cut, so that threads share the work and a retry repeats little

Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """Element runs (half-open, ascending, disjoint) of a stored tensor, and the shape they make when joined."""

    tensor: TensorInfo
    runs: tuple[Run, ...]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes the slice needs, as stored."""
        if self.tensor.made is not None:
            leaves: list[TensorSlice] = []
            _expand(self, leaves, {})
            return sum(leaf.nbytes for leaf in leaves)
        return sum(len(span) for span in self.byte_ranges())

    def byte_ranges(self) -> list[ByteRange]:
        """Return the runs as ranges in the file."""
        return [self.tensor.span(start, stop) for start, stop in self.runs]

    def rows_of_runs(self) -> list[Run]:
        """Return for each run the rows that hold it."""
        width = max(1, self.tensor.width)
        return [(start // width, -(-stop // width)) for start, stop in self.runs]

    def trimmed(self, values: Array) -> Array:
        """Cut decoded blocks, or built rows, to the runs themselves, and give them their shape."""
        tensor = self.tensor
        step = block_of(tensor.dtype, tensor=tensor.name)[0] if tensor.made is None else max(1, tensor.width)
        if any(start % step or stop % step for start, stop in self.runs):
            pieces, at = [], 0
            for start, stop in self.runs:
                first = start // step * step
                pieces.append(values[at + start - first : at + stop - first])
                at += -(-stop // step) * step - first
            values = np.concatenate(pieces)
        return values.reshape(self.shape)


def whole(tensor: TensorInfo) -> TensorSlice:
    """Select all of a tensor."""
    return TensorSlice(tensor, ((0, tensor.elements),), tensor.shape)


def rows(tensor: TensorInfo, intervals: Iterable[Run]) -> TensorSlice:
    """Select row intervals along the first axis, joined in the given order of rows."""
    if not tensor.shape:
        raise ValueError(f"{tensor.name}: a scalar has no rows")
    width = math.prod(tensor.shape[1:])
    given, last = list(intervals), 0
    for start, stop in given:
        if not 0 <= start <= stop <= tensor.shape[0]:
            raise ValueError(f"{tensor.name}: rows {start} to {stop} are not within its {tensor.shape[0]} rows")
        if start < last:
            raise ValueError(f"{tensor.name}: row intervals must ascend without overlap")
        last = stop
    merged = join_runs(given)
    count = sum(stop - start for start, stop in merged)
    return TensorSlice(tensor, tuple((a * width, b * width) for a, b in merged), (count, *tensor.shape[1:]))


def columns(tensor: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select columns of a matrix."""
    height, width = tensor.shape
    if (start, stop) == (0, width):
        return whole(tensor)
    runs = tuple((row * width + start, row * width + stop) for row in range(height if stop > start else 0))
    return TensorSlice(tensor, runs, (len(runs), stop - start))


@dataclass(frozen=True, slots=True)
class PlanPiece:
    """Part of a slice inside a planned range: where it lies in the range and where it goes in the slice."""

    range_index: int
    offset: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class PlanNode:
    """Making of a slice: read as stored (``leaf``), built from others run by run, or decoded in ``intervals`` of a stream."""

    item: TensorSlice
    leaf: int | None
    intervals: tuple[Run, ...] = ()
    made: tuple[tuple[int, int, tuple[PlanNode, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Ranges to read, by file, and how to cut ``leaves`` out of them: the stored slices that those asked for are made of."""

    leaves: tuple[TensorSlice, ...]
    nodes: tuple[PlanNode, ...]
    files: tuple[int, ...]
    ranges: tuple[ByteRange, ...]
    pieces: tuple[tuple[PlanPiece, ...], ...]  # one tuple for each leaf

    @property
    def nbytes(self) -> int:
        """Bytes that will be read."""
        return sum(len(span) for span in self.ranges)


def plan_reads(
    slices: Sequence[TensorSlice], *, max_gap_bytes: int = MAX_GAP_BYTES, max_range_bytes: int = MAX_RANGE_BYTES
) -> ReadPlan:
    """Coalesce the slices' ranges per file. Overlapping slices are read once."""
    leaves: list[TensorSlice] = []
    shared: dict[object, int] = {}
    nodes = tuple(_expand(item, leaves, shared) for item in slices)
    wanted: dict[int, set[Run]] = {}
    for item in leaves:
        wanted.setdefault(item.tensor.file, set()).update((s.start, s.end) for s in item.byte_ranges() if len(s))
    files: list[int] = []
    ranges: list[ByteRange] = []
    for file, spans in sorted(wanted.items()):
        for start, end in join_runs(sorted(spans), max_gap_bytes):
            for cut in range(start, end, max_range_bytes):
                files.append(file)
                ranges.append(ByteRange(cut, min(end, cut + max_range_bytes)))
    pieces = _cut(leaves, files, ranges)
    return ReadPlan(tuple(leaves), nodes, tuple(files), tuple(ranges), pieces)


def _expand(item: TensorSlice, leaves: list[TensorSlice], shared: dict[object, int], *, part: bool = False) -> PlanNode:
    """Find the stored slices that a slice is read from; one that several need becomes one leaf."""
    tensor = item.tensor
    if tensor.made is None:
        key = (tensor.file, tensor.start, tensor.end, tensor.dtype, item.runs, item.shape)
        number = shared.get(key) if part else None
        if number is None:
            number = len(leaves)
            leaves.append(item)
            if part:
                shared[key] = number
        return PlanNode(item, number)
    if isinstance(tensor.made, Streamed):
        packed = _expand(whole(tensor.made.packed), leaves, shared, part=True)
        return PlanNode(item, packed.leaf, tuple(item.rows_of_runs()))
    made = [
        (start, stop, tuple(_expand(one, leaves, shared, part=True) for one in tensor.made.parts(start, stop)))
        for start, stop in item.rows_of_runs()
    ]
    return PlanNode(item, None, made=tuple(made))


def _cut(
    slices: Sequence[TensorSlice], files: Sequence[int], ranges: Sequence[ByteRange]
) -> tuple[tuple[PlanPiece, ...], ...]:
    by_file: dict[int, list[int]] = {}
    for index, file in enumerate(files):
        by_file.setdefault(file, []).append(index)
    cuts = []
    for item in slices:
        pieces: list[PlanPiece] = []
        target = 0
        for span in item.byte_ranges():
            for index in _overlapping(by_file.get(item.tensor.file, []), ranges, span):
                low, high = max(span.start, ranges[index].start), min(span.end, ranges[index].end)
                pieces.append(PlanPiece(index, low - ranges[index].start, target + low - span.start, high - low))
            target += len(span)
        cuts.append(tuple(pieces))
    return tuple(cuts)


def _overlapping(candidates: Sequence[int], ranges: Sequence[ByteRange], span: ByteRange) -> Iterable[int]:
    """Return the ranges, ordered and disjoint, that hold any of the span."""
    first = bisect_right(candidates, span.start, key=lambda index: ranges[index].end)
    following = map(candidates.__getitem__, range(first, len(candidates)))
    return takewhile(lambda index: ranges[index].start < span.end, following)
