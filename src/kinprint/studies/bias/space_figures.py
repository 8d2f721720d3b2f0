"""Draw the bias study's figures in three dimensions: mean subtraction, surfaces, and paths of layers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from kinprint._util.numeric import FloatArray
from kinprint.metrics import METRICS
from kinprint.studies.bias.figures import overlaid_line
from kinprint.studies.bias.space import JointPath
from kinprint.studies.figure_style import SIMILARITY_MAP, Film, label_of, new_figure
from kinprint.studies.studied_models import look

TOY_COLOURS = ("#D55E00", "#0072B2")
PLANE = "#999999"
HOLD, SUBTRACT, MOVE, END = 15, 45, 20, 40
FRAMES_PER_SECOND = 20
ELEVATION, AZIMUTH, DRIFT = 22.0, -35.0, 12.0
WIDE, NEAR = (-0.35, 1.1), (-0.3, 0.3)  # limits of all axes: as stored, and when the centred vectors are looked at
ALONG_MEAN = (math.degrees(math.asin(1.0 / math.sqrt(3.0))), 45.0)
"""Elevation and azimuth from which (1, 1, 1) is a point: 35.26° and 45°."""


# -- the mean taken away -----------------------------------------------------------------------------------------------


def toy_still(vectors: FloatArray, share: float) -> Figure:
    """Draw two vectors with `share` of their mean taken away; with all of it, seen along (1, 1, 1)."""
    figure = new_figure(5.4, 4.8)
    _draw_toy(figure.add_subplot(projection="3d"), vectors, share, turn=1.0 if share >= 1.0 else 0.0)
    return figure


def toy_film(vectors: FloatArray) -> Film:
    """Animate the subtraction of the mean, then turn the camera to look along (1, 1, 1)."""
    figure = Figure(figsize=(3.7, 3.5))
    axes = figure.add_axes((0.06, 0.09, 0.86, 0.76), projection="3d")

    drawn: list[tuple[float, float]] = []

    def update(frame: int) -> None:
        state = _eased((frame - HOLD) / SUBTRACT), _eased((frame - HOLD - SUBTRACT) / MOVE)
        if drawn[-1:] != [state]:  # held frames are drawn once
            axes.clear()
            _draw_toy(axes, vectors, *state)
            drawn.append(state)

    return Film(figure, HOLD + SUBTRACT + MOVE + END, FRAMES_PER_SECOND, update)


def _eased(time: float) -> float:
    """Return a cosine ramp from 0 to 1 over times 0 to 1."""
    return (1.0 - math.cos(math.pi * min(max(time, 0.0), 1.0))) / 2.0


def _draw_toy(axes: Any, vectors: FloatArray, share: float, turn: float) -> None:
    """Draw the vectors; `turn` moves the camera from beside them (0) to the direction (1, 1, 1), and nearer (1)."""
    moved = vectors - share * vectors.mean(axis=1, keepdims=True)
    cosine = METRICS["cosine"](*moved)
    angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
    low, high = (wide + turn * (near - wide) for wide, near in zip(WIDE, NEAR, strict=True))
    axes.plot([low, high], [low, high], [low, high], color="black", linestyle=":", linewidth=1.2)
    axes.text(high, high, high, "(1, 1, 1)", fontsize=8, alpha=1.0 - turn)
    if share > 0.3:
        disc = Poly3DCollection([_disc(0.9 * -low)], facecolor=PLANE, alpha=0.35 * (share - 0.3) / 0.7, linewidth=0)
        axes.add_collection3d(disc)
    for vector, colour, name, side in zip(moved, TOY_COLOURS, "AB", (-1.0, 1.0), strict=True):
        axes.quiver(0, 0, 0, *vector, color=colour, linewidth=2.2, arrow_length_ratio=0.12)
        x, y, z = (
            0.6 * vector
        )  # beside the shafts, outwards: beyond its head, the one's letter lies at the head of the other
        up = z + 0.08 * side * (high - low)
        axes.text(x, y, up, name, color=colour, fontsize=10, fontweight="bold", ha="center", va="center")
    axes.set(xlim=(low, high), ylim=(low, high), zlim=(low, high), xlabel="x", ylabel="y", zlabel="z")
    axes.set_box_aspect((1, 1, 1))
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(3, prune="both"))
    start = AZIMUTH + DRIFT * share
    axes.view_init(elev=ELEVATION + turn * (ALONG_MEAN[0] - ELEVATION), azim=start + turn * (ALONG_MEAN[1] - start))
    axes.set_title(f"{100 * share:.0f} % of each mean taken away:\ncosine {cosine:.2f}, angle {angle:.0f}°")


def _disc(radius: float) -> FloatArray:
    """Return the corners of a disc in the plane x + y + z = 0."""
    turn = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    one, other = np.array([1.0, -1.0, 0.0]) / math.sqrt(2.0), np.array([1.0, 1.0, -2.0]) / math.sqrt(6.0)
    corners: FloatArray = radius * (np.outer(np.cos(turn), one) + np.outer(np.sin(turn), other))
    return corners


# -- surfaces ----------------------------------------------------------------------------------------------------------


def surfaces(shown: Sequence[tuple[str, Sequence[int], FloatArray]], role: str) -> Figure:
    """Draw values over dimension and layer, a surface for each model, all with the same height scale."""
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure = new_figure(5.2 * across, 4.4 * down)
    low = min(0.0, *(float(values.min()) for _, _, values in shown))
    high = max(float(values.max()) for _, _, values in shown)
    deepest = max(max(layers) for _, layers, _ in shown)
    for number, (name, layers, values) in enumerate(shown):
        axes = figure.add_subplot(down, across, number + 1, projection="3d")
        dimension, layer = np.meshgrid(np.arange(values.shape[1]), layers)
        surface = axes.plot_surface(
            dimension, layer, values, cmap=SIMILARITY_MAP, vmin=low, vmax=high, rcount=values.shape[0],
            ccount=values.shape[1], linewidth=0, antialiased=False,
        )  # fmt: skip
        surface.set_rasterized(True)  # thousands of patches: as paths they would make a file of many megabytes
        axes.set(xlabel="dimension", ylabel="layer", zlabel="value", zlim=(low, high), ylim=(0, deepest))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.view_init(elev=25, azim=45)
        axes.set_title(f"{name}, {role}: first {values.shape[1]} dimensions")
    means = ", ".join(f"{name} {float(values.mean()):.2f}" for name, _, values in shown)
    figure.suptitle(f"Values of {role} from {low:.3f} to {high:.3f}; mean: {means}")
    return figure


# -- paths -------------------------------------------------------------------------------------------------------------


def paths(found: JointPath, places: Mapping[str, int]) -> Figure:
    """Draw each model's layers as a path in joint principal components, and the variance those explain."""
    figure = new_figure(11.0, 8.6)
    count = found.scores.shape[2]
    labels = [f"PC{k + 1} ({100 * share:.1f} %)" for k, share in enumerate(found.explained)]
    figure.suptitle(
        f"Layers {found.layers[0]} to {found.layers[-1]}: PC1 explains {100 * found.explained[0]:.1f} % of the variance, "
        f"{100 * found.null[0]:.1f} % with each model's dimensions in random order"
    )
    if count >= 3:
        axes = figure.add_subplot(2, 2, 1, projection="3d")
        _paths(axes, found, (0, 1, 2), places)
        axes.set(xlabel=labels[0], ylabel=labels[1], zlabel=labels[2])
        axes.set_title("three components")
    for place, (x, y) in ((2, (0, 1)), (3, (1, 2))):
        if count > y:
            axes = figure.add_subplot(2, 2, place)
            _paths(axes, found, (x, y), places)
            axes.set(xlabel=labels[x], ylabel=labels[y], title=f"components {x + 1} and {y + 1}")
            if place == 2:
                axes.legend(loc="best")
    _variance(figure.add_subplot(2, 2, 4), found)
    return figure


