"""Draw the figures of the baselines study."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kinprint._util.numeric import FloatArray
from kinprint.studies import figure_style as style
from kinprint.studies.baselines.groups import ModelGrid
from kinprint.studies.baselines.moe_and_dense import PairChoice
from kinprint.studies.baselines.three_measures import KINDS, MeasuredPair, Moments
from kinprint.studies.figure_style import NULL_LABEL, NULL_SD, finish, label_of, legend_below, new_figure
from kinprint.studies.studied_models import look
from kinprint.studies.vector_pairs import Spread, Vector, VectorPair, finding

ACROSS = ("#000000", "o")
GROUP_LOOK = {"MoE–MoE": ("#D55E00", "o"), "MoE–dense": ("#0072B2", "s"), "dense–dense": ("#009E73", "^")}
MAX_TICKS = 14
NULL_GREY = "#777777"
Groups = Sequence[tuple[str, Sequence[VectorPair]]]


def _look(pair: VectorPair, names: Sequence[str]) -> tuple[str, str]:
    return look(pair.a, names.index(pair.a)) if pair.within else ACROSS


def _null_mark(axes: Axes, at: float, mean: float, sd: float, label: str | None) -> None:
    """Draw the range of 95 % of independent pairs as a bar, with a line in the middle for bars too narrow to be seen."""
    start, length = mean - NULL_SD * sd, 2 * NULL_SD * sd
    axes.barh(at, length, left=start, height=0.72, color=style.NULL_COLOUR, alpha=0.7, zorder=1, label=label)
    axes.plot([mean, mean], [at - 0.36, at + 0.36], color="#888888", linewidth=1.6, zorder=1.5)


def _heights(groups: Groups) -> list[list[float]]:
    """Return heights of the rows, a gap between groups, the first on top."""
    heights, at = [], 0.0
    for _, pairs in groups:
        heights.append([at + number for number in range(len(pairs))])
        at += len(pairs) + 0.9
    return heights


def _label_rows(axes: Axes, groups: Groups) -> None:
    """Name the rows, and write each group's heading above it."""
    heights = _heights(groups)
    axes.set_yticks([at for found in heights for at in found], [pair.label for _, found in groups for pair in found])
    axes.set_ylim(heights[-1][-1] + 0.7, -1.1)
    axes.grid(visible=False, axis="y")
    signs = {"xycoords": ("axes fraction", "data"), "va": "bottom", "fontsize": 7.5, "style": "italic"}
    for (heading, _), found in zip(groups, heights, strict=True):
        axes.annotate(heading, (0.01, found[0] - 0.5), **signs)


def _dots(axes: Axes, groups: Groups, names: Sequence[str], measure: str) -> None:
    first = True
    for (_, pairs), found in zip(groups, _heights(groups), strict=True):
        for pair, at in zip(pairs, found, strict=True):
            cosine, pearson = (pair.cosine, pair.null_mean, pair.null_sd), (pair.pearson, 0.0, pair.pearson_sd)
            value, mean, sd = pearson if measure == "pearson" else cosine
            if not np.isfinite(value):
                continue
            _null_mark(axes, at, mean, sd, NULL_LABEL if first else None)
            colour, marker = _look(pair, names)
            axes.plot(value, at, color=colour, marker=marker, markersize=5.5, linestyle="", zorder=3)
            first = False
    axes.use_sticky_edges = False  # bars would stick to the edge
    axes.margins(x=0.07)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def comparison_dots(groups: Groups, names: Sequence[str], role: str) -> Figure:
    """Draw raw cosine and Pearson of some pairs of vectors, each beside where independent vectors lie."""
    count = sum(len(pairs) for _, pairs in groups)
    figure = new_figure(9.0, 1.5 + 0.3 * count + 0.3 * len(groups))
    left, right = figure.subplots(1, 2, sharey=True)
    _dots(left, groups, names, "cosine")
    _dots(right, groups, names, "pearson")
    _label_rows(left, groups)
    finish(left, f"raw cosine, {role}", x="cosine")
    finish(right, "centred (Pearson)", x="Pearson")
    legend_below(figure, left)
    figure.suptitle(finding(groups))
    return figure


