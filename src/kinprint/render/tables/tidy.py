"""Take columns of tidy tables from dataclasses, and write rows as CSV (RFC 4180) and Parquet."""

import csv
import io
import types
import typing
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from kinprint.errors import imported
from kinprint.results.p_values import PMethod
from kinprint.text import Text

TEXT, FLAG, WHOLE, REAL, TEXTS, WHOLES = "text", "flag", "whole", "real", "texts", "wholes"

Cell = str | bool | int | float | tuple[str, ...] | tuple[int, ...] | None
Row = tuple[Cell, ...]

_KINDS: dict[object, str] = {
    str: TEXT,
    Text: TEXT,
    PMethod: TEXT,
    bool: FLAG,
    int: WHOLE,
    float: REAL,
    tuple[str, ...]: TEXTS,
    tuple[Text, ...]: TEXTS,
    tuple[int, ...]: WHOLES,
}
LEADING = 1000  # characters before which a formula is looked for
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Column:
    """One column: its name, and whether it holds text, yes or no, whole or real numbers, or lists of texts or whole numbers."""

    name: str
    kind: str


@dataclass(frozen=True)
class Fields:
    """Neighbouring columns that are attributes of one dataclass."""

    columns: tuple[Column, ...]
    paths: tuple[str, ...]
    sparse: frozenset[str]

    def of(self, item: object | None) -> Row:
        """Return the cells of one item; all empty if there is none."""
        if item is None:
            return (None,) * len(self.paths)
        found = (attrgetter(path)(item) for path in self.paths)
        return tuple(
            None if path in self.sparse and not cell else cell for path, cell in zip(self.paths, found, strict=True)
        )


def columns(kind: str, names: str) -> tuple[Column, ...]:
    """Return columns of one kind."""
    return tuple(Column(name, kind) for name in names.split())


def fields_of(owner: type, names: str) -> Fields:
    """Return columns that are attributes of a dataclass, whose annotations say what the columns hold.

    Attributes are separated by blanks: ``name``, or ``column=path.to.it`` where the column has another name. A question mark at
    the end means that an empty value is none.
    """
    found, paths, sparse = [], [], []
    for word in names.split():
        name, _, path = word.rstrip("?").partition("=")
        path = path or name
        found.append(Column(name, _KINDS[_annotated(owner, path)]))
        paths.append(path)
        sparse += [path] if word.endswith("?") else []
    return Fields(tuple(found), tuple(paths), frozenset(sparse))


def _annotated(owner: Any, path: str) -> Any:
    """Return the declared type of an attribute or property of a class, without None."""
    first, _, rest = path.partition(".")
    own = getattr(owner, first, None)
    hint = (
        typing.get_type_hints(own.fget)["return"] if isinstance(own, property) else typing.get_type_hints(owner)[first]
    )
    if isinstance(hint, types.UnionType):
        (hint,) = (option for option in typing.get_args(hint) if option is not types.NoneType)
    return _annotated(hint, rest) if rest else hint


# -- CSV -----------------------------------------------------------------------------------------------------------------


def to_csv(header: Sequence[Column], rows: Iterable[Row]) -> bytes:
    """Return a table as CSV: UTF-8, CRLF, an empty field for what does not exist, floats that read back exactly.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises; numbers are never touched.
    Lists are joined by "; ", shapes by "x"; yes and no are "true" and "false".
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(column.name for column in header)
    for row in rows:
        writer.writerow(_field(column, cell) for column, cell in zip(header, row, strict=True))
    return text.getvalue().encode("utf-8", "replace")


def _field(column: Column, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return repr(float(cell))
    if isinstance(cell, int):  # also yes and no
        return str(cell).lower()
    if isinstance(cell, tuple):
        return _guarded(("x" if column.kind == WHOLES else "; ").join(map(str, cell)))
    return _guarded(str(cell))


def _guarded(text: str) -> str:
    """Return text that no spreadsheet takes for a formula, even one that strips blanks and invisible characters before it."""
    seen = text.lstrip("".join(c for c in text[:LEADING] if c.isspace() or unicodedata.category(c) in ("Cf", "Cc")))
    return f"'{text}" if text.startswith(_FORMULA) or seen.startswith(_FORMULA) else text


# -- Parquet -------------------------------------------------------------------------------------------------------------


def to_parquet(header: Sequence[Column], rows: Sequence[Row], metadata: Mapping[str, object]) -> bytes:
    """Return a table as Parquet: typed columns, null for what does not exist, `metadata` under ``kinprint.<name>``."""
    modules = ("pyarrow", "pyarrow.parquet")
    arrow, parquet = (imported(module, "writing Parquet", extra="parquet") for module in modules)
    kinds = {TEXT: arrow.string(), FLAG: arrow.bool_(), WHOLE: arrow.int64(), REAL: arrow.float64()}
    kinds |= {TEXTS: arrow.list_(kinds[TEXT]), WHOLES: arrow.list_(kinds[WHOLE])}
    schema = arrow.schema(
        [arrow.field(column.name, kinds[column.kind]) for column in header],
        metadata={f"kinprint.{name}": _encodable(str(value)) for name, value in metadata.items()},
    )
    arrays = [
        arrow.array([_stored(row[place]) for row in rows], type=kinds[column.kind])
        for place, column in enumerate(header)
    ]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _stored(cell: Cell) -> Any:
    if isinstance(cell, str):
        return _encodable(cell)
    if isinstance(cell, tuple):
        return [_encodable(part) if isinstance(part, str) else part for part in cell]
    return cell


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
