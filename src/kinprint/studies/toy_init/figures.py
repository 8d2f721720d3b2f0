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
    ends = [values[-1] for _, values in models]
    figure.suptitle(f"All four models learn: last loss {min(ends):.2f} to {max(ends):.2f} nats")
    finish(axes, "training loss", "next-token loss (nats)", x="step", legend="best")
    return figure


def similarities(compared: Mapping[str, Sequence[RowGrid]], width: int) -> Figure:
    """Draw raw cosine above, Pearson below on the same axis; one column for each norm."""
    figure = new_figure(9.0, 5.8)
    grid = figure.subplots(2, len(compared), sharex=True, sharey=True, squeeze=False)
    for (norm, pairs), top, bottom in zip(compared.items(), *grid, strict=True):
        layers = range(pairs[0].cosine.shape[0])
        for found, (kind, colour, marker) in zip(pairs, KINDS, strict=True):
            band = NULL_LABEL if kind == "random" else None
            null_band(top, layers, np.diagonal(found.cosine_null_mean), np.diagonal(found.cosine_null_sd), label=band)
            top.plot(layers, np.diagonal(found.cosine), color=colour, marker=marker, label=f"start at {kind}")
            bottom.plot(layers, np.diagonal(found.pearson), color=colour, marker=marker, label=f"start at {kind}")
        null_band(bottom, layers, 0.0, 1 / np.sqrt(width - 1))
        finish(top, f"{norm}: raw cosine", x=None)
        finish(bottom, f"{norm}: Pearson")
    grid[0, 0].set_ylabel("cosine")
    grid[1, 0].set_ylabel("Pearson")
    legend_below(figure, grid[0, 0])
    figure.suptitle("; ".join(_finding(kind, number, compared) for number, (kind, *_) in enumerate(KINDS)))
    return figure


def _finding(kind: str, number: int, compared: Mapping[str, Sequence[RowGrid]]) -> str:
    grids = [pairs[number] for pairs in compared.values()]
    cosine, r = (np.mean([np.diagonal(getattr(grid, name)) for grid in grids]) for name in ("cosine", "pearson"))
    return f"Start at {kind}: cosine {cosine:.3f}, r = {r:.3f}"
