"""Draw the figures of the seven metrics."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kinprint.studies import figure_style as style
from kinprint.studies.figure_style import NULL_COLOUR, NULL_SD, finish, label_of, new_figure
from kinprint.studies.metrics.plan import MeasureGrid
from kinprint.studies.studied_models import look
from kinprint.studies.vector_pairs import VectorPair, finding

PRINTED = 8  # cells of larger matrices are too small for numbers


def matrices(rows: Sequence[Sequence[MeasureGrid]], measure: str, title: str) -> Figure:
    """Draw matrices of one measure, a colour scale for each role (column); the diagonal, a tensor with itself, is empty."""
    size = max(len(grid.labels) for row in rows for grid in row)
    side = min(1.0 + 0.55 * size, 5.0)
    columns = max(len(row) for row in rows)
    figure = new_figure((side + 0.35) * columns, (side + 0.3) * len(rows) + 0.4)
    every = figure.subplots(len(rows), columns, squeeze=False)
    said = []
    for line, grids in zip(every.T, zip(*rows, strict=True), strict=True):
        values = np.concatenate([grid.values[np.isfinite(grid.values)] for grid in grids])
        for axes, grid in zip(line, grids, strict=True):
            _matrix(axes, grid, _scale(grids, measure) if values.size else (0.0, 1.0, style.SIMILARITY_MAP))
        if values.size:
            role = grids[0].title.partition(",")[0]
            said.append(f"{role} {_value(float(values.min()))} to {_value(float(values.max()))}")
    for line in every:  # the labels of a row, and of a column, are the same
        for axes in [axes for axes in line if axes.axison][1:]:
            axes.tick_params(labelleft=False)
    for line in every.T:
        for axes in [axes for axes in line if axes.axison][:-1]:
            axes.tick_params(labelbottom=False)
    figure.suptitle(f"{title}: {', '.join(said)}")
    return figure


def _matrix(axes: Axes, grid: MeasureGrid, scale: tuple[float, float, str]) -> None:
    shown = np.isfinite(grid.values)
    if not shown.any():
        axes.set_title(grid.title, fontsize=8)
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not comparable", ha="center", va="center", transform=axes.transAxes, fontsize=8)
        return
    low, high, colours = scale
    image = style.heat(axes, grid.values, low=low, high=high, rows=grid.labels, columns=grid.labels, colours=colours)
    axes.tick_params(labelsize=7, length=2)
    remark = f"{grid.remark}; " if grid.remark else ""
    if len(grid.labels) > PRINTED and np.isfinite(grid.null_mean).any():
        middle, spread = (float(np.nanmedian(x)) for x in (grid.null_mean, grid.null_sd))
        remark += f"median null {middle:.4g} ± {spread:.1g}; "
    axes.set_title(f"{grid.title}\n{remark}colours {_value(low)} to {_value(high)}", fontsize=7.5)
    if len(grid.labels) > PRINTED:
        return
    with_null = np.isfinite(grid.null_mean).any()
    centre = {"ha": "center", "va": "center", "in_layout": False}
    for (i, j), value in np.ndenumerate(grid.values):
        if not shown[i, j]:
            axes.text(j, i, "self" if i == j else "–", fontsize=6.5, color="#777777", **centre)
            continue
        colour, rise = style.readable_on(image, value), 0.16 if with_null else 0.0
        axes.text(j, i - rise, _value(float(value)), fontsize=7.5, color=colour, **centre)
        if with_null and np.isfinite(grid.null_mean[i, j]):
            null = _null(float(grid.null_mean[i, j]), float(grid.null_sd[i, j]))
            axes.text(j, i + 0.2, null, fontsize=5.6, color=colour, linespacing=0.95, **centre)


def _null(mean: float, sd: float) -> str:
    """Return mean and sd, with as many digits as the sd asks for."""
    if sd <= 0.0:
        return f"{mean:.4g}"
    digits = int(np.clip(1 - np.floor(np.log10(sd)), 0, 6))
    return f"{'0' if abs(mean) < sd / 20 else format(mean, f'.{digits}f')}\n± {sd:.1g}"


def _value(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _scale(grids: Sequence[MeasureGrid], measure: str) -> tuple[float, float, str]:
    """Return the ends of the colour scale and the colours: one for all panels of a role, with room for the null."""
    every = (np.concatenate([getattr(grid, of).ravel() for grid in grids]) for of in ("values", "null_mean", "null_sd"))
    values, nulls, spread = (one[np.isfinite(one)] for one in every)
    if measure in ("cosine", "centred"):
        about_zero = values.min() < 0.0 or (nulls.size and float(np.abs(nulls).max()) < 0.1)
        if measure == "centred" or about_zero:
            reach = max(float(np.abs(values).max()), NULL_SD * float(spread.max(initial=0.0))) or 1.0
            return -reach, reach, style.SIGNED_MAP
        held = np.concatenate([values, nulls])
        room = max(0.05 * float(np.ptp(held)), 1e-6)
        return float(held.min()) - room, float(held.max()) + room, style.SIMILARITY_MAP
    return 0.0, float(max(values.max(), nulls.max(initial=0.0))) or 1.0, style.SIMILARITY_MAP


def layer_zero(found: Sequence[tuple[str, VectorPair]]) -> Figure:
    """Draw cosines of pairs of layers within each model, by role, with the null of each."""
    roles = list(dict.fromkeys(role for role, _ in found))
    models = list(dict.fromkeys(pair.a for _, pair in found))
    figure = new_figure(max(6.0, 1.5 * len(models) + 1.5), 2.7 * len(roles) + 0.5)
    for axes, role in zip(np.atleast_1d(figure.subplots(len(roles), 1)), roles, strict=True):
        _role_dots(axes, [pair for of, pair in found if of == role], models)
        finish(axes, f"{role}: cosine of two layers of one model", "raw cosine", x="pair of layers")
    figure.axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    zero = [(role, [pair for of, pair in found if of == role and pair.layer_a == 0]) for role in roles]
    figure.suptitle(f"Layer 0 with later layers of its model, {finding(zero)}")
    return figure


def _role_dots(axes: Axes, pairs: Sequence[VectorPair], models: Sequence[str]) -> None:
    labels, at = [], 0.0
    grey = {"color": NULL_COLOUR, "edgecolor": NULL_COLOUR, "linewidth": 1.5}  # outlined: a narrow band is still seen
    for position, model in enumerate(models):
        colour, marker = look(model, position)
        for number, pair in enumerate(one for one in pairs if one.a == model):
            half = NULL_SD * pair.null_sd
            axes.bar(at, 2 * half, bottom=pair.null_mean - half, width=0.8, zorder=1, **grey)
            label = None if number else label_of(model)
            axes.plot([at], [pair.cosine], color=colour, marker=marker, markersize=6, ls="", label=label, zorder=3)
            labels.append((at, f"{pair.layer_a}–{pair.layer_b}"))
            at += 1.0
        at += 0.8
    axes.set_xticks([where for where, _ in labels], [text for _, text in labels], fontsize=7, rotation=60)
    axes.bar([0.0], [0.0], color=NULL_COLOUR, label="95 % of permutations")
    bottom = min(min(pair.cosine, pair.null_mean - NULL_SD * pair.null_sd) for pair in pairs)
    axes.set_ylim(min(0.0, 1.1 * bottom), 1.05)
