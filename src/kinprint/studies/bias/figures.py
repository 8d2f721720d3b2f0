"""Figures of pairs of models in the bias study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.stats import AllPairs
from kinprint.studies.bias.facts import RELATED, PairFacts
from kinprint.studies.figure_style import (
    NULL_COLOUR,
    NULL_SD,
    SIGNED_MAP,
    SIMILARITY_MAP,
    heat,
    label_of,
    layer_axis,
    log_y,
    new_figure,
    null_band,
)
from kinprint.studies.outcome import Cell
from kinprint.studies.studied_models import look

COSINE, CENTRED, EXPECTED, DARK = "#0072B2", "#009E73", "#777777", "#333333"
BAND = "95 % of independent pairs"
TICKS = 10
"""Layers that are named along an axis, at most."""


# -- one pair ----------------------------------------------------------------------------------------------------------


def pair_panels(facts: PairFacts, dims: NDArray[np.int64], places: Mapping[str, int]) -> Figure:
    """Show sampled dimensions of the layer with the largest cosine, raw and centred, and cosine and Pearson by layer."""
    figure = new_figure(10.5, 6.4)
    (raw, centred), (cosine, pearson) = figure.subplots(2, 2)
    best = facts.best
    left, right, layer = facts.left[best], facts.right[best], facts.layers[best]
    figure.suptitle(facts.title)
    sides = ((facts.a, left), (facts.b, right))
    _bars(raw, [(name, values[dims], float(values.mean())) for name, values in sides], places)
    raw.set_title(f"(a) {len(dims)} dimensions of layer {layer}, as stored")
    raw.set_ylabel("value")
    _bars(centred, [(name, values[dims] - values.mean(), None) for name, values in sides], places)
    centred.set_title(f"(b) the same, minus each whole vector's mean (r = {facts.pearson[best]:.3f})")
    centred.set_ylabel("value minus mean")
    layers = facts.layers
    null_band(cosine, layers, facts.cosine_null_mean, facts.cosine_null_sd)
    cosine.plot(layers, facts.cosine_null_mean, color=EXPECTED, linestyle="--", linewidth=1.0, label="if independent")
    cosine.plot(layers, facts.cosine, color=COSINE, marker="o", label="raw cosine")
    cosine.set_title("(c) raw cosine by layer")
    cosine.set_ylabel("cosine")
    null_band(pearson, layers, np.zeros(len(layers)), np.full(len(layers), facts.null_sd))
    pearson.plot(layers, facts.pearson, color=CENTRED, marker="o", label="Pearson")
    pearson.set_title(f"(d) Pearson by layer (null sd {facts.null_sd:.4f})")
    pearson.set_ylabel("Pearson")
    _around_zero(pearson, facts.pearson, facts.null_sd)
    for axes in (cosine, pearson):
        axes.axvline(layer, color=DARK, linestyle=":", linewidth=1.0, label=f"largest cosine: layer {layer}")
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.24 * (high - low), high)  # room for the legend
        axes.legend(loc="lower center", ncols=2, frameon=True, framealpha=0.9, edgecolor="none")
        layer_axis(axes)
    return figure


def _bars(
    axes: Axes, sides: Sequence[tuple[str, FloatArray, float | None]], places: Mapping[str, int], width: float = 0.42
) -> None:
    for number, (name, values, mean) in enumerate(sides):
        colour, _ = look(name, places.get(name, number))
        x = np.arange(values.size) + (number - 0.5) * width
        axes.bar(x, values, width, color=colour, label=label_of(name))
        if mean is not None:
            axes.axhline(mean, color=colour, linestyle="--", linewidth=1.0, label=f"mean of {name}, all dimensions")
    axes.axhline(0.0, color=DARK, linewidth=0.6)
    axes.set_xlabel("sampled dimension, by ascending mean of the two")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.28 * (high - low))
    axes.legend(loc="upper left", ncols=2)


def _around_zero(axes: Axes, values: FloatArray, null_sd: float) -> None:
    """Set a scale that shows zero, the null band and all values."""
    kept = values[np.isfinite(values)]
    low, high = (float(kept.min()), float(kept.max())) if kept.size else (0.0, 0.0)
    low, high = min(low, -2.6 * null_sd), max(high, 2.6 * null_sd)
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


# -- matrices ----------------------------------------------------------------------------------------------------------


def layer_matrices(
    rows: Sequence[int],
    columns: Sequence[int],
    found: AllPairs,
    null_sd: float,
    names: tuple[str, str],
    title: str,
) -> Figure:
    """Show raw cosine, the cosine expected of independent layers, and Pearson, for all pairs of layers."""
    figure = new_figure(12.5, 4.3)
    figure.suptitle(title)
    observed, expected, pearson = figure.subplots(1, 3)
    finite = np.concatenate([m[np.isfinite(m)] for m in (found.cosine, found.cosine_null_mean)])
    low = min(0.0, float(finite.min())) if finite.size else 0.0
    for axes, matrix, what in (
        (observed, found.cosine, "raw cosine"),
        (expected, found.cosine_null_mean, "cosine expected of independent layers"),
    ):
        image = heat(axes, matrix, low=low, high=1.0)
        axes.set_title(what)
        figure.colorbar(image, ax=axes, shrink=0.85)
    reach = _reach([found.pearson], null_sd)
    image = heat(pearson, found.pearson, low=-reach, high=reach, colours=SIGNED_MAP)
    pearson.set_title(f"Pearson (null sd {null_sd:.4f})")
    _mark_null(figure.colorbar(image, ax=pearson, shrink=0.85), null_sd)
    for axes in (observed, expected, pearson):
        _layer_ticks(axes, rows, columns, names)
        _same_layer(axes, rows, columns)
    return figure


def pearson_gallery(
    panels: Sequence[tuple[tuple[str, str], Sequence[int], Sequence[int], FloatArray, float, float]],
) -> Figure:
    """Show the Pearson matrices of all pairs of models: one scale around zero, and one of its own for a related pair."""
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(4.2 * across, 3.6 * down)
    figure.suptitle("Pearson of every layer with every layer")
    widest = max(null_sd for *_, null_sd in panels)
    reach = _reach([matrix for _, _, _, matrix, mean, _ in panels if not mean > RELATED], widest)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (names, rows, columns, matrix, mean, null_sd) in zip(grid, panels, strict=False):
        related = mean > RELATED
        finite = matrix[np.isfinite(matrix)]
        low = min(-3.0 * null_sd, float(finite.min())) if related else -reach
        image = heat(
            axes,
            matrix,
            low=low,
            high=1.0 if related else reach,
            colours=SIMILARITY_MAP if related else SIGNED_MAP,
        )
        bar = figure.colorbar(image, ax=axes, shrink=0.85)
        _mark_null(bar, null_sd, "white" if related else "black")
        if related:
            bar.set_label(f"own scale: {low:.2f} to 1; lines: 95 % of independent pairs", fontsize=7.5)
        _same_layer(axes, rows, columns)
        axes.set_title(f"{names[0]} and {names[1]}: mean of same layer {mean:.4f}", fontsize=9)
        _layer_ticks(axes, rows, columns, names)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def _reach(matrices: Sequence[FloatArray], null_sd: float) -> float:
    """Return the half-width of a scale around zero that holds all values and at least the null's bulk."""
    finite = [np.abs(matrix[np.isfinite(matrix)]) for matrix in matrices]
    return min(1.0, max([3.0 * null_sd, *(float(values.max()) for values in finite if values.size)]))


