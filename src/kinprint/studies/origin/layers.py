"""The layer probe of the first accusation, and the controls that it lacked."""

from __future__ import annotations

import itertools

import numpy as np

from kinprint.arch import Role
from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import (
    CATEGORY,
    COSINE,
    NORMS,
    PEARSON,
    NormPair,
    accused,
    all_model_pairs,
    is_published,
    joint,
    norm_pair,
    origin,
    summarised,
    summary_checks,
)
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.text import Text

_LAYER_COLUMNS = (
    column("layer", "layer"),
    column("cosine", "cosine", 4),
    column("null_mean", "cosine if independent", 4),
    column("null_sd", "its sd", 4),
    column("pearson", "Pearson", 4),
    column("pearson_sd", "Pearson's null sd", 4),
    column("z", "z", 2),
    column("log10_p", "log10 p", 2),
)
_SUMMARY_COLUMNS = (
    column("role", "role"),
    column("measure", "measure"),
    column("n", "layers"),
    column("mean", "mean", 4),
    column("median", "median", 4),
    column("sd", "sd", 4),
    column("min", "least", 4),
    column("min_layer", "in layer"),
    column("max", "greatest", 4),
    column("max_layer", "in layer"),
    column("independent", "mean if independent", 4),
)


def layer_probe(stage: Stage) -> Section:
    """Cosine and Pearson of both norms, layer by layer (part A)."""
    section = Section()
    a, b = accused(stage)
    found: list[NormPair] = []
    summary: list[list[Cell]] = []
    for role in NORMS:
        try:
            pair = norm_pair(stage, a, b, role)
        except Missing as error:
            section.missing.append(error.text)
            continue
        found.append(pair)
        if pair.dropped:
            left_out = ", ".join(map(str, pair.dropped))
            section.missing.append(Text("{role} is constant in the layers {layers}", role=role.value, layers=left_out))
        section.tables.append(_layer_table(pair))
        summary += _summary_rows(pair)
        if is_published(stage, a, b):
            section.checks += _layer_checks(pair)
    if not found:
        return section
    title = Text("Summary over layers, {a} against {b}", a=a, b=b)
    section.tables.insert(0, table("layer_summary", title, _SUMMARY_COLUMNS, summary))
    section.notes.append(
        Text(
            "Norm weights are mostly positive, so independent ones have a high cosine too: the column “if independent” "
            "is the mean over all orders of one side’s elements, which keeps both vectors’ values. Where a few layers "
            "are unlike the others a mean hides it, so the median is given beside it."
        )
    )
    caption = Text(
        "Cosine and Pearson correlation of the norm weights of {a} and {b} by layer. Grey: 95 % of independent pairs.",
        a=a,
        b=b,
    )
    section.pictures.append(picture("layer_probe", caption, "origin.figures.layer_probe", found))
    return section


def _layer_table(pair: NormPair) -> Table:
    rows = [
        (
            layer,
            float(pair.cosine[i]),
            float(pair.null_mean[i]),
            float(pair.null_sd[i]),
            float(pair.pearson[i]),
            pair.pearson_sd,
            float(pair.pairs.z[i, i]),
            float(pair.pairs.log10_p[i, i]),
        )
        for i, layer in enumerate(pair.layers)
    ]
    title = Text("{role}: {a} against {b}, layer by layer", role=pair.role.value, a=pair.a, b=pair.b)
    return table(f"layers_{pair.role.value}", title, _LAYER_COLUMNS, rows)


def _summary_rows(pair: NormPair) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for measure, values, null in (
        (COSINE, pair.cosine, float(pair.null_mean.mean())),
        (PEARSON, pair.pearson, 0.0),
    ):
        found = summarised(values)
        rows.append(
            [
                pair.role.value,
                measure,
                len(pair.layers),
                found["mean"],
                float(np.median(values)),
                found["std"],
                found["min"],
                pair.layers[int(values.argmin())],
                found["max"],
                pair.layers[int(values.argmax())],
                null,
            ]
        )
    return rows


