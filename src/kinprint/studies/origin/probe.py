"""What the window probe found: its tables, the published figures beside them, and the published script's score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import (
    COSINE,
    EVERY,
    NORMS,
    STATISTIC,
    accused,
    control_pairs,
    count_check,
    is_published,
    norm_pair,
    origin,
    summarised,
)
from kinprint.studies.origin.sigma import compute
from kinprint.studies.origin.windows import (
    COUNT,
    LENGTH,
    MISMATCH,
    MISSING,
    ROLES,
    TENSORS,
    USED,
    WindowRow,
    expected_magnitude,
    measure,
)
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, Trust, columns, table
from kinprint.studies.published import NEEDS_FULL
from kinprint.text import Text

CONTROL_ROLES = (Role.ATTN_K, Role.ATTN_V, Role.ATTN_Q, Role.ATTN_O, Role.ROUTER)
OTHER_WINDOWS = Text("the published windows lie elsewhere in the tensors: two samples can agree only so far")
LARGE = Text("thousands, from values stored in 32 bits: hundredths can agree")
OVERLAP = Text("three windows of half the tensor overlap: elements were counted more than once")
THRICE = Text("the whole tensor was read three times and each element counted three times; the report says 262,144")
RMSE = Text("relative RMSE")
_ROWS = columns(
    "layer; role; status; shape_a: shape A; shape_b: shape B; n: elements; cosine .5; pearson: Pearson .5; "
    "rel_rmse: relative RMSE .4; rows_cosine: cosine, whole rows .5; null_mean: if independent .5; null_sd: its sd .5; z .2; "
    "identical: windows equal byte for byte; constant: windows constant on a side; windows; "
    "sha256_a: SHA-256 of A’s first window; sha256_b: SHA-256 of B’s first window"
)
_SUMMARY = columns(
    "pair; role; status; layers; n: elements each; mean: mean cosine .5; sd: sd over layers .5; min: least .5; "
    "max: greatest .5; magnitude: mean |cosine| .5; magnitude_null: mean |cosine| if independent .5; "
    "rel_rmse: mean relative RMSE .3; z: root mean square z .2; identical: windows equal byte for byte; "
    "constant: windows constant on a side"
)


def window_probe(run: StudyRun) -> Section:
    """Compare windows of the large tensors (part B)."""
    section = Section()
    a, b = accused(run)
    first = f"{a}–{b}"
    rows = list(measure(run, a, b, _shared(run, a, b), run.request.roles or ROLES))
    compared = {first: rows}
    for one, control in control_pairs(run):
        found = _control(run, one, control, section.missing)
        if found:
            compared[f"{one}–{control}"] = found
    section.add_table("window_summary", Text("By tensor"), _SUMMARY, _summary_rows(compared))
    title = Text("Every tensor and layer, {a} (A) against {b} (B)", a=a, b=b)
    section.add_table("windows", title, _ROWS, [_row(row) for row in rows], shown=16)
    section.notes += _notes(run, compared)
    shown = {name: [row for row in found if row.cosine is not None] for name, found in compared.items()}
    if shown[first]:
        _add_pictures(section, a, b, shown)
    if is_published(run, a, b):
        section.checks += window_checks(rows, full=run.request.full)
    means = _norm_means(run, a, b)
    if means is not None:
        attention = column_of([row for row in rows if row.plan.role in (Role.ATTN_K, Role.ATTN_V)], "cosine")
        attention_mean = float(attention.mean()) if attention.size else None
        score, total = score_table(*means, attention_mean, sum(row.identical for row in rows))
        section.tables.append(score)
        if is_published(run, a, b):
            what = Text("the “definitive” script’s score, recomputed by its rules")
            section.checks.append(count_check(what, 40.0, float(total), "text"))
    return section


def _shared(run: StudyRun, a: str, b: str) -> list[int]:
    asked = run.request.layers
    return [layer for layer in range(min(run.depth(a), run.depth(b))) if asked is None or layer in asked]


def _control(run: StudyRun, a: str, b: str, missing: list[Text]) -> list[WindowRow]:
    """Return the rows of a control on every fifth layer; none where its width differs, or nothing is stored in the windows."""
    n, m = run.width(a), run.width(b)
    if n != m:
        missing.append(Text("windows of {a} and {b} are not comparable: width {n} and {m}", a=a, b=b, n=n, m=m))
        return []
    roles = [role for role in CONTROL_ROLES if not run.request.roles or role in run.request.roles]
    try:
        rows = list(measure(run, a, b, _shared(run, a, b)[::EVERY], roles))
    except (Missing, DegenerateInput) as error:
        missing.append(Text("windows of {a} and {b}: {why}", a=a, b=b, why=error.message))
        return []
    if any(row.cosine is not None for row in rows):
        return rows
    missing.append(
        Text("windows of {a} and {b}: no tensor that both have in one shape and that is not all zero", a=a, b=b)
    )
    return []


def _add_pictures(section: Section, a: str, b: str, shown: dict[str, list[WindowRow]]) -> None:
    caption = Text(
        "Cosines of the windows of {a} and {b} by tensor, one for each layer. Grey: 95 % of independent pairs, "
        "averaged over layers; ticks: for norms and biases, each layer’s mean if independent.",
        a=a,
        b=b,
    )
    name = f"{a}–{b}"
    section.add_picture("window_histograms", caption, "origin.figures.window_histograms", name, shown[name])
    caption = Text("Mean |cosine| by tensor and pair, on a logarithmic axis, beside that of independent pairs.")
    section.add_picture("window_magnitudes", caption, "origin.figures.window_magnitudes", shown)


def _notes(run: StudyRun, compared: dict[str, list[WindowRow]]) -> list[Text]:
    rows = next(iter(compared.values()))
    notes = [
        Text(
            "Matrices: {count} windows of {length} elements at places given by a hash of the tensor’s name, the first "
            "{used} of each used; windows that overlap are merged. Norms and biases are read whole and once. "
            "{identical} of {windows} windows are equal byte for byte (SHA-256); {constant} more are constant on a side and "
            "not counted.",
            count=COUNT,
            length=LENGTH,
            used=LENGTH if run.request.full else USED,
            **{name: sum(getattr(row, name) for row in rows) for name in ("identical", "windows", "constant")},
        ),
        Text(
            "The null permutes the residual dimensions (columns; rows of the attention output; experts of a bias) of "
            "one side, on the whole rows that lie in the windows. Mean and sd are exact. A cosine near 0 is what "
            "independent matrices have; a script that reads it as “retrained”, and a high norm cosine as “copied”, "
            "finds descent in any pair."
        ),
    ]
    holes = {pair: dict.fromkeys(r.plan.role.value for r in found if r.constant) for pair, found in compared.items()}
    listed = "; ".join(f"{pair}: {', '.join(roles)}" for pair, roles in holes.items() if roles)
    if run.request.replicas and listed:  # holes read as zero
        notes.append(
            Text(
                "Not modelled in the replicas where these windows lie, in some layers or all, and zero there: {listed}. "
                "Nothing follows from it for the models.",
                listed=listed,
            )
        )
    return notes


def _row(row: WindowRow) -> tuple[Cell, ...]:
    shapes = (None if shape is None else "×".join(map(str, shape)) for shape in row.plan.shapes)
    values = (getattr(row, item.key) for item in _ROWS[5:16])
    return row.plan.layer, row.plan.role.value, row.status, *shapes, *values, *row.hashes


def column_of(rows: Sequence[WindowRow], name: str) -> FloatArray:
    """Return one field of all rows that have it."""
    return np.array([value for row in rows if (value := getattr(row, name)) is not None], dtype=np.float64)


def _summary_rows(compared: dict[str, list[WindowRow]]) -> list[tuple[Cell, ...]]:
    groups: dict[tuple[str, Role], dict[Text, list[WindowRow]]] = {}
    for pair, found in compared.items():
        for row in found:
            groups.setdefault((pair, row.plan.role), {}).setdefault(row.status, []).append(row)
    return [_summary_row(pair, role, rows) for (pair, role), by_status in groups.items() for rows in by_status.values()]


def _summary_row(pair: str, role: Role, rows: Sequence[WindowRow]) -> tuple[Cell, ...]:
    cosines, scores = column_of(rows, "cosine"), column_of(rows, "z")
    found: list[Cell] = [None] * 8
    if cosines.size:
        root = math.sqrt(float(np.square(scores).mean())) if scores.size else None
        error = float(column_of(rows, "rel_rmse").mean())
        magnitude = float(np.abs(cosines).mean()), expected_magnitude(rows)
        found = [*summarised(cosines).values(), *magnitude, error, root]
    counts = sum(row.identical for row in rows), sum(row.constant for row in rows)
    return pair, role.value, rows[0].status, len(rows), rows[0].n, *found, *counts


# -- published figures -------------------------------------------------------------------------------------------------


def window_checks(rows: Sequence[WindowRow], *, full: bool) -> list[Check]:
    """Return the published statistics of the windows beside the measured ones."""
    checks: list[Check] = []
    for role, name in TENSORS.items():
        chosen = [row for row in rows if row.plan.role is role]
        if len(chosen) != 46:
            continue  # other layers or roles were asked for
        measured = [row for row in chosen if row.cosine is not None]
        for entry in origin()["sampled_windows"][name]:
            missing = entry["status"].startswith("missing")
            if missing or "cosine" not in entry:
                count = sum(row.status == (MISSING if missing else MISMATCH) for row in chosen)
                what = Text("layers with the status “{status}”, {role}", status=entry["status"], role=role.value)
                checks.append(count_check(what, entry["count"], float(count)))
                continue
            what = Text("layers compared, {role}", role=role.value)
            checks.append(count_check(what, entry["count"], float(len(measured))))
            checks += _role_checks(role, entry, measured, full=full) if measured else []
    return checks


def _role_checks(role: Role, entry: dict[str, Any], rows: Sequence[WindowRow], *, full: bool) -> list[Check]:
    """Compare a role's published statistics; windows of fewer elements than published bear out only the means."""
    matrix, norm = role.info.kind == "matrix", role.info.kind == "norm"
    reason, whole = OTHER_WINDOWS if matrix else None, full or not matrix
    checks: list[Check] = []

    def add(what: Text, known: float, value: float, remark: Text | None, within: float | None, told: bool) -> None:
        shown, why = (value, remark) if told else (None, NEEDS_FULL)
        checks.append(Check(what, known, shown, reason=why, within=within))

    for name, key, within, remark in (
        (COSINE, "cosine", 1e-3 if matrix else None, reason),
        (RMSE, "rel_rmse", None if norm else 1e-2, reason if matrix or norm else LARGE),
    ):
        for statistic, value in summarised(column_of(rows, key)).items():
            named = {"statistic": STATISTIC[statistic], "measure": name, "role": role.value}
            what = Text("{statistic} of the {measure}, {role}, windows", **named)
            add(what, entry[key][statistic], value, remark, within, whole or statistic == "mean")
    magnitude = float(np.abs(column_of(rows, "cosine")).mean())
    what = Text("mean |cosine|, {role}, windows", role=role.value)
    add(what, float(entry["mean_abs_cosine"]), magnitude, reason, 1e-3 if matrix else None, whole)
    stored = min(math.prod(shape) for shape in rows[0].plan.shapes if shape is not None)
    trust: Trust = "wrong" if entry["n_counted"] > stored else "measured"
    why = (OVERLAP if matrix else THRICE) if trust == "wrong" else None if whole else NEEDS_FULL
    counted = float(max(row.n for row in rows)) if whole else None
    what = Text("elements counted, {role}", role=role.value)
    return [*checks, count_check(what, float(entry["n_counted"]), counted, trust, why)]