def _scale(shown: ModelGrid, measure: str, panels: Sequence[str]) -> tuple[float, float, str]:
    """Return the ends of a panel's scale and its colours: one for cosines and their null, Pearson's about zero."""
    matrices = [shown.pearson] if measure == "pearson" else [getattr(shown, one) for one in panels if one != "pearson"]
    values: FloatArray = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    if measure != "pearson":
        return (float(np.floor(100 * values.min()) / 100) if values.size else 0.0), 1.0, style.SIMILARITY_MAP
    null = 3 * shown.pearson_sd if np.isfinite(shown.pearson_sd) else 0.0
    reach = max(float(np.abs(values).max(initial=0.0)), null) or 1.0
    return -reach, reach, style.SIGNED_MAP


def _model_matrix(figure: Figure, axes: Axes, shown: ModelGrid, measure: str, panels: Sequence[str]) -> None:
    low, high, colours = _scale(shown, measure, panels)
    cells = ".3f" if measure == "pearson" or ("null_mean" not in panels and len(shown.names) > 5) else ".4f"
    values, names = getattr(shown, measure), shown.names
    image = style.heat(axes, values, low=low, high=high, rows=names, columns=names, colours=colours, cells=cells)
    border = shown.kinds.count("moe") - 0.5
    if 0 < border < len(shown.names) - 1:  # between MoE and dense models, light on dark and dark on light
        for line in (axes.axhline, axes.axvline):
            line(border, color="white", linewidth=3.5)
            line(border, color="black", linewidth=1.2)
    figure.colorbar(image, ax=axes, shrink=0.85)


def _models_finding(shown: ModelGrid) -> str:
    """Return what a title states of all models at a layer; of related ones, Pearson is far off its null."""
    there = np.isfinite(shown.cosine) & np.isfinite(shown.pearson)
    cosine, gap, r = shown.cosine[there], np.abs(shown.cosine - shown.null_mean)[there], shown.pearson[there]
    if not cosine.size:
        return f"Layer {shown.layer}: no two of these models can be compared"
    inside = np.abs(r) < NULL_SD * shown.pearson_sd
    said = f"Layer {shown.layer}: cosine {cosine.min():.3f} to {cosine.max():.3f}, "
    if inside.any():
        r, gap, count = r[inside], gap[inside], np.count_nonzero(inside) // 2
        said += f"r = {r.min():.3f} to {r.max():.3f} in {count} of {cosine.size // 2} pairs, whose cosine is within "
        return f"{said}{gap.max():.4f} of that of independent vectors (null sd of r {shown.pearson_sd:.4f})"
    return f"{said}r = {r.min():.3f} to {r.max():.3f} (null sd {shown.pearson_sd:.4f})"


def heatmaps(shown: ModelGrid, panels: Sequence[str]) -> Figure:
    """Draw models against models: raw cosine, what the spreads predict on the same scale, and Pearson on its own."""
    size = max(3.2, 0.6 * len(shown.names) + 1.0)
    figure = new_figure(len(panels) * (size + 0.9), size + 0.5)
    kinds = ["MoE" if kind == "moe" else kind for kind in sorted(set(shown.kinds), reverse=True)]
    order = f" ({' | '.join(kinds)})" if len(kinds) > 1 else ""
    titles = {
        "cosine": f"raw cosine, layer {shown.layer}{order}",
        "null_mean": "cosine if independent (from the spreads)",
        "pearson": f"centred (Pearson), null sd {shown.pearson_sd:.4f}",
    }
    for axes, measure in zip(figure.subplots(1, len(panels)), panels, strict=True):
        _model_matrix(figure, axes, shown, measure, panels)
        axes.set_title(titles[measure])
    figure.suptitle(_models_finding(shown))
    return figure


def _sweep(axes: Axes, by_layer: Mapping[int, Sequence[VectorPair]], measure: str) -> None:
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for layer, pairs in by_layer.items():
        for pair in pairs:
            found.setdefault((pair.a, pair.b), []).append((layer, getattr(pair, measure)))
    many = len(found) > len(style.PAIR_LOOK)
    for number, ((a, b), points) in enumerate(found.items()):
        colour, marker = ("#999999", ".") if many else style.PAIR_LOOK[number]
        label = label_of(f"{a}–{b}") if measure == "cosine" and not many else None
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linewidth=0.9, alpha=0.85, label=label)


