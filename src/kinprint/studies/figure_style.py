"""The look that all figures share, and how one becomes PNG and SVG bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator
from numpy.typing import ArrayLike
from PIL import Image

from kinprint._util.numeric import FloatArray
from kinprint.studies.film import Film
from kinprint.studies.studied_models import look

DPI = 130
NULL_COLOUR = "#BBBBBB"
SIMILARITY_MAP = "cividis"  # readable without colour vision
SIGNED_MAP = "RdBu_r"  # red against blue, white at zero: safe for the common kinds of colour blindness
NULL_SD = 1.96
"""Half-width of a null band in standard deviations: 95 % of independent pairs, point by point."""
NULL_LABEL = "95 % of independent pairs"

PAIR_LOOK = (
    ("#222222", "o"),
    ("#EE3377", "s"),
    ("#997700", "^"),
    ("#6F4C9B", "D"),
    ("#4EB265", "v"),
    ("#A50026", "P"),
    ("#7BAFDE", "X"),
    ("#F6C141", "<"),
    ("#B07AA1", ">"),
)
"""Colour and marker of a pair of models, by position. A pair is no model: none of these is a model's own colour."""

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "text.parse_math": False,  # a model may be called a$b$
    "svg.hashsalt": "kinprint",  # the same figure is the same file
    "svg.fonttype": "path",
}


def house_style() -> AbstractContextManager[None]:
    """Return a context in which figures are drawn and saved; it leaves the caller's own settings alone."""
    context: AbstractContextManager[None] = mpl.rc_context(_STYLE)
    return context


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (inches) that lays itself out without overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def layer_axis(axes: Axes, label: str = "layer") -> None:
    """Label the x axis, with whole numbers only."""
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def finish(axes: Axes, title: str, y: str = "", *, x: str | None = "layer", legend: str | None = None) -> None:
    """Name a panel and its axes (`x` "layer": whole numbers only; None: no label), with a legend if a place is given."""
    axes.set_title(title)
    if y:
        axes.set_ylabel(y)
    if x == "layer":
        layer_axis(axes)
    elif x is not None:
        axes.set_xlabel(x)
    if legend is not None:
        axes.legend(loc=legend)


def log_y(axes: Axes) -> None:
    """Make the y axis logarithmic, its numbers in plain figures: mathematical notation is switched off for the models' names."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))


def rendered(drawn: Figure | Film) -> Iterator[tuple[str, bytes]]:
    """Yield (suffix, bytes) of a figure: png and svg; of a film: gif."""
    with house_style():
        if isinstance(drawn, Film):
            yield "gif", _gif(drawn)
            return
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            stream = io.BytesIO()
            drawn.savefig(stream, format=suffix, metadata=metadata)
            yield suffix, stream.getvalue()
            drawn.set_layout_engine(
                "none"
            )  # laid out once; doing it again for the second file takes as long as drawing


def _gif(film: Film) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(film.figure)
    frames: list[Image.Image] = []
    for number in range(film.frames):
        film.update(number)
        if frames and not film.figure.stale:  # a held frame need not be drawn again
            frames.append(frames[-1])
            continue
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64))
    stream = io.BytesIO()
    duration = round(1000 / film.frames_per_second)
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=False)
    return stream.getvalue()


# -- pieces that several figures use -----------------------------------------------------------------------------------


def null_band(axes: Axes, x: ArrayLike, mean: ArrayLike, sd: ArrayLike, *, label: str | None = NULL_LABEL) -> None:
    """Draw where independent pairs lie."""
    middle, half = np.asarray(mean, dtype=float), NULL_SD * np.asarray(sd, dtype=float)
    axes.fill_between(
        x, middle - half, middle + half, color=NULL_COLOUR, alpha=0.55, linewidth=0, label=label, zorder=0
    )


def label_of(name: str) -> str:
    """Return a label that a legend shows: one that begins with an underscore would be left out, so nothing visible precedes it."""
    return f"\u200b{name}" if name.startswith("_") else name


def model_line(axes: Axes, x: ArrayLike, y: ArrayLike, name: str, position: int = 0, **options: object) -> None:
    """Draw a model's values by layer in its colour and marker."""
    colour, marker = look(name, position)
    settings: dict[str, object] = {"color": colour, "marker": marker, "label": label_of(name)} | options
    axes.plot(x, y, **settings)


def heat(
    axes: Axes,
    values: FloatArray,
    *,
    low: float,
    high: float,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    colours: str = SIMILARITY_MAP,
    cells: str | None = None,
) -> mpl.image.AxesImage:
    """Draw a matrix; with `cells` (a format such as ".3f") its numbers too, in black or white as legibility asks."""
    image = axes.imshow(values, vmin=low, vmax=high, cmap=colours, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    for names, ticks, labels, turn in (
        (columns, axes.set_xticks, axes.set_xticklabels, 40),
        (rows, axes.set_yticks, axes.set_yticklabels, 0),
    ):
        if names is not None:
            ticks(range(len(names)))
            labels(names, rotation=turn, ha="right")
    if cells is not None:
        _write_cells(axes, values, image, cells)
    return image


def readable_on(image: mpl.image.AxesImage, value: float) -> str:
    """Return black or white, whichever is legible on the colour of a value."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"


def _write_cells(axes: Axes, values: FloatArray, image: mpl.image.AxesImage, cells: str) -> None:
    for (row, column), value in np.ndenumerate(values):
        there = np.isfinite(value)
        colour = readable_on(image, value) if there else "#555555"
        said = format(value, cells) if there else "–"
        axes.text(column, row, said, ha="center", va="center", fontsize=7.5, color=colour)
