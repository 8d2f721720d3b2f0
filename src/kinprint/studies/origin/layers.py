"""The layer probe of the first accusation, and the controls that it lacked."""

from __future__ import annotations

from functools import partial

import numpy as np

from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.origin import shared
from kinprint.studies.origin.shared import COSINE, NORMS, PEARSON, accused, add_checks, norm_pair
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.text import Text

_LAYERS = columns(
    "layer; cosine .4; null_mean: cosine if independent .4; null_sd: its sd .4; pearson: Pearson .4; "
    "pearson_sd: Pearson's null sd .4; z .2; log10_p: log10 p .2"
)
_SUMMARY = columns(
    "role; measure; n: layers; mean .4; median .4; sd .4; min: least .4; min_layer: in layer; max: greatest .4; "
    "max_layer: in layer; independent: mean if independent .4"
)
_CONTROLS = columns(
    "pair; role; n: layers; cosine: mean cosine .4; median: median cosine .4; independent: mean if independent .4; "
    "common_cosine: mean cosine, same layers for all pairs .4; pearson: mean Pearson .4; joint_sd: its null sd .4; z .2; "
    "log10_p: log10 p .2"
)


def layer_probe(run: StudyRun) -> Section:
    """Cosine and Pearson of both norms, layer by layer (part A)."""
    section = Section()
    a, b = accused(run)
    found = each(section.missing, NORMS, partial(norm_pair, run, a, b))
    if not found:
        return section
    title = Text("Summary over layers, {a} against {b}", a=a, b=b)
    section.add_table("layer_summary", title, _SUMMARY, [row for pair in found for row in _summary_rows(pair)])
    for pair in found:
        dropped = [str(layer) for layer in run.stacks(a, b, pair.role)[0] if layer not in pair.layers]
        if dropped:
            left_out = ", ".join(dropped)
            section.missing.append(
                Text("{role} is constant in the layers {layers}", role=pair.role.value, layers=left_out)
            )
        title = Text("{role}: {a} against {b}, layer by layer", role=pair.role.value, a=a, b=b)
        rows = pair.rows("cosine", "null_mean", "null_sd", "pearson", "pearson_sd", "z", "log10_p")
        section.add_table(f"layers_{pair.role.value}", title, _LAYERS, rows)
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
    section.add_picture("layer_probe", caption, "origin.figures.layer_probe", found)
    add_checks(run, section, "layers")
    return section


def _summary_rows(pair: LayerPair) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for measure, values, null in (
        (COSINE, pair.cosine, float(pair.null_mean.mean())),
        (PEARSON, pair.pearson, 0.0),
    ):
        mean, sd, least, most = shared.summarised(values).values()
        at_least, at_most = pair.layers[int(values.argmin())], pair.layers[int(values.argmax())]
        middle = mean, float(np.median(values)), sd
        rows.append((pair.role.value, measure, len(pair.layers), *middle, least, at_least, most, at_most, null))
    return rows


def controls(run: StudyRun) -> Section:
    """Run the same probe on models that are known to be unrelated, or related (part G)."""
    section = Section()
    a, b = accused(run)
    found: list[LayerPair] = []
    for one, two in ((a, b), *shared.control_pairs(run)):
        missing: list[Text] = []
        found += each(missing, NORMS, partial(norm_pair, run, one, two))
        section.missing += [text for text in dict.fromkeys(missing) if text not in section.missing]
    if not found:
        return section
    common = {
        role: sorted(set.intersection(*(set(pair.layers) for pair in found if pair.role is role)))
        for role in {pair.role for pair in found}
    }
    rows = [_control_row(pair, common[pair.role]) for pair in found]
    section.add_table("controls", Text("The probe on all pairs of equal width"), _CONTROLS, rows)
    section.notes += _control_notes(run)
    caption = Text(
        "The same probe on {a} and {b} and on pairs with the controls. Shaded: 95 % of independent pairs, for each "
        "pair its own.",
        a=a,
        b=b,
    )
    section.add_picture("controls", caption, "origin.figures.control_lines", found)
    values: dict[str, float | None] = {}
    for pair in found:
        if (pair.a, pair.b) == (a, b) and shared.is_complete(pair):
            statistics = shared.summarised(pair.cosine)
            values |= {f"{pair.role.value} {name}": value for name, value in statistics.items()}
    add_checks(run, section, "controls", values)
    return section


def _control_row(pair: LayerPair, common: list[int]) -> tuple[Cell, ...]:
    test, rows = pair.joint(), [pair.layers.index(layer) for layer in common]
    cosine = float(pair.cosine.mean()), float(np.median(pair.cosine)), float(pair.null_mean.mean())
    same = float(pair.cosine[rows].mean()) if rows else None
    tested = pair.mean_pearson, test.sd, test.z, test.log10_p
    return pair.name, pair.role.value, len(pair.layers), *cosine, same, *tested


def _control_notes(run: StudyRun) -> list[Text]:
    notes = [
        Text(
            "z and p test the mean Pearson correlation under one permutation for all layers: layers of one model are "
            "correlated, so they do not count as so many measurements."
        )
    ]
    if run.original("Solar", "GLM"):
        notes.append(
            Text(
                "The published control was to be “Qwen2”; the script reads DeepSeek-V2-Lite, whose width differs, so every "
                "control statistic is empty and the published figure shows only Solar and GLM. Models of another width are "
                "listed as not comparable here."
            )
        )
    if run.original("GLM", "INTELLECT"):
        notes.append(
            Text(
                "INTELLECT-3 was trained from GLM-4.5-Air-Base: it and GLM-4.5-Air have the same parent, so they are "
                "siblings."
            )
        )
    return notes
