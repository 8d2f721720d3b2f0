"""A named model: an open checkpoint whose tensors have roles, and slices of a role in its logical orientation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kinprint.arch import Naming, RoleTensor, name_tensors, residual_width
from kinprint.formats.checkpoint import Checkpoint, open_checkpoint
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import Run, TensorSlice, rows, whole
from kinprint.results.measurements import Skipped
from kinprint.results.models import FileSummary, ModelSummary
from kinprint.sources.session import Session

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A checkpoint with roles."""

    checkpoint: Checkpoint
    naming: Naming
    hidden: int | None

    @property
    def label(self) -> str:
        """The model as the user named it."""
        return self.checkpoint.label

    def summary(self) -> ModelSummary:
        """Return what a report says about this model."""
        where, stored = self.checkpoint.provenance, self.checkpoint.tensors.values()
        reasons = Counter(item.reason for item in self.naming.excluded)
        return ModelSummary(
            reference=where.reference,
            kind=where.kind,
            location=where.location,
            revision=where.revision,
            commit=where.commit,
            architecture=self.naming.architecture,
            architecture_guessed=self.naming.guessed,
            layers=self.naming.layers,
            experts=self.naming.experts,
            hidden=self.hidden,
            tensors=len(stored),
            parameters=sum(tensor.elements for tensor in stored),
            stored_bytes=sum(tensor.nbytes for tensor in stored),
            unmapped=self.naming.unmapped,
            excluded=tuple(Skipped("stored tensors", count, reason) for reason, count in reasons.items()),
            notes=(*self.checkpoint.notes, *self.naming.notes),
            files=tuple(FileSummary(file.name, file.size, file.identity) for file in self.checkpoint.files),
        )


def open_model(reference: str, session: Session, *, alone: bool = False) -> Model:
    """Open a checkpoint and name its tensors. Reads headers and config, no tensor.

    With `alone` an adapter is not merged into its base: none of its tensors then has a role.
    """
    checkpoint = open_checkpoint(reference, session, alone=alone)
    if checkpoint.adapter and checkpoint.base is None:
        return Model(checkpoint, Naming("none", False, 0, 0, (), tuple(sorted(checkpoint.tensors)), (), ()), None)
    naming = name_tensors(checkpoint.config, checkpoint.tensors.shapes())
    return Model(checkpoint, naming, residual_width(naming, checkpoint.config))


def open_models(references: Sequence[str], session: Session) -> list[Model]:
    """Open several models at once; the first failure, in the order given, is raised."""
    jobs = [session.coordinate(partial(open_model, reference, session)) for reference in references]
    return [job.result() for job in jobs]


@dataclass(frozen=True)
class RoleSlice:
    """Rows of a role, as stored bytes to read and the steps that make them logical."""

    part: RoleTensor
    stored: TensorSlice
    keep: Run | None  # logical rows to keep after reading; None where the read was already exact
    columns: Run | None = None  # logical columns to keep after reading; None for all

    def logical(self, values: Array) -> FloatArray:
        """Return the slice as float64, out × in, as the model uses it (norm offset added)."""
        return self.oriented(values).astype(np.float64) + self.part.offset

    def oriented(self, values: Array) -> Array:
        """Return the stored values, out × in, unchanged: what identity and ulp distance look at."""
        part = self.part
        if part.transposed:
            columns = part.rows or ((0, values.shape[1]),)
            values = np.concatenate([values[:, start:stop] for start, stop in columns], axis=1).T
        if self.keep is not None:
            values = values[self.keep[0] : self.keep[1]]
        return values if self.columns is None else values[:, self.columns[0] : self.columns[1]]


def slice_role(model: Model, part: RoleTensor, wanted: Run | None = None, columns: Run | None = None) -> RoleSlice:
    """Plan the logical rows `wanted` (half-open; None means all) of a role, and which of their columns are kept.

    Fused tensors are row intervals of the stored one. Transposed storage (GPT-2's Conv1D, the experts of Llama 4) keeps a
    logical row in a stored column, so the whole matrix is read.
    """
    tensor = model.checkpoint.tensors[part.name]
    if part.transposed:
        return RoleSlice(part, whole(tensor), wanted, columns)
    if wanted is None and part.rows is None:
        return RoleSlice(part, whole(tensor), None, columns)
    intervals = part.rows or ((0, tensor.shape[0]),)
    stored = rows(tensor, intervals if wanted is None else take_rows(intervals, wanted))
    return RoleSlice(part, stored, None, columns)


def take_rows(intervals: Sequence[Run], wanted: Run) -> list[Run]:
    """Translate logical rows into stored ones: `intervals` laid end to end are the logical rows."""
    taken, at = [], 0
    for start, stop in intervals:
        low, high = max(wanted[0], at), min(wanted[1], at + stop - start)
        if low < high:
            taken.append((start + low - at, start + high - at))
        at += stop - start
    return taken
