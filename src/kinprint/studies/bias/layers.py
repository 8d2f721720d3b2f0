"""Values by layer in the bias study: statistics (figure 8), distributions (9), difference of the two norms (10)."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.identity import GRIDS
from kinprint.stats import all_pairs
from kinprint.studies.bias.checks import statistics_checks
from kinprint.studies.bias.facts import INPUT, POST, RELATED, extent, layer_stack, places, published_case, vector_roles
from kinprint.studies.opened import Stage, attempt, require_same_shape, sides
from kinprint.studies.outcome import Cell, Check, Missing, Section, column, picture, table
from kinprint.text import Text

RIDGE_STEP, MAX_RIDGES = 3, 16
"""Every third layer is shown of models with more layers than fit one above another."""

CLIPPED = (-0.2, 2.0)
WITHIN = 0.025
"""Pearson of the differences of Solar and GLM that no layer of the published figure exceeds."""

OFF_FIGURE = Text("the figure prints no number; its line stays within this range, and the replicas are made to")


# -- figures 8 and 9 ---------------------------------------------------------------------------------------------------


def statistics(stage: Stage) -> Section:
    """Show mean, standard deviation, least and largest value of every layer."""
    section = Section()
    shown: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for role in vector_roles(stage, (INPUT, POST), section.missing):
        rows: list[tuple[Cell, ...]] = []
        lines = shown.setdefault(role.value, {})
        for name in stage.names:
            attempt(section.missing, partial(_add_statistics, stage, name, role, rows, lines))
        if rows:
            section.tables.append(
                table(
                    f"statistics_{role.value}",
                    Text("Every layer of every model, {role}", role=role.value),
                    (
                        column("model", "model"),
                        column("layer", "layer"),
                        column("mean", "mean", 4),
                        column("sd", "sd", 4),
                        column("cv", "sd over mean", 4),
                        column("min", "least", 4),
                        column("max", "largest", 4),
                        column("length", "length", 2),
                    ),
                    rows,
                    shown=12,
                )
            )
        if stage.request.layers is None:
            for name in filter(stage.original, lines):
                section.checks += statistics_checks(name, role, lines[name])
    if any(shown.values()):
        caption = Text(
            "Mean, standard deviation, least and largest value of every layer. Each panel has its own scale."
        )
        section.pictures.append(picture("statistics", caption, "bias.layer_figures.statistics", shown, places(stage)))
    return section


def _add_statistics(
    stage: Stage, name: str, role: Role, rows: list[tuple[Cell, ...]], lines: dict[str, list[tuple[float, ...]]]
) -> None:
    layers, values = layer_stack(stage, name, role)
    for layer, row in zip(layers, values, strict=True):
        mean, sd = float(row.mean()), float(row.std())
        found = (float(layer), mean, sd, *extent(row), float(np.linalg.norm(row)))
        lines.setdefault(name, []).append(found)
        rows.append((name, layer, mean, sd, sd / abs(mean) if mean else None, *found[3:]))


def ridges(stage: Stage) -> Section:
    """Show how the values of every third layer are distributed; no value is left out."""
    section = Section()
    rows: list[tuple[Cell, ...]] = []
    panels: list[tuple[str, str, tuple[int, ...], FloatArray]] = []
    spacing: dict[str, float] = {}
    for role in vector_roles(stage, (INPUT, POST), section.missing):
        for name in stage.names:
            attempt(section.missing, partial(_add_ridges, stage, name, role, rows, panels))
        shown = [(name, values) for one, name, _, values in panels if one == role.value]
        spacing[role.value] = max((_spacing(stage, name, role, values) for name, values in shown), default=0.0)
    if not panels:
        return section
    section.tables.append(
        table(
            "ridges",
            Text(
                "Layers with values outside {low} to {high}, where the original stopped",
                low=CLIPPED[0],
                high=CLIPPED[1],
            ),
            (
                column("model", "model"),
                column("role", "role"),
                column("layers", "layers"),
                column("least", "least", 3),
                column("largest", "largest", 3),
                column("layers_outside", "layers with values outside"),
                column("largest_share", "largest share of a layer outside, %", 2),
            ),
            rows,
        )
    )
    caption = Text(
        "Values of every layer shown, as histograms over the whole range of the row; each is as high as its own "
        "largest bin. Nothing is cut off."
    )
    section.pictures.append(picture("ridges", caption, "bias.layer_figures.ridges", panels, spacing, places(stage)))
    return section


def _add_ridges(
    stage: Stage,
    name: str,
    role: Role,
    rows: list[tuple[Cell, ...]],
    panels: list[tuple[str, str, tuple[int, ...], FloatArray]],
) -> None:
    layers, values = layer_stack(stage, name, role)
    outside = ((values < CLIPPED[0]) | (values > CLIPPED[1])).mean(axis=1)
    least, largest = extent(values)
    count, share = int(np.count_nonzero(outside)), 100 * float(outside.max())
    rows.append((name, role.value, len(layers), least, largest, count, share))
    step = RIDGE_STEP if len(layers) > MAX_RIDGES else 1
    panels.append((role.value, name, layers[::step], values[::step]))


def _spacing(stage: Stage, name: str, role: Role, values: FloatArray) -> float:
    """Return the distance of neighbouring stored numbers at the largest value."""
    formats = {stage.stored(name, role, layer) for layer in stage.layers(name, role)}
    bits = min((GRIDS[one].precision for one in formats if one in GRIDS), default=53)
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - bits)


# -- figure 10 ---------------------------------------------------------------------------------------------------------


def difference(stage: Stage) -> Section:
    """Look at input norm minus post-attention norm: mean and spread of every model, Pearson of all pairs."""
    section = Section()
    found: dict[str, tuple[tuple[int, ...], FloatArray]] = {}
    for name in stage.names:
        attempt(section.missing, partial(_add_difference, stage, found, name))
    if not found:
        return section
    section.tables.append(
        table(
            "difference",
            Text("Input norm minus post-attention norm"),
            (column("model", "model"), column("layer", "layer"), column("mean", "mean", 4), column("sd", "sd", 4)),
            [
                (name, layer, float(row.mean()), float(row.std()))
                for name, (layers, values) in found.items()
                for layer, row in zip(layers, values, strict=True)
            ],
            shown=12,
        )
    )
    lines: list[tuple[tuple[str, str], tuple[int, ...], FloatArray, float]] = []
    for a, b in itertools.combinations(found, 2):
        attempt(section.missing, partial(_add_difference_pair, section, found, lines, a, b), sides(a, b))
    caption = Text(
        "Input norm minus post-attention norm: mean and standard deviation by layer, and Pearson of pairs of models "
        "(grey: 95 % of independent pairs). Pairs with a mean Pearson above {limit} have a panel of their own.",
        limit=RELATED,
    )
    section.pictures.append(
        picture("difference", caption, "bias.layer_figures.difference", found, lines, places(stage))
    )
    if stage.request.replicas and {"Solar", "GLM"} <= found.keys():
        section.notes.append(
            Text(
                "On replicas the Pearson of Solar and GLM is held within ±{limit}, because the published picture stays within "
                "±{printed}; where the line is flat, this is why.",
                limit=0.018,
                printed=WITHIN,
            )
        )
    if published_case(stage, INPUT, "Solar", "GLM"):
        beyond = [float(np.count_nonzero(np.abs(r) > WITHIN)) for pair, _, r, _ in lines if pair == ("Solar", "GLM")]
        what = Text("figure 10: layers with a Pearson beyond ±{limit}, Solar and GLM", limit=WITHIN)
        section.checks += [
            Check(what, 0.0, count, digits=0, trust="picture", reason=OFF_FIGURE, within=0.0) for count in beyond
        ]
    return section


def _add_difference(stage: Stage, found: dict[str, tuple[tuple[int, ...], FloatArray]], name: str) -> None:
    before, left = layer_stack(stage, name, INPUT)
    after, right = layer_stack(stage, name, POST)
    layers = tuple(layer for layer in before if layer in after)
    if not layers:
        raise Missing(Text("{model} has no layer with both norms", model=name))
    one, other = left[[before.index(x) for x in layers]], right[[after.index(x) for x in layers]]
    require_same_shape(name, one, name, other)
    found[name] = layers, one - other


def _add_difference_pair(
    section: Section,
    found: dict[str, tuple[tuple[int, ...], FloatArray]],
    lines: list[tuple[tuple[str, str], tuple[int, ...], FloatArray, float]],
    a: str,
    b: str,
) -> None:
    (one, left), (other, right) = found[a], found[b]
    require_same_shape(a, left, b, right)
    layers = tuple(layer for layer in one if layer in other)
    if not layers:
        raise Missing(Text("{a} and {b} share no layer with both norms", a=a, b=b))
    pairs = all_pairs(left[[one.index(x) for x in layers]], right[[other.index(x) for x in layers]])
    pearson, sd = np.diagonal(pairs.pearson), 1.0 / math.sqrt(left.shape[1] - 1)
    lines.append(((a, b), layers, pearson, sd))
    section.tables.append(
        table(
            f"difference_{a}_{b}",
            Text("Pearson of the differences of {a} and {b} (null sd {sd})", a=a, b=b, sd=f"{sd:.4f}"),
            (
                column("layer", "layer"),
                column("pearson", "Pearson", 4),
                column("z", "z", 2),
                column("log10_p", "log10 p", 2),
            ),
            [
                (layer, float(pearson[i]), float(pairs.z[i, i]), float(pairs.log10_p[i, i]))
                for i, layer in enumerate(layers)
            ],
            shown=5,
        )
    )
