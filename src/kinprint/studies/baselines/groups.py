"""Baselines across models: the MoE models at one layer and at several (experiments 3, 4), and those of any width."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.explain import cosine_if_independent
from kinprint.studies.baselines.common import FIFTH, ROLE, layers_of, moe_models, pair_checks, results, tag, vectors
from kinprint.studies.baselines.readings import (
    COLUMNS,
    SPREAD_COLUMNS,
    Key,
    Reading,
    Spread,
    across,
    read_pairs,
    variation,
)
from kinprint.studies.opened import Stage, attempt, require_same_shape
from kinprint.studies.outcome import Check, Missing, Section, column, picture, table
from kinprint.text import Text

MOE = ("Solar", "GLM", "Phi", "Mixtral")
"""The MoE models of the published experiments 3 and 4."""


@dataclass(frozen=True)
class Grid:
    """Models against models at one layer, as matrices; NaN on the diagonal and where two are not comparable."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    layer: int
    cosine: FloatArray
    null: FloatArray
    pearson: FloatArray
    pearson_sd: float


def grid(names: Sequence[str], kinds: Mapping[str, str], layer: int, readings: Sequence[Reading]) -> Grid:
    """Return readings at one layer as symmetric matrices."""
    cosine, null, pearson = (np.full((len(names), len(names)), np.nan) for _ in range(3))
    for reading in readings:
        i, k = names.index(reading.a), names.index(reading.b)
        for matrix, value in ((cosine, reading.cosine), (null, reading.null_mean), (pearson, reading.pearson)):
            matrix[i, k] = matrix[k, i] = value
    sd = readings[0].pearson_sd if readings else float("nan")
    return Grid(tuple(names), tuple(kinds[name] for name in names), layer, cosine, null, pearson, sd)


# -- experiment 3 --------------------------------------------------------------------------------------------------------


def moe_at_one_layer(stage: Stage, role: Role, section: Section) -> None:
    """Set the MoE models against each other at one layer."""
    layer, names = layers_of(stage).at, moe_models(stage, section)
    readings = moe_readings(stage, role, names, layer, section.missing)
    if not readings:
        raise Missing(Text("no two of these models can be compared at layer {layer}", layer=layer))
    name = f"exp3_moe{tag(role)}"
    title = Text("Models against each other at layer {layer}, {role}", layer=layer, role=role.value)
    section.tables.append(table(name, title, COLUMNS, [reading.row for reading in readings]))
    summary = Spread.of(readings)
    section.tables.append(table(f"{name}_mean", Text("All pairs together"), SPREAD_COLUMNS, [summary.row]))
    section.notes.append(_compared(readings, layer))
    caption = Text(
        "Models against each other at layer {layer} ({role}): raw cosine, what the vectors' spreads alone predict, and Pearson "
        "(null sd {sd:.4f}).",
        layer=layer,
        role=role.value,
        sd=readings[0].pearson_sd,
    )
    shown = grid(_met(names, readings), {model: stage.kind(model) for model in names}, layer, readings)
    section.pictures.append(picture(name, caption, "baselines.figures.moe_heatmap", shown))
    said = results()["exp3_moe_layer10"]
    known = {((a, 10), (b, 10)): said[f"{a}-{b}"] for a, b in itertools.combinations(MOE, 2)}
    section.checks += pair_checks(stage, role, readings, known)
    if role is ROLE and stage.original(*MOE) and [reading.key for reading in readings] == list(known):
        section.checks.append(Check(Text("mean cosine of the six MoE pairs, layer 10"), said["mean"], summary.mean))
        section.checks.append(Check(Text("sd of the six MoE pairs, layer 10"), said["std_pop"], summary.sd))


def moe_readings(stage: Stage, role: Role, names: Sequence[str], layer: int, missing: list[Text]) -> list[Reading]:
    """Return every pair of models at one layer; what cannot be compared is noted."""
    held = vectors(stage, role, [(name, layer) for name in names], missing)
    return read_pairs(held, across(names, layer))


def _met(names: Sequence[str], readings: Sequence[Reading]) -> list[str]:
    found = {name for reading in readings for name in (reading.a, reading.b)}
    return [name for name in names if name in found]


def _compared(readings: Sequence[Reading], layer: int) -> Text:
    outside = sum(abs(reading.z) > 1.96 for reading in readings)
    return Text(
        "{n} pairs at layer {layer}: the raw cosine differs from what independent vectors with these spreads have by at most "
        "{gap:.4f}; {outside} of {n} Pearson correlations lie outside 95 % of their null.",
        n=len(readings),
        layer=layer,
        gap=max(abs(reading.cosine - reading.null_mean) for reading in readings),
        outside=outside,
    )


# -- experiment 4 --------------------------------------------------------------------------------------------------------


