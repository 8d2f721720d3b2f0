"""Compare layers inside a model: layer 0 with later ones (experiment 1), and layers at equal distance (experiment 2)."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kinprint.arch import Role
from kinprint.studies.baselines.common import ROLE, add_checks, layers_of, measured, tag
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.studies.vector_pairs import COLUMNS, SPREAD_COLUMNS, Spread, Vector, VectorPair
from kinprint.text import Text, Value

Groups = list[tuple[str, list[VectorPair]]]  # pairs under headings, as a figure shows them


def _means(section: Section, name: str, by_model: Mapping[str, Sequence[VectorPair]]) -> None:
    rows = [(model, *Spread.of(pairs)) for model, pairs in by_model.items()]
    section.add_table(name, Text("Means by model"), (*columns("model"), *SPREAD_COLUMNS), rows)


def layer_zero(run: StudyRun, role: Role, section: Section) -> None:
    """Set layer 0 of the first two models against later layers, beside what the vectors' spreads predict (experiment 1)."""
    by_model = zero_pairs(run, role, section.missing)
    if not by_model:
        raise Missing("no model has layer 0 and a later one")
    name, pairs = f"exp1_layer0{tag(role)}", itertools.chain.from_iterable(by_model.values())
    section.add_table(name, Text("Layer 0 against later layers, {role}", role=role.value), COLUMNS, pairs)
    _means(section, f"exp1_means{tag(role)}", by_model)
    groups = zero_groups(by_model)
    section.add_picture(name, "baselines.layer_zero", groups, run.names, role.value, role=role.value)
    section.notes += [_spread_note(model, found) for model, found in by_model.items()]
    if run.original("Solar", "GLM"):
        section.note(
            "The published explanation, an expanded vocabulary, is not supported: GLM, whose vocabulary was not expanded, "
            "has the same low cosines, and the spread of layer 0 explains most of them in both."
        )
    add_checks(run, role, section, "exp1")


def zero_pairs(run: StudyRun, role: Role, missing: list[Text]) -> dict[str, list[VectorPair]]:
    """Return layer 0 against the later layers, by model; what is not there is noted."""
    far = layers_of(run).far
    found = {
        name: measured(run, role, [((name, 0), (name, layer)) for layer in far], missing)[0] for name in run.names[:2]
    }
    return {name: pairs for name, pairs in found.items() if pairs}


def zero_groups(by_model: Mapping[str, list[VectorPair]]) -> Groups:
    """Return the pairs under the headings of the figure."""
    return [(f"{model}, layer 0 and a later one", pairs) for model, pairs in by_model.items()]


def _spread_note(model: str, pairs: Sequence[VectorPair]) -> Text:
    ends = {
        "null_mean": ("low", "high"),
        "cosine": ("least", "most"),
        "pearson": ("weak", "strong"),
        "z": ("from_z", "to_z"),
    }
    spans: dict[str, Value] = {}
    for name, (low, high) in ends.items():
        values = [getattr(pair, name) for pair in pairs]
        spans |= {low: min(values), high: max(values)}
    return Text(
        "{model}: the standard deviation of layer 0 is {cv:.2f} times its mean. With the spreads of the later layers, that alone "
        "predicts cosines from {low:.3f} to {high:.3f}, most of what is seen ({least:.3f} to {most:.3f}). What remains is a "
        "Pearson of {weak:.3f} to {strong:.3f}; z runs from {from_z:.1f} to {to_z:.1f}, and {outside} of {n} lie outside 95 % of "
        "independent pairs.",
        **spans,
        model=model,
        cv=pairs[0].cv_a,
        outside=sum(abs(pair.z) > 1.96 for pair in pairs),
        n=len(pairs),
    )


def equal_distance(run: StudyRun, role: Role, section: Section) -> None:
    """Set layers of one model against each other, and against another model's at equal distance (experiment 2)."""
    layers, names = layers_of(run), run.names[:2]
    if not layers.steps:
        raise Missing("two layers after layer 0 are needed")
    steps = {name: [((name, low), (name, high)) for low, high in layers.steps] for name in names}
    within = {name: measured(run, role, pairs, section.missing)[0] for name, pairs in steps.items()}
    within = {name: found for name, found in within.items() if found}
    same, apart = _steps_across(run, role, section.missing)
    groups: Groups = [(f"{name}, two layers", found) for name, found in within.items()]
    groups += [("two models, same layer", same)] * bool(same) + [("two models, two layers", apart)] * bool(apart)
    if not groups:
        raise Missing("no model has two of the layers {layers}", layers=", ".join(map(str, layers.far)))
    name = f"exp2_equal_distance{tag(role)}"
    title = Text("Layers at equal distance, within a model and across two, {role}", role=role.value)
    section.add_table(name, title, COLUMNS, [pair for _, found in groups for pair in found])
    if within:
        _means(section, f"exp2_means{tag(role)}", within)
    section.add_picture(name, "baselines.equal_distance", groups, run.names, role.value, role=role.value)
    section.note(
        "Distance between layers is part of a baseline: two layers of one model belong beside layers of two models that lie "
        "equally far apart, not beside the same layer of both."
    )
    crossing = {Text("two models, same layer"): same, Text("two models, two layers"): apart}
    for where, found in (within | crossing).items():
        if z := [pair.z for pair in found]:
            said = "{where}: Pearson lies from {low:.1f} to {high:.1f} null standard deviations above zero."
            section.note(said, where=where, low=min(z), high=max(z))
    seen = {pair.key: pair.cosine for pair in (*itertools.chain.from_iterable(within.values()), *same)}
    add_checks(run, role, section, "exp2", _step_values(run, seen))


def _steps_across(run: StudyRun, role: Role, missing: list[Text]) -> tuple[list[VectorPair], list[VectorPair]]:
    """Return the first two models at the same layer, and one at the lower and the other at the higher layer of each step."""
    if len(run.names) < 2:
        return [], []
    (a, b), steps = run.names[:2], layers_of(run).steps
    same = [((a, layer), (b, layer)) for layer in dict.fromkeys(itertools.chain.from_iterable(steps))]
    apart = [pair for low, high in steps for pair in (((a, low), (b, high)), ((a, high), (b, low)))]
    found, _ = measured(run, role, same + apart, missing)
    return [pair for pair in found if pair.key in same], [pair for pair in found if pair.key in apart]


def _step_values(run: StudyRun, seen: Mapping[tuple[Vector, Vector], float]) -> dict[str, float | None]:
    """Return the gap at equal distance, and the "182 sigma" by its formula: GLM's layer 0 against Solar–GLM, layer by layer."""
    if not run.original("Solar", "GLM"):
        return {}
    values: dict[str, float | None] = {}
    within = [((m, low), (m, low + 10)) for m in ("Solar", "GLM") for low in (10, 20)]
    same: tuple[Vector, Vector] = (("Solar", 10), ("GLM", 10))
    if all(key in seen for key in (same, *within)):
        values["gap"] = 100 * (float(np.mean([seen[key] for key in within])) - seen[same])
    far = (10, 20, 30, 40)
    wanted = [((a, 0 if a == "GLM" else layer), ("GLM", layer)) for a in ("GLM", "Solar") for layer in far]
    found, _ = measured(run, ROLE, wanted, [])
    if len(found) == len(wanted):
        low, high = Spread.of(found[: len(far)]), Spread.of(found[len(far) :])
        pooled = math.sqrt((low.sd**2 + high.sd**2) / 2)
        values["sigma"] = (high.mean - low.mean) / pooled if pooled else None
    return values
