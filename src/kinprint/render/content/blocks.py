"""Pieces that every form can lay out: tables, lines and lists under a title.

All text is plain and not yet safe to show: it may hold names that strangers chose, and each form escapes it in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kinprint.render.texts.words import DASH, Words

LABEL, SENTENCE, NAME, CODE, FIGURE, STATE, LINES = "label", "sentence", "name", "code", "figure", "state", "lines"
STRONG, WARNING, FAINT = "strong", "warning", "faint"


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Parameters
    ----------
    text
        What is shown.
    kind
        LABEL or SENTENCE of ours, NAME that a stranger chose, CODE for an identifier, FIGURE, STATE, which has a
        shape too, or LINES, which are safe to show already.
    value
        The number behind a figure, or the identifier behind a state.
    lang
        Language of a sentence.
    code
        An identifier that forms with room for it show behind the text.
    full
        A longer text, for forms with room for it.
    """

    text: str
    kind: str = LABEL
    value: float | str | None = None
    lang: str = ""
    code: str = ""
    full: str = ""


@dataclass(frozen=True)
class Column:
    """A column: its key, its label, whether it holds figures, and whether a narrow terminal leaves it out."""

    key: str
    label: str
    figures: bool = False
    spare: bool = False


@dataclass(frozen=True)
class Table:
    """A table; rows are as long as columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def only(self, *keys: str) -> Table:
        """Return the table with these columns, in this order."""
        places = {column.key: place for place, column in enumerate(self.columns)}
        chosen = [places[key] for key in keys]
        return self._with(chosen)

    def without(self, *keys: str) -> Table:
        """Return the table without these columns."""
        return self._with([place for place, column in enumerate(self.columns) if column.key not in keys])

    def _with(self, chosen: Sequence[int]) -> Table:
        rows = tuple(tuple(row[place] for place in chosen) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in chosen), rows=rows)


@dataclass(frozen=True)
class Line:
    """A paragraph; ``tone`` says how loud it is, ``limit`` how many characters are shown."""

    text: str
    tone: str = ""
    limit: int = 700


@dataclass(frozen=True)
class Points:
    """A list, under a few words that say what it is of."""

    title: str
    lines: tuple[str, ...]


Block: TypeAlias = Table | Line | Points


@dataclass(frozen=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: tuple[Block, ...]


def headed(title: str) -> str:
    """Return the words above a list, with a colon unless they end a sentence."""
    return title if title.endswith((".", "?", ":")) else f"{title}:"


def table(words: Words, title: str, columns: str, rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table; `columns` are keys of labels (``col.<key>``), with ``#`` for figures, and ``-`` for those to spare."""
    made = []
    for written in columns.split():
        key = written.rstrip("#-")
        label = words.say(f"col.{key}") if words.has(f"col.{key}") else key.upper() if len(key) == 1 else ""
        made.append(Column(key, label, "#" in written, "-" in written))
    return Table(title, tuple(made), tuple(tuple(row) for row in rows))


def figure(text: str, value: float | None = None) -> Cell:
    """Return a figure as it is written, with its value."""
    return Cell(text, FIGURE, value)


def count(value: int | None) -> Cell:
    """Return a whole number, or a dash for none."""
    return Cell(DASH if value is None else f"{value:,}", FIGURE, value)


def numbers(words: Words, *values: float | None) -> list[Cell]:
    """Return figures of about four digits."""
    return [Cell(words.number(value), FIGURE, value) for value in values]


def z_score(words: Words, value: float | None) -> Cell:
    """Return a distance from a null in standard deviations."""
    return Cell(words.z(value), FIGURE, value)


def log_p(words: Words, value: float | None, *, bound: bool = False) -> Cell:
    """Return a log10 p, marked where the true one may be smaller."""
    return Cell(words.log_p(value, bound=bound), FIGURE, value)


def name(text: str | None) -> Cell:
    """Return a name that a stranger chose."""
    return Cell(text or DASH, NAME)


def code(text: str) -> Cell:
    """Return an identifier that options take."""
    return Cell(text, CODE)


def sentence(words: Words, text: str | None, *, full: str = "") -> Cell:
    """Return a sentence of the engine."""
    said = words.engine(text or DASH)
    return Cell(said.text, SENTENCE, lang=said.lang, full=full)
