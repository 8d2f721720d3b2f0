"""Pairs of models in the bias study: figures 1, 3 and 4 (bars and lines by layer), and 3-1 (what differs)."""

from __future__ import annotations

from functools import partial

import numpy as np

from kinprint.arch import Role
from kinprint.formats.dtypes import FLOATS
from kinprint.metrics import METRICS
from kinprint.metrics.identity import on_grid, ordinals
from kinprint.stats import NullResult, null_for
from kinprint.studies.bias import facts
from kinprint.studies.bias.facts import INPUT, add_checks, places
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

SIBLING = Text(
    "INTELLECT-3 was trained (instruction tuning, then reinforcement learning) from GLM-4.5-Air-Base, as was "
    "GLM-4.5-Air: the two are siblings, so what differs between them is the training of both, not what a fine-tuning "
    "of one did to it."
)
BY_LAYER = columns(
    "layer; cosine .4; cosine_null: cosine if independent .4; cosine_null_sd: its sd .4; pearson: Pearson .4; "
    "pearson_null_sd: Pearson's null sd .4; z .2; log10_p: log10 p .2"
)


def siblings(run: StudyRun) -> list[Text]:
    """Return what has to be said about the derived control, if it is there."""
    return [SIBLING] if run.original("GLM", "INTELLECT") else []


def pairs(run: StudyRun) -> Section:
    """Compare pairs layer by layer, and show 50 dimensions of the layer with the largest raw cosine (figures 1, 3, 4)."""
    section = Section(notes=siblings(run))
    values: dict[str, float | None] = {}
    for role in facts.vector_roles(run, (INPUT,), section.missing):
        for a, b in facts.figure_pairs(run):
            attempt(section.missing, partial(_one_pair, run, section, values, a, b, role), sides(a, b))
    add_checks(run, section, "fig1", values)
    return section


def _one_pair(run: StudyRun, section: Section, values: dict[str, float | None], a: str, b: str, role: Role) -> None:
    pair = layer_pair(run, a, b, role)
    best = pair.best
    left, right = pair.left[best], pair.right[best]
    dims = facts.quartile_sample(left, right, facts.SAMPLE_SEED + run.request.seed)
    named = {"a": a, "b": b, "role": role.value}
    sampled = {"count": len(dims), "layer": pair.layers[best]}
    name = f"pair_{role.value}_{a}_{b}"
    rows = pair.rows("cosine", "null_mean", "null_sd", "pearson", "pearson_sd", "z", "log10_p")
    section.add_table(name, Text("{a} and {b} by layer, {role}", **named), BY_LAYER, rows, shown=12)
    section.add_table(
        f"{name}_sample",
        Text("{count} dimensions of layer {layer}: {a} (A) and {b} (B), {role}", **sampled, **named),
        columns("dimension; a: A .4; b: B .4; centred_a: A minus its mean .4; centred_b: B minus its mean .4"),
        [
            (int(i), float(left[i]), float(right[i]), float(left[i] - left.mean()), float(right[i] - right.mean()))
            for i in dims
        ],
        shown=5,
    )
    caption = Text(
        "{a} and {b}, {role}. Top: {count} dimensions drawn from the quarters of layer {layer} (largest raw cosine), "
        "as stored, and minus the mean of each whole vector. Bottom: raw cosine and Pearson by layer. Grey: 95 % of "
        "independent pairs, layer by layer.",
        **sampled,
        **named,
    )
    section.add_picture(name, caption, "bias.figures.pair_panels", pair, dims, places(run))
    if role is INPUT:
        at_best = {"layer": pair.layers[best], "cosine": pair.cosine[best], "pearson": pair.pearson[best]}
        values |= {f"{a}-{b} {name}": float(value) for name, value in at_best.items()}


def changed(run: StudyRun) -> Section:
    """Show what differs, layer by layer, between the two models whose norms correlate most (figure 3-1)."""
    section = Section(notes=siblings(run))
    for role in facts.vector_roles(run, (INPUT,), section.missing):
        found = facts.compared_pairs(run, role, section.missing)
        usable = [pair for pair in found if np.isfinite(pair.mean_pearson)]
        if usable:
            closest = max(usable, key=lambda pair: pair.mean_pearson)
            attempt(section.missing, partial(_one_change, run, section, closest), sides(closest.a, closest.b))
    add_checks(run, section, "fig3_1")
    return section


def _one_change(run: StudyRun, section: Section, pair: LayerPair) -> None:
    grid = _grid(run, pair)
    found = [_change(run, pair, layer, grid) for layer in pair.layers]
    rows = [_change_row(layer, change) for layer, change in zip(pair.layers, found, strict=True)]
    nulls = [[(change[k][1].mean, change[k][1].sd) for change in found] for k in range(3)]
    named = {"a": pair.a, "b": pair.b, "role": pair.role.value}
    name = f"changed_{pair.role.value}_{pair.a}_{pair.b}"
    section.add_table(
        name,
        Text("What differs between {a} and {b}, {role}", **named),
        columns(
            "layer; changed_percent: elements changed, % .3; changed_null: if independent, % .2; "
            "mean_abs_diff: mean absolute difference .2e; mean_abs_diff_null: if independent .2e; "
            "ulp: mean distance, ulp .4; ulp_null: if independent, ulp .1; ulp_changed: ulp for each changed element .2"
        ),
        rows,
    )
    caption = Text(
        "{a} and {b}, the pair with the largest mean Pearson ({r}), {role}: elements changed, mean absolute "
        "difference, and mean distance in units in the last place of {format}. Grey: 95 % of independent pairs. "
        "Logarithmic axes; a layer where nothing changed has no point.",
        r=f"{pair.mean_pearson:.4f}",
        format=grid,
        **named,
    )
    section.add_picture(name, caption, "bias.figures.changed_lines", rows, nulls, pair.title)
    section.notes.append(
        Text(
            "A share of changed elements depends on how coarse the stored numbers are: a change below half a step is "
            "rounded away, and steps grow with the values. The distance in steps (ulp) stands beside it for that "
            "reason."
        )
    )


def _grid(run: StudyRun, pair: LayerPair) -> str:
    """Return the coarsest format in which a layer of either model is stored."""
    stored = {run.stored(name, pair.role, layer) for name in (pair.a, pair.b) for layer in pair.layers}
    strange = sorted(stored - set(FLOATS))
    if strange:
        raise Missing(Text("{format} is no floating-point format: no distance in steps", format=", ".join(strange)))
    return max(stored, key=FLOATS.index)


def _change(run: StudyRun, pair: LayerPair, layer: int, grid: str) -> list[tuple[float, NullResult]]:
    """Return share changed, mean absolute difference and ulp distance of one layer, each with its null."""
    a, b = (run.raw(name, pair.role, layer).ravel().astype(np.float64) for name in (pair.a, pair.b))
    at = pair.layers.index(layer)
    left, right = pair.left[at], pair.right[at]
    steps = [ordinals(on_grid(x, grid), grid) for x in (a, b)]
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