def _sweep_cosine(axes: Axes, by_layer: Mapping[int, Sequence[VectorPair]]) -> None:
    _sweep(axes, by_layer, "cosine")
    spreads, layers = [Spread.of(pairs) for pairs in by_layer.values()], list(by_layer)
    means, sds, nulls = ([getattr(spread, name) for spread in spreads] for name in ("mean", "sd", "null_mean"))
    signs = {"color": "black", "linewidth": 2.0, "marker": "_", "markersize": 9, "capsize": 4}
    axes.errorbar(layers, means, yerr=sds, label="mean ± sd", **signs)
    dashed = {"color": NULL_GREY, "linestyle": "--", "linewidth": 2.0, "zorder": 4}
    axes.plot(layers, nulls, label="mean if independent", **dashed)


def layer_sweep(by_layer: Mapping[int, Sequence[VectorPair]], role: str) -> Figure:
    """Draw raw cosine and Pearson of all pairs of models by layer."""
    figure = new_figure(8.5, 6.2)
    top, bottom = figure.subplots(2, 1, sharex=True)
    _sweep_cosine(top, by_layer)
    finish(top, f"raw cosine of pairs of models, {role}", "raw cosine", x=None)
    layers, sds = list(by_layer), [pairs[0].pearson_sd for pairs in by_layer.values()]
    style.null_band(bottom, layers, 0.0, sds)
    _sweep(bottom, by_layer, "pearson")
    finish(bottom, "centred (Pearson)", "Pearson")
    if len(layers) <= MAX_TICKS:
        bottom.set_xticks(layers)
    legend_below(figure, top, bottom, columns=5)
    every = [pair for pairs in by_layer.values() for pair in pairs]
    figure.suptitle(finding([(f"All pairs, layers {layers[0]} to {layers[-1]}", every)]))
    return figure


def _groups(axes: Axes, choice: PairChoice, related: Collection[tuple[Vector, Vector]]) -> None:
    """Draw every pair, mean ± sd beside it, and the mean that independent vectors would have."""
    for place, (group, pairs) in enumerate(choice.groups.items()):
        colour, marker = GROUP_LOOK[group]
        said = ("each pair if independent", "mean ± sd", "mean if independent")
        each, whole, null = (text if place == 0 else None for text in said)
        shifts = np.linspace(-0.4, 0.1, len(pairs)) if len(pairs) > 1 else np.array([-0.15])
        ordered = sorted(pairs, key=lambda pair: pair.cosine)
        ticks = {"color": NULL_GREY, "marker": "_", "markersize": 7, "linestyle": "", "zorder": 2}
        axes.plot(place + shifts, [pair.null_mean for pair in ordered], label=each, **ticks)
        for shift, pair in zip(shifts, ordered, strict=True):
            dot = {"color": colour, "markerfacecolor": "white" if pair.key in related else colour, "markersize": 4}
            axes.plot(place + shift, pair.cosine, marker=marker, zorder=3, **dot)
        spread, bar = Spread.of(pairs), {"color": "black", "marker": "_", "markersize": 11, "capsize": 4}
        axes.errorbar(place + 0.28, spread.mean, yerr=spread.sd, label=whole, **bar)
        line = {"color": NULL_GREY, "linestyle": "-", "linewidth": 2.0, "zorder": 2}
        axes.plot([place + 0.14, place + 0.42], [spread.null_mean] * 2, label=null, **line)
    names = [f"{group}\n{len(pairs)} pairs" for group, pairs in choice.groups.items()]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")


def group_dots(choices: Sequence[PairChoice], related: Collection[tuple[Vector, Vector]]) -> Figure:
    """Draw cosines by group, one panel for each choice of pairs."""
    figure = new_figure(1.2 + 3.5 * len(choices), 4.0)
    panels = figure.subplots(1, len(choices), sharey=True, squeeze=False)[0]
    for axes, choice in zip(panels, choices, strict=True):
        _groups(axes, choice, related)
        axes.set_title(choice.title)
    panels[0].set_ylabel("raw cosine")
    if related:
        panels[0].plot([], [], marker="o", color="black", markerfacecolor="white", linestyle="", label="related models")
    legend_below(figure, panels[0], columns=3)
    figure.suptitle(f"{choices[-1].title}: {finding(choices[-1].groups.items())}")
    return figure


_AXES = {"cosine": "raw cosine", "pearson": "centred (Pearson)", "l2": "L2 distance"}


