"""Baselines inside a model: layer 0 against later layers (experiment 1), and layers at equal distance (experiment 2)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.baselines.common import ROLE, layers_of, pair_checks, results, tag, vectors
from kinprint.studies.baselines.readings import COLUMNS, SPREAD_COLUMNS, Key, Reading, Spread, read_pairs
from kinprint.studies.opened import Stage
from kinprint.studies.outcome import Check, Missing, Section, Table, column, picture, table
from kinprint.studies.published import published
from kinprint.text import Text

Groups = list[tuple[str, list[Reading]]]
"""Readings under headings, as a figure shows them."""

# -- experiment 1 --------------------------------------------------------------------------------------------------------


def layer_zero(stage: Stage, role: Role, section: Section) -> None:
    """Set layer 0 of the first two models against later layers, beside what the vectors' spreads predict."""
    by_model = zero_readings(stage, role, section.missing)
    if not by_model:
        raise Missing(Text("no model has layer 0 and a later one"))
    readings = list(itertools.chain.from_iterable(by_model.values()))
    name = f"exp1_layer0{tag(role)}"
    title = Text("Layer 0 against later layers, {role}", role=role.value)
    section.tables.append(table(name, title, COLUMNS, [reading.row for reading in readings]))
    section.tables.append(_means(f"exp1_means{tag(role)}", by_model))
    caption = Text(
        "Layer 0 against later layers of the same model ({role}): raw cosine and Pearson. Grey: 95 % of independent pairs, which "
        "for the raw cosine lie where the two vectors' spreads put them.",
        role=role.value,
    )
    groups = zero_groups(by_model)
    section.pictures.append(
        picture(name, caption, "baselines.figures.comparison_dots", groups, stage.names, role.value)
    )
    section.notes += [_spread_note(model, found) for model, found in by_model.items()]
    if stage.original("Solar", "GLM"):
        section.notes.append(
            Text(
                "The published explanation, an expanded vocabulary, is not supported: GLM, whose vocabulary was not expanded, "
                "has the same low cosines, and the spread of layer 0 explains most of them in both."
            )
        )
    section.checks += _zero_checks(stage, role, by_model)


def zero_readings(stage: Stage, role: Role, missing: list[Text]) -> dict[str, list[Reading]]:
    """Return layer 0 against the later layers, by model; what is not there is noted."""
    far = layers_of(stage).far
    found = {}
    for name in stage.names[:2]:
        held = vectors(stage, role, [(name, 0), *((name, layer) for layer in far)], missing)
        readings = read_pairs(held, [((name, 0), (name, layer)) for layer in far])
        if readings:
            found[name] = readings
    return found


def zero_groups(by_model: Mapping[str, list[Reading]]) -> Groups:
    """Return the readings under the headings of the figure."""
    return [(f"{model}, layer 0 and a later one", readings) for model, readings in by_model.items()]


def _spread_note(model: str, readings: Sequence[Reading]) -> Text:
    nulls, seen = [reading.null_mean for reading in readings], [reading.cosine for reading in readings]
    return Text(
        "{model}: the standard deviation of layer 0 is {cv:.2f} times its mean. With the spreads of the later layers, that alone "
        "predicts cosines from {low:.3f} to {high:.3f}, most of what is seen ({least:.3f} to {most:.3f}). What remains is a "
        "Pearson of {weak:.3f} to {strong:.3f}; z runs from {from_z:.1f} to {to_z:.1f}, and {outside} of {n} lie outside 95 % of "
        "independent pairs.",
        model=model,
        cv=readings[0].cv_a,
        low=min(nulls),
        high=max(nulls),
        least=min(seen),
        most=max(seen),
        weak=min(reading.pearson for reading in readings),
        strong=max(reading.pearson for reading in readings),
        from_z=min(reading.z for reading in readings),
        to_z=max(reading.z for reading in readings),
        outside=sum(abs(reading.z) > 1.96 for reading in readings),
        n=len(readings),
    )


