"""All pairs of several models as one tidy table, CSV or Parquet: a row for each pair, its verdict beside what could mislead."""

from __future__ import annotations

from dataclasses import replace

from kinprint.render.parentage import direction_among, related
from kinprint.render.tables.tidy import (
    REAL,
    TEXT,
    TEXTS,
    WHOLE,
    Cell,
    Column,
    Row,
    columns,
    fields_of,
    to_csv,
    to_parquet,
)
from kinprint.results.context import DeclaredFinding
from kinprint.results.tree import PairsReport, PairSummary, TreeModel
from kinprint.text import verbatim

TABLE = "verdicts"
DOES_NOT_STAND = "does_not_stand"
"""In place of a verdict, where the correction for all pairs leaves none."""

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
    *_VERDICT.columns,
    *_CORRECTION,
    *_FIGURES.columns,
    *_DECLARED.columns,
    *_DIRECTION,
    *_REST.columns,
)


def verdict_rows(report: PairsReport) -> tuple[tuple[Column, ...], list[Row]]:
    """Return one row for each pair that was compared, in the order of the report; models are numbered from 1."""
    return VERDICTS, [_row(report, pair) for pair in report.pairs]


def facts_of(report: PairsReport, pair: PairSummary) -> dict[str, Cell]:
    """Return the row of one pair by the names of its columns, without what all have in common: as other forms tell it."""
    common = {column.name for column in _CORRECTION}
    cells = zip(VERDICTS, _row(report, pair), strict=True)
    return {column.name: cell for column, cell in cells if column.name not in common}


def _row(report: PairsReport, pair: PairSummary) -> Row:
    models, settings = report.tree.models, report.tree.settings
    told, first = direction_among(report, pair)
    if not pair.stands:  # no word that a reader, or a filter, could take for a verdict or hold against a card
        alone = verbatim(pair.class_ + " by itself, not after the correction for all pairs")
        pair = replace(pair, class_=DOES_NOT_STAND, kind=None, sentence=alone, declared=None, components=())
    return (
        pair.a + 1,
        pair.b + 1,
        *_MODEL.of(models[pair.a]),
        *_MODEL.of(models[pair.b]),
        *_VERDICT.of(pair),
        settings.pairs,
        settings.log10_alpha,
        *_FIGURES.of(pair),
        *_DECLARED.of(pair.declared),
        told if related(pair) else None,
        None if first is None else first + 1,
        tuple(f"{part.component} {part.shared} of {part.tested}" for part in pair.components if part.shared),
        *_REST.of(pair),
    )


TABLES = {TABLE: verdict_rows}
"""The one table there is, by name."""


def pairs_csv(report: PairsReport, table: str = TABLE) -> bytes:
    """Return the table as CSV, as `kinprint.render.tables.tidy.to_csv` writes it."""
    return to_csv(*TABLES[table](report))


def pairs_parquet(report: PairsReport, table: str = TABLE) -> bytes:
    """Return the table as Parquet, with what holds for all pairs in the file's metadata.

    Raises
    ------
    NeedsExtra
        If pyarrow is not installed.
    """
    settings = report.tree.settings
    metadata = {
        "table": table,
        "schema": report.schema,
        "schema_version": report.schema_version,
        "version": report.tree.run.kinprint,
        "seed": settings.seed,
        "models": len(report.tree.models),
        "pairs": settings.pairs,
        "threshold": settings.log10_alpha,
    }
    return to_parquet(*TABLES[table](report), metadata)
