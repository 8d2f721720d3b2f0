"""Whether two models are the same throughout: by the hub's content tags, or byte for byte as far as the budget lets."""

from __future__ import annotations

from dataclasses import replace

from kinprint.evidence.verdict import Identity
from kinprint.formats.checkpoint import execute_together
from kinprint.formats.plan import plan_reads, whole
from kinprint.model import Model

BATCH_BYTES = 64_000_000  # of one side, held at a time


def confirm_identity(models: tuple[Model, Model], found: Identity, allowance: int | None) -> tuple[Identity, int]:
    """Look at everything where slices were all equal. Returns the identity as now known, and the bytes it took."""
    a, b = (model.checkpoint for model in models)
    if a.tensors.keys() != b.tensors.keys():
        return replace(found, same_structure=False), 0
    if any(a.tensors[n].shape != b.tensors[n].shape or a.tensors[n].dtype != b.tensors[n].dtype for n in a.tensors):
        return replace(found, same_structure=False), 0
    tags = [[(file.size, file.identity) for file in side.files] for side in (a, b)]
    tagged = all(side.provenance.kind == "hub" for side in (a, b))
    if tagged and tags[0] == tags[1] and all(identity.startswith("etag:") for _, identity in tags[0]):
        return replace(found, share_read=1.0), 0
    cost = sum(tensor.nbytes for side in (a, b) for tensor in side.tensors.values())
    if allowance is not None and cost > allowance:
        return found, 0
    names, differing, batch, size = sorted(a.tensors), 0, [], 0
    for position, name in enumerate(names):
        batch.append(name)
        size += a.tensors[name].nbytes
        if size >= BATCH_BYTES or position + 1 == len(names):
            plans = [(side, plan_reads([whole(side.tensors[n]) for n in batch])) for side in (a, b)]
            left, right = execute_together(plans)
            differing += sum(x.tobytes() != y.tobytes() for x, y in zip(left, right, strict=True))
            batch, size = [], 0
    return replace(found, tensors=len(names), identical=len(names) - differing, share_read=1.0), cost
