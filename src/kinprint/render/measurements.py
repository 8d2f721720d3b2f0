"""All measurements of a report as tidy tables: CSV (RFC 4180) and Parquet, one row for each figure, with its null beside it.

Three tables: every metric on every pair of tensors, every test of the evidence, and every layer of A against every layer of B.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kinprint.errors import NeedsExtra
from kinprint.results import Measurement, NullResult, Report, TensorComparison

EXTRA = "parquet"
TEXT, WHOLE, REAL, TEXTS, WHOLES = "text", "whole", "real", "texts", "wholes"

Cell = str | int | float | tuple[str, ...] | tuple[int, ...] | None
Row = tuple[Cell, ...]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Column:
    """One column: its name, and whether it holds text, whole or real numbers, or lists of texts or whole numbers."""

    name: str
    kind: str


def _columns(**kinds: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kinds.items())


_PAIR = {"model_a": TEXT, "model_b": TEXT}
_NULL = {
    "null_name": TEXT,
    "null_mean": REAL,
    "null_sd": REAL,
    "z": REAL,
    "log10_p": REAL,
    "p_method": TEXT,
    "tail": TEXT,
    "n": WHOLE,
    "n_draws": WHOLE,
    "skewness": REAL,
    "excess_kurtosis": REAL,
    "assumptions": TEXTS,
}
MEASUREMENTS = _columns(
    **_PAIR,
    role=TEXT,
    layer=WHOLE,
    expert=WHOLE,
    metric=TEXT,
    value=REAL,
    status=TEXT,
    reason=TEXT,
    **_NULL,
    tensor_a=TEXT,
    tensor_b=TEXT,
    dtype_a=TEXT,
    dtype_b=TEXT,
    shape_a=WHOLES,
    shape_b=WHOLES,
    nonfinite_a=WHOLE,
    nonfinite_b=WHOLE,
    first_row=WHOLE,
    end_row=WHOLE,
    first_column=WHOLE,
    end_column=WHOLE,
    elements=WHOLE,
    permuted_axis=TEXT,
    tensor_status=TEXT,
    tensor_reason=TEXT,
)
TESTS = _columns(
    **_PAIR,
    test=TEXT,
    scope=TEXT,
    layer=WHOLE,
    expert=WHOLE,
    statistic=REAL,
    null_mean=REAL,
    null_sd=REAL,
    z=REAL,
    log10_p=REAL,
    log10_p_holm=REAL,
    n=WHOLE,
    blocks=WHOLE,
    null=TEXT,
    p_method=TEXT,
    assumptions=TEXTS,
    status=TEXT,
    reason=TEXT,
)
PAIRS = _columns(
    **_PAIR,
    role=TEXT,
    layer_a=WHOLE,
    layer_b=WHOLE,
    cosine=REAL,
    cosine_null=REAL,
    pearson=REAL,
    z=REAL,
    n=WHOLE,
    null=TEXT,
    assumptions=TEXTS,
    status=TEXT,
    reason=TEXT,
)


def measurement_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each metric on each pair of tensors; a pair without measurements has one row that says why."""
    return MEASUREMENTS, [
        row for item in report.comparisons for row in _of_tensors(item, report.a.reference, report.b.reference)
    ]


def evidence_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each test of the evidence; a test that is off has its reason and no figures."""
    names = (report.a.reference, report.b.reference)
    tests = report.evidence.tests if report.evidence is not None else ()
    found: list[Row] = [
        (
            *names,
            test.name,
            test.scope,
            test.layer,
            test.expert,
            test.statistic,
            test.null_mean,
            test.null_sd,
            test.z,
            test.log10_p,
            test.log10_p_holm,
            *((test.n, test.blocks) if test.statistic is not None or test.log10_p is not None else (None, None)),
            test.null or None,
            test.p_method or None,
            test.assumptions,
            test.status,
            test.reason,
        )
        for test in tests
    ]
    return TESTS, found


def pair_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each layer of A against each layer of B, of each role; a role without grids has one row."""
    names = (report.a.reference, report.b.reference)
    found: list[Row] = []
    for grid in report.grids:
        end = (grid.n, grid.null or None, grid.assumptions, grid.status, grid.reason)
        if not grid.pearson:
            found.append((*names, grid.role, None, None, None, None, None, None, None, *end[1:]))
        for i, layer_a in enumerate(grid.layers_a):
            found += [
                (*names, grid.role, layer_a, layer_b, *figures, *end)
                for layer_b, *figures in zip(
                    grid.layers_b, grid.cosine[i], grid.cosine_null[i], grid.pearson[i], grid.z[i], strict=True
                )
            ]
    return PAIRS, found