def _means(name: str, by_group: Mapping[str, Sequence[Reading]]) -> Table:
    columns = (column("model", "model"), *SPREAD_COLUMNS)
    return table(name, Text("Means by model"), columns, [(group, *Spread.of(x).row) for group, x in by_group.items()])


def _zero_checks(stage: Stage, role: Role, by_model: Mapping[str, list[Reading]]) -> list[Check]:
    said = results()["exp1_layer0"]
    known = {
        ((model, 0), (model, layer)): value
        for model in ("Solar", "GLM")
        for layer, value in zip(said["layers"], said[model], strict=True)
    }
    found = pair_checks(stage, role, itertools.chain.from_iterable(by_model.values()), known)
    for model, readings in by_model.items():
        whole = [reading.layer_b for reading in readings] == said["layers"]
        if role is ROLE and stage.original(model) and f"{model}_mean" in said and whole:
            what = Text("mean cosine of layer 0 against 10, 20, 30 and 40, {model}", model=model)
            found.append(Check(what, said[f"{model}_mean"], Spread.of(readings).mean))
    return found


# -- experiment 2 --------------------------------------------------------------------------------------------------------


def equal_distance(stage: Stage, role: Role, section: Section) -> None:
    """Set layers of one model against each other, and against another model's at the same and at equal distance."""
    names, layers = stage.names[:2], layers_of(stage)
    if not layers.steps:
        raise Missing(Text("two layers after layer 0 are needed"))
    within = {name: _steps_within(stage, role, name, section.missing) for name in names}
    within = {name: found for name, found in within.items() if found}
    same, apart = _steps_across(stage, role, section.missing)
    groups: Groups = [(f"{name}, two layers", found) for name, found in within.items()]
    groups += [("two models, same layer", same)] * bool(same)
    groups += [("two models, two layers", apart)] * bool(apart)
    if not groups:
        raise Missing(Text("no model has two of the layers {layers}", layers=", ".join(map(str, layers.far))))
    name = f"exp2_equal_distance{tag(role)}"
    title = Text("Layers at equal distance, within a model and across two, {role}", role=role.value)
    rows = [reading.row for _, found in groups for reading in found]
    section.tables.append(table(name, title, COLUMNS, rows))
    if within:
        section.tables.append(_means(f"exp2_means{tag(role)}", within))
    caption = Text(
        "Layers at equal distance within a model, and across two models at the same layer and at that distance ({role}): raw "
        "cosine and Pearson. Grey: 95 % of independent pairs.",
        role=role.value,
    )
    section.pictures.append(
        picture(name, caption, "baselines.figures.comparison_dots", groups, stage.names, role.value)
    )
    section.notes.append(
        Text(
            "Distance between layers is part of a baseline: two layers of one model belong beside layers of two models that lie "
            "equally far apart, not beside the same layer of both."
        )
    )
    section.notes += [_range_note(heading, found) for heading, found in _named(within, same, apart) if found]
    section.checks += _step_checks(stage, role, within, [*same, *apart])


def _named(
    within: Mapping[str, list[Reading]], same: list[Reading], apart: list[Reading]
) -> Iterator[tuple[str | Text, list[Reading]]]:
    yield from within.items()
    yield Text("two models, same layer"), same
    yield Text("two models, two layers"), apart


def _range_note(where: str | Text, readings: Sequence[Reading]) -> Text:
    z = [reading.z for reading in readings]
    return Text(
        "{where}: Pearson lies from {low:.1f} to {high:.1f} null standard deviations above zero.",
        where=where,
        low=min(z),
        high=max(z),
    )


def _steps_within(stage: Stage, role: Role, name: str, missing: list[Text]) -> list[Reading]:
    steps = layers_of(stage).steps
    held = vectors(stage, role, [(name, layer) for step in steps for layer in step], missing)
    return read_pairs(held, [((name, low), (name, high)) for low, high in steps])


