"""Make tables and their cells in one language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kinprint.render.content.blocks import CODE, FIGURE, NAME, SENTENCE, Block, Cell, Column, Section, Table
from kinprint.render.texts.words import DASH, Words

NO_FIGURE = Cell(DASH, FIGURE)


def titled(made: Table, *further: Block) -> Section:
    """Return a table, and what belongs to it, as a section under the table's title."""
    return Section(made.title, (made, *further))


def table(words: Words, title: str, columns: str, rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table; `columns` are keys of labels (``col.<key>``): ``#`` marks figures, ``-`` what narrow terminals leave out."""
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
    """Return a name from an untrusted file."""
    return Cell(text or DASH, NAME)


def code(text: str) -> Cell:
    """Return an identifier that options take."""
    return Cell(text, CODE)


def sentence(words: Words, text: str | None, *, full: str = "") -> Cell:
    """Return a sentence of the engine."""
    said = words.engine(text or DASH)
    return Cell(said.text, SENTENCE, lang=said.lang, full=full)
