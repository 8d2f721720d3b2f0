"""Appendix D of the bias study, recomputed: two models layer by layer."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinprint.arch import Role
from kinprint.stats import AllPairs, all_pairs
from kinprint.studies.bias.checks import free, text_check
from kinprint.studies.bias.facts import INPUT, layer_stack, model_pairs, published_case, vector_roles
from kinprint.studies.bias.matrices import SUMMARY_COLUMNS, split_matrix, summary_rows
from kinprint.studies.opened import Stage, attempt, require_same_shape, sides
from kinprint.studies.outcome import Cell, Check, Section, column, table
from kinprint.studies.published import WRONG_D2, layerwise, published
from kinprint.text import Text, Value

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
COUNTED_47 = Text(
    "over 47 layers, the last of which is a block of GLM that only predicts further tokens; here over 46, which is not the "
    "same number"
)
_MEASURES = (Text("cosine"), Text("Pearson"))
_DIAGONAL_STEP = 5
_SAMPLES = ((0, 23), (10, 30), (20, 5), (25, 40), (35, 10), (46, 0))


# -- appendix D --------------------------------------------------------------------------------------------------------


def appendix_d(stage: Stage) -> Section:
    """Repeat appendix D: the same layer, samples of different layers, and a summary, for the first two models."""
    section = Section()
    a, b = model_pairs(stage)[0]
    for role in vector_roles(stage, (INPUT,), section.missing):
        attempt(section.missing, partial(_one_d, stage, section, a, b, role), sides(a, b))
    return section


def _one_d(stage: Stage, section: Section, a: str, b: str, role: Role) -> None:
    (rows, left), (columns, right) = layer_stack(stage, a, role), layer_stack(stage, b, role)
    require_same_shape(a, left, b, right)
    found = all_pairs(left, right)
    named: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    original = (a, b) == ("Solar", "GLM") and published_case(stage, role, a, b)
    known = published()["sionic_tables"] if original else {}
    diagonal = [(layer, layer) for layer in rows if layer in columns]
    sampled = diagonal[::_DIAGONAL_STEP] if stage.request.layers is None else diagonal
    others = [pair for pair in _SAMPLES if pair[0] in rows and pair[1] in columns]
    others = others if len(others) > 2 else _corners(rows, columns)
    for name, title, chosen in (
        ("d_same", Text("Appendix D: the same layer of {a} and {b}, {role}", **named), sampled),
        ("d_different", Text("Appendix D: different layers of {a} and {b}, {role}", **named), others),
    ):
        said = _said(known)
        section.tables.append(
            table(
                f"{name}_{role.value}",
                title,
                (
                    column("layer_a", "layer of A"),
                    column("layer_b", "layer of B"),
                    column("cosine", "cosine", 4),
                    column("cosine_null", "cosine if independent", 4),
                    column("published_cosine", "cosine as published", 4),
                    column("pearson", "Pearson", 4),
                    column("z", "z", 2),
                    column("published_pearson", "Pearson as published", 4),
                ),
                [_d_row(pair, rows, columns, found, said) for pair in chosen],
            )
        )
    section.tables.append(
        table(
            f"d_summary_{role.value}",
            Text("Appendix D: summary of {a} and {b}, {role}", **named),
            SUMMARY_COLUMNS,
            summary_rows(rows, columns, found),
        )
    )
    if original:
        section.checks += _d_checks(stage, rows, columns, found)
        section.notes.append(
            Text(
                "The columns of published values show appendix D-2 as printed; the list of published figures says what "
                "is wrong with it."
            )
        )


def _corners(rows: tuple[int, ...], columns: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return some different layers of models that are too shallow for the published samples."""
    middle = rows[len(rows) // 2], columns[len(columns) // 2]
    wanted = ((rows[0], middle[1]), (middle[0], columns[0]), (rows[0], columns[-1]), (rows[-1], columns[0]))
    return [pair for pair in dict.fromkeys(wanted) if pair[0] != pair[1]]


def _said(known: dict[str, Any]) -> dict[tuple[int, int], tuple[float, float]]:
    """Return (cosine, Pearson) as printed, by pair of layers."""
    if not known:
        return {}
    same, rows = known["D2_1_diagonal"], known["D2_2_offdiag"]["rows"]
    found = {(int(x), int(x)): (c, r) for x, c, r in zip(same["layer"], same["cosine"], same["pearson"], strict=True)}
    return found | {(int(p), int(q)): (c, r) for p, q, c, r in rows}


def _d_row(
    pair: tuple[int, int],
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    found: AllPairs,
    said: dict[tuple[int, int], tuple[float, float]],
) -> tuple[Cell, ...]:
    at = rows.index(pair[0]), columns.index(pair[1])
    cosine, pearson = said.get(pair, (None, None))
    return (
        *pair,
        float(found.cosine[at]),
        float(found.cosine_null_mean[at]),
        cosine,
        float(found.pearson[at]),
        float(found.z[at]),
        pearson,
    )


def _d_checks(stage: Stage, rows: tuple[int, ...], columns: tuple[int, ...], found: AllPairs) -> list[Check]:
    known = published()["sionic_tables"]
    checks: list[Check] = []
    measured = layerwise("norm_pre")
    for pair, values in _said(known).items():
        if pair[0] not in rows or pair[1] not in columns:
            continue
        at = rows.index(pair[0]), columns.index(pair[1])
        same = pair[0] == pair[1]
        wrong = WRONG_D2 if same else WRONG_OFF
        for label, value, matrix in zip(_MEASURES, values, (found.cosine, found.pearson), strict=True):
            what = Text("D-2: {measure}, Solar layer {p}, GLM layer {q}", measure=label, p=pair[0], q=pair[1])
            reason = wrong if same or matrix is found.cosine else WRONG_OFF_R
            fixed = same or matrix is found.cosine or not stage.request.replicas
            checks.append(Check(what, value, float(matrix[at]), trust="wrong", reason=reason, comparable=fixed))
            if same:
                column_name = "cosine" if matrix is found.cosine else "cosine_centered"
                what = Text("{measure} of layer {layer}, as reference 7 measured it", measure=label, layer=pair[0])
                checks.append(Check(what, measured[pair[0]][column_name], float(matrix[at])))
    return checks + _d_summary_checks(stage, rows, columns, found)


def _d_summary_checks(stage: Stage, rows: tuple[int, ...], columns: tuple[int, ...], found: AllPairs) -> list[Check]:
    """Compare the summary as printed; means over other layers than theirs are shown without a result."""
    known = published()["sionic_tables"]["D2_3_summary"]
    checks = []
    for number, matrix in enumerate((found.cosine, found.pearson)):
        label = _MEASURES[number]
        same, different = split_matrix(rows, columns, matrix)
        mean = Text("D-2: mean {measure} of the same layer", measure=label)
        checks.append(
            text_check(mean, known["diag_mean"][number], float(same.mean()), 4, None, COUNTED_47, comparable=False)
        )
        remark = free(stage)["reason"] or COUNTED_47
        for key, what, value in (
            ("off_mean", Text("D-2: mean {measure} of different layers", measure=label), different.mean()),
            (
                "diff",
                Text("D-2: difference of the two means, {measure}", measure=label),
                same.mean() - different.mean(),
            ),
        ):
            checks.append(text_check(what, known[key][number], float(value), 4, None, remark, comparable=False))
        spread = Text("D-2: spread of {measure}, same layer", measure=label)
        wrong = (WRONG_SPREAD, SPREAD_R)[number]
        checks.append(text_check(spread, known["diag_std"][number], float(same.std()), 4, wrong))
        spread = Text("D-2: spread of {measure}, different layers", measure=label)
        # that of Pearson over pairs of layers nobody else measured
        wrong_off, compared = (WRONG_SPREAD, True) if matrix is found.cosine else (None, False)
        value = float(different.std())
        checks.append(text_check(spread, known["off_std"][number], value, 4, wrong_off, remark, comparable=compared))
    return checks
