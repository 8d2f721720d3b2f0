"""What the window probe found: its tables, the published figures beside them, and the published script's score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.studies.opened import Stage
from kinprint.studies.origin.score import norm_means, score_table
from kinprint.studies.origin.shared import EVERY, accused, controls, count_check, is_published, summarised
from kinprint.studies.origin.window_checks import column_of, window_checks
from kinprint.studies.origin.windows import COUNT, LENGTH, ROLES, USED, WindowRow, expected_magnitude, measure
from kinprint.studies.outcome import Cell, Missing, Picture, Section, Table, column, picture, table
from kinprint.text import Text

CONTROL_ROLES = (Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q, Role.ATTN_O, Role.ROUTER)


def window_probe(stage: Stage) -> Section:
    """Part B."""
    section = Section()
    a, b = accused(stage)
    layers = _shared(stage, a, b)
    rows = list(measure(stage, a, b, layers, stage.request.roles or ROLES))
    compared = {f"{a}–{b}": rows}
    for control in controls(stage):
        for first in (a, b):
            found = _control(stage, first, control, section.missing)
            if found:
                compared[f"{first}–{control}"] = found
    section.tables += [_summary_table(compared), _row_table(a, b, rows)]
    identical = sum(row.identical for row in rows)
    section.notes += _notes(stage, rows)
    if stage.request.replicas:
        section.notes += _holes(compared)
    shown = {name: [row for row in found if row.cosine is not None] for name, found in compared.items()}
    if shown[f"{a}–{b}"]:
        section.pictures += _pictures(a, b, shown)
    published = is_published(stage, a, b)
    if published:
        section.checks += window_checks(rows, full=stage.request.full)
    means = norm_means(stage, a, b)
    if means is not None:
        score, total = score_table(*means, _attention_mean(rows), identical)
        section.tables.append(score)
        if published:
            section.checks.append(
                count_check(
                    Text("the “definitive” script’s score, recomputed by its rules"), 40.0, float(total), "text"
                )
            )
    return section


def _shared(stage: Stage, a: str, b: str) -> list[int]:
    layers = list(range(min(stage.depth(a), stage.depth(b))))
    asked = stage.request.layers
    return layers if asked is None else [layer for layer in layers if layer in asked]


def _control(stage: Stage, first: str, control: str, missing: list[Text]) -> list[WindowRow]:
    """Return the rows of a control on every fifth layer; none where its width differs, or nothing is stored in the windows."""
    widths = stage.width(first), stage.width(control)
    if widths[0] != widths[1]:
        missing.append(
            Text(
                "windows of {a} and {b} are not comparable: width {n} and {m}",
                a=first,
                b=control,
                n=widths[0],
                m=widths[1],
            )
        )
        return []
    roles = [role for role in CONTROL_ROLES if not stage.request.roles or role in stage.request.roles]
    try:
        rows = list(measure(stage, first, control, _shared(stage, first, control)[::EVERY], roles))
    except (Missing, DegenerateInput) as error:
        missing.append(Text("windows of {a} and {b}: {why}", a=first, b=control, why=error.message))
        return []
    if not any(row.cosine is not None for row in rows):
        missing.append(
            Text(
                "windows of {a} and {b}: no tensor that both have in one shape and that is not all zero",
                a=first,
                b=control,
            )
        )
        return []
    return rows


def _pictures(a: str, b: str, shown: dict[str, list[WindowRow]]) -> list[Picture]:
    return [
        picture(
            "window_histograms",
            Text(
                "Cosines of the windows of {a} and {b} by tensor, one for each layer. Grey: 95 % of independent pairs, "
                "averaged over layers; ticks: for norms and biases, each layer’s mean if independent.",
                a=a,
                b=b,
            ),
            "origin.figures.window_histograms",
            f"{a}–{b}",
            shown[f"{a}–{b}"],
        ),
        picture(
            "window_magnitudes",
            Text("Mean |cosine| by tensor and pair, on a logarithmic axis, beside that of independent pairs."),
            "origin.figures.window_magnitudes",
            shown,
        ),
    ]


def _holes(compared: dict[str, list[WindowRow]]) -> list[Text]:
    """Return which tensors the replicas do not model in the windows read: holes, which read as zero."""
    found = {
        pair: dict.fromkeys(row.plan.role.value for row in rows if row.constant) for pair, rows in compared.items()
    }
    listed = "; ".join(f"{pair}: {', '.join(roles)}" for pair, roles in found.items() if roles)
    if not listed:
        return []
    return [
        Text(
            "Not modelled in the replicas where these windows lie, in some layers or all, and zero there: {listed}. "
            "Nothing follows from it for the models.",
            listed=listed,
        )
    ]


def _notes(stage: Stage, rows: Sequence[WindowRow]) -> list[Text]:
    used = LENGTH if stage.request.full else USED
    return [
        Text(
            "Matrices: {count} windows of {length} elements at places given by a hash of the tensor’s name, the first "
            "{used} of each used; windows that overlap are merged. Norms and biases are read whole and once. "
            "{identical} of {windows} windows are equal byte for byte (SHA-256); {constant} more are constant on a side and "
            "not counted.",
            count=COUNT,
            length=LENGTH,
            used=used,
            identical=sum(row.identical for row in rows),
            constant=sum(row.constant for row in rows),
            windows=sum(row.windows for row in rows),
        ),
        Text(
            "The null permutes the residual dimensions (columns; rows of the attention output; experts of a bias) of "
            "one side, on the whole rows that lie in the windows. Mean and sd are exact. A cosine near 0 is what "
            "independent matrices have; a script that reads it as “retrained”, and a high norm cosine as “copied”, "
            "finds descent in any pair."
        ),
    ]


# -- tables ------------------------------------------------------------------------------------------------------------

_ROW_COLUMNS = (
    column("layer", "layer"),
    column("role", "role"),
    column("status", "status"),
    column("shape_a", "shape A"),
    column("shape_b", "shape B"),
    column("n", "elements"),
    column("cosine", "cosine", 5),
    column("pearson", "Pearson", 5),
    column("rel_rmse", "relative RMSE", 4),
    column("rows_cosine", "cosine, whole rows", 5),
    column("null_mean", "if independent", 5),
    column("null_sd", "its sd", 5),
    column("z", "z", 2),
    column("identical", "windows equal byte for byte"),
    column("constant", "windows constant on a side"),
    column("windows", "windows"),
    column("sha256_a", "SHA-256 of A’s first window"),
    column("sha256_b", "SHA-256 of B’s first window"),
)


def _row_table(a: str, b: str, rows: Sequence[WindowRow]) -> Table:
    cells: list[list[Cell]] = [
        [
            row.plan.layer,
            row.plan.role.value,
            row.status,
            *(None if shape is None else "×".join(map(str, shape)) for shape in row.plan.shapes),
            row.n,
            row.cosine,
            row.pearson,
            row.rel_rmse,
            row.rows_cosine,
            row.null_mean,
            row.null_sd,
            row.z,
            row.identical,
            row.constant,
            row.windows,
            *row.hashes,
        ]
        for row in rows
    ]
    title = Text("Every tensor and layer, {a} (A) against {b} (B)", a=a, b=b)
    return table("windows", title, _ROW_COLUMNS, cells, shown=16)


def _summary_table(compared: dict[str, list[WindowRow]]) -> Table:
    cells: list[list[Cell]] = []
    for pair, rows in compared.items():
        for role in dict.fromkeys(row.plan.role for row in rows):
            chosen = [row for row in rows if row.plan.role is role]
            for status, count in Counter(row.status.key for row in chosen).items():
                cells.append(_summary_row(pair, role, [row for row in chosen if row.status.key == status], count))
    columns = (
        column("pair", "pair"),
        column("role", "role"),
        column("status", "status"),
        column("layers", "layers"),
        column("n", "elements each"),
        column("mean", "mean cosine", 5),
        column("sd", "sd over layers", 5),
        column("min", "least", 5),
        column("max", "greatest", 5),
        column("magnitude", "mean |cosine|", 5),
        column("magnitude_null", "mean |cosine| if independent", 5),
        column("rel_rmse", "mean relative RMSE", 3),
        column("z", "root mean square z", 2),
        column("identical", "windows equal byte for byte"),
        column("constant", "windows constant on a side"),
    )
    return table("window_summary", Text("By tensor"), columns, cells)


def _summary_row(pair: str, role: Role, rows: Sequence[WindowRow], count: int) -> list[Cell]:
    cosines = column_of(rows, "cosine")
    head: list[Cell] = [pair, role.value, rows[0].status, count, rows[0].n]
    counts = sum(row.identical for row in rows), sum(row.constant for row in rows)
    if not cosines.size:
        return [*head, *[None] * 8, *counts]
    found = summarised(cosines)
    scores = [row.z for row in rows if row.z is not None]
    return [
        *head,
        found["mean"],
        found["std"],
        found["min"],
        found["max"],
        float(np.abs(cosines).mean()),
        expected_magnitude(rows),
        float(column_of(rows, "rel_rmse").mean()),
        math.sqrt(float(np.mean(np.square(scores)))) if scores else None,
        *counts,
    ]


def _attention_mean(rows: Sequence[WindowRow]) -> float | None:
    cosines = column_of([row for row in rows if row.plan.role in (Role.ATTN_K, Role.ATTN_V)], "cosine")
    return float(cosines.mean()) if cosines.size else None
