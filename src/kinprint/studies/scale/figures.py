"""Draw the figures of the scale study."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kinprint.studies import figure_style as style
from kinprint.studies.figure_style import finish, log_y, model_line, new_figure
from kinprint.studies.scale.rounding import FORMATS, SCHEMES
from kinprint.studies.studied_models import look

if TYPE_CHECKING:
    from kinprint.studies.scale import NormsByDepth
    from kinprint.studies.scale.storage import StoredPattern

_WAYS = {"as_is": "γ as it is", "minus_one": "γ − 1", "apart": "scale and pattern apart"}


def _by_role(depths: Sequence[NormsByDepth]) -> dict[str, list[NormsByDepth]]:
    return {role: [d for d in depths if d.role.value == role] for role in dict.fromkeys(d.role.value for d in depths)}


def _names(items: Sequence[NormsByDepth] | Sequence[StoredPattern]) -> list[str]:
    return list(dict.fromkeys(item.model for item in items))


def norms(depths: Sequence[NormsByDepth]) -> Figure:
    """Draw the norm of γ by layer, a panel for each role."""
    roles, names = _by_role(depths), _names(depths)
    figure = new_figure(max(5.0, 4.3 * len(roles)), 3.6)
    panels = figure.subplots(1, len(roles), sharey=True, squeeze=False)[0]
    for axes, (role, chosen) in zip(panels, roles.items(), strict=True):
        for d in chosen:
            model_line(axes, d.layers, d.norm, d.model, names.index(d.model))
        for width in dict.fromkeys(d.width for d in chosen):
            axes.axhline(math.sqrt(width), color="black", ls="--", lw=1.0, label=f"√d, d = {width}")
        log_y(axes)
        finish(axes, f"‖γ‖ by layer, {role}", legend="lower right")
    panels[0].set_ylabel("‖γ‖ (log scale)")
    ends = ", ".join(f"{d.model} {d.norm[0]:.3g} to {d.norm[-1]:.3g}" for d in next(iter(roles.values())))
    figure.suptitle(f"‖γ‖ from first to last layer, {next(iter(roles))}: {ends}")
    return figure


def split(depths: Sequence[NormsByDepth]) -> Figure:
    """Draw mean and standard deviation of γ by layer, a column for each role."""
    roles, names = _by_role(depths), _names(depths)
    figure = new_figure(max(5.0, 4.3 * len(roles)), 5.6)
    every = figure.subplots(2, len(roles), sharex="col", sharey="row", squeeze=False)
    for (role, chosen), top, bottom in zip(roles.items(), *every, strict=True):
        for axes, of in ((top, "mean"), (bottom, "sd")):
            for d in chosen:
                model_line(axes, d.layers, getattr(d, of), d.model, names.index(d.model))
            if all((getattr(d, of) > 0).all() for d in depths):
                log_y(axes)
        finish(top, f"mean (common scale), {role}", x=None)
        finish(bottom, f"standard deviation (pattern), {role}")
    every[0, 0].legend(loc="lower right")
    every[0, 0].set_ylabel("mean of γ")
    every[1, 0].set_ylabel("standard deviation of γ")
    spread = {
        role: [float((d.sd / abs(d.mean)).mean()) for d in chosen if d.mean.all()] for role, chosen in roles.items()
    }
    said = (f"{role} {min(shares):.2f} to {max(shares):.2f}" for role, shares in spread.items() if shares)
    figure.suptitle(f"Pattern over scale (sd over mean of γ), mean of all layers: {', '.join(said)}")
    return figure


def growth(rows: Sequence[Sequence[Any]]) -> Figure:
    """Draw the rank correlation of the norm with depth for each model and role, with its null."""
    models = list(dict.fromkeys(row[0] for row in rows))
    figure = new_figure(6.0, 0.34 * len(rows) + 1.5)
    axes = figure.subplots()
    for at, row in enumerate(rows):
        colour, marker = look(row[0], models.index(row[0]))
        mean, sd = float(row[9]), float(row[10])
        label, half = None if at else "95 % of orders of the layers", style.NULL_SD * sd
        axes.barh(at, 2 * half, left=mean - half, height=0.7, color=style.NULL_COLOUR, label=label)
        axes.plot([row[8]], [at], color=colour, marker=marker, markersize=7, ls="")
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[1]}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(-1.08, 1.08)
    finish(axes, "‖γ‖ and depth", x="Spearman's rank correlation of ‖γ‖ with depth")
    style.legend_below(figure, axes)
    found, half = [float(row[8]) for row in rows], style.NULL_SD * max(float(row[10]) for row in rows)
    figure.suptitle(f"Rank correlation of ‖γ‖ with depth {min(found):.2f} to {max(found):.2f}; null up to ±{half:.2f}")
    return figure


def bits(found: Sequence[StoredPattern], role: str) -> Figure:
    """Draw the effective bits of the pattern by layer: columns are formats, rows ways to store, all on one scale."""
    figure = new_figure(11.0, 7.0)
    every = figure.subplots(len(SCHEMES), len(FORMATS), sharex=True, sharey=True)
    for axes, (scheme, dtype) in zip(every.flat, itertools.product(SCHEMES, FORMATS), strict=True):
        chosen = [item for item in found if item.dtype == dtype]
        _lines(axes, chosen, [item.bits(scheme) for item in chosen])
        axes.axhline(0.0, color="black", lw=0.8, ls=":")
        axes.set_title(f"{dtype}, {_WAYS[scheme]}{_remark(chosen)}", fontsize=8.5)
    for axes in every[-1]:
        style.layer_axis(axes)
    for axes in every[:, 0]:
        axes.set_ylabel("effective bits")
    style.legend_below(figure, every[0, 0])
    said = _medians(found, lambda item: item.bits("as_is"), ".1f")
    figure.suptitle(f"Effective bits of the pattern, {role}, γ as it is, median: {said}")
    return figure


def _medians(found: Sequence[StoredPattern], of: Callable[[StoredPattern], float], form: str) -> str:
    """Return the median of a quantity by format, as titles state it."""
    kept = {dtype: [of(item) for item in found if item.dtype == dtype and math.isfinite(of(item))] for dtype in FORMATS}
    return ", ".join(f"{dtype} {median(values):{form}}" for dtype, values in kept.items() if values)


def _remark(chosen: Sequence[StoredPattern]) -> str:
    return " (simulated)" if any(item.simulated for item in chosen) else ""


def _lines(axes: Axes, chosen: Sequence[StoredPattern], values: Sequence[float]) -> None:
    for position, name in enumerate(_names(chosen)):
        own = [(item.layer, value) for item, value in zip(chosen, values, strict=True) if item.model == name]
        shown = [value if math.isfinite(value) else math.nan for _, value in own]
        model_line(axes, [layer for layer, _ in own], shown, name, position)


def correlations(found: Sequence[StoredPattern], role: str, null_sd: float) -> Figure:
    """Draw how far the correlation of stored and original pattern falls short of 1, by layer, a panel for each format."""
    figure = new_figure(11.0, 3.1)
    panels = figure.subplots(1, len(FORMATS), sharey=True)
    for axes, dtype in zip(panels, FORMATS, strict=True):
        chosen = [item for item in found if item.dtype == dtype]
        half = style.NULL_SD * null_sd
        axes.axhspan(1.0 - half, 1.0 + half, color=style.NULL_COLOUR, lw=2.5, label=style.NULL_LABEL)
        kept = [item.correlation("as_is") for item in chosen]
        _lines(axes, chosen, [math.nan if x is None or x >= 1.0 else 1.0 - x for x in kept])
        log_y(axes)
        axes.set_title(f"{dtype}{_remark(chosen)}", fontsize=9)
        style.layer_axis(axes)
    panels[0].set_ylabel("1 − correlation (log scale)")
    style.legend_below(figure, panels[0])
    said = _medians(found, lambda item: 1.0 - (item.correlation("as_is") or 0.0), ".1g")
    figure.suptitle(f"Correlation lost by storing γ as it is, {role}, median: {said}")
    return figure
