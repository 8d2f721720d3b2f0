"""Appendix D of the bias study, recomputed: two models layer by layer."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinprint.arch import Role
from kinprint.studies.bias.facts import COSINE, INPUT, PEARSON, model_pairs, published_case, vector_roles
from kinprint.studies.bias.matrices import SUMMARY, LayerGrid, layer_grid
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Check, Section, Trust, columns
from kinprint.studies.published import WRONG_D2, layerwise, published
from kinprint.text import Text

WRONG_OFF = Text(
    "Appendix D-2: with layer 0 on one side the cosine has to be about 0.37, for its spread alone; elsewhere it is "
    "0.97 and more"
)
WRONG_SPREAD = Text(
    "Appendix D-2: the first layers alone make the spread some hundred times (different layers: fifty times) as large"
)
WRONG_OFF_R = Text(
    "Appendix D-2: nobody else measured this pair of layers; it is one entry of a table whose measured entries are wrong"
)
SPREAD_R = Text("Appendix D-2: two readers measured 0.0158")
UNCONSTRAINED = Text("not fixed by the replicas")
COUNTED_47 = Text(
    "over 47 layers, the last of which is a block of GLM that only predicts further tokens; here over 46, which is not the "
    "same number"
)
_DIAGONAL_STEP = 5
_SAMPLES = ((0, 23), (10, 30), (20, 5), (25, 40), (35, 10), (46, 0))
_COLUMNS = columns(
    "layer_a: layer of A; layer_b: layer of B; cosine .4; cosine_null: cosine if independent .4; "
    "published_cosine: cosine as published .4; pearson: Pearson .4; z .2; published_pearson: Pearson as published .4"
)


def appendix_d(run: StudyRun) -> Section:
    """Repeat appendix D: the same layer, samples of different layers, and a summary, for the first two models."""
    section = Section()
    a, b = model_pairs(run)[0]
    for role in vector_roles(run, (INPUT,), section.missing):
        attempt(section.missing, partial(_one_d, run, section, a, b, role), sides(a, b))
    return section


def _one_d(run: StudyRun, section: Section, a: str, b: str, role: Role) -> None:
    grid = layer_grid(run, a, b, role)
    named = {"a": a, "b": b, "role": role.value}
    original = (a, b) == ("Solar", "GLM") and published_case(run, role, a, b)
    printed = _printed(published()["sionic_tables"]) if original else {}
    diagonal = [(layer, layer) for layer in grid.rows if layer in grid.columns]
    sampled = diagonal[::_DIAGONAL_STEP] if run.request.layers is None else diagonal
    others = [pair for pair in _SAMPLES if pair[0] in grid.rows and pair[1] in grid.columns]
    others = others if len(others) > 2 else _corners(grid.rows, grid.columns)
    for name, title, chosen in (
        ("d_same", Text("Appendix D: the same layer of {a} and {b}, {role}", **named), sampled),
        ("d_different", Text("Appendix D: different layers of {a} and {b}, {role}", **named), others),
    ):
        rows = []
        for pair in chosen:
            cosine, null, pearson, z = (
                float(getattr(grid.found, key)[grid.place(*pair)])
                for key in ("cosine", "cosine_null_mean", "pearson", "z")
            )
            said = printed.get(pair, (None, None))
            rows.append((*pair, cosine, null, said[0], pearson, z, said[1]))
        section.add_table(f"{name}_{role.value}", title, _COLUMNS, rows)
    title = Text("Appendix D: summary of {a} and {b}, {role}", **named)
    section.add_table(f"d_summary_{role.value}", title, SUMMARY, grid.summary())
    if original:
        section.checks += _layer_checks(grid, printed, replicas=run.request.replicas) + _summary_checks(run, grid)
        section.notes.append(
            Text(
                "The columns of published values show appendix D-2 as printed; the list of published figures says what "
                "is wrong with it."
            )
        )


def _corners(rows: tuple[int, ...], others: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return some different layers of models that are too shallow for the published samples."""
    middle = rows[len(rows) // 2], others[len(others) // 2]
    wanted = ((rows[0], middle[1]), (middle[0], others[0]), (rows[0], others[-1]), (rows[-1], others[0]))
    return [pair for pair in dict.fromkeys(wanted) if pair[0] != pair[1]]


def _printed(known: dict[str, Any]) -> dict[tuple[int, int], tuple[float, float]]:
    """Return (cosine, Pearson) as printed, by pair of layers."""
    same, rows = known["D2_1_diagonal"], known["D2_2_offdiag"]["rows"]
    found = {(int(x), int(x)): (c, r) for x, c, r in zip(same["layer"], same["cosine"], same["pearson"], strict=True)}
    return found | {(int(p), int(q)): (c, r) for p, q, c, r in rows}


def _layer_checks(
    grid: LayerGrid, printed: dict[tuple[int, int], tuple[float, float]], *, replicas: bool
) -> list[Check]:
    checks: list[Check] = []
    measured = layerwise("norm_pre")
    for (p, q), values in printed.items():
        if p not in grid.rows or q not in grid.columns:
            continue
        for label, value, key, known in zip(
            (COSINE, PEARSON), values, ("cosine", "pearson"), ("cosine", "cosine_centered"), strict=True
        ):
            found = float(getattr(grid.found, key)[grid.place(p, q)])
            what = Text("D-2: {measure}, Solar layer {p}, GLM layer {q}", measure=label, p=p, q=q)
            reason = WRONG_D2 if p == q else WRONG_OFF if label is COSINE else WRONG_OFF_R
            fixed = reason is not WRONG_OFF_R or not replicas
            checks.append(Check(what, value, found, trust="wrong", reason=reason, comparable=fixed))
            if p == q:
                what = Text("{measure} of layer {layer}, as reference 7 measured it", measure=label, layer=p)
                checks.append(Check(what, measured[p][known], found))
    return checks


def _summary_checks(run: StudyRun, grid: LayerGrid) -> list[Check]:
    """Compare the summary as printed; means over other layers than theirs are shown without a result."""
    known = published()["sionic_tables"]["D2_3_summary"]
    remark = UNCONSTRAINED if run.request.replicas else COUNTED_47
    remarks = {"diag_mean": COUNTED_47, "off_mean": remark, "diff": remark, "off_std": remark}
    checks = []
    for number, (label, key, wrong) in enumerate(
        (
            (COSINE, "cosine", {"diag_std": WRONG_SPREAD, "off_std": WRONG_SPREAD}),
            (PEARSON, "pearson", {"diag_std": SPREAD_R}),  # its spread over different layers nobody else measured
        )
    ):
        same, different = grid.split(key)
        for name, what, value in (
            ("diag_mean", Text("D-2: mean {measure} of the same layer", measure=label), same.mean()),
            ("off_mean", Text("D-2: mean {measure} of different layers", measure=label), different.mean()),
            (
                "diff",
                Text("D-2: difference of the two means, {measure}", measure=label),
                same.mean() - different.mean(),
            ),
            ("diag_std", Text("D-2: spread of {measure}, same layer", measure=label), same.std()),
            ("off_std", Text("D-2: spread of {measure}, different layers", measure=label), different.std()),
        ):
            trust: Trust = "wrong" if name in wrong else "text"
            reason = wrong.get(name) or remarks.get(name)
            printed, compared = known[name][number], name in wrong
            checks.append(Check(what, printed, float(value), 4, trust, reason, comparable=compared))
    return checks
