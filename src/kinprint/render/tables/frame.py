"""Tidy tables as pandas DataFrames, for notebooks."""

from __future__ import annotations

import importlib
from typing import Any

from kinprint.errors import NeedsExtra
from kinprint.render.forms import checked_table
from kinprint.render.tables import pairs, report
from kinprint.render.tables.tidy import FLAG, REAL, TEXT, WHOLE

_DTYPES = {TEXT: "string", FLAG: "boolean", WHOLE: "Int64", REAL: "float64"}
"""Types that know a missing value from an empty one; lists stay as they are."""


def to_frame(result: object, table: str | None = None) -> Any:
    """Return one table of a report as a DataFrame; see `kinprint.results.result.Result.to_frame`."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise NeedsExtra("a DataFrame", extra="pandas") from error
    name = checked_table(result, table)
    makers: dict[str, Any] = {**report.TABLES, **pairs.TABLES}
    header, rows = makers[name](result)
    cells = {column.name: [row[place] for row in rows] for place, column in enumerate(header)}
    dtypes = {column.name: _DTYPES.get(column.kind, "object") for column in header}
    return pandas.DataFrame({name: pandas.Series(values, dtype=dtypes[name]) for name, values in cells.items()})
