"""Figures of the audit of the first accusation: vocabularies and embeddings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kinprint.studies.figure_style import NULL_COLOUR, NULL_SD, finish, new_figure
from kinprint.studies.origin.scripts import SCRIPTS

if TYPE_CHECKING:
    from kinprint._util.numeric import FloatArray
    from kinprint.studies.origin.embeddings import Sample
    from kinprint.studies.origin.tokens import Ints

MAIN, OTHER, THIRD = "#0072B2", "#D55E00", "#009E73"
_CLASSES = {
    "korean": "Korean",
    "chinese": "Chinese",
    "ascii_alpha": "Latin",
    "ascii_digit": "digits",
    "ascii_other": "other",
    "other": "other",
    "empty": "other",
}
"""Where the published classes, made without decoding, belong among the scripts."""


def vocabulary_map(
    a: str,
    b: str,
    ids_a: Ints,
    ids_b: Ints,
    differences: Ints,
    scripts: dict[str, Counter[str]],
    raw: dict[str, Counter[str]],
    high_from: int,
) -> Figure:
    """Ids of common tokens, their differences, and two bar charts of scripts."""
    figure = new_figure(10.4, 7.4)
    (scatter, histogram), (only, high) = figure.subplots(2, 2)
    scatter.scatter(ids_a, ids_b, s=5, alpha=0.45, color=MAIN, linewidths=0)
    end = float(max(ids_a.max(), ids_b.max()))
    scatter.plot([0, end], [0, end], color="#888888", linestyle="--", linewidth=0.9, label="same id")
    finish(scatter, f"ids of {len(ids_a):,} common tokens", f"id in {b}", x=f"id in {a}", legend="upper left")
    for axis in (scatter.xaxis, scatter.yaxis, histogram.xaxis):
        axis.set_major_locator(MaxNLocator(6))
        axis.set_major_formatter(FuncFormatter(_thousands))
    histogram.hist(differences, bins=100, color=MAIN)
    histogram.axvline(0, color="#888888", linestyle="--", linewidth=0.9, label="same id")
    title = f"differences of ids, all {len(differences):,} common tokens"
    finish(histogram, title, "tokens", x=f"id in {a} minus id in {b}", legend="upper right")
    _script_bars(only, scripts["only"], raw["only"], f"tokens of {a} that {b} lacks")
    _script_bars(high, scripts["high"], raw["high"], f"tokens of {a} with ids from {high_from:,}")
    return figure


def _thousands(value: float, _place: int) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _script_bars(axes: Axes, decoded: Counter[str], raw: Counter[str], title: str) -> None:
    undecoded: Counter[str] = Counter()
    for name, count in raw.items():
        undecoded[_CLASSES[name]] += count
    places = np.arange(len(SCRIPTS))
    for shift, counts, label, colour in (
        (-0.2, decoded, "decoded", MAIN),
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
    """Histograms and scatter of the cosines of common tokens, with the null of a single token."""
    figure = new_figure(10.4, 4.0)
    left, right = figure.subplots(1, 2)
    sd = 1.0 / np.sqrt(width - 1)
    shown = [sample for sample in samples if sample.name != "english_written"] or list(samples)
    values = [sample.cosines for sample in shown] + ([within] if within.size else [])
    low, high = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
    low, high = min(low, -2.5 * sd), max(high, 2.5 * sd)
    bins, step = np.linspace(low, high, 51), {"histtype": "step", "linewidth": 1.5}
    band = {"color": NULL_COLOUR, "alpha": 0.5, "linewidth": 0}
    left.axvspan(-NULL_SD * sd, NULL_SD * sd, label="95 % of independent pairs", **band)
    for sample, colour, style in zip(shown, (MAIN, OTHER), ("-", "--"), strict=False):
        label = f"{len(sample.tokens)} {'“English” tokens' if sample.name.startswith('english') else 'ASCII words'}"
        left.hist(sample.cosines, bins=bins, color=colour, linestyle=style, label=label, **step)
        blank = np.array(sample.blank, dtype=bool)
        dots = {"s": 12, "color": colour, "alpha": 0.6, "linewidths": 0, "label": label}
        right.scatter(sample.ids_b[~blank], sample.cosines[~blank], **dots)
        if blank.any():
            crosses = {"s": 26, "color": "#000000", "marker": "x", "label": "white space only"}
            right.scatter(sample.ids_b[blank], sample.cosines[blank], **crosses)
    if within.size:
        left.hist(within, bins=bins, color=THIRD, linestyle=":", label=f"random pairs within {b}", **step)
    finish(left, "the same token in both models", "tokens", x="cosine of the two rows")
    right.axhspan(-NULL_SD * sd, NULL_SD * sd, zorder=0, **band)
    finish(right, "against the id", "cosine of the two rows", x=f"id in {b}")
    for axes in (left, right):
        axes.margins(y=0.42)  # room for the legend
        axes.legend(loc="upper right")
    return figure
