"""Appendix E of the bias study, recomputed: all pairs over the same layers."""

from __future__ import annotations

import math
from functools import partial

from kinprint.arch import Naming, Role
from kinprint.model.model import Model
from kinprint.studies.bias.facts import INPUT, POST, add_checks, compared_pairs, lag_one, naive_t, vector_roles
from kinprint.studies.bias.matrices import JOINT, joint_cells, joint_notes
from kinprint.studies.bias.pairs import siblings
from kinprint.studies.layer_pairs import LayerPair, finite_mean, finite_median
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Cell, Section, columns
from kinprint.text import Text

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
    add_checks(run, section, "appendix_e")
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


def _basics(pair: LayerPair) -> tuple[Cell, ...]:
    cosine, null = (finite_mean(pair.cosine), finite_median(pair.cosine)), finite_mean(pair.null_mean)
    return pair.a, pair.b, len(pair.layers), *cosine, null, pair.mean_pearson, finite_median(pair.pearson)
