"""Draw the figures of the bias study: pairs of models, all layers against all layers, and values by layer."""

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.studies import figure_style as style
from kinprint.studies.bias.matrices import LayerGrid
from kinprint.studies.bias.shared import RELATED
from kinprint.studies.figure_style import NULL_COLOUR, NULL_LABEL, NULL_SD, finish, label_of, new_figure
from kinprint.studies.layer_pairs import LayerPair
from kinprint.studies.outcome import Cell
from kinprint.studies.studied_models import look

COSINE, CENTRED, DARK = "#0072B2", "#009E73", "#333333"
TICKS = 10  # layers that are named along an axis, at most
BINS = 128  # over the whole range, at most
RIDGE_HEIGHT = 1.7  # in units of the distance between two ridges
DASHES = ("-", "--", ":", "-.")


# -- one pair ----------------------------------------------------------------------------------------------------------


def pair_panels(pair: LayerPair, dims: NDArray[np.int64], places: Mapping[str, int]) -> Figure:
    """Show sampled dimensions of the layer with the largest cosine, raw and centred; cosine and Pearson on one axis by layer."""
    figure = new_figure(10.5, 6.8)
    (raw, centred), (cosine, pearson) = figure.subplots(2, 2)
    best, layers = pair.best, pair.layers
    figure.suptitle(f"{pair.title}: {pair.finding}")
    sides = ((pair.a, pair.left[best]), (pair.b, pair.right[best]))
    _bars(raw, [(name, values[dims], float(values.mean())) for name, values in sides], places)
    finish(raw, f"(a) {len(dims)} dimensions of layer {layers[best]}, as stored", "value", x=None)
    _bars(centred, [(name, values[dims] - values.mean(), None) for name, values in sides], places)
    title = f"(b) the same, minus each whole vector's mean (r = {pair.pearson[best]:.3f})"
    finish(centred, title, "value minus mean", x=None)
    style.null_band(cosine, layers, pair.null_mean, pair.null_sd)
    cosine.plot(layers, pair.cosine, color=COSINE, marker="o", label="raw cosine")
    for axes, label in ((cosine, None), (pearson, NULL_LABEL)):
        style.null_band(axes, layers, 0.0, pair.pearson_sd, label=label)
        axes.plot(layers, pair.pearson, color=CENTRED, marker="s", label="Pearson")
    finish(cosine, "(c) raw cosine and Pearson by layer, on one axis", "cosine, Pearson")
    finish(pearson, f"(d) Pearson alone (null sd {pair.pearson_sd:.4f})", "Pearson")
    shown = [*pair.pearson[np.isfinite(pair.pearson)], -2.6 * pair.pearson_sd, 2.6 * pair.pearson_sd]
    low, high = min(shown), max(shown)
    pearson.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    for axes in (cosine, pearson):
        label = f"largest cosine: layer {layers[best]}"
        axes.axvline(layers[best], color=DARK, linestyle=":", linewidth=1.0, label=label)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.24 * (high - low), high)  # room for the legend
        axes.legend(loc="lower center", ncols=2, frameon=True, framealpha=0.9, edgecolor="none")
    return figure


def _bars(axes: Axes, sides: Sequence[tuple[str, FloatArray, float | None]], places: Mapping[str, int]) -> None:
    width = 0.42
    for number, (name, values, mean) in enumerate(sides):
        colour, _ = look(name, places.get(name, number))
        axes.bar(np.arange(values.size) + (number - 0.5) * width, values, width, color=colour, label=label_of(name))
        if mean is not None:
            axes.axhline(mean, color=colour, linestyle="--", linewidth=1.0, label=f"mean of {name}, all dimensions")
    axes.axhline(0.0, color=DARK, linewidth=0.6)
    axes.set_xlabel("sampled dimension, by ascending mean of the two")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.28 * (high - low))
    axes.legend(loc="upper left", ncols=2)


# -- matrices ----------------------------------------------------------------------------------------------------------


def layer_matrices(grid: LayerGrid, pair: LayerPair) -> Figure:
    """Show raw cosine, the cosine expected of independent layers, and Pearson, for all pairs of layers."""
    figure = new_figure(12.5, 4.3)
    figure.suptitle(f"{pair.title}, same layer: {pair.finding}")
    observed, expected, pearson = figure.subplots(1, 3)
    found = grid.found
    low = float(np.nanmin([0.0, *found.cosine.flat, *found.cosine_null_mean.flat]))
    for axes, matrix, what in (
        (observed, found.cosine, "raw cosine"),
        (expected, found.cosine_null_mean, "cosine expected of independent layers"),
    ):
        figure.colorbar(style.heat(axes, matrix, low=low, high=1.0), ax=axes, shrink=0.85)
        axes.set_title(what)
    reach = _reach([found.pearson], grid.null_sd)
    image = style.heat(pearson, found.pearson, low=-reach, high=reach, colours=style.SIGNED_MAP)
    pearson.set_title(f"Pearson (null sd {grid.null_sd:.4f})")
    _mark_null(figure.colorbar(image, ax=pearson, shrink=0.85), grid.null_sd)
    for axes in (observed, expected, pearson):
        _layer_ticks(axes, grid, (pair.a, pair.b))
    return figure


