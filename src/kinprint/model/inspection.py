"""Describe one model: architecture, stored tensors, norms layer by layer, and tensors without a role."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from kinprint._util.cycles import no_collection
from kinprint._util.progress import Progress
from kinprint.arch import RoleTensor
from kinprint.formats.plan import MAX_GAP_BYTES
from kinprint.model.model import Model, open_model
from kinprint.model.reader import Want
from kinprint.refs import path_text
from kinprint.results.inspection import Inspection, NormStatistics, RoleInventory
from kinprint.results.options import Options
from kinprint.results.result import SCHEMA_VERSION
from kinprint.sources.session import Session, running
from kinprint.sources.settings import Settings


def inspect(
    model: str | Path,
    options: Options | None = None,
    *,
    norms: bool = True,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Inspection:
    """Open a model and describe it. Reads headers, config and (unless `norms` is False) the norm weights.

    An adapter is described by itself, or merged if the options name its base.

    Parameters
    ----------
    model : hub id, folder, file or URL.
    options : budget, files and bases; the others do not matter here.
    norms : whether to read norm weights.
    settings, session, progress, chosen : as for `kinprint.compare`.
    """
    options = Options.of(options, **chosen).check()
    with running(options, settings, session) as run, no_collection():
        opened = open_model(path_text(model), run, alone=not run.bases)
        run.require_files()
        if progress is not None:
            progress("reading norms", 0, 1)
        return Inspection(
            schema=Inspection.SCHEMA,
            schema_version=SCHEMA_VERSION,
            model=opened.summary(),
            roles=_inventory(opened),
            norms=_norm_statistics(opened) if norms else (),
            bytes_read=run.bytes_delivered,
            requests=run.traffic.requests,
        )


def _inventory(model: Model) -> tuple[RoleInventory, ...]:
    groups: dict[tuple[str, tuple[int, ...], str], list[RoleTensor]] = {}
    sizes: Counter[tuple[str, tuple[int, ...], str]] = Counter()
    for part in model.naming.tensors:
        dtype, nbytes, elements = model.checkpoint.tensors.size_of(part.name)
        kind = part.role.value, part.shape, dtype
        groups.setdefault(kind, []).append(part)
        sizes[kind] += nbytes * math.prod(part.shape) // max(1, elements)  # several may share one tensor
    lines = []
    for (role, shape, dtype), parts in groups.items():
        size = sizes[role, shape, dtype]
        layers = {part.layer for part in parts if part.layer is not None}
        fused = any(part.rows is not None for part in parts)
        lines.append(RoleInventory(role, len(parts), len(layers), shape, dtype, size, fused, parts[0].name))
    return tuple(lines)


def _norm_statistics(model: Model) -> tuple[NormStatistics, ...]:
    parts = [part for part in model.naming.tensors if part.role.info.kind == "norm"]
    samples = model.read([Want(*part.key) for part in parts], max_gap_bytes=MAX_GAP_BYTES)
    lines = []
    for part, sample in zip(parts, samples, strict=True):
        values = sample.values.ravel()
        finite = values[np.isfinite(values)]
        size, bad = int(values.size), int(values.size - finite.size)
        figures: list[float | None] = [None] * 5
        if finite.size:
            mean, std = float(finite.mean()), float(finite.std())
            figures = [mean, std, float(finite.min()), float(finite.max()), std / abs(mean) if mean else None]
        lines.append(NormStatistics(part.role.value, part.layer, size, bad, *figures))
    return tuple(lines)
