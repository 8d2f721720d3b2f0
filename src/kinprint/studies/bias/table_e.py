"""Appendix E of the bias study, recomputed: all pairs over the same layers."""

from __future__ import annotations

import math
from functools import partial

from kinprint.arch import Naming, Role
from kinprint.model.model import Model
from kinprint.studies.bias.checks import text_check
from kinprint.studies.bias.facts import (
    INPUT,
    POST,
    PairFacts,
    add_facts,
    effective_layers,
    finite_mean,
    finite_median,
    lag_one,
    model_pairs,
    naive_t,
    pair_facts,
    vector_roles,
)
from kinprint.studies.bias.matrices import joint_notes
from kinprint.studies.bias.pairs import siblings
from kinprint.studies.opened import Stage, attempt, sides
from kinprint.studies.outcome import Cell, Check, Section, column, picture, table
from kinprint.studies.published import MIXED, WRONG_E3, published
from kinprint.text import Text, Value

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
_MEASURES = (Text("cosine"), Text("Pearson"))


# -- appendix E --------------------------------------------------------------------------------------------------------

_E_COLUMNS = (
    column("a", "A"),
    column("b", "B"),
    column("layers", "layers"),
    column("cosine_mean", "mean cosine", 4),
    column("cosine_median", "median cosine", 4),
    column("cosine_null", "mean cosine if independent", 4),
    column("pearson_mean", "mean Pearson", 4),
    column("pearson_median", "median Pearson", 4),
    column("joint_sd", "null sd of the mean", 4),
    column("effective", "independent layers it is worth", 1),
    column("z", "z of the mean", 2),
    column("log10_p", "log10 p", 2),
)
_OWN_COLUMNS = (
    *_E_COLUMNS[:8],
    column("best_layer", "best layer"),
    column("best_cosine", "its cosine", 4),
    column("best_pearson", "its Pearson", 4),
    column("lag_one", "autocorrelation of neighbouring layers", 2),
    column("naive_t", "t if layers were independent", 2),
)


def appendix_e(stage: Stage) -> Section:
    """Repeat appendix E: all pairs over the same layers, with means, medians and one test; best layers apart."""
    section = Section(notes=[*siblings(stage), *joint_notes(stage)])
    _sizes(stage, section)
    for role in vector_roles(stage, (INPUT, POST), section.missing):
        _one_e(stage, section, role)
    section.notes.append(
        Text(
            "Means and medians are over the same layers for all pairs, those that all models have; the second table "
            "takes all layers that a pair shares, and states the best layer apart. A best layer is no summary: it is "
            "the largest of many."
        )
    )
    return section


def _sizes(stage: Stage, section: Section) -> None:
    rows: list[tuple[Cell, ...]] = []
    for name in stage.names:
        layers, left_out = stage.depth(name), _left_out(stage.model(name).naming)
        billions = _parameters(stage.model(name)) / 1e9
        rows.append((name, layers, left_out or None, stage.width(name), billions))
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
        if stage.original(name) and not stage.request.layers:
            section.checks += _size_checks(name, layers, billions)
    section.tables.append(
        table(
            "e_models",
            Text("Appendix E: the models"),
            (
                column("model", "model"),
                column("layers", "layers"),
                column("left_out", "layers left out"),
                column("width", "width"),
                column("parameters", "parameters, billions", 2),
            ),
            rows,
        )
    )


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
    what = Text("E-1: layers of {model}", model=name)
    checks = [text_check(what, sizes["en"][name][2], float(layers), 0, None)]
    korean = sizes["ko_layers"][name]
    if korean != sizes["en"][name][2]:
        checks.append(text_check(what, korean, float(layers), 0, KOREAN_47))
    if name in ("GLM", "Phi"):
        printed = sizes["en"][name][0].removesuffix("B")
        what = Text("E-1: parameters of {model}, billions", model=name)
        digits, wrong = len(printed.partition(".")[2]), PHI_SIZE if name == "Phi" else None
        checks.append(text_check(what, float(printed), parameters, digits, wrong, MAKERS_SIZE))
    return checks


