"""Make tables and their cells in one language."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kinprint.render.content.blocks import CODE, FIGURE, NAME, SENTENCE, STATE, Block, Cell, Column, Section, Table
from kinprint.render.texts.words import DASH, Words


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


def facts_table(words: Words, key: str, *sides: Mapping[str, Cell]) -> Table:
    """Return facts of one model, or of two, under their labels; `key` is that of the title."""
    rows = [(Cell(words.say(label)), *(side[label] for side in sides)) for label in sides[0]]
    return table(words, words.say(key), "fact value" if len(sides) == 1 else "fact a b", rows)


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


def beside_null(
    words: Words, mean: float | None, sd: float | None, z: float | None, log10_p: float | None, *, bound: bool = False
) -> list[Cell]:
    """Return mean and spread of a null, and how far a figure lies from it."""
    return [*numbers(words, mean, sd), z_score(words, z), log_p(words, log10_p, bound=bound)]


def name(text: str | None) -> Cell:
    """Return a name from an untrusted file."""
    return Cell(text or DASH, NAME)


def code(text: str) -> Cell:
    """Return an identifier that options take."""
    return Cell(text, CODE)


def sentence(words: Words, text: str | None) -> Cell:
    """Return a sentence of the engine."""
    said = words.engine(text or DASH)
    return Cell(said.text, SENTENCE, lang=said.lang)


_FORMS: dict[str, Callable[[Words, Any], Cell]] = {
    "count": lambda _, value: count(value),
    "number": lambda words, value: figure(words.number(value), value),
    "size": lambda words, value: figure(words.size(value), value),
    "share": lambda words, value: figure(words.share(value), value),
    "z": z_score,
    "p": log_p,
    "code": lambda _, value: code(value),
    "name": lambda _, value: name(value),
    "sentence": sentence,
    "yes": lambda words, value: Cell(words.say("yes" if value else "no")),
}
_FIGURES = ("count", "number", "size", "share", "z", "p")


def listing(words: Words, key: str, columns: str, items: Iterable[Any], **cells: Callable[[Any], Cell]) -> Table:
    """Return a table with a row for each item and `key` as its title.

    A column is ``key=attribute:form``, or ``key:form`` where the attribute has its name; `cells` make those without a form.
    ``label.<prefix>`` and ``state.<prefix>`` are forms of identifiers.
    """
    heads: list[str] = []
    makers: list[Callable[[Any], Cell]] = []
    for column in columns.split():
        start, _, form = column.rstrip("-").partition(":")
        head, _, attribute = start.partition("=")
        heads.append(head + "#" * (form in _FIGURES) + "-" * column.endswith("-"))
        makers.append(partial(_made, words, form, attribute or head) if form else cells[head.rstrip("#")])
    return table(words, words.say(key), " ".join(heads), [[make(item) for make in makers] for item in items])


def _made(words: Words, form: str, attribute: str, item: object) -> Cell:
    value = getattr(item, attribute)
    kind, _, prefix = form.partition(".")
    if prefix:  # the label of an identifier, which may be a state with a shape
        shown = words.label(prefix, value) if value else DASH
        return Cell(shown, STATE, value) if kind == STATE else Cell(shown)
    return _FORMS[form](words, value)
