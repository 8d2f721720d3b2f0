"""Appendix E of the bias study, recomputed: all pairs over the same layers."""

from __future__ import annotations

import math
from functools import partial

from kinprint.arch import Naming, Role
from kinprint.model.model import Model
from kinprint.studies.bias.checks import known_pair, text_check
from kinprint.studies.bias.facts import COSINE, INPUT, PEARSON, POST, compared_pairs, lag_one, naive_t, vector_roles
from kinprint.studies.bias.matrices import JOINT, joint_cells, joint_notes
from kinprint.studies.bias.pairs import siblings
from kinprint.studies.layer_pairs import LayerPair, finite_mean, finite_median
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Cell, Check, Section, columns
from kinprint.studies.published import MIXED, WRONG_E3, published
from kinprint.text import Text

TOO_LARGE = Text("figure 5 of the same publication prints 0.009")
WRONG_E3_PHI = Text(
    "Appendix E-3 repeats the row of the input norm; seed 002 measured −0.015 to 0.004 at layers 10, 20 and 30"
)
FREE_POST = Text("seed 002 measured 0.986 to 0.997 at layers 10, 20 and 30; replicas are free in all other layers")
NOT_MEASURED = Text("nobody else measured this pair; the row repeats that of another pair, or of the input norm")
MAKERS_SIZE = Text("the maker's name for the size, cut off rather than rounded")
PHI_SIZE = Text("Phi-3.5-MoE has 41.87 billion parameters; 3.8 is another model of that family")
KOREAN_47 = Text(
    "the Korean version says 47, the English one 46: index 46 is a block that only predicts further tokens"
)
_WRONG: dict[tuple[Role, str], tuple[Text | None, Text | None]] = {
    (INPUT, "Solar-Phi"): (MIXED, TOO_LARGE),
    (INPUT, "GLM-Phi"): (MIXED, None),
    (INPUT, "INTELLECT-Phi"): (MIXED, None),
    (POST, "Solar-GLM"): (WRONG_E3, WRONG_E3),
    (POST, "Solar-Phi"): (None, WRONG_E3_PHI),
    (POST, "GLM-Phi"): (None, WRONG_E3_PHI),
}
"""Why the published mean cosine, and Pearson, of a pair is wrong; None if it is not."""

_FREE = {
    (POST, "Solar-GLM"): None,
    (POST, "GLM-INTELLECT"): None,
    (POST, "Solar-Phi"): FREE_POST,
    (POST, "GLM-Phi"): FREE_POST,
}
"""Why a published post-attention value bears out nothing on replicas; of a pair that is not listed nobody measured it."""

_BASICS = columns(
    "a: A; b: B; layers; cosine_mean: mean cosine .4; cosine_median: median cosine .4; "
    "cosine_null: mean cosine if independent .4; pearson_mean: mean Pearson .4; pearson_median: median Pearson .4"
)
_BEST = columns(
    "best_layer: best layer; best_cosine: its cosine .4; best_pearson: its Pearson .4; "
    "lag_one: autocorrelation of neighbouring layers .2; naive_t: t if layers were independent .2"
)


def appendix_e(run: StudyRun) -> Section:
    """Repeat appendix E: all pairs over the same layers, with means, medians and one test; best layers apart."""
    section = Section(notes=[*siblings(run), *joint_notes(run)])
    _sizes(run, section)
    for role in vector_roles(run, (INPUT, POST), section.missing):
        _one_e(run, section, role)
    section.notes.append(
        Text(
            "Means and medians are over the same layers for all pairs, those that all models have; the second table "
            "takes all layers that a pair shares, and states the best layer apart. A best layer is no summary: it is "
            "the largest of many."
        )
    )
    return section


def _sizes(run: StudyRun, section: Section) -> None:
    rows: list[tuple[Cell, ...]] = []
    for name in run.names:
        layers, left_out = run.depth(name), _left_out(run.model(name).naming)
        billions = _parameters(run.model(name)) / 1e9
        rows.append((name, layers, left_out or None, run.width(name), billions))
        if left_out:
            section.notes.append(
                Text(
                    "{model}: what is stored under layer {index} only predicts further tokens and is left out "
                    "everywhere; {count} layers remain.",
                    model=name,
                    index=left_out,
                    count=layers,
                )
            )
        if run.original(name) and not run.request.layers:
            section.checks += _size_checks(name, layers, billions)
    heads = columns("model; layers; left_out: layers left out; width; parameters: parameters, billions .2")
    section.add_table("e_models", Text("Appendix E: the models"), heads, rows)


