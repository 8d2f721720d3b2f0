"""Pairs of models in the bias study: figures 1, 3 and 4 (bars and lines by layer), and 3-1 (what differs)."""

from __future__ import annotations

from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.formats.dtypes import FLOATS
from kinprint.metrics import METRICS
from kinprint.metrics.identity import on_grid, ordinals
from kinprint.stats import NullResult, null_for
from kinprint.studies.bias.checks import best_layer_checks, changed_checks
from kinprint.studies.bias.facts import (
    INPUT,
    SAMPLE_SEED,
    PairFacts,
    add_facts,
    figure_pairs,
    model_pairs,
    pair_facts,
    places,
    published_case,
    quartile_sample,
    vector_roles,
)
from kinprint.studies.opened import Stage, attempt, sides
from kinprint.studies.outcome import Cell, Missing, Section, column, picture, table
from kinprint.text import Text, Value

SIBLING = Text(
    "INTELLECT-3 was trained (instruction tuning, then reinforcement learning) from GLM-4.5-Air-Base, as was "
    "GLM-4.5-Air: the two are siblings, so what differs between them is the training of both, not what a fine-tuning "
    "of one did to it."
)
BY_LAYER = (
    column("layer", "layer"),
    column("cosine", "cosine", 4),
    column("cosine_null", "cosine if independent", 4),
    column("cosine_null_sd", "its sd", 4),
    column("pearson", "Pearson", 4),
    column("pearson_null_sd", "Pearson's null sd", 4),
    column("z", "z", 2),
    column("log10_p", "log10 p", 2),
)


def siblings(stage: Stage) -> list[Text]:
    """Return what has to be said about the derived control, if it is there."""
    return [SIBLING] if stage.original("GLM", "INTELLECT") else []


# -- figures 1, 3, 4 ---------------------------------------------------------------------------------------------------


def pairs(stage: Stage) -> Section:
    """Compare pairs layer by layer, and show 50 dimensions of the layer with the largest raw cosine."""
    section = Section(notes=siblings(stage))
    for role in vector_roles(stage, (INPUT,), section.missing):
        for a, b in figure_pairs(stage):
            attempt(section.missing, partial(_one_pair, stage, section, a, b, role), sides(a, b))
    return section


def _one_pair(stage: Stage, section: Section, a: str, b: str, role: Role) -> None:
    facts = pair_facts(stage, a, b, role)
    best = facts.best
    layer, left, right = facts.layers[best], facts.left[best], facts.right[best]
    dims = quartile_sample(left, right, SAMPLE_SEED + stage.request.seed)
    named: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    name = f"pair_{role.value}_{a}_{b}"
    section.tables.append(
        table(name, Text("{a} and {b} by layer, {role}", **named), BY_LAYER, _layer_rows(facts), shown=12)
    )
    section.tables.append(
        table(
            f"{name}_sample",
            Text(
                "{count} dimensions of layer {layer}: {a} (A) and {b} (B), {role}",
                count=len(dims),
                layer=layer,
                **named,
            ),
            (
                column("dimension", "dimension"),
                column("a", "A", 4),
                column("b", "B", 4),
                column("centred_a", "A minus its mean", 4),
                column("centred_b", "B minus its mean", 4),
            ),
            [
                (int(i), float(left[i]), float(right[i]), float(left[i] - left.mean()), float(right[i] - right.mean()))
                for i in dims
            ],
            shown=5,
        )
    )
    caption = Text(
        "{a} and {b}, {role}. Top: {count} dimensions drawn from the quarters of layer {layer} (largest raw cosine), "
        "as stored, and minus the mean of each whole vector. Bottom: raw cosine and Pearson by layer. Grey: 95 % of "
        "independent pairs, layer by layer.",
        count=len(dims),
        layer=layer,
        **named,
    )
    section.pictures.append(picture(name, caption, "bias.figures.pair_panels", facts, dims, places(stage)))
    if published_case(stage, role, a, b):
        section.checks += best_layer_checks(facts)


def _layer_rows(facts: PairFacts) -> list[tuple[Cell, ...]]:
    before = (facts.cosine, facts.cosine_null_mean, facts.cosine_null_sd, facts.pearson)
    return [
        (
            layer,
            *(float(values[i]) for values in before),
            facts.null_sd,
            float(facts.z[i]),
            float(facts.log10_p[i]),
        )
        for i, layer in enumerate(facts.layers)
    ]


# -- figure 3-1 --------------------------------------------------------------------------------------------------------