def pearson_gallery(panels: Sequence[tuple[tuple[str, str], LayerGrid, float]]) -> Figure:
    """Show the Pearson matrices of all pairs of models: one scale around zero, and one of its own for a related pair."""
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(4.2 * across, 3.6 * down)
    every = [mean for *_, mean in panels]
    figure.suptitle(f"Every layer with every layer: mean r of the same layer {min(every):.4f} to {max(every):.4f}")
    widest = max(pair.null_sd for _, pair, _ in panels)
    reach = _reach([pair.found.pearson for _, pair, mean in panels if not mean > RELATED], widest)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (names, pair, mean) in zip(grid, panels, strict=False):
        matrix, low, high, colours, line = pair.found.pearson, -reach, reach, style.SIGNED_MAP, "black"
        if mean > RELATED:
            low, high = min(-3.0 * pair.null_sd, float(np.nanmin(matrix))), 1.0
            colours, line = style.SIMILARITY_MAP, "white"
        bar = figure.colorbar(style.heat(axes, matrix, low=low, high=high, colours=colours), ax=axes, shrink=0.85)
        _mark_null(bar, pair.null_sd, line)
        if mean > RELATED:
            bar.set_label(f"own scale: {low:.2f} to 1; lines: {NULL_LABEL}", fontsize=7.5)
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
    bar.set_label(f"lines: {NULL_LABEL}")