def moe_at_several_layers(stage: Stage, role: Role, section: Section) -> None:
    """Set the MoE models against each other at several layers: mean and spread of the pairs at each."""
    by_layer = sweep_readings(stage, role, moe_models(stage, section), section.missing)
    if not by_layer:
        raise Missing(Text("no two of these models share one of the layers looked at"))
    readings = list(itertools.chain.from_iterable(by_layer.values()))
    spreads = {layer: Spread.of(found) for layer, found in by_layer.items()}
    name = f"exp4_layers{tag(role)}"
    columns = (column("layer", "layer"), *SPREAD_COLUMNS)
    title = Text("Mean and spread of the pairs by layer, {role}", role=role.value)
    section.tables.append(table(name, title, columns, [(layer, *spread.row) for layer, spread in spreads.items()]))
    section.tables.append(table(f"{name}_all", Text("All layers together"), SPREAD_COLUMNS, [Spread.of(readings).row]))
    section.tables.append(
        table(
            f"{name}_pairs", Text("Every pair at every layer"), COLUMNS, [reading.row for reading in readings], shown=12
        )
    )
    section.notes.append(
        Text(
            "The pairs share models, and the layers of a model resemble each other, so the {n} values are not {n} independent "
            "ones; the spreads describe these models and are no standard errors.",
            n=len(readings),
        )
    )
    caption = Text(
        "Pairs of models by layer ({role}): raw cosine with mean ± sd over the pairs, beside what the spreads alone predict, and "
        "Pearson. Grey: 95 % of independent pairs.",
        role=role.value,
    )
    section.pictures.append(picture(name, caption, "baselines.figures.layer_sweep", by_layer, role.value))
    if role is ROLE and stage.original(*MOE):
        section.checks += _sweep_checks(by_layer, spreads)


def sweep_readings(stage: Stage, role: Role, names: Sequence[str], missing: list[Text]) -> dict[int, list[Reading]]:
    """Return every pair of models at each layer of the sweep."""
    found = {layer: moe_readings(stage, role, names, layer, missing) for layer in layers_of(stage).sweep}
    return {layer: readings for layer, readings in found.items() if readings}


def _sweep_checks(by_layer: Mapping[int, list[Reading]], spreads: Mapping[int, Spread]) -> list[Check]:
    pairs = {tuple(pair) for pair in itertools.combinations(MOE, 2)}
    whole = {n for n, readings in by_layer.items() if {(reading.a, reading.b) for reading in readings} == pairs}
    said, found = results()["exp4_layers"], []
    for layer, mean, sd in zip(said["layer"], said["mean"], said["std"], strict=True):
        if layer in whole:
            found.append(
                Check(Text("mean cosine of the MoE pairs, layer {layer}", layer=layer), mean, spreads[layer].mean)
            )
            found.append(Check(Text("sd of the MoE pairs, layer {layer}", layer=layer), sd, spreads[layer].sd))
    if whole == set(said["layer"]) == set(by_layer):
        every = Spread.of(list(itertools.chain.from_iterable(by_layer.values())))
        means = float(np.std([spread.mean for spread in spreads.values()]))
        found.append(Check(Text("number of comparisons"), said["n"], every.n, digits=0))
        found.append(Check(Text("mean cosine over all layers and pairs"), said["mean_all"], every.mean))
        found.append(Check(Text("sd over all layers and pairs"), said["std_all"], every.sd))
        found.append(Check(Text("sd of the layers' means"), said["std_of_layer_means"], means))
    return found


# -- models of any width -------------------------------------------------------------------------------------------------


def any_width(stage: Stage, role: Role, section: Section) -> None:
    """Add the models that have another width: only what does not need elements to correspond can be said of them."""
    layer, names = layers_of(stage).at, moe_models(stage, section)
    names += [member.name for member in stage.members if member.known and member.known.name == FIFTH]
    found: dict[Key, FloatArray] = {}
    for name in names:
        found |= vectors(stage, role, [(name, layer)], section.missing)
    if not found:
        raise Missing(Text("no two of these models can be compared at layer {layer}", layer=layer))
    there = [name for name, _ in found]
    usual = Counter(vector.size for vector in found.values()).most_common(1)[0][0]
    met = {key: vector for key, vector in found.items() if vector.size == usual}
    readings = read_pairs(met, across(there, layer))
    for a, b in itertools.combinations(there, 2):
        attempt(section.missing, partial(require_same_shape, a, found[a, layer], b, found[b, layer]))
    rows = [(name, found[name, layer].size, stage.depth(name), variation(found[name, layer])) for name in there]
    head = (column("model", "model"), column("width", "width"), column("layers", "layers"))
    columns = (*head, column("cv", "spread over mean", 3))
    name = f"five_moe{tag(role)}"
    title = Text("MoE models of any width at layer {layer}, {role}", layer=layer, role=role.value)
    section.tables.append(table(name, title, columns, rows))
    if readings:
        title = Text("Pairs that can be compared")
        section.tables.append(table(f"{name}_mean", title, SPREAD_COLUMNS, [Spread.of(readings).row]))
    section.notes.append(
        Text(
            "Vectors of different width cannot be compared element by element. What independent vectors with these spreads would "
            "have for a cosine needs no width and is shown for every pair."
        )
    )
    kinds = {model: stage.kind(model) for model in there}
    shown = _with_predictions(grid(there, kinds, layer, readings), list(found.values()))
    caption = Text(
        "MoE models at layer {layer} ({role}): raw cosine where widths agree (a dash where they do not), and what the spreads "
        "alone predict for every pair.",
        layer=layer,
        role=role.value,
    )
    section.pictures.append(picture(name, caption, "baselines.figures.any_width_heatmap", shown))


def _with_predictions(shown: Grid, held: Sequence[FloatArray]) -> Grid:
    null = shown.null.copy()
    for (i, a), (k, b) in itertools.permutations(enumerate(held), 2):
        if np.isnan(null[i, k]):
            null[i, k] = cosine_if_independent(variation(a), variation(b), sign=float(a.mean() * b.mean()))
    return Grid(shown.names, shown.kinds, shown.layer, shown.cosine, null, shown.pearson, shown.pearson_sd)