def metric_panels(found: Sequence[MeasuredPair], fixed: Moments, names: Sequence[str], role: str) -> Figure:
    """Draw cosine, Pearson and L2 of the same pairs beside permutations, matched random vectors and the fixed ones.

    Layer 0 has panels of its own: its low cosines would stretch the axis until no null band of the others could be seen.
    """
    blocks = [[one for one in found if (one.kind == "zero") is zero] for zero in (False, True)]
    blocks = [block for block in blocks if block]
    heights = [0.32 * len(block) + 0.3 * len({one.kind for one in block}) + 0.9 for block in blocks]
    figure = new_figure(11.5, 0.9 + sum(heights))
    every = figure.subplots(len(blocks), 3, squeeze=False, sharey="row", height_ratios=heights)
    for panels, block in zip(every, blocks, strict=True):
        _metric_row(panels, block, fixed, names, role)
    legend_below(figure, every[0, 0], columns=3)
    kinds = [(heading, [one.pair for one in found if one.kind == kind]) for kind, heading in KINDS.items()]
    figure.suptitle(finding(kinds))
    return figure


def _metric_row(
    panels: Sequence[Axes], block: Sequence[MeasuredPair], fixed: Moments, names: Sequence[str], role: str
) -> None:
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in block)]
    groups = [(KINDS[kind], [one.pair for one in block if one.kind == kind]) for kind in kinds]
    heights = [at for found in _heights(groups) for at in found]
    for axes, (measure, title) in zip(panels, _AXES.items(), strict=True):
        for number, (one, at) in enumerate(zip(block, heights, strict=True)):
            _measured_pair(axes, one, at, measure, names, labelled=number == 0)
        if kinds != ["zero"]:
            line = {"color": "#666666", "linestyle": "--", "linewidth": 1.0, "label": "random, mean 1, sd 0.1"}
            axes.axvline(fixed[measure][0], **line)
        finish(axes, f"{title}, {role}" if measure == "cosine" else title, x=title)
        axes.use_sticky_edges = False
        axes.margins(x=0.07)
    if all(one.value["l2"] > 0 for one in block):
        panels[2].set_xscale("log")
        panels[2].xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
        panels[2].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panels[2].xaxis.set_minor_formatter(NullFormatter())
    _label_rows(panels[0], groups)


def _measured_pair(
    axes: Axes, one: MeasuredPair, at: float, measure: str, names: Sequence[str], *, labelled: bool
) -> None:
    if not np.isfinite(one.value[measure]):
        return
    _null_mark(axes, at, *one.null[measure], NULL_LABEL if labelled else None)
    label = "random, matched means and spreads (95 %)" if labelled else None
    diamond = {"color": "#AA4499", "marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": ""}
    mean, sd = one.matched[measure]
    axes.errorbar(mean, at + 0.2, xerr=NULL_SD * sd, capsize=2, zorder=2.5, label=label, **diamond)
    colour, marker = _look(one.pair, names)
    axes.plot(one.value[measure], at - 0.08, color=colour, marker=marker, markersize=5.5, linestyle="", zorder=3)


def summary_page(
    zero: Groups,
    shown: ModelGrid,
    by_layer: Mapping[int, Sequence[VectorPair]],
    choice: PairChoice,
    related: Collection[tuple[Vector, Vector]],
    names: Sequence[str],
    role: str,
) -> Figure:
    """Draw experiments 1, 3, 4 and 5 on one page."""
    figure = new_figure(12.0, 9.0)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    _dots(first, zero, names, "cosine")
    _label_rows(first, zero)
    finish(first, f"1. layer 0 and later layers, {role}", x="raw cosine", legend="upper right")
    _model_matrix(figure, second, shown, "cosine", ("cosine",))
    second.set_title(f"3. raw cosine of models at layer {shown.layer}")
    _sweep_cosine(third, by_layer)
    finish(third, "4. pairs of models by layer", "raw cosine")
    if len(by_layer) <= MAX_TICKS:
        third.set_xticks(list(by_layer))
    third.legend(loc="lower right", ncols=2)
    _groups(fourth, choice, related)
    finish(fourth, f"5. groups at layer {shown.layer}: {choice.title}", "raw cosine", x=None, legend="lower right")
    figure.suptitle(finding([*zero, *choice.groups.items()]))
    return figure
