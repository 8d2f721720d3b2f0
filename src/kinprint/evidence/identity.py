"""Check that two models are identical: by the hub's content tags, or byte for byte as far as the budget lets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kinprint.arch import Role, RoleTensor
from kinprint.evidence.facts import Identity
from kinprint.formats.checkpoint import Checkpoint, execute_together
from kinprint.formats.plan import ReadPlan, Run, plan_reads, rows, whole
from kinprint.formats.tensors import TensorInfo
from kinprint.model.model import Model
from kinprint.model.reader import take_rows

BATCH_BYTES = 32_000_000  # of one side, held at a time


@dataclass(frozen=True)
class _Stored:
    """A stored tensor of one side, or those of its rows that play a role."""

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


StoredPair = tuple[_Stored, _Stored]
PlanPair = tuple[ReadPlan, ReadPlan]


def confirm_identity(models: tuple[Model, Model], found: Identity, allowance: int | None) -> tuple[Identity, int]:
    """Compare everything where slices were all equal. Return the identity as now known, and the bytes read."""
    # Tensors are paired by name, or, in files of different make, by role; a head that is stored here and tied there has to be
    # a copy of the embedding beside it.
    a, b = (model.checkpoint for model in models)
    pairs = _by_name(a, b) or _by_role(*models)
    if pairs is None:
        return replace(found, same_structure=False), 0
    tags = [[(file.size, file.identity) for file in side.files] for side in (a, b)]
    same_place = (a.provenance.kind, a.provenance.location) == (b.provenance.kind, b.provenance.location)
    on_hub = a.provenance.kind == b.provenance.kind == "hub"
    content_tags = on_hub and all(identity.startswith("etag:") for _, identity in tags[0])
    if tags[0] == tags[1] and (same_place or content_tags):
        return replace(found, tensors=len(pairs), identical=len(pairs), share_read=1.0), 0
    plans = [_plans(*pair) for pair in pairs]
    cost = sum(map(_cost, plans))
    if allowance is not None and cost > allowance:
        return found, 0
    identical = sum(map(_equal, plans, pairs))
    return replace(found, tensors=len(pairs), identical=identical, share_read=1.0), cost


def _plans(one: _Stored, two: _Stored) -> list[PlanPair]:
    """Plan to read some rows at a time; all at once where that takes fewer bytes (a compressed array has no rows)."""
    count, nbytes = one.count, one.tensor.nbytes + two.tensor.nbytes
    step = max(1, 2 * count * BATCH_BYTES // max(nbytes, 1))
    at_once = [(one.plan(None), two.plan(None))]
    if step >= count:
        return at_once
    runs = [(start, min(count, start + step)) for start in range(0, count, step)]
    cut = [(one.plan(run), two.plan(run)) for run in runs]
    return cut if _cost(cut) <= _cost(at_once) else at_once


def _cost(plans: Iterable[PlanPair]) -> int:
    return sum(plan.nbytes for pair in plans for plan in pair)


def _equal(plans: Iterable[PlanPair], pair: StoredPair) -> bool:
    """Read two tensors, and compare their bytes."""
    for planned in plans:
        (left,), (right,) = execute_together([(x.checkpoint, plan) for x, plan in zip(pair, planned, strict=True)])
        if left.tobytes() != right.tobytes():
            return False
    return True


def _by_name(a: Checkpoint, b: Checkpoint) -> list[StoredPair] | None:
    """Pair tensors of the same name; None if names, shapes or number formats differ."""
    if a.tensors.keys() != b.tensors.keys():
        return None
    stored = [(a.tensors[name], b.tensors[name]) for name in sorted(a.tensors)]
    if any(one.shape != two.shape or one.dtype != two.dtype for one, two in stored):
        return None
    return [(_Stored(a, one), _Stored(b, two)) for one, two in stored]


def _by_role(a: Model, b: Model) -> list[StoredPair] | None:
    """Pair tensors of the same role; None if either model has others, or they could not be the same bytes."""
    parts = [dict(model.parts) for model in (a, b)]
    for model in (a, b):
        if model.naming.unmapped or not all(item.optional for item in model.naming.excluded):
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
    pairs = [(_stored(*one), _stored(*two)) for one, two in found if _comparable(*one, *two)]
    return pairs if len(pairs) == len(found) else None


def _comparable(a: Model, one: RoleTensor, b: Model, two: RoleTensor) -> bool:
    """Whether two tensors could be the same bytes."""
    dtypes = a.checkpoint.tensors[one.name].dtype, b.checkpoint.tensors[two.name].dtype
    alike = one.shape == two.shape and one.offset == two.offset and dtypes[0] == dtypes[1]
    return alike and not (one.transposed or two.transposed)


def _stored(model: Model, part: RoleTensor) -> _Stored:
    return _Stored(model.checkpoint, model.checkpoint.tensors[part.name], part.rows)
