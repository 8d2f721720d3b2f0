"""Figures of pairs of models in the bias study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.studies.bias.facts import RELATED
from kinprint.studies.bias.matrices import LayerGrid
from kinprint.studies.figure_style import (
    NULL_COLOUR,
    NULL_SD,
    SIGNED_MAP,
    SIMILARITY_MAP,
    finish,
    heat,
    label_of,
    layer_axis,
    log_y,
    new_figure,
    null_band,
)
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.outcome import Cell
from kinprint.studies.studied_models import look

COSINE, CENTRED, EXPECTED, DARK = "#0072B2", "#009E73", "#777777", "#333333"
BAND = "95 % of independent pairs"
TICKS = 10
"""Layers that are named along an axis, at most."""


# -- one pair ----------------------------------------------------------------------------------------------------------


def pair_panels(pair: LayerPair, dims: NDArray[np.int64], places: Mapping[str, int]) -> Figure:
    """Show sampled dimensions of the layer with the largest cosine, raw and centred, and cosine and Pearson by layer."""
    figure = new_figure(10.5, 6.4)
    (raw, centred), (cosine, pearson) = figure.subplots(2, 2)
    best, layers = pair.best, pair.layers
    figure.suptitle(pair.title)
    sides = ((pair.a, pair.left[best]), (pair.b, pair.right[best]))
    _bars(raw, [(name, values[dims], float(values.mean())) for name, values in sides], places)
    finish(raw, f"(a) {len(dims)} dimensions of layer {layers[best]}, as stored", "value", x=None)
    _bars(centred, [(name, values[dims] - values.mean(), None) for name, values in sides], places)
    title = f"(b) the same, minus each whole vector's mean (r = {pair.pearson[best]:.3f})"
    finish(centred, title, "value minus mean", x=None)
    null_band(cosine, layers, pair.null_mean, pair.null_sd)
    cosine.plot(layers, pair.null_mean, color=EXPECTED, linestyle="--", linewidth=1.0, label="if independent")
    cosine.plot(layers, pair.cosine, color=COSINE, marker="o", label="raw cosine")
    finish(cosine, "(c) raw cosine by layer", "cosine")
    null_band(pearson, layers, np.zeros(len(layers)), np.full(len(layers), pair.pearson_sd))
    pearson.plot(layers, pair.pearson, color=CENTRED, marker="o", label="Pearson")
    finish(pearson, f"(d) Pearson by layer (null sd {pair.pearson_sd:.4f})", "Pearson")
    _around_zero(pearson, pair.pearson, pair.pearson_sd)
    for axes in (cosine, pearson):
        label = f"largest cosine: layer {layers[best]}"
        axes.axvline(layers[best], color=DARK, linestyle=":", linewidth=1.0, label=label)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.24 * (high - low), high)  # room for the legend
        axes.legend(loc="lower center", ncols=2, frameon=True, framealpha=0.9, edgecolor="none")
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


def layer_matrices(grid: LayerGrid, names: tuple[str, str], title: str) -> Figure:
    """Show raw cosine, the cosine expected of independent layers, and Pearson, for all pairs of layers."""
    figure = new_figure(12.5, 4.3)
    figure.suptitle(title)
    observed, expected, pearson = figure.subplots(1, 3)
    found = grid.found
    finite = np.concatenate([m[np.isfinite(m)] for m in (found.cosine, found.cosine_null_mean)])
    low = min(0.0, float(finite.min())) if finite.size else 0.0
    for axes, matrix, what in (
        (observed, found.cosine, "raw cosine"),
        (expected, found.cosine_null_mean, "cosine expected of independent layers"),
    ):
        image = heat(axes, matrix, low=low, high=1.0)
        axes.set_title(what)
        figure.colorbar(image, ax=axes, shrink=0.85)
    reach = _reach([found.pearson], grid.null_sd)
    image = heat(pearson, found.pearson, low=-reach, high=reach, colours=SIGNED_MAP)
    pearson.set_title(f"Pearson (null sd {grid.null_sd:.4f})")
    _mark_null(figure.colorbar(image, ax=pearson, shrink=0.85), grid.null_sd)
    for axes in (observed, expected, pearson):
        _layer_ticks(axes, grid, names)
    return figure


def pearson_gallery(panels: Sequence[tuple[tuple[str, str], LayerGrid, float]]) -> Figure:
    """Show the Pearson matrices of all pairs of models: one scale around zero, and one of its own for a related pair."""
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(4.2 * across, 3.6 * down)
    figure.suptitle("Pearson of every layer with every layer")
    widest = max(pair.null_sd for _, pair, _ in panels)
    reach = _reach([pair.found.pearson for _, pair, mean in panels if not mean > RELATED], widest)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (names, pair, mean) in zip(grid, panels, strict=False):
        matrix, low, high, colours, line = pair.found.pearson, -reach, reach, SIGNED_MAP, "black"
        if mean > RELATED:
            low, high = min(-3.0 * pair.null_sd, float(matrix[np.isfinite(matrix)].min())), 1.0
            colours, line = SIMILARITY_MAP, "white"
        bar = figure.colorbar(heat(axes, matrix, low=low, high=high, colours=colours), ax=axes, shrink=0.85)
        _mark_null(bar, pair.null_sd, line)
        if mean > RELATED:
            bar.set_label(f"own scale: {low:.2f} to 1; lines: 95 % of independent pairs", fontsize=7.5)
        axes.set_title(f"{names[0]} and {names[1]}: mean of same layer {mean:.4f}", fontsize=9)
        _layer_ticks(axes, pair, names)
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


def _layer_ticks(axes: Axes, grid: LayerGrid, names: tuple[str, str]) -> None:
    """Name some layers along both axes, and mark where a layer meets itself."""
    sides = (
        (grid.rows, axes.set_yticks, axes.set_ylabel, names[0]),
        (grid.columns, axes.set_xticks, axes.set_xlabel, names[1]),
    )
    for layers, place, label, name in sides:
        step = max(1, -(-len(layers) // TICKS))
        shown = range(0, len(layers), 5 if 2 < step < 5 else step)
        place(list(shown), [str(layers[i]) for i in shown])
        label(f"layer of {name}")
    both = [(grid.columns.index(layer), i) for i, layer in enumerate(grid.rows) if layer in grid.columns]
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
    labels = ("elements changed, %", "mean absolute difference", "mean distance, ulp")
    for axes, at, scale, null, label in zip(panels, (1, 3, 5), (100.0, 1.0, 1.0), nulls, labels, strict=True):
        values = np.array([row[at] for row in rows], dtype=float)
        log_y(axes)
        middle = scale * np.array(null)
        low, high = (np.maximum(middle[:, 0] + side * middle[:, 1], 0.0) for side in (-NULL_SD, NULL_SD))
        positive = np.concatenate([values[values > 0], high[high > 0]])
        floor = float(positive.min()) if positive.size else 1.0
        low = np.maximum(low, floor / 3.0)  # a logarithmic axis has no zero
        axes.fill_between(layers, low, high, color=NULL_COLOUR, linewidth=2.0, label=BAND)
        axes.plot(layers, np.where(values > 0, values, np.nan), color=COSINE, marker="o", label="this pair")
        if positive.size:
            axes.set_ylim(floor / 2.0, 2.5 * float(positive.max()))
        finish(axes, label, label, x=None)
    panels[0].legend(loc="best")
    layer_axis(panels[-1])
    return figure


# -- appendix E --------------------------------------------------------------------------------------------------------


def pair_strips(found: Sequence[LayerPair], role: str) -> Figure:
    """Show all pairs side by side: every layer, mean and median, of cosine and of Pearson."""
    related = [pair for pair in found if pair.mean_pearson > RELATED]
    others = [pair for pair in found if pair not in related]
    groups = [group for group in (others, related) if group]
    figure = new_figure(max(6.5, 1.5 * len(found) + 1.5), 6.4)
    figure.suptitle(f"All pairs of models, {role}")
    panels = figure.subplots(2, len(groups), squeeze=False, width_ratios=[max(1.0, len(group)) for group in groups])
    for number, group in enumerate(groups):
        for axes, which, label in zip(panels[:, number], ("cosine", "Pearson"), ("raw cosine", "Pearson"), strict=True):
            for place, pair in enumerate(group):
                _strip(axes, place, pair, which)
            axes.set_xticks(range(len(group)), [f"{pair.a}\n{pair.b}" for pair in group])
            axes.set_xlim(-0.6, len(group) - 0.4)
            finish(axes, f"{which}, own scale" if group is related and others else which, label, x=None)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _strip(axes: Axes, place: int, pair: LayerPair, which: str) -> None:
    values = pair.cosine if which == "cosine" else pair.pearson
    at, label = place + np.linspace(-0.3, 0.3, values.size), _once(BAND, place)
    if which == "cosine":
        reach = NULL_SD * pair.null_sd
        low, high = pair.null_mean - reach, pair.null_mean + reach
        axes.vlines(at, low, high, color=NULL_COLOUR, linewidth=max(2.0, 60.0 / values.size), zorder=1, label=label)
    else:
        ends, half = [place - 0.32, place + 0.32], NULL_SD * pair.pearson_sd
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
