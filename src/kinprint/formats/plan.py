"""Read plans: which elements of which tensors, as coalesced byte ranges per file. Pure: nothing here reads.

A TensorSlice is any set of element runs of one tensor: the whole, some rows, or windows placed by a hash. A plan turns
slices into few ranges, and knows beforehand how many bytes will move.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kinprint.formats.safetensors import TensorInfo
from kinprint.refs import ByteRange

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
        """Bytes the slice needs."""
        return sum(stop - start for start, stop in self.runs) * self.tensor.itemsize

    def byte_ranges(self) -> list[ByteRange]:
        """Return the runs as ranges in the file."""
        size, base = self.tensor.itemsize, self.tensor.start
        return [ByteRange(base + start * size, base + stop * size) for start, stop in self.runs]


def whole(tensor: TensorInfo) -> TensorSlice:
    """Select all of a tensor."""
    return TensorSlice(tensor, ((0, tensor.elements),), tensor.shape)


def rows(tensor: TensorInfo, intervals: Iterable[Run]) -> TensorSlice:
    """Select row intervals along the first axis, joined in the given order of rows."""
    if not tensor.shape:
        raise ValueError(f"{tensor.name}: a scalar has no rows")
    width = math.prod(tensor.shape[1:])
    merged: list[Run] = []
    for start, stop in intervals:
        if not 0 <= start <= stop <= tensor.shape[0]:
            raise ValueError(f"{tensor.name}: rows {start} to {stop} are not within its {tensor.shape[0]} rows")
        if merged and start < merged[-1][1]:
            raise ValueError(f"{tensor.name}: row intervals must ascend without overlap")
        if merged and start == merged[-1][1]:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    count = sum(stop - start for start, stop in merged)
    return TensorSlice(tensor, tuple((a * width, b * width) for a, b in merged), (count, *tensor.shape[1:]))


def windows(tensor: TensorInfo, *, key: str, count: int, length: int, seed: int = 0) -> TensorSlice:
    """Select `count` windows of `length` elements at places given by a hash of (key, seed, window).

    Two tensors of equal size read with one key are read at the same places. Windows that overlap are merged, so no element
    counts twice; a tensor no larger than a window is read whole, once.
    """
    total = tensor.elements
    if total <= length:
        return TensorSlice(tensor, ((0, total),), (total,))
    starts = []
    for number in range(count):
        digest = hashlib.sha256(f"{key}|{seed}|{number}".encode()).digest()
        starts.append(int.from_bytes(digest[:8], "little") % (total - length + 1))
    runs: list[Run] = []
    for start in sorted(starts):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], start + length))
        else:
            runs.append((start, start + length))
    return TensorSlice(tensor, tuple(runs), (sum(stop - start for start, stop in runs),))


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a slice inside a planned range: where it lies in the range and where it goes in the slice."""

    range_index: int
    offset: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Ranges to read, by file, and how to cut the slices out of them."""

    slices: tuple[TensorSlice, ...]
    files: tuple[int, ...]
    ranges: tuple[ByteRange, ...]
    pieces: tuple[tuple[Piece, ...], ...]  # one tuple for each slice

    @property
    def nbytes(self) -> int:
        """Bytes that will be read."""
        return sum(len(span) for span in self.ranges)

    @property
    def useful_bytes(self) -> int:
        """Bytes that were asked for."""
        return sum(item.nbytes for item in self.slices)


def plan_reads(
    slices: Sequence[TensorSlice], *, max_gap_bytes: int = MAX_GAP_BYTES, max_range_bytes: int = MAX_RANGE_BYTES
) -> ReadPlan:
    """Coalesce the slices' ranges per file. Overlapping slices are read once."""
    wanted = sorted(
        {(item.tensor.file, span.start, span.end) for item in slices for span in item.byte_ranges() if len(span)}
    )
    merged: list[list[int]] = []
    for file, start, end in wanted:
        if merged and merged[-1][0] == file and start - merged[-1][2] <= max_gap_bytes:
            merged[-1][2] = max(merged[-1][2], end)
        else:
            merged.append([file, start, end])
    files: list[int] = []
    ranges: list[ByteRange] = []
    for file, start, end in merged:
        for cut in range(start, end, max_range_bytes):
            files.append(file)
            ranges.append(ByteRange(cut, min(end, cut + max_range_bytes)))
    return ReadPlan(tuple(slices), tuple(files), tuple(ranges), _cut(slices, files, ranges))


def _cut(
    slices: Sequence[TensorSlice], files: Sequence[int], ranges: Sequence[ByteRange]
) -> tuple[tuple[Piece, ...], ...]:
    by_file: dict[int, list[int]] = {}
    for index, file in enumerate(files):
        by_file.setdefault(file, []).append(index)
    cuts = []
    for item in slices:
        pieces: list[Piece] = []
        target = 0
        for span in item.byte_ranges():
            for index in _overlapping(by_file.get(item.tensor.file, []), ranges, span):
                low, high = max(span.start, ranges[index].start), min(span.end, ranges[index].end)
                pieces.append(Piece(index, low - ranges[index].start, target + low - span.start, high - low))
            target += len(span)
        cuts.append(tuple(pieces))
    return tuple(cuts)


def _overlapping(candidates: Sequence[int], ranges: Sequence[ByteRange], span: ByteRange) -> Iterable[int]:
    low, high = 0, len(candidates)
    while low < high:  # first candidate that ends after the span starts; candidates are ordered and disjoint
        middle = (low + high) // 2
        if ranges[candidates[middle]].end <= span.start:
            low = middle + 1
        else:
            high = middle
    for index in candidates[low:]:
        if ranges[index].start >= span.end:
            return
        yield index
