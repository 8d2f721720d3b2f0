"""Describe values by layer in the bias study: statistics (figure 8), distributions (9), difference of the two norms (10)."""

import itertools
import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.metrics.identity import GRIDS
from kinprint.studies.bias.shared import INPUT, POST, RELATED, extent, layer_stack, places, vector_roles
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.opened import StudyRun, each, require_same_shape, sides
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

RIDGE_STEP, MAX_RIDGES = 3, 16  # every third layer is shown of models with more layers than fit one above another
CLIPPED = (-0.2, 2.0)
WITHIN = 0.025  # Pearson of the differences of Solar and GLM that no layer of the published figure exceeds
Stack = tuple[tuple[int, ...], FloatArray]
STATISTICS = columns("model; layer; mean .4; sd .4; cv: sd over mean .4; min: least .4; max: largest .4; length .2")


def _stacks(run: StudyRun, section: Section, role: Role) -> list[tuple[str, Stack]]:
    """Return the models that have the role, with their layers and vectors."""
    return each(section.missing, run.names, lambda name: (name, layer_stack(run, name, role)))


def statistics(run: StudyRun, section: Section) -> None:
    """Show mean, standard deviation, least and largest value of every layer (figure 8)."""
    shown: dict[str, list[tuple[Cell, ...]]] = {}
    for role in vector_roles(run, (INPUT, POST), section.missing):
        rows: list[tuple[Cell, ...]] = [
            (name, layer, mean, sd, sd / abs(mean) if mean else None, *extent(row), float(np.linalg.norm(row)))
            for name, stack in _stacks(run, section, role)
            for layer, row in zip(*stack, strict=True)
            for mean, sd in [(float(row.mean()), float(row.std()))]
        ]
        if rows:
            shown[role.value] = rows
            title = Text("Every layer of every model, {role}", role=role.value)
            section.add_table(f"statistics_{role.value}", title, STATISTICS, rows, shown=12)
    if shown:
        section.add_picture("statistics", "bias.statistics", shown, places(run))


def ridges(run: StudyRun, section: Section) -> None:
    """Show how the values of every third layer are distributed; no value is left out (figure 9)."""
    rows: list[tuple[Cell, ...]] = []
    panels: list[tuple[str, str, tuple[int, ...], FloatArray]] = []
    spacing: dict[str, float] = {}
    for role in vector_roles(run, (INPUT, POST), section.missing):
        for name, (layers, values) in _stacks(run, section, role):
            outside = ((values < CLIPPED[0]) | (values > CLIPPED[1])).mean(axis=1)
            count, share = int(np.count_nonzero(outside)), 100 * float(outside.max())
            rows.append((name, role.value, len(layers), *extent(values), count, share))
            step = RIDGE_STEP if len(layers) > MAX_RIDGES else 1
            panels.append((role.value, name, layers[::step], values[::step]))
            spacing[role.value] = max(spacing.get(role.value, 0.0), _spacing(run, name, role, values[::step]))
    if not panels:
        return
    low, high = CLIPPED
    title = Text("Layers with values outside {low} to {high}, where the original stopped", low=low, high=high)
    heads = columns(
        "model; role; layers; least .3; largest .3; layers_outside: layers with values outside; "
        "largest_share: largest share of a layer outside, % .2"
    )
    section.add_table("ridges", title, heads, rows)
    section.add_picture("ridges", "bias.ridges", panels, spacing, places(run))


def _spacing(run: StudyRun, name: str, role: Role, values: FloatArray) -> float:
    """Return the distance of neighbouring stored numbers at the largest value."""
    formats = {run.stored(name, role, layer) for layer in run.layers(name, role)}
    bits = min((GRIDS[one].precision for one in formats if one in GRIDS), default=53)
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - bits)


def difference(run: StudyRun, section: Section) -> None:
    """Look at input norm minus post-attention norm: mean and spread of every model, Pearson of all pairs (figure 10)."""
    found = dict(each(section.missing, run.names, partial(_difference, run)))
    if not found:
        return
    rows = [
        (name, layer, row.mean(), row.std()) for name, stack in found.items() for layer, row in zip(*stack, strict=True)
    ]
    heads = columns("model; layer; mean .4; sd .4")
    section.add_table("difference", Text("Input norm minus post-attention norm"), heads, rows, shown=12)

    def compare(names: tuple[str, str]) -> LayerPair:
        a, b = names
        require_same_shape(a, found[a][1], b, found[b][1])
        layers, left, right = _on_shared(
            found[a], found[b], Text("{a} and {b} share no layer with both norms", a=a, b=b)
        )
        return LayerPair(a, b, INPUT, layers, left, right)

    pairs = each(section.missing, itertools.combinations(found, 2), compare, lambda names: sides(*names))
    for pair in pairs:
        a, b, sd = pair.a, pair.b, pair.pearson_sd
        title = Text("Pearson of the differences of {a} and {b} (null sd {sd:.4f})", a=a, b=b, sd=sd)
        by_layer = pair.rows("pearson", "z", "log10_p")
        section.add_table(f"difference_{a}_{b}", title, columns("layer; pearson; z; log10_p"), by_layer, shown=5)
    section.add_picture("difference", "bias.difference", found, pairs, places(run), limit=RELATED)
    if run.request.replicas and {"Solar", "GLM"} <= found.keys():
        section.note(
            "On replicas the Pearson of Solar and GLM is held within ±{limit}, because the published picture stays within "
            "±{printed}; where the line is flat, this is why.",
            limit=0.018,
            printed=WITHIN,
        )
    beyond = {pair.name: float(np.count_nonzero(np.abs(pair.pearson) > WITHIN)) for pair in pairs}
    section.values |= {"beyond": beyond["Solar–GLM"]} if "Solar–GLM" in beyond else {}


def _difference(run: StudyRun, name: str) -> tuple[str, Stack]:
    before, after = (layer_stack(run, name, role) for role in (INPUT, POST))
    layers, one, other = _on_shared(before, after, Text("{model} has no layer with both norms", model=name))
    require_same_shape(name, one, name, other)
    return name, (layers, one - other)


def _on_shared(one: Stack, other: Stack, lack: Text) -> tuple[tuple[int, ...], FloatArray, FloatArray]:
    """Return the layers that two stacks share, and the rows of each; `Missing` with `lack` if there are none."""
    layers = tuple(layer for layer in one[0] if layer in other[0])
    if not layers:
        raise Missing(lack)
    left, right = (values[[numbers.index(layer) for layer in layers]] for numbers, values in (one, other))
    return layers, left, right