TABLES: dict[str, Callable[[Report], tuple[tuple[Column, ...], list[Row]]]] = {
    "measurements": measurement_rows,
    "tests": evidence_rows,
    "pairs": pair_rows,
}
"""The tables there are, by name."""


def csv_bytes(report: Report, table: str = "measurements") -> bytes:
    """Return a table as CSV: UTF-8, CRLF, an empty field for what does not exist, floats that read back exactly.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises; numbers are never touched.
    Lists are joined by "; ", shapes by "x".
    """
    columns, rows = TABLES[table](report)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(column.name for column in columns)
    for row in rows:
        writer.writerow(_field(column, cell) for column, cell in zip(columns, row, strict=True))
    return text.getvalue().encode("utf-8", "replace")


def parquet_bytes(report: Report, table: str = "measurements") -> bytes:
    """Return a table as Parquet: typed columns, null for what does not exist, the verdict in the file's metadata.

    Raises
    ------
    NeedsExtra
        If pyarrow is not installed.
    """
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise NeedsExtra("writing Parquet", extra=EXTRA) from error
    columns, rows = TABLES[table](report)
    kinds = {
        TEXT: arrow.string(),
        WHOLE: arrow.int64(),
        REAL: arrow.float64(),
        TEXTS: arrow.list_(arrow.string()),
        WHOLES: arrow.list_(arrow.int64()),
    }
    described = [arrow.field(column.name, kinds[column.kind]) for column in columns]
    schema = arrow.schema(described, metadata=_metadata(report, table))
    arrays = [
        arrow.array([_stored(row[place]) for row in rows], type=kinds[column.kind])
        for place, column in enumerate(columns)
    ]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _metadata(report: Report, table: str) -> dict[str, str]:
    verdict = report.verdict
    return {
        "kinprint.table": table,
        "kinprint.schema": report.schema,
        "kinprint.schema_version": str(report.schema_version),
        "kinprint.version": _encodable(report.run.kinprint),
        "kinprint.seed": str(report.settings.seed),
        "kinprint.verdict": verdict.class_ if verdict is not None else "",
        "kinprint.kind": _encodable((verdict.kind or "") if verdict is not None else ""),
        "kinprint.sentence": _encodable(verdict.sentence if verdict is not None else report.reason or ""),
    }


def _of_tensors(item: TensorComparison, name_a: str, name_b: str) -> Iterator[Row]:
    rows, columns = item.rows or (None, None), item.columns or (None, None)
    end: Row = (
        item.a.tensor,
        item.b.tensor,
        item.a.dtype,
        item.b.dtype,
        item.a.shape,
        item.b.shape,
        item.a.nonfinite,
        item.b.nonfinite,
        *rows,
        *columns,
        item.elements,
        item.permuted_axis,
        item.status,
        item.reason,
    )
    for found in item.measurements or (None,):
        yield (name_a, name_b, item.role, item.layer, item.expert, *_measured(found, item), *end)


def _measured(found: Measurement | None, item: TensorComparison) -> Row:
    if found is None:
        return (None, None, item.status, item.reason, *_null(None))
    return (found.metric, found.value, found.status, found.reason, *_null(found.null))


def _null(null: NullResult | None) -> Row:
    if null is None:
        return (None,) * len(_NULL)
    return (
        null.name,
        null.mean,
        null.sd,
        null.z,
        null.log10_p,
        null.p_method,
        null.tail,
        null.n,
        null.n_draws,
        null.skewness,
        null.excess_kurtosis,
        null.assumptions,
    )


def _field(column: Column, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return repr(float(cell))
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, tuple):
        return _guarded(("x" if column.kind == WHOLES else "; ").join(map(str, cell)))
    return _guarded(str(cell))


def _guarded(text: str) -> str:
    """Return text that no spreadsheet takes for a formula, also after a cut of blanks before it."""
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _stored(cell: Cell) -> Any:
    if isinstance(cell, str):
        return _encodable(cell)
    if isinstance(cell, tuple):
        return [_encodable(part) if isinstance(part, str) else part for part in cell]
    return cell


def _encodable(text: str) -> str:
    """Return text without half characters, which no encoding can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