def _mark_null(bar: mpl.colorbar.Colorbar, null_sd: float, colour: str = "black") -> None:
    for side in (-NULL_SD, NULL_SD):
        if abs(side * null_sd) < 1.0:
            bar.ax.axhline(side * null_sd, color=colour, linewidth=1.2)
    bar.set_label("lines: 95 % of independent pairs")


def _layer_ticks(axes: Axes, rows: Sequence[int], columns: Sequence[int], names: tuple[str, str]) -> None:
    for layers, place, label in ((rows, axes.set_yticks, axes.set_ylabel), (columns, axes.set_xticks, axes.set_xlabel)):
        step = max(1, -(-len(layers) // TICKS))
        step = 5 if 2 < step < 5 else step
        shown = range(0, len(layers), step)
        place(list(shown), [str(layers[i]) for i in shown])
        label(f"layer of {names[0] if layers is rows else names[1]}")


def _same_layer(axes: Axes, rows: Sequence[int], columns: Sequence[int]) -> None:
    where = {layer: i for i, layer in enumerate(columns)}
    both = [(where[layer], i) for i, layer in enumerate(rows) if layer in where]
    if both:
        x, y = zip(*both, strict=True)
        # dark with a light rim: to be seen on any colour
        axes.plot(x, y, linestyle="none", marker="o", markersize=2.2, color=DARK, mec="white", mew=0.4)


# -- what differs ------------------------------------------------------------------------------------------------------


def changed_lines(rows: Sequence[Sequence[Cell]], nulls: Sequence[Sequence[tuple[float, float]]], title: str) -> Figure:
    """Show share changed, mean absolute difference and ulp distance by layer, on logarithmic axes."""
    figure = new_figure(7.5, 7.6)
    figure.suptitle(title)
    layers = [row[0] for row in rows]
    panels = figure.subplots(3, 1, sharex=True)
    for axes, at, scale, null, label in zip(
        panels,
        (1, 3, 5),
        (100.0, 1.0, 1.0),
        nulls,
        ("elements changed, %", "mean absolute difference", "mean distance, ulp"),
        strict=True,
    ):
        values = np.array([row[at] for row in rows], dtype=float)
        log_y(axes)
        middle = scale * np.array(null)
        low, high = (np.maximum(middle[:, 0] + side * middle[:, 1], 0.0) for side in (-NULL_SD, NULL_SD))
        positive = np.concatenate([values[values > 0], high[high > 0]])
        floor = float(positive.min()) if positive.size else 1.0
        low = np.maximum(low, floor / 3.0)  # a logarithmic axis has no zero
        axes.fill_between(layers, low, high, color=NULL_COLOUR, linewidth=2.0, label=BAND)
        shown = np.where(values > 0, values, np.nan)
        axes.plot(layers, shown, color=COSINE, marker="o", label="this pair")
        axes.set_ylabel(label)
        if positive.size:
            axes.set_ylim(floor / 2.0, 2.5 * float(positive.max()))
        axes.set_title(label)
    panels[0].legend(loc="best")
    layer_axis(panels[-1])
    return figure


# -- appendix E --------------------------------------------------------------------------------------------------------


def pair_strips(found: Sequence[PairFacts], role: str) -> Figure:
    """Show all pairs side by side: every layer, mean and median, of cosine and of Pearson."""
    related = [facts for facts in found if facts.mean_pearson > RELATED]
    others = [facts for facts in found if facts not in related]
    groups = [group for group in (others, related) if group]
    figure = new_figure(max(6.5, 1.5 * len(found) + 1.5), 6.4)
    figure.suptitle(f"All pairs of models, {role}")
    panels = figure.subplots(2, len(groups), squeeze=False, width_ratios=[max(1.0, len(group)) for group in groups])
    for number, group in enumerate(groups):
        for axes, which in zip(panels[:, number], ("cosine", "Pearson"), strict=True):
            for place, facts in enumerate(group):
                _strip(axes, place, facts, which)
            axes.set_xticks(range(len(group)), [f"{facts.a}\n{facts.b}" for facts in group])
            axes.set_xlim(-0.6, len(group) - 0.4)
            axes.set_title(f"{which}, own scale" if group is related and others else which)
            axes.set_ylabel("raw cosine" if which == "cosine" else "Pearson")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _strip(axes: Axes, place: int, facts: PairFacts, which: str) -> None:
    values = facts.cosine if which == "cosine" else facts.pearson
    at, label = place + np.linspace(-0.3, 0.3, values.size), _once(BAND, place)
    if which == "cosine":
        reach = NULL_SD * facts.cosine_null_sd
        low, high = facts.cosine_null_mean - reach, facts.cosine_null_mean + reach
        axes.vlines(at, low, high, color=NULL_COLOUR, linewidth=max(2.0, 60.0 / values.size), zorder=1, label=label)
    else:
        ends, half = [place - 0.32, place + 0.32], NULL_SD * facts.null_sd
        axes.fill_between(ends, -half, half, color=NULL_COLOUR, linewidth=0, zorder=1, label=label)
    kept = values[np.isfinite(values)]
    if kept.size:
        axes.plot(at, values, linestyle="none", marker=".", color=COSINE, label=_once("a layer, first to last", place))
        mean, median = float(kept.mean()), float(np.median(kept))
        axes.plot(place, mean, linestyle="none", marker="D", markersize=6, color="#D55E00", label=_once("mean", place))
        ends = [place - 0.36, place + 0.36]
        axes.plot(ends, [median, median], color="black", linewidth=1.4, label=_once("median", place))


def _once(label: str, place: int) -> str | None:
    """Return the label for the first of many, so that the legend names it once."""
    return label if place == 0 else None
