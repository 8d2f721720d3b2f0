"""Draw the table of methods by attacks as a heatmap."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from kinprint._util.files import write_whole
from kinprint.errors import NeedsExtra
from kinprint.lab.lineage.scoring import AttackScore

FILES = "lineage.png", "lineage.svg"


def draw(cells: list[AttackScore], methods: list[str], folder: Path) -> list[Path]:
    """Draw AUC and true positives at 1 % side by side, as PNG and SVG. Raise NeedsExtra if matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise NeedsExtra("drawing the heatmap", extra="plot") from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    attacks = list(dict.fromkeys(cell.attack for cell in cells))
    found = {(cell.attack, cell.method): cell for cell in cells}
    height = 1.6 + 0.235 * len(attacks)
    figure, panes = plt.subplots(1, 2, figsize=(3.2 + 1.24 * len(methods), height), sharey=True, layout="constrained")
    for pane, field, title in zip(
        panes, ("auc", "at_1"), ("AUC", "true positives at 1 % false positives"), strict=True
    ):
        values = np.array([[_value(found.get((a, m)), field) for m in methods] for a in attacks])
        _pane(pane, values, attacks, methods, title)
    bar = figure.colorbar(panes[1].images[0], ax=panes, shrink=0.5, pad=0.01)
    bar.outline.set_visible(False)
    figure.suptitle("Which method finds what, on really-trained small models", fontsize=12)
    for name in FILES:
        drawn, suffix = io.BytesIO(), name.rpartition(".")[2]
        metadata = {"Date": None} if suffix == "svg" else {}
        with mpl.rc_context({"svg.hashsalt": "kinprint"}):
            figure.savefig(drawn, format=suffix, dpi=150, metadata=metadata)
        write_whole(folder / name, drawn.getvalue())
    plt.close(figure)
    return [folder / name for name in FILES]


def _value(cell: AttackScore | None, field: str) -> float:
    value = None if cell is None else getattr(cell, field)
    return float("nan") if value is None else float(value)


def _pane(pane: Any, values: Any, attacks: list[str], methods: list[str], title: str) -> None:
    pane.set_facecolor("#dddddd")  # shows where there is no figure
    pane.imshow(values, cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    pane.set_xticks(range(len(methods)), methods, rotation=40, ha="right", fontsize=8)
    pane.set_yticks(range(len(attacks)), attacks, fontsize=8)
    pane.tick_params(length=0)
    pane.set_title(title, fontsize=10)
    for spine in pane.spines.values():
        spine.set_visible(False)
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if np.isfinite(value):
                text = "1" if value > 0.9995 else f"{value:.2f}".lstrip("0") if value > 0.0 else "0"
                colour = "black" if value > 0.55 else "white"
                pane.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
