"""Figures of the scale study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kinprint.studies.figure_style import (
    NULL_COLOUR,
    NULL_LABEL,
    NULL_SD,
    finish,
    layer_axis,
    log_y,
    model_line,
    new_figure,
)
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
    """Norm of γ by layer, a panel for each role."""
    roles, names = _by_role(depths), _names(depths)
    figure = new_figure(max(5.0, 4.3 * len(roles)), 3.6)
    for axes, (role, chosen) in zip(
        np.atleast_1d(figure.subplots(1, len(roles), sharey=True)), roles.items(), strict=True
    ):
        for d in chosen:
            model_line(axes, d.layers, d.norm, d.model, names.index(d.model))
        for width in dict.fromkeys(d.width for d in chosen):
            axes.axhline(math.sqrt(width), color="black", ls="--", lw=1.0, label=f"√d, d = {width}")
        log_y(axes)
        finish(axes, f"‖γ‖ by layer, {role}", legend="lower right")
    figure.axes[0].set_ylabel("‖γ‖ (log scale)")
    return figure


def split(depths: Sequence[NormsByDepth]) -> Figure:
    """Mean and standard deviation of γ by layer, a column for each role."""
    roles, names = _by_role(depths), _names(depths)
    figure = new_figure(max(5.0, 4.3 * len(roles)), 5.6)
    every = figure.subplots(2, len(roles), sharex="col", sharey="row", squeeze=False)
    for number, (role, chosen) in enumerate(roles.items()):
        top, bottom = every[0, number], every[1, number]
        for d in chosen:
            model_line(top, d.layers, d.mean, d.model, names.index(d.model))
            model_line(bottom, d.layers, d.sd, d.model, names.index(d.model))
        if all((d.mean > 0).all() for d in depths):
            log_y(top)
        if all((d.sd > 0).all() for d in depths):
            log_y(bottom)
        finish(top, f"mean (common scale), {role}", x=None)
        finish(bottom, f"standard deviation (pattern), {role}")
    every[0, 0].legend(loc="lower right")
    every[0, 0].set_ylabel("mean of γ")
    every[1, 0].set_ylabel("standard deviation of γ")
    return figure


def growth(rows: Sequence[Sequence[Any]]) -> Figure:
    """Rank correlation of the norm with depth for each model and role, with its null."""
    models = list(dict.fromkeys(row[0] for row in rows))
    figure = new_figure(6.0, 0.34 * len(rows) + 1.5)
    axes = figure.subplots()
    for at, row in enumerate(rows):
        colour, marker = look(row[0], models.index(row[0]))
        mean, sd = float(row[9]), float(row[10])
        label, half = None if at else "95 % of orders of the layers", NULL_SD * sd
        axes.barh(at, 2 * half, left=mean - half, height=0.7, color=NULL_COLOUR, label=label)
        axes.plot([row[8]], [at], color=colour, marker=marker, markersize=7, ls="")
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[1]}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(-1.08, 1.08)
    finish(axes, "‖γ‖ and depth", x="Spearman's rank correlation of ‖γ‖ with depth")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")
    return figure


def bits(found: Sequence[StoredPattern], role: str) -> Figure:
    """Effective bits of the pattern by layer: columns are formats, rows ways to store; one scale for all, as it is one unit."""
    figure = new_figure(11.0, 7.0)
    every = figure.subplots(len(SCHEMES), len(FORMATS), sharex=True, sharey=True)
    for i, scheme in enumerate(SCHEMES):
        for j, dtype in enumerate(FORMATS):
            chosen = [item for item in found if item.dtype == dtype]
            _lines(every[i, j], chosen, [item.bits(scheme) for item in chosen])
            every[i, j].axhline(0.0, color="black", lw=0.8, ls=":")
            every[i, j].set_title(f"{dtype}, {_WAYS[scheme]}{_remark(chosen)}", fontsize=8.5)
    for axes in every[-1]:
        layer_axis(axes)
    for axes in every[:, 0]:
        axes.set_ylabel("effective bits")
    handles, labels = every[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"effective bits of the pattern, {role}", fontsize=11)
    return figure


def _remark(chosen: Sequence[StoredPattern]) -> str:
    return " (simulated)" if any(item.simulated for item in chosen) else ""


def _lines(axes: Axes, chosen: Sequence[StoredPattern], values: Sequence[float]) -> None:
    for position, name in enumerate(_names(chosen)):
        own = [(item.layer, value) for item, value in zip(chosen, values, strict=True) if item.model == name]
        shown = [value if math.isfinite(value) else math.nan for _, value in own]
        model_line(axes, [layer for layer, _ in own], shown, name, position)


def correlations(found: Sequence[StoredPattern], role: str, null_sd: float) -> Figure:
    """How far the correlation of stored and original pattern falls short of 1, by layer, a panel for each format."""
    figure = new_figure(11.0, 3.1)
    panels = figure.subplots(1, len(FORMATS), sharey=True)
    for axes, dtype in zip(panels, FORMATS, strict=True):
        chosen = [item for item in found if item.dtype == dtype]
        half = NULL_SD * null_sd
        axes.axhspan(1.0 - half, 1.0 + half, color=NULL_COLOUR, alpha=0.55, lw=0, label=NULL_LABEL)
        _lines(axes, chosen, [_shortfall(item) for item in chosen])
        log_y(axes)
        axes.set_title(f"{dtype}{_remark(chosen)}", fontsize=9)
        layer_axis(axes)
    panels[0].set_ylabel("1 − correlation (log scale)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"correlation lost by storing γ as it is, {role}", fontsize=11)
    return figure


def _shortfall(item: StoredPattern) -> float:
    kept = item.kept["as_is"]
    if kept is None or kept.correlation is None or kept.correlation >= 1.0:
        return math.nan
    return 1.0 - kept.correlation
