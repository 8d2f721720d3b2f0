"""Compare MoE models at one layer and at several (experiments 3 and 4), and those of any width."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.explain import cosine_if_independent
from kinprint.studies.baselines.common import FIFTH, add_checks, at_layer, layers_of, moe_models, tag, vectors
from kinprint.studies.opened import StudyRun, attempt, require_same_shape
from kinprint.studies.outcome import Missing, Section, columns
from kinprint.studies.vector_pairs import COLUMNS, SPREAD_COLUMNS, Spread, VectorPair, across, variation, vector_pairs
from kinprint.text import Text, Value


@dataclass(frozen=True)
class ModelGrid:
    """Models against models at one layer, as matrices; NaN on the diagonal and where two are not comparable."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    layer: int
    cosine: FloatArray
    null_mean: FloatArray
    pearson: FloatArray
    pearson_sd: float


def model_grid(names: Sequence[str], kinds: Mapping[str, str], layer: int, pairs: Sequence[VectorPair]) -> ModelGrid:
    """Return pairs at one layer as symmetric matrices."""
    matrices = {name: np.full((len(names), len(names)), np.nan) for name in ("cosine", "null_mean", "pearson")}
    for (name, matrix), pair in itertools.product(matrices.items(), pairs):
        i, k = names.index(pair.a), names.index(pair.b)
        matrix[i, k] = matrix[k, i] = getattr(pair, name)
    sd = pairs[0].pearson_sd if pairs else float("nan")
    return ModelGrid(tuple(names), tuple(kinds[name] for name in names), layer, **matrices, pearson_sd=sd)


def compared_models(names: Sequence[str], pairs: Sequence[VectorPair]) -> list[str]:
    """Return the models of which there is a pair."""
    found = {name for pair in pairs for name in (pair.a, pair.b)}
    return [name for name in names if name in found]


def moe_at_one_layer(run: StudyRun, role: Role, section: Section) -> None:
    """Set the MoE models against each other at one layer (experiment 3)."""
    layer, names = layers_of(run).at, moe_models(run, section)
    pairs = at_layer(run, role, names, layer, section.missing)
    if not pairs:
        raise Missing("no two of these models can be compared at layer {layer}", layer=layer)
    name = f"exp3_moe{tag(role)}"
    named: dict[str, Value] = {"layer": layer, "role": role.value}
    section.add_table(name, Text("Models against each other at layer {layer}, {role}", **named), COLUMNS, pairs)
    section.add_table(f"{name}_mean", Text("All pairs together"), SPREAD_COLUMNS, [Spread.of(pairs)])
    section.note(
        "{n} pairs at layer {layer}: the raw cosine differs from what independent vectors with these spreads have by at most "
        "{gap:.4f}; {outside} of {n} Pearson correlations lie outside 95 % of their null.",
        n=len(pairs),
        layer=layer,
        gap=max(abs(pair.cosine - pair.null_mean) for pair in pairs),
        outside=sum(abs(pair.z) > 1.96 for pair in pairs),
    )
    shown = model_grid(compared_models(names, pairs), {model: run.kind(model) for model in names}, layer, pairs)
    section.add_picture(
        name, "baselines.moe", shown, ("cosine", "null_mean", "pearson"), **named, sd=pairs[0].pearson_sd
    )
    add_checks(run, role, section, "exp3")


def moe_at_several_layers(run: StudyRun, role: Role, section: Section) -> None:
    """Set the MoE models against each other at several layers: mean and spread of the pairs at each (experiment 4)."""
    by_layer = pairs_by_layer(run, role, moe_models(run, section), section.missing)
    if not by_layer:
        raise Missing("no two of these models share one of the layers looked at")
    pairs, name = list(itertools.chain.from_iterable(by_layer.values())), f"exp4_layers{tag(role)}"
    title = Text("Mean and spread of the pairs by layer, {role}", role=role.value)
    rows = [(layer, *Spread.of(found)) for layer, found in by_layer.items()]
    section.add_table(name, title, (*columns("layer"), *SPREAD_COLUMNS), rows)
    section.add_table(f"{name}_all", Text("All layers together"), SPREAD_COLUMNS, [Spread.of(pairs)])
    section.add_table(f"{name}_pairs", Text("Every pair at every layer"), COLUMNS, pairs, shown=12)
    section.note(
        "The pairs share models, and the layers of a model resemble each other, so the {n} values are not {n} independent "
        "ones; the spreads describe these models and are no standard errors.",
        n=len(pairs),
    )
    section.add_picture(name, "baselines.layer_sweep", by_layer, role.value, role=role.value)
    add_checks(run, role, section, "exp4")


def pairs_by_layer(run: StudyRun, role: Role, names: Sequence[str], missing: list[Text]) -> dict[int, list[VectorPair]]:
    """Return every pair of models at each layer of the sweep."""
    found = {layer: at_layer(run, role, names, layer, missing) for layer in layers_of(run).sweep}
    return {layer: pairs for layer, pairs in found.items() if pairs}


def any_width(run: StudyRun, role: Role, section: Section) -> None:
    """Add the models that have another width: only what does not need elements to correspond can be said of them."""
    layer, names = layers_of(run).at, moe_models(run, section)
    names += [member.name for member in run.models if member.known and member.known.name == FIFTH]
    found = dict(item for name in names for item in vectors(run, role, [(name, layer)], section.missing).items())
    if not found:
        raise Missing("no two of these models can be compared at layer {layer}", layer=layer)
    there = [name for name, _ in found]
    usual = Counter(vector.size for vector in found.values()).most_common(1)[0][0]
    pairs = vector_pairs({key: x for key, x in found.items() if x.size == usual}, across(there, layer))
    for a, b in itertools.combinations(there, 2):
        attempt(section.missing, partial(require_same_shape, a, found[a, layer], b, found[b, layer]))
    name = f"five_moe{tag(role)}"
    named: dict[str, Value] = {"layer": layer, "role": role.value}
    section.add_table(
        name,
        Text("MoE models of any width at layer {layer}, {role}", **named),
        columns("model; width; layers; cv: spread over mean .3"),
        [(model, x.size, run.depth(model), variation(x)) for (model, _), x in found.items()],
    )
    if pairs:
        section.add_table(f"{name}_mean", Text("Pairs that can be compared"), SPREAD_COLUMNS, [Spread.of(pairs)])
    section.note(
        "Vectors of different width cannot be compared element by element. What independent vectors with these spreads would "
        "have for a cosine needs no width and is shown for every pair."
    )
    shown = model_grid(there, {model: run.kind(model) for model in there}, layer, pairs)
    null = shown.null_mean.copy()
    for (i, x), (k, y) in itertools.permutations(enumerate(found.values()), 2):
        if np.isnan(null[i, k]):
            null[i, k] = cosine_if_independent(variation(x), variation(y), sign=float(x.mean() * y.mean()))
    arguments = replace(shown, null_mean=null), ("cosine", "null_mean")
    section.add_picture(name, "baselines.five_moe", *arguments, **named)
