"""Whether two models are the same throughout: by the hub's content tags, or byte for byte as far as the budget lets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kinprint.arch import Role, RoleTensor
from kinprint.evidence.verdict import Identity
from kinprint.formats.checkpoint import Checkpoint, execute_together
from kinprint.formats.plan import ReadPlan, Run, plan_reads, rows, whole
from kinprint.formats.tensors import TensorInfo
from kinprint.model.model import Model
from kinprint.model.reader import take_rows

BATCH_BYTES = 32_000_000  # of one side, held at a time
_NO_WEIGHTS = ("rotary buffer", "index buffer")  # what may be missing from one side


@dataclass(frozen=True)
class _Stored:
    """A tensor of one side, or those rows of it that play a role."""

    checkpoint: Checkpoint
    tensor: TensorInfo
    intervals: Sequence[Run] | None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        if self.intervals is not None:
            return sum(stop - start for start, stop in self.intervals)
        return self.tensor.shape[0] if self.tensor.shape else 1

    def plan(self, run: Run | None) -> ReadPlan:
        """Plan to read some rows, or with None all."""
        if run is None and self.intervals is None:
            return plan_reads([whole(self.tensor)])
        intervals = self.intervals or ((0, self.count),)
        return plan_reads([rows(self.tensor, intervals if run is None else take_rows(intervals, run))])


@dataclass(frozen=True)
class _Twins:
    """Two tensors that have to be equal."""

    sides: tuple[_Stored, _Stored]

    def plans(self) -> list[tuple[ReadPlan, ...]]:
        """Plan to read some rows at a time; all at once where that takes fewer bytes (a compressed array has no rows)."""
        count, nbytes = self.sides[0].count, sum(side.tensor.nbytes for side in self.sides)
        step = max(1, 2 * count * BATCH_BYTES // max(nbytes, 1))
        whole_plan = [tuple(side.plan(None) for side in self.sides)]
        if step >= count:
            return whole_plan
        runs = [(start, min(count, start + step)) for start in range(0, count, step)]
        cut = [tuple(side.plan(run) for side in self.sides) for run in runs]
        return cut if _cost(cut) <= _cost(whole_plan) else whole_plan

    def equal(self, plans: Sequence[tuple[ReadPlan, ...]]) -> bool:
        """Read and compare."""
        checkpoints = [side.checkpoint for side in self.sides]
        for pair in plans:
            (left,), (right,) = execute_together(list(zip(checkpoints, pair, strict=True)))
            if left.tobytes() != right.tobytes():
                return False
        return True


def _cost(plans: Iterable[tuple[ReadPlan, ...]]) -> int:
    return sum(plan.nbytes for pair in plans for plan in pair)


def confirm_identity(models: tuple[Model, Model], found: Identity, allowance: int | None) -> tuple[Identity, int]:
    """Look at everything where slices were all equal. Returns the identity as now known, and the bytes it took.

    Tensors are paired by name, or, in files of different make, by role; a head that is stored here and tied there has to be
    a copy of the embedding beside it.
    """
    a, b = (model.checkpoint for model in models)
    twins = _by_name(a, b) or _by_role(*models)
    if twins is None:
        return replace(found, same_structure=False), 0
    tags = [[(file.size, file.identity) for file in side.files] for side in (a, b)]
    if a.provenance.kind == b.provenance.kind and a.provenance.location == b.provenance.location and tags[0] == tags[1]:
        return replace(found, share_read=1.0), 0  # the very same files
    tagged = all(side.provenance.kind == "hub" for side in (a, b))
    if tagged and tags[0] == tags[1] and all(identity.startswith("etag:") for _, identity in tags[0]):
        return replace(found, share_read=1.0), 0
    plans = [pair.plans() for pair in twins]
    cost = sum(map(_cost, plans))
    if allowance is not None and cost > allowance:
        return found, 0
    differing = sum(not pair.equal(planned) for pair, planned in zip(twins, plans, strict=True))
    return replace(found, tensors=len(twins), identical=len(twins) - differing, share_read=1.0), cost


def _by_name(a: Checkpoint, b: Checkpoint) -> list[_Twins] | None:
    if a.tensors.keys() != b.tensors.keys():
        return None
    found = []
    for name in sorted(a.tensors):
        one, two = a.tensors[name], b.tensors[name]
        if one.shape != two.shape or one.dtype != two.dtype:
            return None
        found.append(_Twins((_Stored(a, one), _Stored(b, two))))
    return found


def _by_role(a: Model, b: Model) -> list[_Twins] | None:
    """Pair what plays the same part, None if either model has anything else or anything stored in another way."""
    parts = [dict(model.parts) for model in (a, b)]
    for model in (a, b):
        if model.naming.unmapped or any(item.reason not in _NO_WEIGHTS for item in model.naming.excluded):
            return None
    head, embedding = (Role.HEAD, None, None), (Role.EMBEDDING, None, None)
    found = []
    for side, model in enumerate((a, b)):
        own, other = parts[side], parts[1 - side]
        if head in own and head not in other and embedding in own:  # the other's is tied
            found.append(((model, own.pop(head)), (model, own[embedding])))
    if parts[0].keys() != parts[1].keys():
        return None
    found += [((a, part), (b, parts[1][key])) for key, part in parts[0].items()]
    twins = [_twins(one, two) for one, two in found]
    return None if None in twins else [pair for pair in twins if pair is not None]


def _twins(one: tuple[Model, RoleTensor], two: tuple[Model, RoleTensor]) -> _Twins | None:
    """Pair two tensors that could be the same bytes; None if they cannot."""
    stored = [model.checkpoint.tensors[part.name] for model, part in (one, two)]
    if one[1].shape != two[1].shape or one[1].offset != two[1].offset or stored[0].dtype != stored[1].dtype:
        return None
    if any(part.transposed for _, part in (one, two)):
        return None
    left, right = (
        _Stored(model.checkpoint, tensor, part.rows) for (model, part), tensor in zip((one, two), stored, strict=True)
    )
    return _Twins((left, right))
