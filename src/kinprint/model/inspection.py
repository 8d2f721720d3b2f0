"""One model by itself: what it is, what it stores, its norms layer by layer, and every tensor without a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from kinprint.arch import RoleTensor
from kinprint.formats.tensors import TensorInfo
from kinprint.model.model import Model, open_model, slice_role
from kinprint.results.inspection import INSPECTION_SCHEMA, Inspection, NormStatistics, RoleInventory
from kinprint.results.options import DEFAULT_BUDGET_BYTES
from kinprint.results.report import SCHEMA_VERSION
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

Progress = Callable[[str, int, int], None]


def inspect(
    reference: str,
    *,
    norms: bool = True,
    budget_bytes: int | None = DEFAULT_BUDGET_BYTES,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Open a model and describe it. Reads headers, config and (unless `norms` is False) the norm weights.

    An adapter is described by itself, or merged if the session names its base.
    """
    with nullcontext(session) if session else Session(settings, budget_bytes=budget_bytes) as run:
        model = open_model(reference, run, alone=not run.bases)
        run.require_files()
        if progress is not None:
            progress("reading norms", 0, 1)
        return Inspection(
            schema=INSPECTION_SCHEMA,
            schema_version=SCHEMA_VERSION,
            model=model.summary(),
            roles=_inventory(model),
            norms=_norm_statistics(model) if norms else (),
            bytes_read=run.bytes_delivered,
            requests=run.traffic.requests,
        )


def _inventory(model: Model) -> tuple[RoleInventory, ...]:
    """Group tensors by role, shape and dtype, in the order of the naming."""
    groups: dict[tuple[str, tuple[int, ...], str], list[RoleTensor]] = {}
    for part in model.naming.tensors:
        dtype = model.checkpoint.tensors[part.name].dtype
        groups.setdefault((part.role.value, part.shape, dtype), []).append(part)
    lines = []
    for (role, shape, dtype), parts in groups.items():
        size = sum(_share(part, model.checkpoint.tensors[part.name]) for part in parts)
        layers = {part.layer for part in parts if part.layer is not None}
        fused = len({part.rows is not None for part in parts} & {True}) > 0
        lines.append(RoleInventory(role, len(parts), len(layers), shape, dtype, size, fused, parts[0].name))
    return tuple(lines)


def _norm_statistics(model: Model) -> tuple[NormStatistics, ...]:
    parts = [part for part in model.naming.tensors if part.role.info.kind == "norm"]
    slices = [slice_role(model, part) for part in parts]
    arrays = model.checkpoint.read([item.stored for item in slices])
    lines = []
    for part, item, raw in zip(parts, slices, arrays, strict=True):
        values = item.logical(raw).ravel()
        finite = values[np.isfinite(values)]
        bad = int(values.size - finite.size)
        if finite.size == 0:
            lines.append(
                NormStatistics(part.role.value, part.layer, int(values.size), bad, None, None, None, None, None)
            )
            continue
        mean, std = float(finite.mean()), float(finite.std())
        cv = std / abs(mean) if abs(mean) > 0 else None
        lines.append(
            NormStatistics(
                part.role.value,
                part.layer,
                int(values.size),
                bad,
                mean,
                std,
                float(finite.min()),
                float(finite.max()),
                cv,
            )
        )
    return tuple(lines)


def _share(part: RoleTensor, tensor: TensorInfo) -> int:
    """Return the stored bytes of a part: several may share one tensor."""
    return tensor.nbytes * math.prod(part.shape) // max(1, tensor.elements)
