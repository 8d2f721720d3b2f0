"""Draw figures in one style, and write them as PNG, SVG and GIF."""

import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatter, MaxNLocator
from numpy.typing import ArrayLike
from PIL import Image

from kinprint._util.numeric import FloatArray
from kinprint.studies.studied_models import look

NULL_COLOUR = "#BBBBBB"
SIMILARITY_MAP = "cividis"  # readable without colour vision
SIGNED_MAP = "RdBu_r"  # red against blue, white at zero: safe for the common kinds of colour blindness
NULL_SD = 1.96  # half-width of a null band in standard deviations: 95 % of independent pairs, point by point
NULL_LABEL = "95 % of independent pairs"

LINE_INCHES, LETTERS_PER_INCH = 0.2, 12.6  # of a title above all panels

_PAIR_COLOURS = ["#222222", "#EE3377", "#997700", "#6F4C9B", "#4EB265", "#A50026", "#7BAFDE", "#F6C141", "#B07AA1"]
PAIR_LOOK = tuple(zip(_PAIR_COLOURS, "os^DvPX<>", strict=True))
"""Colour and marker of a pair of models, by position. A pair is no model: none of these is a model's own colour."""


def shared_style() -> AbstractContextManager[None]:
    """Return a context in which figures are drawn and saved, without changing the caller's own settings."""
    return cast(AbstractContextManager[None], mpl.rc_context(fname=Path(__file__).with_name("figures.mplstyle")))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (inches) that lays itself out without overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def layer_axis(axes: Axes) -> None:
    """Label the x axis, with whole numbers only."""
    axes.set_xlabel("layer")
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


def legend_below(figure: Figure, *panels: Axes, columns: int | None = None) -> None:
    """Write the legend of some panels below all panels, each label once, in one row unless `columns` are fewer."""
    found = {label: mark for axes in panels for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns or max(1, len(found)))


def log_y(axes: Axes) -> None:
    """Make the y axis logarithmic, its numbers in plain figures: mathematical notation is switched off for the models' names."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))


@dataclass(frozen=True)
class Film:
    """Frames of one figure; ``update`` draws frame number n on it."""

    figure: Figure
    frames: int
    frames_per_second: int
    update: Callable[[int], None]


def rendered(drawn: Figure | Film, note: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield (suffix, bytes) of a figure: png and svg; of a film: gif. Its title and a note are written above all panels."""
    with shared_style():
        _head(drawn.figure if isinstance(drawn, Film) else drawn, note)
        if isinstance(drawn, Film):
            yield "gif", _gif(drawn)
            return
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            stream = io.BytesIO()
            drawn.savefig(stream, format=suffix, metadata=metadata)
            yield suffix, stream.getvalue()
            drawn.set_layout_engine("none")  # laying out again for the second file takes as long as drawing


def _head(figure: Figure, note: str) -> None:
    """Make a figure higher, and write its title, which states the finding, and a note there, where no panel is laid out."""
    width, height = figure.get_size_inches()
    title = textwrap.wrap(figure.get_suptitle(), int(LETTERS_PER_INCH * width))
    free = height / (height + LINE_INCHES * (len(title) + bool(note)))
    figure.set_size_inches(width, height / free)
    if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
        engine.set(rect=(0.0, 0.0, 1.0, free))
    else:
        figure.subplots_adjust(top=figure.subplotpars.top * free)
    line, left = (1.0 - free) / max(1, len(title) + bool(note)), {"x": 0.01, "ha": "left"}
    figure.suptitle("\n".join(title), y=1.0 - line / 5, va="top", fontsize=9.5, fontweight="bold", **left)
    figure.text(y=free + line / 5, s=note, va="bottom", fontsize=8, color="#8A3B00", **left)


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


def null_band(
    axes: Axes, layers: Sequence[int], mean: ArrayLike, sd: ArrayLike, *, label: str | None = NULL_LABEL
) -> None:
    """Draw the range of 95 % of independent pairs, somewhat beyond both ends: a single layer has one, too.

    Its middle stands on top of everything, with crosses where it varies: a line hides a band that is narrower than itself.
    """
    x = np.array([layers[0] - 0.4, *layers, layers[-1] + 0.4])
    middle, half = (np.pad(np.broadcast_to(one, len(layers)), 1, mode="edge") for one in (mean, sd))
    grey = {"color": NULL_COLOUR, "alpha": 0.55, "linewidth": 0, "zorder": 0}
    axes.fill_between(x, middle - NULL_SD * half, middle + NULL_SD * half, label=label, **grey)
    marks = {"marker": "x", "markersize": 4.0, "markevery": slice(1, -1), "label": label and "mean if independent"}
    dotted = {"color": "#000000", "linestyle": (0, (1, 1.6)), "linewidth": 0.8, "zorder": 5}
    axes.plot(x, middle, **dotted | (marks if np.ptp(middle) > NULL_SD * np.max(half) else {}))


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
    for names, ticks, turn in ((columns, axes.set_xticks, 40), (rows, axes.set_yticks, 0)):
        if names is not None:
            ticks(range(len(names)), names, rotation=turn, ha="right")
    for (row, column), value in np.ndenumerate(values) if cells else ():
        there = np.isfinite(value)
        colour = readable_on(image, value) if there else "#555555"
        said = f"{value:{cells}}" if there else "–"
        axes.text(column, row, said, ha="center", va="center", fontsize=7.5, color=colour)
    return image


def readable_on(image: mpl.image.AxesImage, value: float) -> str:
    """Return black or white, whichever is legible on the colour of a value."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"