def _layer_ticks(axes: Axes, grid: LayerGrid, names: tuple[str, str]) -> None:
    """Name some layers along both axes, and mark where a layer meets itself."""
    for layers, axis, name in ((grid.rows, axes.yaxis, names[0]), (grid.columns, axes.xaxis, names[1])):
        step = max(1, -(-len(layers) // TICKS))
        shown = range(0, len(layers), 5 if 2 < step < 5 else step)
        axis.set_ticks(list(shown), [str(layers[i]) for i in shown])
        axis.set_label_text(f"layer of {name}")
    x, y = ([side.index(layer) for layer in grid.shared] for side in (grid.columns, grid.rows))
    # dark with a light rim: to be seen on any colour
    axes.plot(x, y, linestyle="none", marker="o", markersize=2.2, color=DARK, mec="white", mew=0.4)


# -- what differs ------------------------------------------------------------------------------------------------------


def changed_lines(rows: Sequence[Sequence[Cell]], nulls: Sequence[Sequence[tuple[float, float]]], title: str) -> Figure:
    """Show share changed, mean absolute difference and ulp distance by layer, on logarithmic axes."""
    figure = new_figure(7.5, 7.6)
    ends = ", ".join(f"{row[1]:.3g} % in layer {row[0]}" for row in (rows[0], rows[-1]))
    figure.suptitle(f"{title}: elements changed {ends}")
    layers = [row[0] for row in rows]
    panels = figure.subplots(3, 1, sharex=True)
    labels = ("elements changed, %", "mean absolute difference", "mean distance, ulp")
    for axes, at, scale, null, label in zip(panels, (1, 3, 5), (100.0, 1.0, 1.0), nulls, labels, strict=True):
        values = np.array([row[at] for row in rows], dtype=float)
        style.log_y(axes)
        middle = scale * np.array(null)
        low, high = (np.maximum(middle[:, 0] + side * middle[:, 1], 0.0) for side in (-NULL_SD, NULL_SD))
        positive = np.concatenate([values[values > 0], high[high > 0]])
        floor = float(positive.min()) if positive.size else 1.0
        low = np.maximum(low, floor / 3.0)  # a logarithmic axis has no zero
        axes.fill_between(layers, low, high, color=NULL_COLOUR, linewidth=2.0, label=NULL_LABEL)
        axes.plot(layers, np.where(values > 0, values, np.nan), color=COSINE, marker="o", label="this pair")
        if positive.size:
            axes.set_ylim(floor / 2.0, 2.5 * float(positive.max()))
        finish(axes, label, label, x=None)
    panels[0].legend(loc="best")
    style.layer_axis(panels[-1])
    return figure


# -- appendix E --------------------------------------------------------------------------------------------------------


def pair_strips(found: Sequence[LayerPair], role: str) -> Figure:
    """Show all pairs side by side: every layer, mean and median, of cosine and of Pearson."""
    groups, titles = _apart_and_related(found)
    figure = new_figure(max(6.5, 1.5 * len(found) + 1.5), 6.4)
    figure.suptitle(f"{role}: " + "; ".join(f"{pair.name} {pair.correlation}" for pair in found))
    panels = figure.subplots(2, len(groups), squeeze=False, width_ratios=[max(1.0, len(group)) for group in groups])
    for number, group in enumerate(groups):
        for axes, which, label in zip(panels[:, number], ("cosine", "Pearson"), ("raw cosine", "Pearson"), strict=True):
            for place, pair in enumerate(group):
                _strip(axes, place, pair, which)
            axes.set_xticks(range(len(group)), [f"{pair.a}\n{pair.b}" for pair in group])
            axes.set_xlim(-0.6, len(group) - 0.4)
            finish(axes, which + (titles[number] if len(groups) > 1 else ""), label, x=None)
    style.legend_below(figure, panels[0, 0])
    return figure


def _apart_and_related(found: Sequence[LayerPair]) -> tuple[list[list[LayerPair]], list[str]]:
    """Return groups of pairs that share a scale, unrelated and related ones, and what each group adds to a title."""
    related = [pair for pair in found if pair.mean_pearson > RELATED]
    apart = [pair for pair in found if not pair.mean_pearson > RELATED]
    shown = [(group, said) for group, said in ((apart, ""), (related, ", own scale")) if group]
    return [group for group, _ in shown], [said for _, said in shown]


def _strip(axes: Axes, place: int, pair: LayerPair, which: str) -> None:
    values = pair.cosine if which == "cosine" else pair.pearson
    at, named = place + np.linspace(-0.3, 0.3, values.size), place == 0  # the legend names each kind of mark once
    band = {"color": NULL_COLOUR, "zorder": 1, "label": NULL_LABEL if named else None}
    if which == "cosine":
        reach = NULL_SD * pair.null_sd
        width = max(2.0, 60.0 / values.size)
        axes.vlines(at, pair.null_mean - reach, pair.null_mean + reach, linewidth=width, **band)
    else:
        half = NULL_SD * pair.pearson_sd
        axes.fill_between([place - 0.32, place + 0.32], -half, half, linewidth=0, **band)
    kept = values[np.isfinite(values)]
    if kept.size:
        axes.plot(at, values, ".", color=COSINE, label="a layer, first to last" if named else None)
        axes.plot(place, float(kept.mean()), "D", markersize=6, color="#D55E00", label="mean" if named else None)
        ends, median = [place - 0.36, place + 0.36], float(np.median(kept))
        axes.plot(ends, [median, median], color="black", linewidth=1.4, label="median" if named else None)


# -- values by layer ---------------------------------------------------------------------------------------------------


def overlaid_line(number: int) -> dict[str, object]:
    """Return widths for line `number` of a panel: each line lies on a wider one, so that coinciding lines can be told apart."""
    return {"linewidth": max(1.0, 2.6 - 0.6 * number), "markersize": max(2.5, 5.0 - 0.9 * number)}


def statistics(shown: Mapping[str, Sequence[Sequence[Cell]]], places: Mapping[str, int]) -> Figure:
    """Show mean, standard deviation, least and largest value by layer: a row for each role, a line for each model."""
    figure = new_figure(12.5, 3.1 * len(shown) + 0.4)
    panels = figure.subplots(len(shown), 4, squeeze=False)
    columns = {"mean": 2, "standard deviation": 3, "least": 5, "largest": 6}
    for line, (role, rows) in zip(panels, shown.items(), strict=True):
        for axes, (what, at) in zip(line, columns.items(), strict=True):
            for number, name in enumerate(dict.fromkeys(str(row[0]) for row in rows)):
                x, y = np.array([(row[1], row[at]) for row in rows if row[0] == name], dtype=float).T
                style.model_line(axes, x, y, name, places.get(name, 0), **overlaid_line(number))
            finish(axes, f"{role}: {what}")
        line[0].set_ylabel("value")
    style.legend_below(figure, panels[0, 0])
    means = {role: np.array([row[2] for row in rows], dtype=float) for role, rows in shown.items()}
    figure.suptitle("; ".join(f"{role}: means of layers {m.min():.2f} to {m.max():.2f}" for role, m in means.items()))
    return figure


def ridges(
    panels: Sequence[tuple[str, str, Sequence[int], FloatArray]], steps: Mapping[str, float], places: Mapping[str, int]
) -> Figure:
    """Show every layer's distribution, rows of roles, columns of models; `steps` are the widest distances of stored numbers."""
    roles, names = (
        list(dict.fromkeys(names)) for names in zip(*((role, name) for role, name, *_ in panels), strict=True)
    )
    figure = new_figure(max(5.0, 3.1 * len(names)), 4.6 * len(roles))
    grid = figure.subplots(len(roles), len(names), squeeze=False)
    for row, role in zip(grid, roles, strict=True):
        chosen = {name: (layers, values) for one, name, layers, values in panels if one == role}
        low = min(float(values.min()) for _, values in chosen.values())
        high = max(float(values.max()) for _, values in chosen.values())
        edges = bin_edges(low, high, steps[role])
        for axes, name in zip(row, names, strict=True):
            if name not in chosen:
                axes.set_axis_off()
                continue
            layers, values = chosen[name]
            _stack_of_ridges(axes, values, edges, look(name, places.get(name, 0))[0])
            step = max(1, len(layers) // 12)
            axes.set_yticks(range(0, len(layers), step), [str(layer) for layer in layers[::step]])
            axes.set_xlim(edges[0], edges[-1])
            finish(axes, f"{name}, {role}", "layer", x=f"value ({low:.2f} to {high:.2f})")
    signs = {role: np.concatenate([v.ravel() > 0 for one, _, _, v in panels if one == role]) for role in roles}
    said = (f"{x.sum():,} of {x.size:,} values of {role}" for role, x in signs.items())
    figure.suptitle(f"Positive are {', '.join(said)}")
    return figure


def bin_edges(low: float, high: float, step: float) -> FloatArray:
    """Return edges that hold `low` to `high`, at multiples of a power of two no smaller than `step`.

    Stored numbers lie on a grid whose step is a power of two: with any other width, bins would hold now one of them more, now
    one less, and a smooth distribution would look like a comb.
    """
    least = max((high - low) / BINS, step, np.finfo(float).tiny)
    width = 2.0 ** math.ceil(math.log2(least))
    first, last = math.floor(low / width), math.floor(high / width) + 1
    return width * np.arange(first, last + 1, dtype=float)


def _stack_of_ridges(axes: Axes, values: FloatArray, edges: FloatArray, colour: str) -> None:
    for place in reversed(range(len(values))):  # from above, so that lower ridges lie in front
        counts, _ = np.histogram(values[place], edges)
        height = place + RIDGE_HEIGHT * counts / counts.max()
        order = 2 * (len(values) - place)
        axes.stairs(height, edges, baseline=place, fill=True, color=colour, alpha=0.6, linewidth=0, zorder=order)
        axes.stairs(height, edges, baseline=place, color="black", linewidth=0.4, zorder=order + 1)


def difference(
    found: Mapping[str, tuple[Sequence[int], FloatArray]], pairs: Sequence[LayerPair], places: Mapping[str, int]
) -> Figure:
    """Show mean and standard deviation of input norm minus post-attention norm, and Pearson of pairs."""
    groups, titles = _apart_and_related(pairs)
    figure = new_figure(9.2, 2.6 * (2 + len(groups)) + 0.6)
    panels = figure.subplots(2 + len(groups), 1, sharex=True)
    for axes, what in zip(panels, ("mean", "standard deviation"), strict=False):
        for number, (name, (layers, values)) in enumerate(found.items()):
            shown = values.mean(axis=1) if what == "mean" else values.std(axis=1)
            style.model_line(axes, layers, shown, name, places.get(name, 0), **overlaid_line(number))
        finish(axes, f"input norm minus post-attention norm: {what}", what, x=None)
    panels[0].legend(loc="best", ncols=2)
    for axes, group, said in zip(panels[2:], groups, titles, strict=True):
        longest = max((pair.layers for pair in group), key=len)
        style.null_band(axes, longest, 0.0, group[0].pearson_sd)
        for number, pair in enumerate(group):
            colour, marker = style.PAIR_LOOK[number % len(style.PAIR_LOOK)]
            # hollow, and each smaller than the one below it: two pairs that coincide can both be seen
            hollow = {"markerfacecolor": "none", "markersize": max(3.0, 7.5 - 1.8 * number), "markeredgewidth": 1.1}
            line = {"color": colour, "marker": marker, "linewidth": 1.1, "label": label_of(f"{pair.a} and {pair.b}")}
            axes.plot(pair.layers, pair.pearson, DASHES[number % len(DASHES)], **line, **hollow)
        finish(axes, f"Pearson of the differences{said}", "Pearson", x=None)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the lines, which fill the panel
    style.layer_axis(panels[-1])
    figure.suptitle("Differences of the two norms: " + ", ".join(f"{p.name} r = {p.mean_pearson:.3f}" for p in pairs))
    return figure
