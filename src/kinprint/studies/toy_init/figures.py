"""Draw the figures of the toy experiment."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from kinprint.studies.figure_style import NULL_LABEL, finish, legend_below, log_y, new_figure, null_band
from kinprint.studies.row_grid import RowGrid

COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00")
KINDS = (("ones", "#0072B2", "o"), ("random", "#D55E00", "s"))


def losses(models: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """Draw the training loss by step."""
    figure = new_figure(6.5, 3.4)
    axes = figure.subplots()
    for (name, values), colour, dash in zip(models, COLOURS, ("-", "--", "-", "--"), strict=False):
        axes.plot(np.arange(1, len(values) + 1), values, color=colour, linestyle=dash, label=name)
    log_y(axes)
    finish(axes, "Training loss", "next-token loss (nats)", x="step", legend="best")
    return figure


def similarities(compared: Mapping[str, Sequence[RowGrid]], width: int) -> Figure:
    """Draw raw cosine above, Pearson below; one column for each norm."""
    figure = new_figure(9.0, 5.4)
    grid = figure.subplots(2, len(compared), sharex=True, squeeze=False)
    for (norm, pairs), top, bottom in zip(compared.items(), *grid, strict=True):
        layers = np.arange(pairs[0].cosine.shape[0])
        for found, (kind, colour, marker) in zip(pairs, KINDS, strict=True):
            band = NULL_LABEL if kind == "random" else None
            null_band(top, layers, np.diagonal(found.cosine_null_mean), np.diagonal(found.cosine_null_sd), label=band)
            top.plot(layers, np.diagonal(found.cosine), color=colour, marker=marker, label=f"start at {kind}")
            bottom.plot(layers, np.diagonal(found.pearson), color=colour, marker=marker, label=f"start at {kind}")
        null_band(bottom, layers, np.zeros(len(layers)), np.full(len(layers), 1 / np.sqrt(width - 1)))
        finish(top, f"{norm}: raw cosine", x=None)
        finish(bottom, f"{norm}: Pearson")
    grid[0, 0].set_ylabel("cosine")
    grid[1, 0].set_ylabel("Pearson")
    legend_below(figure, grid[0, 0])
    return figure
