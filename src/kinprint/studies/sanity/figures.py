"""Draw the figures of the shuffle test."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kinprint._util.numeric import FloatArray
from kinprint.studies.figure_style import finish, legend_below, new_figure, null_band
from kinprint.studies.layer_pairs import LayerPair, finite_mean

COSINE, SHUFFLED, CENTRED = "#0072B2", "#D55E00", "#009E73"


def shuffle_lines(pair: LayerPair, shuffled: FloatArray) -> Figure:
    """Draw cosine, shuffled cosine and Pearson by layer; both as difference from the mean over all orders; Pearson alone."""
    figure, layers = new_figure(8.5, 7.4), pair.layers
    figure.suptitle(f"{pair.title}: {pair.finding}; cosine of both shuffled {finite_mean(shuffled):.3f}")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    for axes, shift in ((top, np.zeros(len(layers))), (middle, pair.null_mean)):
        null_band(axes, layers, pair.null_mean - shift, pair.null_sd)
        axes.plot(layers, pair.cosine - shift, color=COSINE, marker="o", label="cosine")
        style = {"color": SHUFFLED, "marker": "x", "linestyle": "--"}
        axes.plot(layers, shuffled - shift, label="cosine, both shuffled", **style)
    for axes in (top, bottom):
        null_band(axes, layers, 0.0, pair.pearson_sd)
        axes.plot(layers, pair.pearson, color=CENTRED, marker="o", label="centred cosine (Pearson)")
    top.set_ylim(float(np.nanmin([-0.06, *pair.cosine, *pair.pearson])) - 0.02, 1.06)
    finish(top, "raw cosine, as stored and shuffled, and Pearson on one axis", "cosine, Pearson", x=None)
    finish(middle, "raw cosine minus its mean over all orders", "difference", x=None)
    finish(bottom, "Pearson alone", "Pearson")
    legend_below(figure, top)
    return figure


def synthetic_grid(rows: Sequence[Sequence[float]]) -> Figure:
    """Draw mean cosine and positive shares of independent vectors against their spread: one column for each pair of means."""
    figure = new_figure(10.0, 8.2)
    values = np.array(rows)
    means = list(dict.fromkeys((row[0], row[1]) for row in rows))
    panels = figure.subplots(3, len(means), sharex=True, sharey="row", squeeze=False)
    for column, (low, high) in enumerate(means):
        chosen = values[(values[:, 0] == low) & (values[:, 1] == high)]
        for axes, (seen, predicted, sd) in zip(
            panels[:, column], ((4, 6, 5), (7, 9, None), (8, 10, None)), strict=True
        ):
            _by_spread(axes, chosen, seen, predicted, sd)
        panels[0, column].set_title(f"means {low:g} (A) and {high:g} (B)")
        panels[2, column].set_xlabel("standard deviation of both")
    labels = ("cosine (mean ± sd)", "positive share of A", "positive share of B")
    for axes, label in zip(panels[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    panels[0, 0].invert_xaxis()  # shared: from wide to narrow, as in the original
    legend_below(figure, panels[0, 0])
    gap = float(np.abs(values[:, 4] - values[:, 6]).max())
    figure.suptitle(
        f"Independent vectors: cosine {values[:, 4].min():.2f} to {values[:, 4].max():.2f}, by mean and spread alone; "
        f"largest difference from what these predict {gap:.3f}"
    )
    return figure


def _by_spread(axes: Axes, chosen: FloatArray, seen: int, predicted: int, sd: int | None) -> None:
    """Draw one column of the rows against the spread, widths a little apart, beside the predicted one (dashed)."""
    _, first = np.unique(chosen[:, 2], return_index=True)
    dashed = {"color": "black", "linestyle": "--", "linewidth": 1.0, "zorder": 1}
    axes.plot(chosen[first, 2], chosen[first, predicted], label="predicted", **dashed)
    looks = ((COSINE, "o"), (SHUFFLED, "s"), (CENTRED, "^"))
    for number, width in enumerate(dict.fromkeys(chosen[:, 3])):
        found, (colour, marker) = chosen[chosen[:, 3] == width], looks[number % 3]
        signs = {"color": colour, "marker": marker, "linestyle": "", "label": f"width {width:.0f}"}
        at, values = found[:, 2] + 0.022 * (number - 1), found[:, seen]
        if sd is None:
            axes.plot(at, values, **signs)
            axes.set_ylim(0.45, 1.03)
        else:
            axes.errorbar(at, values, yerr=found[:, sd], capsize=2, **signs)