def _one_e(stage: Stage, section: Section, role: Role) -> None:
    found: list[PairFacts] = []
    for a, b in model_pairs(stage):
        attempt(section.missing, partial(add_facts, stage, found, a, b, role), sides(a, b))
    if not found:
        return
    common = sorted(set.intersection(*(set(facts.layers) for facts in found)))
    name: dict[str, Value] = {"role": role.value}
    if common:
        rows: list[tuple[Cell, ...]] = []
        for facts in found:
            attempt(section.missing, partial(_common_row, stage, rows, facts, common), sides(facts.a, facts.b))
        title = Text("Appendix E: all pairs over the {count} layers that all have, {role}", count=len(common), **name)
        section.tables.append(table(f"e_same_layers_{role.value}", title, _E_COLUMNS, rows))
    own: list[tuple[Cell, ...]] = []
    for facts in found:
        attempt(section.missing, partial(_own_row, own, facts), sides(facts.a, facts.b))
    title = Text("Appendix E: all pairs, each over all layers it shares, {role}", **name)
    section.tables.append(table(f"e_own_layers_{role.value}", title, _OWN_COLUMNS, own))
    caption = Text(
        "All pairs of models, {role}: raw cosine and Pearson of every shared layer (dots), their mean (diamond) and "
        "median (bar). Grey: 95 % of independent pairs, layer by layer.",
        **name,
    )
    section.pictures.append(picture(f"e_{role.value}", caption, "bias.figures.pair_strips", found, role.value))
    for facts in found:
        if stage.request.layers is None and stage.original(facts.a, facts.b):
            section.checks += _e_checks(stage, facts)


def _basics(facts: PairFacts) -> tuple[Cell, ...]:
    return (
        facts.a,
        facts.b,
        len(facts.layers),
        finite_mean(facts.cosine),
        finite_median(facts.cosine),
        finite_mean(facts.cosine_null_mean),
        facts.mean_pearson,
        finite_median(facts.pearson),
    )


def _common_row(stage: Stage, rows: list[tuple[Cell, ...]], facts: PairFacts, common: list[int]) -> None:
    part = pair_facts(stage, facts.a, facts.b, facts.role, common)
    null = part.joint(stage.request.seed)
    rows.append((*_basics(part), null.sd, effective_layers(null), null.z, null.log10_p))


def _own_row(rows: list[tuple[Cell, ...]], facts: PairFacts) -> None:
    best = facts.best
    at_best = (facts.layers[best], float(facts.cosine[best]), float(facts.pearson[best]))
    rows.append((*_basics(facts), *at_best, lag_one(facts.pearson), naive_t(facts.pearson)))


def _e_checks(stage: Stage, facts: PairFacts) -> list[Check]:
    label, key = {INPUT: ("E-2", "E2_input"), POST: ("E-3", "E3_post")}.get(facts.role, ("", ""))
    known = published()["sionic_tables"].get(key, {}) if key else {}
    pair = next((name for name in (f"{facts.a}-{facts.b}", f"{facts.b}-{facts.a}") if name in known), None)
    if pair is None:
        return []
    wrong = _what_is_wrong(facts.role, pair)
    remark = _what_is_free(facts.role, pair)
    measured = (finite_mean(facts.cosine), facts.mean_pearson)
    return [
        text_check(
            Text("{table}: mean {measure}, {a} and {b}", table=label, measure=measure, a=facts.a, b=facts.b),
            known[pair][number],
            measured[number],
            2,
            wrong[number],
            remark,
            comparable=remark is None or not stage.request.replicas,
        )
        for number, measure in enumerate(_MEASURES)
    ]


def _what_is_wrong(role: Role, pair: str) -> tuple[Text | None, Text | None]:
    """Return why the published cosine, and Pearson, of a pair is wrong; None if it is not."""
    if role is INPUT:
        return (MIXED if "Phi" in pair else None, TOO_LARGE if pair == "Solar-Phi" else None)
    if pair == "Solar-GLM":
        return WRONG_E3, WRONG_E3
    return None, WRONG_E3_PHI if pair in ("Solar-Phi", "GLM-Phi") else None


def _what_is_free(role: Role, pair: str) -> Text | None:
    """Return why a published post-attention value bears out nothing on replicas: it was not measured, or in few layers."""
    if role is not POST or pair in ("Solar-GLM", "GLM-INTELLECT"):
        return None
    return FREE_POST if pair in ("Solar-Phi", "GLM-Phi") else NOT_MEASURED
