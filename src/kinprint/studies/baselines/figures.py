"""Figures of the baselines study."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kinprint._util.numeric import FloatArray
from kinprint.studies.baselines.groups import Grid
from kinprint.studies.baselines.kinds import Group
from kinprint.studies.baselines.metrics import Compared, Random
from kinprint.studies.baselines.readings import Key, Reading, Spread
from kinprint.studies.figure_style import (
    NULL_COLOUR,
    NULL_SD,
    PAIR_LOOK,
    SIGNED_MAP,
    heat,
    label_of,
    layer_axis,
    new_figure,
    null_band,
)
from kinprint.studies.studied_models import look

ACROSS = ("#000000", "o")
GROUP_LOOK = {"MoE–MoE": ("#D55E00", "o"), "MoE–dense": ("#0072B2", "s"), "dense–dense": ("#009E73", "^")}
MAX_TICKS = 14
NULL_LABEL = "95 % of independent pairs"
Groups = Sequence[tuple[str, Sequence[Reading]]]


# -- pairs as dots beside their null -------------------------------------------------------------------------------------


def _look(reading: Reading, names: Sequence[str]) -> tuple[str, str]:
    return look(reading.a, names.index(reading.a)) if reading.within else ACROSS


def _null_mark(axes: Axes, at: float, mean: float, sd: float, label: str | None) -> None:
    """Draw 95 % of independent pairs as a bar; where it is too narrow to be seen, the line in its middle is."""
    start, length = mean - NULL_SD * sd, 2 * NULL_SD * sd
    axes.barh(at, length, left=start, height=0.72, color=NULL_COLOUR, alpha=0.7, zorder=1, label=label)
    axes.plot([mean, mean], [at - 0.36, at + 0.36], color="#888888", linewidth=1.6, zorder=1.5)


def _margins(axes: Axes) -> None:
    """Leave room on both sides: bars would stick to the edge."""
    axes.use_sticky_edges = False
    axes.margins(x=0.07)


def _places(groups: Groups) -> list[list[float]]:
    """Return heights of the rows, a gap between groups, the first on top."""
    places, at = [], 0.0
    for _, readings in groups:
        places.append([at + number for number in range(len(readings))])
        at += len(readings) + 0.9
    return places


def _row_labels(axes: Axes, groups: Groups) -> None:
    places = _places(groups)
    axes.set_yticks(
        [place for found in places for place in found], [reading.label for _, found in groups for reading in found]
    )
    axes.set_ylim(places[-1][-1] + 0.7, -1.1)
    axes.grid(visible=False, axis="y")


def _headings(axes: Axes, groups: Groups) -> None:
    for (heading, _), found in zip(groups, _places(groups), strict=True):
        axes.annotate(
            heading,
            (0.01, found[0] - 0.5),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=7.5,
            style="italic",
        )


def _dots(axes: Axes, groups: Groups, names: Sequence[str], measure: str) -> None:
    first = True
    for (_, readings), found in zip(groups, _places(groups), strict=True):
        for reading, at in zip(readings, found, strict=True):
            value = reading.cosine if measure == "cosine" else reading.pearson
            null = (reading.null_mean, reading.null_sd) if measure == "cosine" else (0.0, reading.pearson_sd)
            if not np.isfinite(value):
                continue
            _null_mark(axes, at, *null, NULL_LABEL if first else None)
            colour, marker = _look(reading, names)
            axes.plot(value, at, color=colour, marker=marker, markersize=5.5, linestyle="", zorder=3)
            first = False
    _margins(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def comparison_dots(groups: Groups, names: Sequence[str], role: str) -> Figure:
    """Raw cosine and Pearson of some pairs of vectors, each beside where independent vectors lie."""
    count = sum(len(readings) for _, readings in groups)
    figure = new_figure(9.0, 1.5 + 0.3 * count + 0.3 * len(groups))
    left, right = figure.subplots(1, 2, sharey=True)
    _dots(left, groups, names, "cosine")
    _dots(right, groups, names, "pearson")
    _row_labels(left, groups)
    _headings(left, groups)
    left.set_title(f"raw cosine, {role}")
    left.set_xlabel("cosine")
    right.set_title("centred (Pearson)")
    right.set_xlabel("Pearson")
    if left.get_legend_handles_labels()[0]:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower right")
    return figure


# -- models against models -----------------------------------------------------------------------------------------------


def _floor(*matrices: FloatArray) -> float:
    """Return the least value, down to the next hundredth, so that no cell lies outside the scale."""
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    return float(np.floor(100 * values.min()) / 100) if values.size else 0.0


def _reach(matrix: FloatArray, sd: float) -> float:
    values = np.abs(matrix[np.isfinite(matrix)])
    return max(float(values.max()) if values.size else 0.0, 3 * sd if np.isfinite(sd) else 0.0) or 1.0


def _separate(axes: Axes, shown: Grid) -> None:
    """Draw lines between MoE and dense models, light on dark and dark on light."""
    border = shown.kinds.count("moe") - 0.5
    if 0 < border < len(shown.names) - 1:
        for line in (axes.axhline, axes.axvline):
            line(border, color="white", linewidth=3.5)
            line(border, color="black", linewidth=1.2)


def _matrix(figure: Figure, axes: Axes, shown: Grid, values: FloatArray, low: float, title: str, cells: str) -> None:
    image = heat(axes, values, low=low, high=1.0, rows=shown.names, columns=shown.names, cells=cells)
    _separate(axes, shown)
    axes.set_title(title)
    figure.colorbar(image, ax=axes, shrink=0.85)


def _pearson_matrix(figure: Figure, axes: Axes, shown: Grid) -> None:
    reach = _reach(shown.pearson, shown.pearson_sd)
    options = {"rows": shown.names, "columns": shown.names}
    image = heat(axes, shown.pearson, low=-reach, high=reach, colours=SIGNED_MAP, cells=".3f", **options)
    _separate(axes, shown)
    axes.set_title(f"centred (Pearson), null sd {shown.pearson_sd:.4f}")
    figure.colorbar(image, ax=axes, shrink=0.85)


def _null_line(axes: Axes, shown: Grid) -> None:
    """Say below a heatmap of raw cosines where independent vectors would lie."""
    null, there = shown.null[np.isfinite(shown.null)], np.isfinite(shown.cosine)
    gap = np.abs(shown.cosine - shown.null)[there]
    if null.size and gap.size:
        axes.set_xlabel(f"if independent: {null.min():.3f} to {null.max():.3f}; largest difference {gap.max():.4f}")


def moe_heatmap(shown: Grid) -> Figure:
    """Raw cosine, what the spreads predict on the same scale, and Pearson on its own."""
    size = max(3.0, 0.62 * len(shown.names) + 0.9)
    figure = new_figure(3 * size + 2.4, size + 0.6)
    left, middle, right = figure.subplots(1, 3)
    low = _floor(shown.cosine, shown.null)
    _matrix(figure, left, shown, shown.cosine, low, f"raw cosine, layer {shown.layer}", ".4f")
    _matrix(figure, middle, shown, shown.null, low, "cosine if independent (from the spreads)", ".4f")
    _pearson_matrix(figure, right, shown)
    return figure


def full_heatmap(shown: Grid) -> Figure:
    """Raw cosine and Pearson of all models, MoE before dense."""
    size = max(3.2, 0.56 * len(shown.names) + 1.0)
    figure = new_figure(2 * size + 2.0, size + 0.4)
    left, right = figure.subplots(1, 2)
    kinds = sorted(set(shown.kinds), reverse=True)
    order = f" ({' | '.join('MoE' if kind == 'moe' else kind for kind in kinds)})" if len(kinds) > 1 else ""
    _matrix(figure, left, shown, shown.cosine, _floor(shown.cosine), f"raw cosine, layer {shown.layer}{order}", ".3f")
    _null_line(left, shown)
    _pearson_matrix(figure, right, shown)
    return figure


def any_width_heatmap(shown: Grid) -> Figure:
    """Raw cosine where widths agree, and what the spreads predict for every pair, on one scale."""
    size = max(3.2, 0.62 * len(shown.names) + 1.1)
    figure = new_figure(2 * size + 1.8, size + 0.4)
    left, right = figure.subplots(1, 2)
    low = _floor(shown.cosine, shown.null)
    _matrix(figure, left, shown, shown.cosine, low, f"raw cosine, layer {shown.layer}", ".4f")
    _matrix(figure, right, shown, shown.null, low, "cosine if independent (from the spreads)", ".4f")
    return figure


# -- by layer ------------------------------------------------------------------------------------------------------------


def _pairs_by_layer(by_layer: Mapping[int, Sequence[Reading]]) -> dict[tuple[str, str], list[tuple[int, Reading]]]:
    found: dict[tuple[str, str], list[tuple[int, Reading]]] = {}
    for layer, readings in by_layer.items():
        for reading in readings:
            found.setdefault((reading.a, reading.b), []).append((layer, reading))
    return found


def _sweep(axes: Axes, by_layer: Mapping[int, Sequence[Reading]], measure: str, *, named: bool) -> None:
    pairs = _pairs_by_layer(by_layer)
    for number, ((a, b), found) in enumerate(pairs.items()):
        many = len(pairs) > len(PAIR_LOOK)
        colour, marker = ("#999999", ".") if many else PAIR_LOOK[number]
        axes.plot(
            [layer for layer, _ in found],
            [getattr(reading, measure) for _, reading in found],
            color=colour,
            marker=marker,
            linewidth=0.9,
            alpha=0.85,
            label=label_of(f"{a}–{b}") if named and not many else None,
        )


def _sweep_cosine(axes: Axes, by_layer: Mapping[int, Sequence[Reading]], *, named: bool) -> None:
    _sweep(axes, by_layer, "cosine", named=named)
    spreads = [Spread.of(readings) for readings in by_layer.values()]
    layers = list(by_layer)
    means, sds = [spread.mean for spread in spreads], [spread.sd for spread in spreads]
    axes.errorbar(
        layers, means, yerr=sds, color="black", linewidth=2.0, marker="_", markersize=9, capsize=4, label="mean ± sd"
    )
    axes.plot(
        layers,
        [spread.null for spread in spreads],
        color="#777777",
        linestyle="--",
        linewidth=2.0,
        label="mean if independent",
        zorder=4,
    )
    axes.set_ylabel("raw cosine")


def _layer_ticks(axes: Axes, layers: Sequence[int]) -> None:
    layer_axis(axes)
    if len(layers) <= MAX_TICKS:
        axes.set_xticks(layers)


def layer_sweep(by_layer: Mapping[int, Sequence[Reading]], role: str) -> Figure:
    """Raw cosine and Pearson of all pairs of models by layer."""
    figure = new_figure(8.5, 6.2)
    top, bottom = figure.subplots(2, 1, sharex=True)
    _sweep_cosine(top, by_layer, named=True)
    top.set_title(f"raw cosine of pairs of models, {role}")
    layers = list(by_layer)
    sds = [readings[0].pearson_sd for readings in by_layer.values()]
    _band(bottom, layers, sds)
    _sweep(bottom, by_layer, "pearson", named=False)
    bottom.set_ylabel("Pearson")
    bottom.set_title("centred (Pearson)")
    _layer_ticks(bottom, layers)
    handles, labels = top.get_legend_handles_labels()
    more, names = bottom.get_legend_handles_labels()
    figure.legend([*handles, *more], [*labels, *names], loc="outside right upper")
    return figure


def _band(axes: Axes, layers: Sequence[int], sds: Sequence[float]) -> None:
    """Draw the null band; for a single layer as wide as the axis, where a band would have no width."""
    if len(layers) > 1:
        null_band(axes, layers, np.zeros(len(layers)), sds)
    else:
        half = NULL_SD * sds[0]
        axes.axhspan(-half, half, color=NULL_COLOUR, alpha=0.55, linewidth=0, label=NULL_LABEL, zorder=0)


# -- groups --------------------------------------------------------------------------------------------------------------


def _groups(axes: Axes, choice: Group, related: Collection[tuple[Key, Key]]) -> None:
    """Draw every pair, mean ± sd beside it, and the mean that independent vectors would have."""
    for place, (group, readings) in enumerate(choice.groups.items()):
        colour, marker = GROUP_LOOK[group]
        shifts = np.linspace(-0.4, 0.1, len(readings)) if len(readings) > 1 else np.array([-0.15])
        ordered = sorted(readings, key=lambda item: item.cosine)
        nulls = [reading.null_mean for reading in ordered]
        label = "each pair if independent" if place == 0 else None
        axes.plot(place + shifts, nulls, color="#777777", marker="_", markersize=7, linestyle="", zorder=2, label=label)
        for shift, reading in zip(shifts, ordered, strict=True):
            fill = "white" if reading.key in related else colour
            axes.plot(
                place + shift, reading.cosine, marker=marker, color=colour, markerfacecolor=fill, markersize=4, zorder=3
            )
        spread = Spread.of(readings)
        first = place == 0
        axes.errorbar(
            place + 0.28, spread.mean, yerr=spread.sd, color="black", marker="_", markersize=11, capsize=4,
            label="mean ± sd" if first else None,
        )  # fmt: skip
        axes.plot(
            [place + 0.14, place + 0.42], [spread.null, spread.null], color="#777777", linestyle="-", linewidth=2.0,
            label="mean if independent" if first else None, zorder=2,
        )  # fmt: skip
    names = [f"{group}\n{len(readings)} pairs" for group, readings in choice.groups.items()]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")


def group_dots(choices: Sequence[Group], related: Collection[tuple[Key, Key]]) -> Figure:
    """Cosines by group, one panel for each choice of pairs."""
    figure = new_figure(1.2 + 3.5 * len(choices), 4.0)
    panels = figure.subplots(1, len(choices), sharey=True, squeeze=False)[0]
    for axes, choice in zip(panels, choices, strict=True):
        _groups(axes, choice, related)
        axes.set_title(choice.title)
    panels[0].set_ylabel("raw cosine")
    if related:
        panels[0].plot([], [], marker="o", color="black", markerfacecolor="white", linestyle="", label="related models")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# -- three measures --------------------------------------------------------------------------------------------------------

_HEADINGS = {
    "across": "two models, same layer",
    "within": "one model, two layers",
    "zero": "one model, layer 0 and a later one",
}
_AXES = {"cosine": "raw cosine", "pearson": "centred (Pearson)", "l2": "L2 distance"}


def metric_panels(compared: Sequence[Compared], fixed: Random, names: Sequence[str], role: str) -> Figure:
    """Cosine, Pearson and L2 of the same pairs beside permutations, matched random vectors and the fixed ones.

    Layer 0 has panels of its own: its low cosines would stretch the axis until no null band of the others could be seen.
    """
    blocks = [[item for item in compared if (item.kind == "zero") is zero] for zero in (False, True)]
    blocks = [block for block in blocks if block]
    heights = [0.32 * len(block) + 0.3 * len({item.kind for item in block}) + 0.9 for block in blocks]
    figure = new_figure(11.5, 0.9 + sum(heights))
    every = figure.subplots(len(blocks), 3, squeeze=False, sharey="row", height_ratios=heights)
    for panels, block in zip(every, blocks, strict=True):
        _metric_row(panels, block, fixed, names, role)
    figure.legend(*every[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _metric_row(
    panels: Sequence[Axes], block: Sequence[Compared], fixed: Random, names: Sequence[str], role: str
) -> None:
    kinds = [kind for kind in _HEADINGS if any(item.kind == kind for item in block)]
    groups = [(_HEADINGS[kind], [item.reading for item in block if item.kind == kind]) for kind in kinds]
    places = [place for found in _places(groups) for place in found]
    for axes, (measure, title) in zip(panels, _AXES.items(), strict=True):
        for number, (item, at) in enumerate(zip(block, places, strict=True)):
            _measured(axes, item, at, measure, names, labelled=number == 0)
        if kinds != ["zero"]:
            line = {"color": "#666666", "linestyle": "--", "linewidth": 1.0, "label": "random, mean 1, sd 0.1"}
            axes.axvline(fixed.mean[measure], **line)
        axes.set_title(f"{title}, {role}" if measure == "cosine" else title)
        axes.set_xlabel(title)
        _margins(axes)
    if all(item.value["l2"] > 0 for item in block):
        panels[2].set_xscale("log")
        panels[2].xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
        panels[2].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panels[2].xaxis.set_minor_formatter(NullFormatter())
    _row_labels(panels[0], groups)
    _headings(panels[0], groups)


def _measured(axes: Axes, item: Compared, at: float, measure: str, names: Sequence[str], *, labelled: bool) -> None:
    if not np.isfinite(item.value[measure]):
        return
    _null_mark(axes, at, item.null_mean[measure], item.null_sd[measure], NULL_LABEL if labelled else None)
    axes.errorbar(
        item.matched.mean[measure], at + 0.2, xerr=NULL_SD * item.matched.sd[measure], color="#AA4499", marker="D",
        markersize=4, markerfacecolor="none", linestyle="", capsize=2, zorder=2.5,
        label="random, matched means and spreads (95 %)" if labelled else None,
    )  # fmt: skip
    colour, marker = _look(item.reading, names)
    axes.plot(item.value[measure], at - 0.08, color=colour, marker=marker, markersize=5.5, linestyle="", zorder=3)


# -- summary ---------------------------------------------------------------------------------------------------------------


def summary_page(
    zero: Groups,
    shown: Grid,
    by_layer: Mapping[int, Sequence[Reading]],
    choice: Group,
    related: Collection[tuple[Key, Key]],
    names: Sequence[str],
    role: str,
) -> Figure:
    """Experiments 1, 3, 4 and 5 on one page."""
    figure = new_figure(12.0, 9.0)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    _dots(first, zero, names, "cosine")
    _row_labels(first, zero)
    _headings(first, zero)
    first.set_title(f"1. layer 0 and later layers, {role}")
    first.set_xlabel("raw cosine")
    first.legend(loc="upper right")
    low = _floor(shown.cosine)
    _matrix(figure, second, shown, shown.cosine, low, f"3. raw cosine of models at layer {shown.layer}", ".4f")
    _null_line(second, shown)
    _sweep_cosine(third, by_layer, named=True)
    third.set_title("4. pairs of models by layer")
    _layer_ticks(third, list(by_layer))
    third.legend(loc="lower right", ncols=2)
    _groups(fourth, choice, related)
    fourth.set_title(f"5. groups at layer {shown.layer}: {choice.title}")
    fourth.set_ylabel("raw cosine")
    fourth.legend(loc="lower right")
    return figure
