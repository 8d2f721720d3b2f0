"""Figures of single models layer by layer in the bias study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kinprint._util.numeric import FloatArray
from kinprint.studies.bias.facts import RELATED
from kinprint.studies.figure_style import PAIR_LOOK, label_of, layer_axis, model_line, new_figure, null_band
from kinprint.studies.studied_models import look

BINS = 128
"""Bins over the whole range, at most."""

RIDGE_HEIGHT = 1.7
"""Height of a ridge in units of the distance between two."""


DASHES = ("-", "--", ":", "-.")


def thinner(number: int) -> dict[str, object]:
    """Return the line of model `number`: each lies on a wider one, so that two that coincide can both be seen."""
    return {"linewidth": max(1.0, 2.6 - 0.6 * number), "markersize": max(2.5, 5.0 - 0.9 * number)}


def statistics(shown: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], places: Mapping[str, int]) -> Figure:
    """Show mean, standard deviation, least and largest value by layer: a row for each role, a line for each model."""
    roles = [role for role, lines in shown.items() if lines]
    figure = new_figure(12.5, 3.1 * len(roles) + 0.4)
    panels = figure.subplots(len(roles), 4, squeeze=False)
    for row, role in zip(panels, roles, strict=True):
        for at, (axes, what) in enumerate(zip(row, ("mean", "standard deviation", "least", "largest"), strict=True)):
            for number, (name, lines) in enumerate(shown[role].items()):
                values = np.array(lines)
                model_line(axes, values[:, 0], values[:, at + 1], name, places.get(name, 0), **thinner(number))
            axes.set_title(f"{role}: {what}")
            layer_axis(axes)
        row[0].set_ylabel("value")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def ridges(
    panels: Sequence[tuple[str, str, Sequence[int], FloatArray]], steps: Mapping[str, float], places: Mapping[str, int]
) -> Figure:
    """Show the distribution of every layer shown: a row for each role, a column for each model, one range for a row.

    `steps` has, for each role, the distance of neighbouring stored numbers at the largest value.
    """
    roles = list(dict.fromkeys(role for role, _, _, _ in panels))
    names = list(dict.fromkeys(name for _, name, _, _ in panels))
    figure = new_figure(max(5.0, 3.1 * len(names)), 4.6 * len(roles))
    grid = figure.subplots(len(roles), len(names), squeeze=False)
    for down, role in enumerate(roles):
        chosen = {name: (layers, values) for one, name, layers, values in panels if one == role}
        low = min(float(values.min()) for _, values in chosen.values())
        high = max(float(values.max()) for _, values in chosen.values())
        edges = bin_edges(low, high, steps[role])
        for across, name in enumerate(names):
            axes = grid[down, across]
            if name not in chosen:
                axes.set_axis_off()
                continue
            layers, values = chosen[name]
            _stack_of_ridges(axes, values, edges, look(name, places.get(name, 0))[0])
            step = max(1, len(layers) // 12)
            axes.set_yticks(range(0, len(layers), step), [str(layer) for layer in layers[::step]])
            axes.set_xlim(edges[0], edges[-1])
            axes.set_title(f"{name}, {role}")
            axes.set_xlabel(f"value ({low:.2f} to {high:.2f})")
            axes.set_ylabel("layer")
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
    found: Mapping[str, tuple[Sequence[int], FloatArray]],
    lines: Sequence[tuple[tuple[str, str], Sequence[int], FloatArray, float]],
    places: Mapping[str, int],
) -> Figure:
    """Show mean and standard deviation of input norm minus post-attention norm, and Pearson of pairs."""
    close = [line for line in lines if np.isfinite(line[2]).any() and float(np.nanmean(line[2])) > RELATED]
    apart = [line for line in lines if not any(line is other for other in close)]
    groups = [(group, text) for group, text in ((apart, ""), (close, ", own scale")) if group]
    figure = new_figure(9.2, 2.6 * (2 + len(groups)) + 0.6)
    panels = figure.subplots(2 + len(groups), 1, sharex=True)
    for axes, what in zip(panels, ("mean", "standard deviation"), strict=False):
        for number, (name, (layers, values)) in enumerate(found.items()):
            shown = values.mean(axis=1) if what == "mean" else values.std(axis=1)
            model_line(axes, layers, shown, name, places.get(name, 0), **thinner(number))
        axes.set_title(f"input norm minus post-attention norm: {what}")
        axes.set_ylabel(what)
    panels[0].legend(loc="best", ncols=2)
    for axes, (group, text) in zip(panels[2:], groups, strict=True):
        longest = max((line[1] for line in group), key=len)
        null_band(axes, longest, np.zeros(len(longest)), np.full(len(longest), group[0][3]))
        for number, ((a, b), layers, pearson, _) in enumerate(group):
            colour, marker = PAIR_LOOK[number % len(PAIR_LOOK)]
            # hollow, and each smaller than the one below it: two pairs that coincide can both be seen
            hollow = {"markerfacecolor": "none", "markersize": max(3.0, 7.5 - 1.8 * number), "markeredgewidth": 1.1}
            dash = DASHES[number % len(DASHES)]
            label = label_of(f"{a} and {b}")
            axes.plot(layers, pearson, dash, color=colour, marker=marker, linewidth=1.1, label=label, **hollow)
        axes.set_title(f"Pearson of the differences{text}")
        axes.set_ylabel("Pearson")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the lines, which fill the panel
    layer_axis(panels[-1])
    return figure