def _layer_checks(pair: NormPair) -> list[Check]:
    checks: list[Check] = []
    kind = "pre" if pair.role is Role.INPUT_NORM else "post"
    columns = origin()["layerwise_cols"]
    known = {row[0]: dict(zip(columns, row, strict=True)) for row in origin()["layerwise"]}
    for i, layer in enumerate(pair.layers):
        if layer in known:
            for measure, key, values in (
                (COSINE, f"{kind}_cos", pair.cosine),
                (PEARSON, f"{kind}_pearson", pair.pearson),
            ):
                what = Text("{measure}, {role}, layer {layer}", measure=measure, role=pair.role.value, layer=layer)
                checks.append(Check(what, known[layer][key], float(values[i])))
    if not pair.complete:
        return checks
    category = CATEGORY[pair.role]
    for key, measure, values in (("cosine", COSINE, pair.cosine), ("pearson", PEARSON, pair.pearson)):
        what = Text("{measure}, {role}", measure=measure, role=pair.role.value)
        checks += summary_checks(what, origin()["summary"][category][key], values)
    what = Text("cosine, {role}, in the “comprehensive” script", role=pair.role.value)
    return checks + summary_checks(what, origin()["comprehensive"][category], pair.cosine)


# -- controls ------------------------------------------------------------------------------------------------------------

_CONTROL_COLUMNS = (
    column("pair", "pair"),
    column("role", "role"),
    column("n", "layers"),
    column("cosine", "mean cosine", 4),
    column("median", "median cosine", 4),
    column("independent", "mean if independent", 4),
    column("common_cosine", "mean cosine, same layers for all pairs", 4),
    column("pearson", "mean Pearson", 4),
    column("joint_sd", "its null sd", 4),
    column("z", "z", 2),
    column("log10_p", "log10 p", 2),
)


def control_pairs(stage: Stage) -> Section:
    """Run the same probe on models that are known to be unrelated, or related (part G)."""
    section = Section()
    found: list[NormPair] = []
    for (a, b), role in itertools.product(all_model_pairs(stage), NORMS):
        try:
            found.append(norm_pair(stage, a, b, role))
        except Missing as error:
            if error.text not in section.missing:  # a pair of other widths says so once, not for each norm
                section.missing.append(error.text)
    if not found:
        return section
    shared = {
        role: sorted(set.intersection(*(set(p.layers) for p in found if p.role is role)))
        for role in NORMS
        if any(p.role is role for p in found)
    }
    rows = [_control_row(pair, shared[pair.role]) for pair in found]
    section.tables.append(table("controls", Text("The probe on all pairs of equal width"), _CONTROL_COLUMNS, rows))
    section.notes += _control_notes(stage)
    a, b = accused(stage)
    caption = Text(
        "The same probe on {a} and {b} and on pairs with the controls. Shaded: 95 % of independent pairs, for each "
        "pair its own.",
        a=a,
        b=b,
    )
    section.pictures.append(picture("controls", caption, "origin.figures.control_lines", found))
    if is_published(stage, a, b):
        for pair in found[:2]:
            if (pair.a, pair.b) == (a, b) and pair.complete:
                what = Text("cosine, {role}, in the script with a control", role=pair.role.value)
                known = origin()["control"]["Solar_vs_GLM"][CATEGORY[pair.role]]
                section.checks += summary_checks(what, known, pair.cosine)
    return section


def _control_row(pair: NormPair, shared: list[int]) -> list[Cell]:
    test = joint(pair)
    rows = [pair.layers.index(layer) for layer in shared]
    return [
        f"{pair.a}–{pair.b}",
        pair.role.value,
        len(pair.layers),
        float(pair.cosine.mean()),
        float(np.median(pair.cosine)),
        float(pair.null_mean.mean()),
        float(pair.cosine[rows].mean()) if rows else None,
        test.mean,
        test.sd,
        test.z,
        test.log10_p,
    ]


def _control_notes(stage: Stage) -> list[Text]:
    notes = [
        Text(
            "z and p test the mean Pearson correlation under one permutation for all layers: layers of one model are "
            "correlated, so they do not count as so many measurements."
        )
    ]
    if stage.original("Solar", "GLM"):
        notes.append(
            Text(
                "The published control was to be “Qwen2”; the script reads DeepSeek-V2-Lite, whose width differs, so every "
                "control statistic is empty and the published figure shows only Solar and GLM. Models of another width are "
                "listed as not comparable here."
            )
        )
    if stage.has("GLM", "INTELLECT") and stage.original("GLM", "INTELLECT"):
        notes.append(
            Text(
                "INTELLECT-3 was trained from GLM-4.5-Air-Base: it and GLM-4.5-Air have the same parent, so they are "
                "siblings."
            )
        )
    return notes