# -- the score of the “definitive” script ----------------------------------------------------------------------------------

BANDS = (
    (100, Text("“definitive proof”")),
    (50, Text("“strong evidence”")),
    (20, Text("“moderate, not conclusive”")),
    (0, Text("“weak or none”")),
)


def score_table(
    norm_mean: float, within_mean: float, attention_mean: float | None, identical: int
) -> tuple[Table, int]:
    """Return the “definitive” script's score by its own rules, and what each rule gave."""
    norm_points = (30 if norm_mean > within_mean + 0.05 else 10) if norm_mean > 0.95 else 0
    attention_points = 10 if attention_mean is not None and abs(attention_mean) < 0.01 else 0
    points = (100 if identical else 0, norm_points, attention_points)
    total = sum(points)
    band = next(name for least, name in BANDS if total >= least)
    rows: list[tuple[Cell, ...]] = [
        (Text("identical bytes anywhere (constant windows apart): 100"), float(identical), points[0]),
        (Text("mean norm cosine above 0.95: 30 if 0.05 above the baseline, else 10"), norm_mean, points[1]),
        (Text("mean attention cosine within 0.01 of 0: 10"), attention_mean, points[2]),
        (Text("total, {band}", band=band), None, total),
    ]
    title = Text("The “definitive” script’s score by its own rules, of 100")
    return table("score", title, columns("rule; value .4; points"), rows), total


def _norm_means(run: StudyRun, a: str, b: str) -> tuple[float, float] | None:
    """Return the mean cosine over both norms and all layers, and the layer-0 baseline within B; None if not to be had."""
    try:
        cosines = np.concatenate([norm_pair(run, a, b, role).cosine for role in NORMS])
        return float(cosines.mean()), float(compute(run, a, b).within_b.mean())
    except (Missing, DegenerateInput):
        return None
