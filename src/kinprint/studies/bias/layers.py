"""Values by layer in the bias study: statistics (figure 8), distributions (9), difference of the two norms (10)."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.identity import GRIDS
from kinprint.stats import row_grid
from kinprint.studies.bias.facts import INPUT, POST, RELATED, add_checks, extent, layer_stack, places, vector_roles
from kinprint.studies.opened import StudyRun, attempt, each, require_same_shape, sides
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

RIDGE_STEP, MAX_RIDGES = 3, 16
"""Every third layer is shown of models with more layers than fit one above another."""

CLIPPED = (-0.2, 2.0)
WITHIN = 0.025
"""Pearson of the differences of Solar and GLM that no layer of the published figure exceeds."""

Stack = tuple[tuple[int, ...], FloatArray]


def statistics(run: StudyRun) -> Section:
    """Show mean, standard deviation, least and largest value of every layer (figure 8)."""
    section = Section()
    shown: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for role in vector_roles(run, (INPUT, POST), section.missing):
        lines = shown[role.value] = dict(each(section.missing, run.names, partial(_statistics, run, role)))
        rows = [
            (name, int(layer), mean, sd, sd / abs(mean) if mean else None, *others)
            for name, found in lines.items()
            for layer, mean, sd, *others in found
        ]
        if rows:
            title = Text("Every layer of every model, {role}", role=role.value)
            section.add_table(f"statistics_{role.value}", title, STATISTICS, rows, shown=12)
    add_checks(run, section, "fig8")
    if any(shown.values()):
        caption = Text(
            "Mean, standard deviation, least and largest value of every layer. Each panel has its own scale."
        )
        section.add_picture("statistics", caption, "bias.layer_figures.statistics", shown, places(run))
    return section


STATISTICS = columns("model; layer; mean .4; sd .4; cv: sd over mean .4; min: least .4; max: largest .4; length .2")


def _statistics(run: StudyRun, role: Role, name: str) -> tuple[str, list[tuple[float, ...]]]:
    """Return layer, mean, sd, least, largest and length of every layer of a model."""
    return name, [
        (float(layer), float(row.mean()), float(row.std()), *extent(row), float(np.linalg.norm(row)))
        for layer, row in zip(*layer_stack(run, name, role), strict=True)
    ]


def ridges(run: StudyRun) -> Section:
    """Show how the values of every third layer are distributed; no value is left out (figure 9)."""
    section = Section()
    rows: list[tuple[Cell, ...]] = []
    panels: list[tuple[str, str, tuple[int, ...], FloatArray]] = []
    spacing: dict[str, float] = {}
    for role in vector_roles(run, (INPUT, POST), section.missing):
        spacing[role.value] = 0.0
        stacks = each(section.missing, run.names, partial(_named_stack, run, role))
        for name, (layers, values) in stacks:
            outside = ((values < CLIPPED[0]) | (values > CLIPPED[1])).mean(axis=1)
            count, share = int(np.count_nonzero(outside)), 100 * float(outside.max())
            rows.append((name, role.value, len(layers), *extent(values), count, share))
            step = RIDGE_STEP if len(layers) > MAX_RIDGES else 1
            panels.append((role.value, name, layers[::step], values[::step]))
            spacing[role.value] = max(spacing[role.value], _spacing(run, name, role, values[::step]))
    if not panels:
        return section
    section.add_table(
        "ridges",
        Text("Layers with values outside {low} to {high}, where the original stopped", low=CLIPPED[0], high=CLIPPED[1]),
        columns(
            "model; role; layers; least .3; largest .3; layers_outside: layers with values outside; "
            "largest_share: largest share of a layer outside, % .2"
        ),
        rows,
    )
    caption = Text(
        "Values of every layer shown, as histograms over the whole range of the row; each is as high as its own "
        "largest bin. Nothing is cut off."
    )
    section.add_picture("ridges", caption, "bias.layer_figures.ridges", panels, spacing, places(run))
    return section


def _named_stack(run: StudyRun, role: Role, name: str) -> tuple[str, Stack]:
    return name, layer_stack(run, name, role)


def _spacing(run: StudyRun, name: str, role: Role, values: FloatArray) -> float:
    """Return the distance of neighbouring stored numbers at the largest value."""
    formats = {run.stored(name, role, layer) for layer in run.layers(name, role)}
    bits = min((GRIDS[one].precision for one in formats if one in GRIDS), default=53)
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - bits)


def difference(run: StudyRun) -> Section:
    """Look at input norm minus post-attention norm: mean and spread of every model, Pearson of all pairs (figure 10)."""
    section = Section()
    found = dict(each(section.missing, run.names, partial(_difference, run)))
    if not found:
        return section
    section.add_table(
        "difference",
        Text("Input norm minus post-attention norm"),
        columns("model; layer; mean .4; sd .4"),
        [
            (name, layer, float(row.mean()), float(row.std()))
            for name, (layers, values) in found.items()
            for layer, row in zip(layers, values, strict=True)
        ],
        shown=12,
    )
    lines: list[tuple[tuple[str, str], tuple[int, ...], FloatArray, float]] = []
    for a, b in itertools.combinations(found, 2):
        line = attempt(section.missing, partial(_difference_pair, section, found, a, b), sides(a, b))
        lines += [line] if line else []
    caption = Text(
        "Input norm minus post-attention norm: mean and standard deviation by layer, and Pearson of pairs of models "
        "(grey: 95 % of independent pairs). Pairs with a mean Pearson above {limit} have a panel of their own.",
        limit=RELATED,
    )
    section.add_picture("difference", caption, "bias.layer_figures.difference", found, lines, places(run))
    if run.request.replicas and {"Solar", "GLM"} <= found.keys():
        section.notes.append(
            Text(
                "On replicas the Pearson of Solar and GLM is held within ±{limit}, because the published picture stays within "
                "±{printed}; where the line is flat, this is why.",
                limit=0.018,
                printed=WITHIN,
            )
        )
    beyond = [float(np.count_nonzero(np.abs(r) > WITHIN)) for pair, _, r, _ in lines if pair == ("Solar", "GLM")]
    add_checks(run, section, "fig10", {"beyond": beyond[0]} if beyond else {})
    return section


def _difference(run: StudyRun, name: str) -> tuple[str, Stack]:
    (before, left), (after, right) = (layer_stack(run, name, role) for role in (INPUT, POST))
    layers = tuple(layer for layer in before if layer in after)
    if not layers:
        raise Missing(Text("{model} has no layer with both norms", model=name))
    one, other = left[[before.index(x) for x in layers]], right[[after.index(x) for x in layers]]
    require_same_shape(name, one, name, other)
    return name, (layers, one - other)


def _difference_pair(
    section: Section, found: dict[str, Stack], a: str, b: str
) -> tuple[tuple[str, str], tuple[int, ...], FloatArray, float]:
    (one, left), (other, right) = found[a], found[b]
    require_same_shape(a, left, b, right)
    layers = tuple(layer for layer in one if layer in other)
    if not layers:
        raise Missing(Text("{a} and {b} share no layer with both norms", a=a, b=b))
    pairs = row_grid(left[[one.index(x) for x in layers]], right[[other.index(x) for x in layers]])
    values, sd = [np.diagonal(m) for m in (pairs.pearson, pairs.z, pairs.log10_p)], 1.0 / math.sqrt(left.shape[1] - 1)
    title = Text("Pearson of the differences of {a} and {b} (null sd {sd:.4f})", a=a, b=b, sd=sd)
    rows = [(layer, *(float(one[i]) for one in values)) for i, layer in enumerate(layers)]
    heads = columns("layer; pearson: Pearson .4; z .2; log10_p: log10 p .2")
    section.add_table(f"difference_{a}_{b}", title, heads, rows, shown=5)
    return (a, b), layers, values[0], sd
