"""Draw the figures of the study `origin`: norms, baselines, routers, windows, vocabularies and embeddings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from kinprint._util.numeric import FloatArray
from kinprint.studies import figure_style as style
from kinprint.studies.figure_style import NULL_COLOUR, NULL_LABEL, NULL_SD, finish, label_of, new_figure
from kinprint.studies.origin.routers import RouterRow, pooled_sd
from kinprint.studies.origin.tokens import SCRIPTS, Comparison, Ints
from kinprint.studies.origin.windows import WindowRow, expected_magnitude

if TYPE_CHECKING:
    from kinprint.studies.layer_pairs import LayerPair
    from kinprint.studies.origin.decay import Decay
    from kinprint.studies.origin.embeddings import Sample
    from kinprint.studies.origin.sigma import Sigma

COSINE, PEARSON, OTHER, THIRD = "#0072B2", "#009E73", "#D55E00", "#CC79A7"
_CLASSES = {"korean": "Korean", "chinese": "Chinese", "ascii_alpha": "Latin", "ascii_digit": "digits"}
"""Where the published classes, made without decoding, belong among the scripts; the others belong to "other"."""


def pair_look(position: int) -> tuple[str, str]:
    """Return colour and marker of the pair at a position."""
    return style.PAIR_LOOK[position % len(style.PAIR_LOOK)]


def _line(
    axes: Axes, layers: Sequence[int], values: ArrayLike, mean: ArrayLike, sd: ArrayLike, label: str, colour: str = COSINE,
    *, band: str | None = NULL_LABEL,
) -> None:  # fmt: skip
    """Draw values by layer over the band of independent pairs."""
    style.null_band(axes, layers, mean, sd, label=band)
    axes.plot(layers, values, color=colour, marker="o", label=label_of(label))


# -- layers --------------------------------------------------------------------------------------------------------------


def layer_probe(pairs: Sequence[LayerPair]) -> Figure:
    """Draw cosine and Pearson on one axis, Pearson alone below, one column for each norm, each with its null band."""
    figure = new_figure(4.8 * len(pairs) + 0.4, 5.6)
    grid = figure.subplots(2, len(pairs), sharex=True, squeeze=False)
    for (top, bottom), pair in zip(grid.T, pairs, strict=True):
        _line(top, pair.layers, pair.cosine, pair.null_mean, pair.null_sd, "cosine")
        _line(top, pair.layers, pair.pearson, 0.0, pair.pearson_sd, "Pearson", PEARSON, band=None)
        finish(top, pair.title, "cosine, Pearson", x=None, legend="center right")
        top.set_ylim(float(np.nanmin([-0.06, *pair.cosine, *pair.pearson])) - 0.02, 1.06)
        _line(bottom, pair.layers, pair.pearson, 0.0, pair.pearson_sd, "Pearson", PEARSON)
        reach = 1.15 * max(float(np.nanmax(np.abs(pair.pearson))), 2.2 * pair.pearson_sd)
        bottom.set_ylim(-reach, reach)
        finish(bottom, "Pearson alone", "Pearson", legend="lower right")
    figure.suptitle("; ".join(f"{pair.role.value}: {pair.finding}" for pair in pairs))
    return figure


def control_lines(pairs: Sequence[LayerPair]) -> Figure:
    """Draw cosine and Pearson of every comparable pair, one column for each norm."""
    roles = list(dict.fromkeys(pair.role for pair in pairs))
    names = list(dict.fromkeys((pair.a, pair.b) for pair in pairs))
    figure = new_figure(4.9 * len(roles) + 1.6, 6.4)
    grid = figure.subplots(2, len(roles), sharex=True, squeeze=False)
    for place, role in enumerate(roles):
        top, bottom = grid[:, place]
        chosen = [pair for pair in pairs if pair.role is role]
        for pair in chosen:
            colour, marker = pair_look(names.index((pair.a, pair.b)))
            half = NULL_SD * pair.null_sd
            shade = {"color": colour, "alpha": 0.22, "linewidth": 0}
            top.fill_between(pair.layers, pair.null_mean - half, pair.null_mean + half, **shade)
            # the first on top of the others, some of which it may coincide with
            size, face, order = (3.0, colour, 4) if pair is chosen[0] else (5.0, "none", 3)
            look = {"color": colour, "marker": marker, "markersize": size, "markerfacecolor": face}
            top.plot(pair.layers, pair.cosine, linewidth=1.1, zorder=order, **look)
            bottom.plot(pair.layers, pair.pearson, linewidth=1.1, zorder=order, label=label_of(pair.name), **look)
        widest = max(chosen, key=lambda pair: len(pair.layers))
        style.null_band(bottom, widest.layers, 0.0, widest.pearson_sd)
        finish(top, role.value, x=None)
        linear = 4 * widest.pearson_sd
        bottom.set_yscale("symlog", linthresh=linear, linscale=2.0)
        step = round(linear / 2, 2)
        marks = [-step, 0.0, step, *(mark for mark in (0.1, 0.3, 1.0) if mark > 1.5 * linear)]
        bottom.set_yticks(marks, [f"{mark:g}" for mark in marks])
        bottom.minorticks_off()
        bottom.axhline(0.0, color="#888888", linewidth=0.8)
        finish(bottom, "", f"Pearson (linear to ±{linear:.2f}, then logarithmic)")
    grid[0, 0].set_ylabel("cosine")
    figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside right center")
    said = {role: ", ".join(f"{p.name} {p.mean_pearson:.3f}" for p in pairs if p.role is role) for role in roles}
    figure.suptitle("; ".join(f"mean r of {role.value}: {text}" for role, text in said.items()))
    return figure


# -- 182 sigma -------------------------------------------------------------------------------------------------------------


def sigma_bars(first: Sigma, found: Sequence[Sigma]) -> Figure:
    """Draw the cosines behind the published number, and the published formula on every pair."""
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    groups = (
        (f"{first.pair.a}:\nlayer 0,\nlater layers", first.within_a, first.predicted_within_a, OTHER),
        (f"{first.pair.b}:\nlayer 0,\nlater layers", first.within_b, first.predicted_within_b, COSINE),
        (f"layer 0 of\n{first.pair.a}, later\nof {first.pair.b}", first.zero_cross, None, THIRD),
        (f"{first.pair.a},\n{first.pair.b}:\nsame layer", first.cross, first.predicted_cross, "#000000"),
        (f"{first.pair.a},\n{first.pair.b}:\nlayer 0", np.array([first.cross_zero]), None, "#777777"),
    )
    for place, (_, values, predicted, colour) in enumerate(groups):
        spread = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(1)
        left.bar(place, values.mean(), width=0.62, color=colour, alpha=0.25, zorder=1)
        left.plot(place + spread, values, "o", color=colour, markersize=4.5, zorder=3)
        if predicted is not None:
            left.plot(place + spread, predicted, "x", color="#000000", markersize=7, markeredgewidth=1.1, zorder=4)
    left.plot([], [], "o", color="#555555", label="measured, one layer each")
    left.plot([], [], "x", color="#000000", label="predicted by means and spreads alone")
    left.set_xticks(range(len(groups)), [name for name, *_ in groups], fontsize=8)
    left.set_ylim(0, 1.18)
    finish(left, "input_norm: cosines behind the published number", "cosine", x=None, legend="upper left")
    places = np.arange(len(found))
    for shift, sigmas, label, colour in (
        (-0.2, [item.sigma for item in found], "measured cosines", COSINE),
        (0.2, [item.sigma_predicted for item in found], "cosines predicted by means and spreads alone", NULL_COLOUR),
    ):
        heights = [np.nan if value is None else value for value in sigmas]
        bars = right.barh(places + shift, heights, height=0.38, color=colour, label=label)
        right.bar_label(bars, fmt="%.0f", padding=2, fontsize=7.5)
    right.set_yticks(places, [f"{item.pair.name}" for item in found])
    right.invert_yaxis()
    right.margins(x=0.14)
    finish(right, "the published formula on each pair", x="difference of means / root of mean variance")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    both = (f"{x:.0f}" if x is not None else "none" for x in (first.sigma, first.sigma_predicted))
    figure.suptitle("{}: the formula gives {}, and {} from means and spreads alone".format(first.pair.name, *both))
    return figure


# -- baselines, deviations, decay --------------------------------------------------------------------------------------------


def baselines(pairs: Sequence[LayerPair], published_mean: float) -> Figure:
    """Draw cosine beside the published and the matched baseline, and Pearson's distribution beside its null."""
    figure = new_figure(3.9 * (len(pairs) + 1) + 0.4, 3.7)
    panels = figure.subplots(1, len(pairs) + 1)
    matched = "matched: 95 % of independent pairs"
    for axes, pair in zip(panels[:-1], pairs, strict=True):
        label = f"{pair.a} and {pair.b}"
        _line(axes, pair.layers, pair.cosine, pair.null_mean, pair.null_sd, label, band=matched)
        axes.axhline(published_mean, color=OTHER, linestyle="--", label="published: mean 1, sd 0.01")
        finish(axes, pair.role.value, "cosine", legend="lower right")
    last = panels[-1]
    values, sd = [pair.pearson for pair in pairs], pairs[0].pearson_sd
    reach = 1.1 * max(max(float(np.abs(one).max()) for one in values), 3.2 * sd)
    bins = np.linspace(-reach, reach, 31)
    for pair, colour, hatch in zip(pairs, (COSINE, OTHER), ("", "///"), strict=False):
        look = {"histtype": "stepfilled", "alpha": 0.45, "color": colour, "hatch": hatch, "label": pair.role.value}
        last.hist(pair.pearson, bins=bins, **look)
    x = np.linspace(-reach, reach, 300)
    count = len(pairs[0].layers)
    density = np.exp(-((x / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi)) * count * (bins[1] - bins[0])
    last.plot(x, density, color="#000000", linewidth=1.2, label="null, normal")
    finish(last, "Pearson of all layers", "layers", x="Pearson", legend="upper right")
    figure.suptitle("; ".join(f"{pair.role.value}: {pair.finding}" for pair in pairs))
    return figure


def _shares(axes: Axes, values: FloatArray, bins: FloatArray, **look: object) -> None:
    """Draw a histogram of shares."""
    axes.hist(values, bins=bins, weights=np.full(len(values), 1.0 / len(values)), **look)


def deviations(lines: Sequence[LayerPair], histograms: Sequence[FloatArray]) -> Figure:
    """Draw deviation cosines by layer with their null, and their distribution over matched and mismatched pairs."""
    figure = new_figure(3.9 * (len(lines) + 1) + 0.4, 3.8)
    panels = figure.subplots(1, len(lines) + 1)
    for axes, line in zip(panels[:-1], lines, strict=True):
        _line(axes, line.layers, line.cosine, line.null_mean, line.null_sd, "cosine of a − 1 and b − 1")
        axes.axhline(0.0, color="#888888", linewidth=0.8)
        axes.set_ylim(-1.08, 1.08)
        finish(axes, line.role.value, "deviation cosine", legend="best")
    last = panels[-1]
    bins = np.linspace(-1.0, 1.0, 31)
    labels = ("same layer", "mismatched as published", "other layer, same norm")
    looks = zip(labels, (COSINE, OTHER, "#000000"), ("-", "--", ":"), strict=True)
    for values, (label, colour, dash) in zip(histograms, looks, strict=True):
        if len(values):
            look = {"histtype": "step", "color": colour, "linestyle": dash, "linewidth": 1.6}
            _shares(last, values, bins, label=label, **look)
    last.margins(y=0.35)
    finish(last, "same and mismatched pairs", "share of pairs", x="deviation cosine", legend="upper center")
    means = (f"{label} {values.mean():.2f}" for label, values in zip(labels, histograms, strict=True) if len(values))
    figure.suptitle(f"Mean deviation cosine: {', '.join(means)}")
    return figure


def decay(found: Decay) -> Figure:
    """Draw the matrix, what means and spreads leave of it, its diagonal, and the dominance beside its nulls."""
    figure = new_figure(10.4, 8.2)
    (top_left, top_right), (low_left, low_right) = figure.subplots(2, 2)
    image = style.heat(top_left, found.matrix, low=float(found.matrix.min()), high=1.0)
    figure.colorbar(image, ax=top_left, label="mean cosine of both norms")
    top_left.set_title("every layer against every layer")
    excess = found.matrix - found.null_matrix
    reach = float(np.abs(excess).max()) or 1.0
    image = style.heat(top_right, excess, low=-reach, high=reach, colours=style.SIGNED_MAP)
    figure.colorbar(image, ax=top_right, label="cosine minus its mean if independent")
    top_right.set_title("minus what means and spreads predict")
    for axes in (top_left, top_right):
        _layer_ticks(axes, found)
    mean, sd = found.null_diagonal.mean(axis=0), found.null_diagonal.std(axis=0, ddof=1)
    _line(low_left, found.layers, found.diagonal, mean, sd, "same layer")
    low_left.axhline(found.off_mean, color=OTHER, linestyle="--", label="mean of different layers")
    finish(low_left, "the diagonal", "mean cosine of both norms", legend="lower right")
    everything = np.concatenate([found.null_dominance, found.swapped, [found.dominance]])
    bins = np.linspace(float(everything.min()), float(everything.max()), 41)
    look = {"histtype": "step", "color": OTHER, "linewidth": 1.5, "alpha": 1.0}
    _shares(low_right, found.swapped, bins, label="layers of B in random order", **look)
    look |= {"histtype": "stepfilled", "color": "#777777", "alpha": 0.7}
    _shares(low_right, found.null_dominance, bins, label="dimensions of B permuted", **look)
    low_right.axvline(found.dominance, color="#000000", label="as stored")
    dominance = "dominance: mean of the diagonal minus mean of the rest"
    finish(low_right, "the dominance beside its nulls", "share of draws", x=dominance, legend="best")
    mean, sd = float(found.null_dominance.mean()), float(found.null_dominance.std())
    figure.suptitle(
        f"{found.a} and {found.b}: dominance of the diagonal {found.dominance:.4f}; with dimensions permuted, which leaves "
        f"nothing shared, {mean:.4f} ± {sd:.4f}"
    )
    return figure


def _layer_ticks(axes: Axes, found: Decay) -> None:
    places = list(range(0, len(found.layers), max(1, len(found.layers) // 8)))
    for ticks in (axes.set_xticks, axes.set_yticks):
        ticks(places, [str(found.layers[place]) for place in places])
    axes.set(xlabel=f"layer of {found.b}", ylabel=f"layer of {found.a}")


# -- routers and windows -------------------------------------------------------------------------------------------------------


def routers(rows: Sequence[RouterRow], noise: float) -> Figure:
    """Draw router cosine, Pearson and aligned cosine by layer, each with its null."""
    figure = new_figure(11.4, 3.8)
    first, second, third = figure.subplots(1, 3)
    raw = [row for row in rows if row.cosine is not None]
    if raw:
        at = [row.layer for row in raw]
        for axes, name, colour, key in ((first, "cosine", COSINE, "cosine"), (second, "Pearson", PEARSON, "pearson")):
            values = np.array([getattr(row, key) for row in raw], dtype=float)
            mean = np.array([row.null_mean for row in raw], dtype=float) if key == "cosine" else np.zeros(len(raw))
            sd = np.array([row.null_sd if key == "cosine" else row.pearson_sd for row in raw], dtype=float)
            _line(axes, at, values, mean, sd, name, colour)
            finish(axes, f"{name}, experts as stored", name, legend="best")
    mean, sd = np.array([row.aligned_null.mean() for row in rows]), np.full(len(rows), pooled_sd(rows))
    aligned, band = [row.aligned for row in rows], "dimensions permuted, 95 %"
    _line(third, [row.layer for row in rows], aligned, mean, sd, "aligned", OTHER, band=band)
    third.axhline(noise, color="#000000", linestyle=":", label="independent Gaussian matrices")
    third.set_ylim(bottom=0.0)
    third.margins(y=0.12)
    finish(third, "after the best assignment of experts", "mean cosine", legend="lower right")
    figure.suptitle(
        f"Routers: mean cosine after the best assignment {np.mean(aligned):.4f}, permuted {mean.mean():.4f}"
    )
    return figure


def window_histograms(name: str, rows: Sequence[WindowRow]) -> Figure:
    """Draw histograms of cosines by tensor, each with the band of independent pairs."""
    roles = list(dict.fromkeys(row.role for row in rows))
    across = 4 if len(roles) > 6 else min(3, len(roles))
    height = -(-len(roles) // across)
    figure = new_figure(3.2 * across + 0.6, 2.8 * height + 0.6)
    grid = figure.subplots(height, across, squeeze=False).ravel()
    for axes in grid[len(roles) :]:
        axes.set_axis_off()
    for axes, role in zip(grid, roles, strict=False):
        _window_panel(axes, name, [row for row in rows if row.role is role])
    style.legend_below(figure, *grid[: len(roles)])
    figure.suptitle(f"{name}: {_magnitudes(rows)}")
    return figure


def _magnitudes(rows: Sequence[WindowRow]) -> str:
    """Return what titles state of windows: mean |cosine| by tensor, beside that of independent pairs."""
    said = []
    for role in dict.fromkeys(row.role for row in rows):
        own = [row for row in rows if row.role is role]
        null = expected_magnitude(own)
        beside = f" ({null:.2g})" if null is not None else ""
        said.append(f"{role.value} {np.mean([abs(row.cosine or 0.0) for row in own]):.2g}{beside}")
    return f"mean |cosine| (of independent pairs) {', '.join(said)}"


def _window_panel(axes: Axes, name: str, rows: Sequence[WindowRow]) -> None:
    role = rows[0].role
    values = np.array([row.cosine for row in rows], dtype=float)
    nulls = [(row.null_mean, row.null_sd) for row in rows if row.null_mean is not None and row.null_sd is not None]
    edges = [float(values.min()), float(values.max())]
    if nulls and role.info.kind == "matrix":
        middle = float(np.mean([mean for mean, _ in nulls]))
        half = NULL_SD * float(np.sqrt(np.mean([sd**2 for _, sd in nulls])))
        band = {"color": NULL_COLOUR, "alpha": 0.55, "linewidth": 0}
        axes.axvspan(middle - half, middle + half, label=NULL_LABEL, **band)
        edges += [middle - half, middle + half]
    elif nulls:  # nulls of norms and biases differ between layers: the middle of each is shown
        means = np.array([mean for mean, _ in nulls])
        marking = {"color": OTHER, "markersize": 9, "clip_on": False}
        axes.plot(means, np.zeros(len(means)), "|", label="each layer’s mean if independent", **marking)
        edges += [float(means.min()), float(means.max())]
    margin = 0.05 * (max(edges) - min(edges)) or 0.01
    bins = np.linspace(min(edges) - margin, max(edges) + margin, 31)
    axes.hist(values, bins=bins, histtype="step", color="#000000", linewidth=1.4, label=label_of(name))
    finish(axes, role.value, "layers", x="cosine")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def window_magnitudes(shown: dict[str, list[WindowRow]]) -> Figure:
    """Draw mean |cosine| by tensor on a logarithmic axis, beside its expectation for independent pairs."""
    roles = list(dict.fromkeys(row.role for rows in shown.values() for row in rows))
    figure = new_figure(max(7.0, 1.25 * len(roles) + 2.0), 4.4)
    axes = figure.subplots()
    labelled: set[str] = set()
    for place, role in enumerate(roles):
        present = {name: [row for row in rows if row.role is role] for name, rows in shown.items()}
        present = {name: rows for name, rows in present.items() if rows}
        width = min(0.3, 0.84 / len(present))
        for number, (name, rows) in enumerate(present.items()):
            x = place + (number - (len(present) - 1) / 2) * width
            mean = float(np.mean([abs(row.cosine or 0.0) for row in rows]))
            colour, marker = pair_look(list(shown).index(name))
            label = None if name in labelled else label_of(name)
            axes.plot(x, mean, color=colour, marker=marker, markersize=6, linestyle="", label=label, zorder=3)
            labelled.add(name)
            expected = expected_magnitude(rows)
            if expected:
                label = None if "" in labelled else "mean |cosine| of independent pairs"
                half = 0.55 * width
                axes.plot([x - half, x + half], [expected] * 2, color="#777777", linewidth=2.4, label=label, zorder=2)
                labelled.add("")
    style.log_y(axes)
    axes.set_xticks(range(len(roles)), [role.value for role in roles], rotation=20, ha="right")
    finish(axes, "by tensor", "mean |cosine| over layers", x=None)
    figure.legend(loc="outside right center")
    name, rows = next(iter(shown.items()))
    figure.suptitle(f"{name}: {_magnitudes(rows)}")
    return figure


# -- vocabularies and embeddings -----------------------------------------------------------------------------------------


def vocabulary_map(
    a: str, b: str, found: Comparison, drawn: Ints, scripts: dict[str, Counter[str]], raw: dict[str, Counter[str]]
) -> Figure:
    """Draw ids of common tokens (those at the places `drawn`), their differences, and two bar charts of scripts."""
    ids_a, ids_b, differences = found.ids_a[drawn], found.ids_b[drawn], found.ids_a - found.ids_b
    figure = new_figure(10.4, 7.4)
    (scatter, histogram), (only, high) = figure.subplots(2, 2)
    scatter.scatter(ids_a, ids_b, s=5, alpha=0.45, color=COSINE, linewidths=0)
    end = float(max(ids_a.max(), ids_b.max()))
    scatter.plot([0, end], [0, end], color="#888888", linestyle="--", linewidth=0.9, label="same id")
    finish(scatter, f"ids of {len(ids_a):,} common tokens", f"id in {b}", x=f"id in {a}", legend="upper left")
    for axis in (scatter.xaxis, scatter.yaxis, histogram.xaxis):
        axis.set_major_locator(MaxNLocator(6))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if abs(x) >= 1000 else f"{x:g}"))
    histogram.hist(differences, bins=100, color=COSINE)
    histogram.axvline(0, color="#888888", linestyle="--", linewidth=0.9, label="same id")
    title = f"differences of ids, all {len(differences):,} common tokens"
    finish(histogram, title, "tokens", x=f"id in {a} minus id in {b}", legend="upper right")
    _script_bars(only, scripts["only"], raw["only"], f"tokens of {a} that {b} lacks")
    _script_bars(high, scripts["high"], raw["high"], f"tokens of {a} with ids from {found.high_from:,}")
    figure.suptitle(f"{a} and {b}: {len(differences):,} common tokens, {found.same_id:,} with the same id")
    return figure


def _script_bars(axes: Axes, decoded: Counter[str], raw: Counter[str], title: str) -> None:
    undecoded: Counter[str] = Counter()
    for name, count in raw.items():
        undecoded[_CLASSES.get(name, "other")] += count
    places = np.arange(len(SCRIPTS))
    for shift, counts, label, colour in (
        (-0.2, decoded, "decoded", COSINE),
        (0.2, undecoded, "as published, not decoded", NULL_COLOUR),
    ):
        bars = axes.barh(places + shift, [counts[name] for name in SCRIPTS], height=0.38, color=colour, label=label)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=7.5)
    axes.set_yticks(places, SCRIPTS)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    finish(axes, title, x="tokens", legend="best")


def embeddings(samples: Sequence[Sample], within: FloatArray, b: str, width: int) -> Figure:
    """Draw histograms and scatter of the cosines of common tokens, with the null of a single token."""
    figure = new_figure(10.4, 4.0)
    left, right = figure.subplots(1, 2)
    sd = 1.0 / np.sqrt(width - 1)
    shown = [sample for sample in samples if sample.name != "english_written"] or list(samples)
    values = [sample.cosines for sample in shown] + ([within] if within.size else [])
    low, high = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
    low, high = min(low, -2.5 * sd), max(high, 2.5 * sd)
    bins, step = np.linspace(low, high, 51), {"histtype": "step", "linewidth": 1.5}
    band = {"color": NULL_COLOUR, "alpha": 0.5, "linewidth": 0}
    left.axvspan(-NULL_SD * sd, NULL_SD * sd, label=NULL_LABEL, **band)
    for sample, colour, dash in zip(shown, (COSINE, OTHER), ("-", "--"), strict=False):
        label = f"{len(sample.tokens)} {'“English” tokens' if sample.name.startswith('english') else 'ASCII words'}"
        left.hist(sample.cosines, bins=bins, color=colour, linestyle=dash, label=label, **step)
        blank = np.array(sample.blank, dtype=bool)
        dots = {"s": 12, "color": colour, "alpha": 0.6, "linewidths": 0, "label": label}
        right.scatter(sample.ids_b[~blank], sample.cosines[~blank], **dots)
        if blank.any():
            crosses = {"s": 26, "color": "#000000", "marker": "x", "label": "white space only"}
            right.scatter(sample.ids_b[blank], sample.cosines[blank], **crosses)
    if within.size:
        left.hist(within, bins=bins, color=PEARSON, linestyle=":", label=f"random pairs within {b}", **step)
    finish(left, "the same token in both models", "tokens", x="cosine of the two rows")
    right.axhspan(-NULL_SD * sd, NULL_SD * sd, zorder=0, **band)
    finish(right, "against the id", "cosine of the two rows", x=f"id in {b}")
    for axes in (left, right):
        axes.margins(y=0.42)  # room for the legend
        axes.legend(loc="upper right")
    means = ", ".join(f"{sample.cosines.mean():.4f} ({len(sample.tokens)} tokens)" for sample in shown)
    figure.suptitle(f"Mean cosine of the same token: {means}; null sd of one token {sd:.4f}")
    return figure
