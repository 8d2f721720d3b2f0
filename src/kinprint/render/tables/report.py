"""All measurements of a report as tidy tables, one row for each figure, with its null beside it.

Three tables: every metric on every pair of tensors, every test of the evidence, and every layer of A against every layer of B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kinprint.render.tables.tidy import REAL, TEXT, WHOLE, Column, Row, columns, fields_of, to_csv, to_parquet
from kinprint.results.context import LayerGrid
from kinprint.results.findings import EvidenceTest
from kinprint.results.measurements import Measurement, NullResult, TensorComparison
from kinprint.results.report import Report

_PAIR = columns(TEXT, "model_a model_b")

_PLACE = fields_of(TensorComparison, "role layer expert")
_METRIC = fields_of(Measurement, "metric? value status reason")
_NULL = fields_of(
    NullResult,
    "null_name=name null_mean=mean null_sd=sd z log10_p p_method tail n n_draws skewness excess_kurtosis assumptions",
)
_SIDES = fields_of(
    TensorComparison,
    "tensor_a=a.tensor tensor_b=b.tensor dtype_a=a.dtype dtype_b=b.dtype shape_a=a.shape shape_b=b.shape "
    "nonfinite_a=a.nonfinite nonfinite_b=b.nonfinite",
)
_SPAN = columns(WHOLE, "first_row end_row first_column end_column")
_COMPARED = fields_of(TensorComparison, "elements permuted_axis tensor_status=status tensor_reason=reason")

_TEST = fields_of(EvidenceTest, "test=name scope layer expert statistic null_mean null_sd z log10_p log10_p_holm")
_COUNTS = fields_of(EvidenceTest, "n blocks")
_TESTED = fields_of(EvidenceTest, "null? p_method? assumptions status reason")

_GRID = (*columns(TEXT, "role"), *columns(WHOLE, "layer_a layer_b"), *columns(REAL, "cosine cosine_null pearson z"))
_UNITS = fields_of(LayerGrid, "n")
_GRIDDED = fields_of(LayerGrid, "null? assumptions status reason")

MEASUREMENTS = (
    *_PAIR,
    *_PLACE.columns,
    *_METRIC.columns,
    *_NULL.columns,
    *_SIDES.columns,
    *_SPAN,
    *_COMPARED.columns,
)
TESTS = (*_PAIR, *_TEST.columns, *_COUNTS.columns, *_TESTED.columns)
PAIRS = (*_PAIR, *_GRID, *_UNITS.columns, *_GRIDDED.columns)


def measurement_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each metric on each pair of tensors; a pair without measurements has one row that says why."""
    return MEASUREMENTS, [(*_models(report), *cells) for item in report.comparisons for cells in _of_tensors(item)]


def _of_tensors(item: TensorComparison) -> Iterator[Row]:
    rows, span = item.rows or (None, None), item.columns or (None, None)
    place, end = _PLACE.of(item), (*_SIDES.of(item), *rows, *span, *_COMPARED.of(item))
    for found in item.measurements or (Measurement("", item.status, reason=item.reason),):
        yield (*place, *_METRIC.of(found), *_NULL.of(found.null), *end)


def evidence_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each test of the evidence; a test that is off has its reason and no figures."""
    found: list[Row] = []
    for test in report.evidence.tests if report.evidence is not None else ():
        ran = test.statistic is not None or test.log10_p is not None
        found.append((*_models(report), *_TEST.of(test), *_COUNTS.of(test if ran else None), *_TESTED.of(test)))
    return TESTS, found


def layer_rows(report: Report) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each layer of A against each layer of B, of each role; a role without grids has one row."""
    found: list[Row] = []
    for grid in report.grids:
        start = (*_models(report), grid.role)
        if not grid.pearson:
            found.append((*start, *(None,) * (len(_GRID) - 1), *_UNITS.of(None), *_GRIDDED.of(grid)))
        end = (*_UNITS.of(grid), *_GRIDDED.of(grid))
        for i, layer_a in enumerate(grid.layers_a):
            figures = zip(grid.layers_b, grid.cosine[i], grid.cosine_null[i], grid.pearson[i], grid.z[i], strict=True)
            found += [(*start, layer_a, *cells, *end) for cells in figures]
    return PAIRS, found


def _models(report: Report) -> tuple[str, str]:
    return report.a.reference, report.b.reference


TABLES: dict[str, Callable[[Report], tuple[tuple[Column, ...], list[Row]]]] = {
    "measurements": measurement_rows,
    "tests": evidence_rows,
    "layers": layer_rows,
}
"""The tables there are, by name."""


def report_csv(report: Report, table: str = "measurements") -> bytes:
    """Return a table as CSV, as `kinprint.render.tables.tidy.to_csv` writes it."""
    return to_csv(*TABLES[table](report))


def report_parquet(report: Report, table: str = "measurements") -> bytes:
    """Return a table as Parquet, with the verdict in the file's metadata.

    Raises
    ------
    NeedsExtra
        If pyarrow is not installed.
    """
    verdict = report.verdict
    metadata = {
        "table": table,
        "schema": report.schema,
        "schema_version": report.schema_version,
        "version": report.run.kinprint,
        "seed": report.settings.seed,
        "verdict": verdict.class_ if verdict is not None else "",
        "kind": (verdict.kind or "") if verdict is not None else "",
        "sentence": verdict.sentence if verdict is not None else report.reason or "",
    }
    return to_parquet(*TABLES[table](report), metadata)