def _parameters(model: Model) -> int:
    """Return the number of parameters without those of blocks that are left out."""
    aside = {item.name for item in model.naming.excluded}
    shapes = model.checkpoint.tensors.shapes()
    return sum(math.prod(shape) for name, shape in shapes.items() if name not in aside)


def _left_out(naming: Naming) -> str:
    """Return the indices of stored blocks beyond the layers that count."""
    numbers = (next((part for part in item.name.split(".") if part.isdigit()), "-1") for item in naming.excluded)
    return ", ".join(str(index) for index in sorted({int(number) for number in numbers}) if index >= naming.layers)


def _size_checks(name: str, layers: int, parameters: float) -> list[Check]:
    sizes = published()["sionic_tables"]["E1_models"]
    if name not in sizes["en"]:
        return []
    english, korean = sizes["en"][name][2], sizes["ko_layers"][name]
    what = Text("E-1: layers of {model}", model=name)
    checks = [text_check(what, english, float(layers), 0, None)]
    if korean != english:
        checks.append(text_check(what, korean, float(layers), 0, KOREAN_47))
    if name in ("GLM", "Phi"):
        printed = sizes["en"][name][0].removesuffix("B")
        what = Text("E-1: parameters of {model}, billions", model=name)
        digits, wrong = len(printed.partition(".")[2]), PHI_SIZE if name == "Phi" else None
        checks.append(text_check(what, float(printed), parameters, digits, wrong, MAKERS_SIZE))
    return checks


def _one_e(run: StudyRun, section: Section, role: Role) -> None:
    found = compared_pairs(run, role, section.missing)
    if not found:
        return
    common = sorted(set.intersection(*(set(pair.layers) for pair in found)))
    rows: list[tuple[Cell, ...]] = []
    own: list[tuple[Cell, ...]] = []

    def add_common(pair: LayerPair) -> None:
        part = pair.only(common)
        rows.append((*_basics(part), *joint_cells(run, part)))

    def add_own(pair: LayerPair) -> None:
        best = pair.best
        at_best = pair.layers[best], float(pair.cosine[best]), float(pair.pearson[best])
        own.append((*_basics(pair), *at_best, lag_one(pair.pearson), naive_t(pair.pearson)))

    for add in (add_common, add_own) if common else (add_own,):
        for pair in found:
            attempt(section.missing, partial(add, pair), sides(pair.a, pair.b))
    if common:
        title = Text(
            "Appendix E: all pairs over the {count} layers that all have, {role}", count=len(common), role=role.value
        )
        section.add_table(f"e_same_layers_{role.value}", title, (*_BASICS, *JOINT), rows)
    title = Text("Appendix E: all pairs, each over all layers it shares, {role}", role=role.value)
    section.add_table(f"e_own_layers_{role.value}", title, (*_BASICS, *_BEST), own)
    caption = Text(
        "All pairs of models, {role}: raw cosine and Pearson of every shared layer (dots), their mean (diamond) and "
        "median (bar). Grey: 95 % of independent pairs, layer by layer.",
        role=role.value,
    )
    section.add_picture(f"e_{role.value}", caption, "bias.figures.pair_strips", found, role.value)
    for pair in found:
        if run.request.layers is None and run.original(pair.a, pair.b):
            section.checks += _pair_checks(run, pair)


def _basics(pair: LayerPair) -> tuple[Cell, ...]:
    cosine, null = (finite_mean(pair.cosine), finite_median(pair.cosine)), finite_mean(pair.null_mean)
    return pair.a, pair.b, len(pair.layers), *cosine, null, pair.mean_pearson, finite_median(pair.pearson)


def _pair_checks(run: StudyRun, pair: LayerPair) -> list[Check]:
    label, key = {INPUT: ("E-2", "E2_input"), POST: ("E-3", "E3_post")}.get(pair.role, ("", ""))
    known = published()["sionic_tables"].get(key, {})
    name = known_pair(pair, known)
    if name is None:
        return []
    remark = _FREE.get((pair.role, name), NOT_MEASURED) if pair.role is POST else None
    compared = remark is None or not run.request.replicas
    measured = (COSINE, finite_mean(pair.cosine)), (PEARSON, pair.mean_pearson)
    checks = []
    for value, wrong, (measure, mean) in zip(
        known[name], _WRONG.get((pair.role, name), (None, None)), measured, strict=True
    ):
        what = Text("{table}: mean {measure}, {a} and {b}", table=label, measure=measure, a=pair.a, b=pair.b)
        checks.append(text_check(what, value, mean, 2, wrong, remark, comparable=compared))
    return checks