def _paths(axes: Any, found: JointPath, components: Sequence[int], places: Mapping[str, int]) -> None:
    for number, (name, scores) in enumerate(zip(found.names, found.scores, strict=True)):
        colour, marker = look(name, places.get(name, 0))
        points = [scores[:, k] for k in components]
        axes.plot(*points, color=colour, marker=marker, label=label_of(name), **overlaid_line(number))
        large = max(6.0, 11.0 - 1.7 * number)
        axes.plot(*(p[:1] for p in points), color=colour, marker="o", markersize=large, linestyle="none")
        axes.plot(*(p[-1:] for p in points), color=colour, marker="*", markersize=large + 3, linestyle="none")


def _variance(axes: Any, found: JointPath) -> None:
    x = np.arange(found.explained.size)
    axes.bar(x - 0.2, 100 * found.explained, 0.38, color="#0072B2", label="as stored")
    axes.bar(
        x + 0.2, 100 * found.null, 0.38, yerr=196 * found.null_sd, color="#BBBBBB", capsize=3,
        label="each model's dimensions in random order",
    )  # fmt: skip
    for k, (share, null) in enumerate(zip(found.explained, found.null, strict=True)):
        axes.text(k - 0.2, 100 * share + 1, f"{100 * share:.1f}", ha="center", va="bottom", fontsize=8)
        axes.text(k + 0.2, 100 * null + 1, f"{100 * null:.1f}", ha="center", va="bottom", fontsize=8)
    axes.set_xticks(x, [f"PC{k + 1}" for k in x])
    axes.set(ylabel="variance explained, %", title="variance explained", ylim=(0, 112))
    axes.legend(loc="upper right")
