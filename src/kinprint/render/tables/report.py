"""Lay out results as tidy tables, CSV, Parquet or pandas: one row for each figure, with its null beside it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kinprint.errors import imported
from kinprint.render.forms import checked_table
from kinprint.render.parentage import direction_among, related
from kinprint.render.tables import tidy
from kinprint.render.tables.tidy import REAL, TEXT, TEXTS, WHOLE, Cell, Column, Row, columns, fields_of
from kinprint.results.context import DeclaredFinding, LayerGrid
from kinprint.results.findings import EvidenceTest
from kinprint.results.measurements import Measurement, NullResult, TensorComparison
from kinprint.results.report import Report
from kinprint.results.search import FoundModel, SearchReport
from kinprint.results.tree import PairsReport, PairSummary, TreeModel
from kinprint.text import verbatim

DOES_NOT_STAND = "does_not_stand"
"""In place of a verdict, where the correction for all pairs leaves none."""

Rows = tuple[tuple[Column, ...], list[Row]]

# -- two models ----------------------------------------------------------------------------------------------------------

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

MEASUREMENTS = (*_PAIR, *_PLACE.columns, *_METRIC.columns, *_NULL.columns, *_SIDES.columns, *_SPAN, *_COMPARED.columns)
TESTS = (*_PAIR, *_TEST.columns, *_COUNTS.columns, *_TESTED.columns)
LAYERS = (*_PAIR, *_GRID, *_UNITS.columns, *_GRIDDED.columns)


def measurement_rows(report: Report) -> Rows:
    """Return one row for each metric on each pair of tensors; a pair without measurements has one row that says why."""
    return MEASUREMENTS, [(*_models(report), *cells) for item in report.comparisons for cells in _of_tensors(item)]


def _of_tensors(item: TensorComparison) -> Iterator[Row]:
    rows, span = item.rows or (None, None), item.columns or (None, None)
    place, end = _PLACE.of(item), (*_SIDES.of(item), *rows, *span, *_COMPARED.of(item))
    for found in item.measurements or (Measurement("", item.status, reason=item.reason),):
        yield (*place, *_METRIC.of(found), *_NULL.of(found.null), *end)


def evidence_rows(report: Report) -> Rows:
    """Return one row for each test of the evidence; a test that is off has its reason and no figures."""
    found: list[Row] = []
    for test in report.evidence.tests if report.evidence is not None else ():
        ran = test.statistic is not None or test.log10_p is not None
        found.append((*_models(report), *_TEST.of(test), *_COUNTS.of(test if ran else None), *_TESTED.of(test)))
    return TESTS, found


def layer_rows(report: Report) -> Rows:
    """Return one row for each layer of A against each layer of B, of each role; a role without grids has one row."""
    found: list[Row] = []
    for grid in report.grids:
        start = (*_models(report), grid.role)
        if not grid.cells:
            found.append((*start, *(None,) * (len(_GRID) - 1), *_UNITS.of(None), *_GRIDDED.of(grid)))
        end = (*_UNITS.of(grid), *_GRIDDED.of(grid))
        for layer_a, *rows in zip(grid.layers_a, *grid.grids().values(), strict=True):
            found += [(*start, layer_a, *cells, *end) for cells in zip(grid.layers_b, *rows, strict=True)]
    return LAYERS, found


def _models(report: Report) -> tuple[str, str]:
    return report.a.reference, report.b.reference


# -- many models ---------------------------------------------------------------------------------------------------------

_MODEL = fields_of(TreeModel, "model=reference name commit")
_VERDICT = fields_of(PairSummary, "verdict=class_ kind log10_p log10_p_pairs")
_CORRECTION = (*columns(WHOLE, "pairs"), *columns(REAL, "threshold"))
_FIGURES = fields_of(PairSummary, "stands norm_cosine norm_cosine_null")
_DECLARED = fields_of(DeclaredFinding, "declared=state declared_against_measured=sentence named_by licences")
_DIRECTION = (*columns(TEXT, "direction"), *columns(WHOLE, "came_first"), *columns(TEXTS, "shared_parts"))
_REST = fields_of(PairSummary, "controls_passed controls_run bytes_read sentence limits=against not_tested=untested")
VERDICTS = (
    *columns(WHOLE, "number_a number_b"),
    *(Column(f"{column.name}_{side}", column.kind) for side in "ab" for column in _MODEL.columns),
    *(*_VERDICT.columns, *_CORRECTION, *_FIGURES.columns, *_DECLARED.columns, *_DIRECTION, *_REST.columns),
)


def verdict_rows(report: PairsReport) -> Rows:
    """Return one row for each pair that was compared, in the order of the report; models are numbered from 1."""
    return VERDICTS, [_row(report, pair) for pair in report.pairs]


def facts_of(report: PairsReport, pair: PairSummary) -> dict[str, Cell]:
    """Return the row of one pair by the names of its columns, without what all pairs have in common, for other forms."""
    cells = zip(VERDICTS, _row(report, pair), strict=True)
    return {column.name: cell for column, cell in cells if column not in _CORRECTION}


def _row(report: PairsReport, pair: PairSummary) -> Row:
    models, settings = report.tree.models, report.tree.settings
    told, first = direction_among(report, pair)
    if not pair.stands:  # no word that a reader, or a filter, could take for a verdict or hold against a card
        alone = verbatim(pair.class_ + " by itself, not after the correction for all pairs")
        pair = replace(pair, class_=DOES_NOT_STAND, kind=None, sentence=alone, declared=None, components=())
    return (
        *(pair.a + 1, pair.b + 1, *_MODEL.of(models[pair.a]), *_MODEL.of(models[pair.b])),
        *(*_VERDICT.of(pair), settings.pairs, settings.log10_alpha, *_FIGURES.of(pair), *_DECLARED.of(pair.declared)),
        told if related(pair) else None,
        None if first is None else first + 1,
        tuple(f"{part.component} {part.shared} of {part.tested}" for part in pair.components if part.shared),
        *_REST.of(pair),
    )


# -- a search --------------------------------------------------------------------------------------------------------------

_ENTRY = fields_of(
    FoundModel,
    "name revision key found=class_ same? log10_p architecture layers hidden parameters licence declared verify?",
)
_LIKE = columns(REAL, "tokens sorted_norms")
_VERIFIED = (*columns(TEXT, "verdict kind verdict_sentence"), *columns(REAL, "verdict_log10_p"))
FOUND = (*columns(TEXT, "query"), *_ENTRY.columns, *columns(TEXTS, "tests"), *_LIKE, *_VERIFIED)


def found_rows(report: SearchReport) -> Rows:
    """Return one row for each entry that a search found, best first."""
    found: list[Row] = []
    for item in report.found:
        like, seen = dict(item.likeness), item.verified
        verdict = (None,) * 4 if seen is None else (seen.class_, seen.kind, seen.sentence, seen.log10_p)
        tests = tuple(f"{test.test} {test.scope}" for test in item.tests)
        start = (report.query.reference, *_ENTRY.of(item), tests)
        found.append((*start, like.get("tokens"), like.get("sorted"), *verdict))
    return FOUND, found


# -- forms ---------------------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[Any], Rows]] = {
    "measurements": measurement_rows,
    "tests": evidence_rows,
    "layers": layer_rows,
    "verdicts": verdict_rows,
    "found": found_rows,
}
"""All tables by name; `kinprint.render.forms.TABLES` says which are of which result."""
_DTYPES = {tidy.TEXT: "string", tidy.FLAG: "boolean", tidy.WHOLE: "Int64", tidy.REAL: "float64"}
"""Types of pandas that know a missing value from an empty one; lists stay as they are."""


def report_csv(report: Report | PairsReport | SearchReport, table: str | None = None) -> bytes:
    """Return a table, by default the first, as CSV, as `kinprint.render.tables.tidy.to_csv` writes it."""
    return tidy.to_csv(*TABLES[checked_table(report, table)](report))


def report_parquet(report: Report | PairsReport | SearchReport, table: str | None = None) -> bytes:
    """Return a table as Parquet, with the verdict, or what holds for all pairs, in the file's metadata."""
    name = checked_table(report, table)
    metadata: dict[str, object] = {"table": name, "schema": report.schema, "schema_version": report.schema_version}
    if isinstance(report, PairsReport):
        settings = report.tree.settings
        metadata |= {"version": report.tree.run.kinprint, "seed": settings.seed, "models": len(report.tree.models)}
        metadata |= {"pairs": settings.pairs, "threshold": settings.log10_alpha}
    elif isinstance(report, SearchReport):
        metadata |= {"version": report.made_by, "entries": report.entries, "threshold": report.log10_alpha}
        metadata |= {"class": report.class_, "sentence": report.sentence}
    else:
        verdict = report.verdict
        metadata |= {"version": report.run.kinprint, "seed": report.settings.seed}
        metadata |= {"verdict": verdict.class_ if verdict else "", "kind": (verdict.kind or "") if verdict else ""}
        metadata["sentence"] = verdict.sentence if verdict else report.reason or ""
    return tidy.to_parquet(*TABLES[name](report), metadata)


pairs_csv = search_csv = report_csv
pairs_parquet = search_parquet = report_parquet


def to_frame(result: Any, table: str | None = None) -> Any:
    """Return one table of a report as a DataFrame; see `kinprint.results.result.Result.to_frame`."""
    pandas = imported("pandas", "a DataFrame", extra="pandas")
    header, rows = TABLES[checked_table(result, table)](result)
    return pandas.DataFrame(
        {
            column.name: pandas.Series([row[place] for row in rows], dtype=_DTYPES.get(column.kind, "object"))
            for place, column in enumerate(header)
        }
    )
