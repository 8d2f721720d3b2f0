"""Define the blocks that every form lays out: tables, lines and lists under a title.

All text is plain and not yet safe to show: names come from untrusted files, and each form escapes text in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

LABEL, SENTENCE, NAME, CODE, FIGURE, STATE, LINES = "label", "sentence", "name", "code", "figure", "state", "lines"
STRONG, WARNING, FAINT = "strong", "warning", "faint"


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    kind: str = LABEL  # LABEL or SENTENCE of ours, untrusted NAME, CODE, FIGURE, STATE, or LINES that are safe
    value: float | str | None = None  # the number behind a figure, or the identifier behind a state
    lang: str = ""  # of a sentence
    code: str = ""  # an identifier that forms with room for it show behind the text
    full: str = ""  # a longer text, for forms with room for it


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
        return self._with([places[key] for key in keys])

    def without(self, *keys: str) -> Table:
        """Return the table without these columns."""
        return self._with([place for place, column in enumerate(self.columns) if column.key not in keys])

    def _with(self, chosen: Sequence[int]) -> Table:
        rows = tuple(tuple(row[place] for place in chosen) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in chosen), rows=rows)


@dataclass(frozen=True)
class Line:
    """A paragraph: its text, its emphasis, and how many characters are shown."""

    text: str
    tone: str = ""
    limit: int = 700


@dataclass(frozen=True)
class Points:
    """A list, under a few words that say what it is of."""

    title: str
    lines: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The words above the list, with a colon unless they end a sentence."""
        return self.title if self.title.endswith((".", "?", ":")) else f"{self.title}:"


Block: TypeAlias = Table | Line | Points


@dataclass(frozen=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: tuple[Block, ...]
