"""The part of the metrics study that looks at layer 0: raw cosine of early layers with later ones of the same model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.stats import row_grid
from kinprint.studies.metrics.checks import console_checks
from kinprint.studies.metrics.plan import roles_of
from kinprint.studies.opened import Stage, Want, attempt
from kinprint.studies.outcome import Cell, Section, column, picture, table
from kinprint.text import Text

ZERO_ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)


def _zero_layers(stage: Stage, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return first layers and the layers they are set against: 0 and 10 against 15 and 20, or what a shallow model has."""
    depth = stage.depth(name)
    if stage.request.layers is not None:
        return (0,), tuple(layer for layer in stage.request.layers if 0 < layer < depth)
    if depth > 20:
        return (0, 10), (15, 20)
    return (0, max(1, depth // 4)), tuple(sorted({depth // 2, depth - 1} - {0, 1}))


def _zero_roles(stage: Stage) -> list[Role]:
    return [role for role in roles_of(stage) if role.info.kind == "norm"] or list(ZERO_ROLES)


def layer_zero(stage: Stage) -> Section:
    """Cosine of an early layer with later ones, within each model."""
    section = Section(
        notes=[
            Text(
                "Raw cosine of layer 0 with later layers is low where layer 0 has a large spread for its mean; the null, which "
                "knows only means and spreads, is as low."
            )
        ]
    )
    rows: list[tuple[Cell, ...]] = []
    for name, role in itertools.product(stage.names, _zero_roles(stage)):
        attempt(section.missing, partial(_zero_rows, stage, name, role, rows))
    if rows:
        columns = (
            *(column(key, key) for key in ("model", "role")),
            column("layer_a", "layer A"),
            column("layer_b", "layer B"),
            column("cosine", "cosine", 4),
            column("null_mean", "null mean", 4),
            column("null_sd", "null sd", 4),
            column("pearson", "Pearson", 4),
            column("z", "z", 1),
            column("log10_p", "log10 p", 1),
            column("cv_a", "CV of A", 3),
            column("cv_b", "CV of B", 3),
        )
        section.tables.append(table("layer_zero", Text("Layers of one model against each other"), columns, rows))
        caption = Text(
            "Cosine of two layers of one model, for the pairs of layers named below. Grey: 95 % of permutations of one of them."
        )
        section.pictures.append(picture("layer_zero", caption, "metrics.figures.layer_zero", rows))
    cosines = {(str(r[0]), Role(str(r[1])), int(str(r[2])), int(str(r[3]))): float(str(r[4])) for r in rows}
    section.checks += console_checks(stage, cosines)
    return section


def _zero_rows(stage: Stage, name: str, role: Role, rows: list[tuple[Cell, ...]]) -> None:
    first, later = _zero_layers(stage, name)
    layers, values = stage.stack(name, role, (*first, *later))
    pairs = row_grid(values, values)
    with np.errstate(divide="ignore"):
        cv = values.std(axis=1) / np.abs(values.mean(axis=1))
    for a, b in itertools.product(first, later):
        if a < b and a in layers and b in layers:
            i, j = layers.index(a), layers.index(b)
            numbers = (
                pairs.cosine[i, j],
                pairs.cosine_null_mean[i, j],
                pairs.cosine_null_sd[i, j],
                pairs.pearson[i, j],
                pairs.z[i, j],
                pairs.log10_p[i, j],
                cv[i],
                cv[j],
            )
            rows.append((name, role.value, a, b, *(float(x) for x in numbers)))


def zero_wants(stage: Stage) -> Iterator[Want]:
    """Yield the vectors that `layer_zero` looks at."""
    for name, role in itertools.product(stage.names, _zero_roles(stage)):
        first, later = _zero_layers(stage, name)
        yield from (Want(name, role, layer) for layer in (*first, *later))
