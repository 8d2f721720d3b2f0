"""Whether two models are the same throughout: by the hub's content tags, or byte for byte as far as the budget lets."""

from __future__ import annotations

from dataclasses import replace

from kinprint.evidence.verdict import Identity
from kinprint.formats.checkpoint import Checkpoint, execute_together
from kinprint.formats.plan import plan_reads, rows, whole
from kinprint.model import Model

BATCH_BYTES = 32_000_000  # of one side, held at a time


def confirm_identity(models: tuple[Model, Model], found: Identity, allowance: int | None) -> tuple[Identity, int]:
    """Look at everything where slices were all equal. Returns the identity as now known, and the bytes it took."""
    a, b = (model.checkpoint for model in models)
    if a.tensors.keys() != b.tensors.keys():
        return replace(found, same_structure=False), 0
    if any(a.tensors[n].shape != b.tensors[n].shape or a.tensors[n].dtype != b.tensors[n].dtype for n in a.tensors):
        return replace(found, same_structure=False), 0
    tags = [[(file.size, file.identity) for file in side.files] for side in (a, b)]
    if a.provenance.kind == b.provenance.kind and a.provenance.location == b.provenance.location and tags[0] == tags[1]:
        return replace(found, share_read=1.0), 0  # the very same files
    tagged = all(side.provenance.kind == "hub" for side in (a, b))
    if tagged and tags[0] == tags[1] and all(identity.startswith("etag:") for _, identity in tags[0]):
        return replace(found, share_read=1.0), 0
    cost = sum(tensor.nbytes for side in (a, b) for tensor in side.tensors.values())
    if allowance is not None and cost > allowance:
        return found, 0
    names = sorted(a.tensors)
    differing = sum(not _equal(a, b, name) for name in names)
    return replace(found, tensors=len(names), identical=len(names) - differing, share_read=1.0), cost


def _equal(a: Checkpoint, b: Checkpoint, name: str) -> bool:
    """Compare one tensor, some rows at a time."""
    shape, nbytes = a.tensors[name].shape, a.tensors[name].nbytes
    count = shape[0] if shape else 1
    step = max(1, count * BATCH_BYTES // max(nbytes, 1))
    for start in range(0, max(count, 1), step):
        runs = [(start, min(count, start + step))]
        whole_tensor = not shape or step >= count
        slices = [whole(side.tensors[name]) if whole_tensor else rows(side.tensors[name], runs) for side in (a, b)]
        left, right = execute_together([(side, plan_reads([item])) for side, item in zip((a, b), slices, strict=True)])
        if left[0].tobytes() != right[0].tobytes():
            return False
    return True
