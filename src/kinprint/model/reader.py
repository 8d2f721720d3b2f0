"""Read tensors by role: plan purely, so that the bytes are known, then read together.

A `Want` names rows of the tensor that plays a role. ``model.cost(want)`` tells its bytes, ``model.plan(wants)`` turns wants into
merged byte ranges, ``model.read(wants)`` reads them, and `read_together` reads the plans of several models in one go.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from kinprint._util.numeric import FloatArray, largest_magnitude
from kinprint._util.records import dataclass
from kinprint.arch import Role, RoleTensor, TensorKey
from kinprint.formats.checkpoint import Checkpoint, execute_together
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import ReadPlan, Run, TensorSlice, rows, whole

T = TypeVar("T")


@dataclass(frozen=True)
class Want:
    """Rows, columns or elements wanted of the tensor of one role. All indices are half-open; None means all."""

    role: Role
    layer: int | None = None
    expert: int | None = None
    rows: Run | tuple[Run, ...] | None = None  # one run of logical rows, or several, joined in the order given
    columns: Run | None = None  # logical; cut after reading, so that they save memory and no bytes
    elements: tuple[Run, ...] | None = None  # instead of rows: ascending runs in stored order, returned flat

    @property
    def key(self) -> TensorKey:
        """Role, layer and expert."""
        return self.role, self.layer, self.expert

    @property
    def runs(self) -> tuple[Run | None, ...]:
        """The runs of rows; (None,) for all rows."""
        if self.rows is None or (self.rows and isinstance(self.rows[0], int)):
            return (self.rows,)
        return self.rows


@dataclass(frozen=True)
class Sample:
    """Values read of one tensor, out × in."""

    stored: Array  # the numbers as stored: what identity and ulp distance look at
    dtype: str  # in the file
    shape: tuple[int, ...]  # logical, of the whole tensor
    offset: float = 0.0  # what the model adds to the stored values (Gemma stores a norm's weight minus one)
    rows: Run | None = None  # which were read; None for all, and for several runs
    columns: Run | None = None
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def values(self) -> FloatArray:
        """The slice as the model uses it, in float64; made anew each time, because keeping both would double memory."""
        return self.part()

    def part(self, *index: slice) -> FloatArray:
        """Return a part of the values, by rows and columns."""
        with np.errstate(invalid="ignore"):  # a signalling NaN, as a hostile file may hold, becomes a quiet one
            values: FloatArray = self.stored[index].astype(np.float64)
        if self.offset:  # of few roles of few models: else a pass over memory for nothing
            values += self.offset
        return values

    @property
    def finite(self) -> bool:
        """Whether the slice holds neither NaN nor infinity."""
        return self.stored.dtype.kind != "f" or math.isfinite(self.largest)

    @property
    def largest(self) -> float:
        """The largest magnitude, NaN if a value is; found on the stored numbers, which need not be converted for it."""
        if self.offset:
            return self.once(largest_magnitude)
        if largest_magnitude not in self._known:
            with np.errstate(invalid="ignore"):
                self._known[largest_magnitude] = largest_magnitude(self.stored)
        return float(self._known[largest_magnitude])

    def first_rows(self, count: int | None) -> "Sample":
        """Return the first rows of a slice that starts with the first; of vectors, and of other slices, all."""
        if count is None or self.stored.ndim != 2 or len(self.stored) <= count or self.rows is None or self.rows[0]:
            return self
        return replace(self, stored=self.stored[:count], rows=(0, count))

    def once(self, reduce: Callable[[FloatArray], T], values: FloatArray | None = None) -> T:
        """Return a figure of the values, which may be at hand; it is computed once, whichever test, grid or control asks for it."""
        if reduce not in self._known:
            self._known[reduce] = reduce(self.values if values is None else values)
        found: T = self._known[reduce]
        return found

    def beside(self, other: "Sample", figure: Callable[["Sample", "Sample"], T]) -> T:
        """Return a figure of this slice and another one, computed once as long as the partner is the same."""
        partner, _ = self._known.get(figure, (None, None))
        if partner is None or partner() is not other.stored:  # a weak reference: a query meets many candidates
            self._known[figure] = ref(other.stored), figure(self, other)
        found: T = self._known[figure][1]
        return found


@dataclass(frozen=True)
class RoleSlice:
    """One run of a want: the stored bytes to read, and the steps that give them the logical orientation."""

    part: RoleTensor
    stored: TensorSlice
    keep: Run | None = None  # logical rows to keep after reading; None where the read was already exact
    columns: Run | None = None
    flat: bool = False

    def oriented(self, values: Array) -> Array:
        """Return the stored values, out × in, unchanged."""
        if self.flat:
            return values
        if values.ndim > len(self.part.shape):  # a convolution: taps and input channels are one axis
            values = values.reshape(len(values), -1)
        if self.part.transposed:
            kept = self.part.rows or ((0, values.shape[1]),)
            values = np.concatenate([values[:, start:stop] for start, stop in kept], axis=1).T
        if self.keep is not None:
            values = values[self.keep[0] : self.keep[1]]
        return values if self.columns is None else values[:, self.columns[0] : self.columns[1]]


@dataclass(frozen=True)
class ModelPlan:
    """Byte ranges to read of one model for some wants. Pure: nothing is read until `read_together`."""

    checkpoint: Checkpoint
    wants: tuple[Want, ...]
    slices: tuple[tuple[RoleSlice, ...], ...]  # of each want, one for each run of its rows
    reads: ReadPlan

    @property
    def nbytes(self) -> int:
        """Bytes that will be read: what several wants share counts once, gaps that are read through count."""
        return self.reads.nbytes

    def samples(self, arrays: Sequence[Array]) -> Iterator[Sample]:
        """Yield what each want gets from the arrays of all slices, in their order."""
        left = iter(arrays)
        for want, slices in zip(self.wants, self.slices, strict=True):
            pieces = [item.oriented(next(left)) for item in slices]
            stored = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            part, runs = slices[0].part, want.runs
            run = runs[0] if len(runs) == 1 else None
            yield Sample(stored, slices[0].stored.tensor.dtype, part.shape, part.offset, run, want.columns)


def read_together(plans: Sequence[ModelPlan]) -> list[list[Sample]]:
    """Read the plans of several models of one session: one wait for all of them. Returns the samples of each plan."""
    arrays = execute_together([(plan.checkpoint, plan.reads) for plan in plans])
    return [list(plan.samples(found)) for plan, found in zip(plans, arrays, strict=True)]


def want_slices(checkpoint: Checkpoint, part: RoleTensor, want: Want) -> Iterator[RoleSlice]:
    """Yield a slice for each run of a want."""
    # Fused tensors are row intervals of the stored one. Transposed storage (GPT-2's Conv1D, the experts of Llama 4) keeps a
    # logical row in a stored column, so the whole matrix is read.
    tensor = checkpoint.tensors[part.name]
    if want.elements is not None:
        count = sum(stop - start for start, stop in want.elements)
        yield RoleSlice(part, TensorSlice(tensor, want.elements, (count,)), flat=True)
        return
    for run in want.runs:
        if part.transposed:
            yield RoleSlice(part, whole(tensor), run, want.columns)
        elif run is None and part.rows is None:
            yield RoleSlice(part, whole(tensor), None, want.columns)
        else:
            intervals = part.rows or ((0, tensor.shape[0]),)
            stored = rows(tensor, intervals if run is None else take_rows(intervals, run))
            yield RoleSlice(part, stored, None, want.columns)


def take_rows(intervals: Sequence[Run], wanted: Run) -> list[Run]:
    """Translate logical rows into stored ones: `intervals` laid end to end are the logical rows."""
    taken, at = [], 0
    for start, stop in intervals:
        low, high = max(wanted[0], at), min(wanted[1], at + stop - start)
        if low < high:
            taken.append((start + low - at, start + high - at))
        at += stop - start
    return taken
