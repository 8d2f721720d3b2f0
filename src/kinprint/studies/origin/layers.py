"""Compare the norms of two models layer by layer, and of control models, which the audited analysis lacked."""

from functools import partial

import numpy as np

from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.origin import shared
from kinprint.studies.origin.shared import COSINE, NORMS, PEARSON, norm_pair
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.text import Text

_LAYERS = columns("layer; cosine; null_mean; null_sd .4; pearson; pearson_sd; z; log10_p")
_SUMMARY = columns(
    "role; measure; n: layers; mean .4; median; sd; min; min_layer: in layer; max; max_layer: in layer; "
    "independent: mean if independent .4"
)
_CONTROLS = columns(
    "pair; role; n: layers; cosine: mean cosine .4; median: median cosine .4; independent: mean if independent .4; "
    "common_cosine: mean cosine, same layers for all pairs .4; pearson: mean Pearson .4; joint_sd: its null sd .4; z; log10_p"
)


def layer_probe(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare both norms layer by layer: cosine and Pearson."""
    found = each(section.missing, NORMS, partial(norm_pair, run, a, b))
    if not found:
        return
    title = Text("Summary over layers, {a} against {b}", a=a, b=b)
    section.add_table("layer_summary", title, _SUMMARY, [row for pair in found for row in _summary_rows(pair)])
    for pair in found:
        dropped = [str(layer) for layer in run.stacks(a, b, pair.role)[0] if layer not in pair.layers]
        if dropped:
            left_out = ", ".join(dropped)
            section.missing.append(
                Text("{role} is constant in the layers {layers}", role=pair.role.value, layers=left_out)
            )
        title = Text("{role}: {a} against {b}, layer by layer", **pair.named)
        section.add_table(f"layers_{pair.role.value}", title, _LAYERS, pair.rows(*(item.key for item in _LAYERS[1:])))
    section.note(
        "Norm weights are mostly positive, so independent ones have a high cosine too: the column “if independent” "
        "is the mean over all orders of one side’s elements, which keeps both vectors’ values. Where a few layers "
        "are unlike the others a mean hides it, so the median is given beside it."
    )
    section.add_picture("layer_probe", "origin.layer_probe", found, a=a, b=b)


def _summary_rows(pair: LayerPair) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for measure, values, null in ((COSINE, pair.cosine, float(pair.null_mean.mean())), (PEARSON, pair.pearson, 0.0)):
        mean, sd, least, most = shared.summarised(values).values()
        at_least, at_most = pair.layers[int(values.argmin())], pair.layers[int(values.argmax())]
        middle = mean, float(np.median(values)), sd
        rows.append((pair.role.value, measure, len(pair.layers), *middle, least, at_least, most, at_most, null))
    return rows


def controls(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Run the same probe on models that are known to be unrelated, or related."""
    found: list[LayerPair] = []
    for names in ((a, b), *shared.control_pairs(run)):
        missing: list[Text] = []
        found += each(missing, NORMS, partial(norm_pair, run, *names))
        section.missing += [text for text in dict.fromkeys(missing) if text not in section.missing]
    if not found:
        return
    common = {
        role: sorted(set.intersection(*(set(pair.layers) for pair in found if pair.role is role)))
        for role in {pair.role for pair in found}
    }
    rows = [_control_row(pair, common[pair.role]) for pair in found]
    section.add_table("controls", Text("The probe on all pairs of equal width"), _CONTROLS, rows)
    section.note(
        "z and p test the mean Pearson correlation under one permutation for all layers: layers of one model are "
        "correlated, so they do not count as so many measurements."
    )
    if run.original("Solar", "GLM"):
        section.note(
            "The published control was to be “Qwen2”; the script reads DeepSeek-V2-Lite, whose width differs, so every "
            "control statistic is empty and the published figure shows only Solar and GLM. Models of another width are "
            "listed as not comparable here."
        )
    if run.original("GLM", "INTELLECT"):
        section.note(
            "INTELLECT-3 was trained from GLM-4.5-Air-Base: it and GLM-4.5-Air have the same parent, so they are "
            "siblings."
        )
    section.add_picture("controls", "origin.control_lines", found, a=a, b=b)
    for pair in found:
        if (pair.a, pair.b) == (a, b) and shared.is_complete(pair):
            section.values |= {f"{pair.role.value} {name}": x for name, x in shared.summarised(pair.cosine).items()}


def _control_row(pair: LayerPair, common: list[int]) -> tuple[Cell, ...]:
    test, rows = pair.joint(), [pair.layers.index(layer) for layer in common]
    cosine = float(pair.cosine.mean()), float(np.median(pair.cosine)), float(pair.null_mean.mean())
    same = float(pair.cosine[rows].mean()) if rows else None
    tested = pair.mean_pearson, test.sd, test.z, test.log10_p
    return pair.name, pair.role.value, len(pair.layers), *cosine, same, *tested