def _steps_across(stage: Stage, role: Role, missing: list[Text]) -> tuple[list[Reading], list[Reading]]:
    """Return the first two models at the same layer, and one at the lower and the other at the higher layer of each step."""
    if len(stage.names) < 2:
        return [], []
    (a, b), steps = stage.names[:2], layers_of(stage).steps
    met = list(dict.fromkeys(itertools.chain.from_iterable(steps)))
    held = vectors(stage, role, [(name, layer) for name in (a, b) for layer in met], missing)
    same: list[tuple[Key, Key]] = [((a, layer), (b, layer)) for layer in met]
    apart: list[tuple[Key, Key]] = [
        pair for low, high in steps for pair in (((a, low), (b, high)), ((a, high), (b, low)))
    ]
    return read_pairs(held, same), read_pairs(held, apart)


SIGMA_WRONG = Text(
    "an effect size of two sets of four values, not a test: the within-model set holds only layer 0, which is left out of the "
    "other set, and the raw cosine's null is not 0; at equal distance the sign of the gap turns"
)
CROSS_WRONG = Text("stated for Solar's layer 10 and GLM's layer 20; seed 002 measured 0.9820")


def _step_checks(
    stage: Stage, role: Role, within: Mapping[str, list[Reading]], crossing: Sequence[Reading]
) -> list[Check]:
    said = results()["exp2_adjacent"]
    known = {
        ((model, low), (model, high)): value
        for model in ("Solar", "GLM")
        for (low, high), value in zip(((10, 20), (20, 30)), said[model], strict=True)
    }
    found = pair_checks(stage, role, itertools.chain.from_iterable(within.values()), known)
    means = {}
    for model, readings in within.items():
        if role is ROLE and stage.original(model) and all(reading.key in known for reading in readings):
            means[model] = Spread.of(readings).mean
            what = Text("mean cosine of layers 10–20 and 20–30, {model}", model=model)
            found.append(Check(what, said[f"{model}_mean"], means[model]))
    seen = {reading.key: reading.cosine for reading in crossing}
    same, other = seen.get((("Solar", 10), ("GLM", 10))), seen.get((("Solar", 10), ("GLM", 20)))
    if role is ROLE and stage.original("Solar", "GLM"):
        if same is not None and set(means) == {"Solar", "GLM"}:
            gap = 100 * (float(np.mean(list(means.values()))) - same)
            what = Text("equal distance within a model minus Solar–GLM at layer 10, percentage points")
            found.append(Check(what, 1.4, gap, digits=1, trust="text"))
        if other is not None:
            what = Text("cosine, {pair}", pair="Solar[10] – GLM[20]")
            found.append(Check(what, 0.38, other, digits=2, trust="wrong", reason=CROSS_WRONG))
        found += _sigma_check(stage)
    return found


def _sigma_check(stage: Stage) -> list[Check]:
    """Return the "182 sigma" beside the same formula on these vectors: GLM's layer 0 against Solar–GLM at the same layer."""
    far = results()["exp1_layer0"]["layers"]
    held: dict[Key, FloatArray] = vectors(stage, ROLE, [(m, n) for m in ("Solar", "GLM") for n in (0, *far)], [])
    inside = read_pairs(held, [(("GLM", 0), ("GLM", layer)) for layer in far])
    between = read_pairs(held, [(("Solar", layer), ("GLM", layer)) for layer in far])
    if len(inside) < len(far) or len(between) < len(far):
        return []
    low, high = Spread.of(inside), Spread.of(between)
    pooled = math.sqrt((low.sd**2 + high.sd**2) / 2)
    value = published()["recomputed_checks"]["sigma182"]["value"]
    what = Text("gap between layer 0 within GLM and Solar–GLM, in pooled standard deviations")
    measured = (high.mean - low.mean) / pooled if pooled else None
    return [Check(what, round(value), measured, digits=0, trust="wrong", reason=SIGMA_WRONG)]