def changed(stage: Stage) -> Section:
    """Show what differs, layer by layer, between the two models whose norms correlate most."""
    section = Section(notes=siblings(stage))
    for role in vector_roles(stage, (INPUT,), section.missing):
        found: list[PairFacts] = []
        for a, b in model_pairs(stage):
            attempt(section.missing, partial(add_facts, stage, found, a, b, role), sides(a, b))
        usable = [facts for facts in found if np.isfinite(facts.mean_pearson)]
        if usable:
            closest = max(usable, key=lambda facts: facts.mean_pearson)
            attempt(section.missing, partial(_one_change, stage, section, closest), sides(closest.a, closest.b))
    return section


def _one_change(stage: Stage, section: Section, facts: PairFacts) -> None:
    a, b, role = facts.a, facts.b, facts.role
    grid = _grid(stage, facts)
    found = [_change(stage, facts, layer, grid) for layer in facts.layers]
    rows = [_change_row(layer, change) for layer, change in zip(facts.layers, found, strict=True)]
    nulls = [[(change[k][1].mean, change[k][1].sd) for change in found] for k in range(3)]
    named: dict[str, Value] = {"a": a, "b": b, "role": role.value}
    name = f"changed_{role.value}_{a}_{b}"
    section.tables.append(
        table(
            name,
            Text("What differs between {a} and {b}, {role}", **named),
            (
                column("layer", "layer"),
                column("changed_percent", "elements changed, %", 3),
                column("changed_null", "if independent, %", 2),
                column("mean_abs_diff", "mean absolute difference", 2, scientific=True),
                column("mean_abs_diff_null", "if independent", 2, scientific=True),
                column("ulp", "mean distance, ulp", 4),
                column("ulp_null", "if independent, ulp", 1),
                column("ulp_changed", "ulp for each changed element", 2),
            ),
            rows,
        )
    )
    caption = Text(
        "{a} and {b}, the pair with the largest mean Pearson ({r}), {role}: elements changed, mean absolute "
        "difference, and mean distance in units in the last place of {format}. Grey: 95 % of independent pairs. "
        "Logarithmic axes; a layer where nothing changed has no point.",
        r=f"{facts.mean_pearson:.4f}",
        format=grid,
        **named,
    )
    section.pictures.append(picture(name, caption, "bias.figures.changed_lines", rows, nulls, facts.title))
    section.notes.append(
        Text(
            "A share of changed elements depends on how coarse the stored numbers are: a change below half a step is "
            "rounded away, and steps grow with the values. The distance in steps (ulp) stands beside it for that "
            "reason."
        )
    )
    if published_case(stage, role, a, b) and {a, b} == {"GLM", "INTELLECT"}:
        section.checks += changed_checks(facts.layers, rows)


def _grid(stage: Stage, facts: PairFacts) -> str:
    """Return the coarsest format in which a layer of either model is stored."""
    stored = {stage.stored(name, facts.role, layer) for name in (facts.a, facts.b) for layer in facts.layers}
    strange = sorted(stored - set(FLOATS))
    if strange:
        raise Missing(Text("{format} is no floating-point format: no distance in steps", format=", ".join(strange)))
    return max(stored, key=FLOATS.index)


def _change(stage: Stage, facts: PairFacts, layer: int, grid: str) -> list[tuple[float, NullResult]]:
    """Return share changed, mean absolute difference and ulp distance of one layer, each with its null."""
    a, b = (stage.raw(name, facts.role, layer).ravel().astype(np.float64) for name in (facts.a, facts.b))
    at = facts.layers.index(layer)
    steps = [ordinals(on_grid(x, grid), grid) for x in (a, b)]
    left, right = facts.left[at], facts.right[at]
    measured = (
        ("changed", a, b, METRICS["changed_ratio"](a, b)),
        ("abs_diff", left, right, METRICS["mean_abs_diff"](left, right)),
        ("ulp", steps[0], steps[1], METRICS["ulp_distance"](a, b, dtype=grid)),
    )
    # of the nulls only mean and sd are used, and those are exact: no draws are worth their time
    return [
        (value, null_for(kind, x, y, observed=value, higher_is_closer=False, draws=1)) for kind, x, y, value in measured
    ]


def _change_row(layer: int, change: list[tuple[float, NullResult]]) -> tuple[Cell, ...]:
    (share, share_null), (gap, gap_null), (ulp, ulp_null) = change
    each = ulp / share if share > 0.0 else None
    return (layer, 100 * share, 100 * share_null.mean, gap, gap_null.mean, ulp, ulp_null.mean, each)
