"""Measurements as tables: every figure is there, reads back exactly, and no name becomes a formula."""

import csv
import io
import math
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinprint.errors import NeedsExtra
from kinprint.render.forms import PAIR_TABLES
from kinprint.render.tables.report import (
    TABLES,
    VERDICTS,
    evidence_rows,
    facts_of,
    layer_rows,
    measurement_rows,
    pairs_csv,
    pairs_parquet,
    report_csv,
    report_parquet,
    verdict_rows,
)
from kinprint.results.context import LayerGrid
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS
from support.reports import HOSTILE, empty_report, hostile_report, pairs_report

GOLDEN = GOLDEN_REPORTS
REPORT = Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
FORMULAE = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\ufeff=1",
    "\u200b \u2060=1",
    "＝1",
    "=cmd|'/c calc'!A1",
)


def read_csv(content):
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def read_parquet(content):
    return pq.read_table(pa.BufferReader(content))


def named(report, name):
    first = report.comparisons[0]
    changed = replace(first, a=replace(first.a, tensor=name))
    return replace(report, comparisons=(changed, *report.comparisons[1:]))


# ---- rows ----


def test_every_measurement_is_one_row():
    columns, rows = measurement_rows(REPORT)
    assert len(rows) == sum(len(item.measurements) for item in REPORT.comparisons)
    assert {len(row) for row in rows} == {len(columns)}
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    first, found = REPORT.comparisons[0], REPORT.comparisons[0].measurements[0]
    row = dict(zip(names, rows[0], strict=True))
    assert (row["role"], row["metric"], row["value"]) == (first.role, found.metric, found.value)
    assert (row["null_mean"], row["null_sd"], row["z"]) == (found.null.mean, found.null.sd, found.null.z)
    assert (row["n"], row["tensor_b"], row["shape_a"]) == (found.null.n, first.b.tensor, first.a.shape)
    assert row["model_a"] == "base"


def test_a_pair_without_measurements_says_why():
    first = replace(REPORT.comparisons[0], measurements=(), status="not_comparable", reason="shapes differ")
    columns, rows = measurement_rows(replace(REPORT, comparisons=(first,)))
    (row,) = (dict(zip((column.name for column in columns), row, strict=True)) for row in rows)
    assert (row["metric"], row["value"], row["z"], row["n"]) == (None, None, None, None)
    assert (row["status"], row["reason"]) == ("not_comparable", "shapes differ")


def test_every_test_is_one_row_and_one_that_is_off_has_no_figures():
    columns, rows = evidence_rows(REPORT)
    assert len(rows) == len(REPORT.evidence.tests)
    for test, row in zip(REPORT.evidence.tests, rows, strict=True):
        found = dict(zip((column.name for column in columns), row, strict=True))
        assert (found["test"], found["log10_p_holm"]) == (test.name, test.log10_p_holm)
        assert found["n"] == (test.n if test.status == "ok" else None)
    assert evidence_rows(replace(REPORT, verdict=None, evidence=None))[1] == []


def test_every_pair_of_layers_is_one_row():
    columns, rows = layer_rows(REPORT)
    assert len(rows) == sum(len(grid.layers_a) * len(grid.layers_b) or 1 for grid in REPORT.grids)
    names = [column.name for column in columns]
    grid = REPORT.grids[0]
    row = next(row for row in rows if row[2:5] == (grid.role, grid.layers_a[1], grid.layers_b[2]))
    found = dict(zip(names, row, strict=True))
    for name, rows_of_a in grid.grids().items():
        assert found[name] == rows_of_a[1][2]


def test_a_role_without_a_grid_says_why():
    grid = LayerGrid("head", "matrix", (), (), "", 0, "", status="not_comparable", reason="none")
    ((*_, status, reason),) = layer_rows(replace(REPORT, grids=(grid,)))[1]
    assert (status, reason) == ("not_comparable", "none")


# ---- CSV ----


@pytest.mark.parametrize("table", PAIR_TABLES)
def test_csv_reads_back_exactly(table):
    columns, rows = TABLES[table](REPORT)
    content = report_csv(REPORT, table)
    assert content.count(b"\r\n") == len(rows) + 1 == content.count(b"\n")
    read = read_csv(content)
    for row, back in zip(rows, read, strict=True):
        for column, cell in zip(columns, row, strict=True):
            text = back[column.name]
            if cell is None:
                assert text == ""
            elif column.kind == "real":
                assert float(text) == cell
            elif column.kind == "whole":
                assert int(text) == cell
            else:
                joined = {"wholes": "x", "texts": "; "}.get(column.kind)
                assert text == (cell if joined is None else joined.join(map(str, cell)))


@pytest.mark.parametrize("name", FORMULAE)
def test_no_name_becomes_a_formula(name):
    read = read_csv(report_csv(named(REPORT, name)))
    assert read[0]["tensor_a"] == f"'{name}"


def test_negative_numbers_are_left_alone():
    read = read_csv(report_csv(REPORT))
    figures = [row["log10_p"] for row in read if row["log10_p"]]
    assert any(figure.startswith("-") for figure in figures)
    assert all(math.isfinite(float(figure)) for figure in figures)


@pytest.mark.parametrize("table", PAIR_TABLES)
def test_csv_of_hostile_names_keeps_its_rows_and_columns(table):
    report = hostile_report(REPORT, everything=True)
    columns, rows = TABLES[table](report)
    read = list(csv.reader(io.StringIO(report_csv(report, table).decode("utf-8"), newline="")))
    assert [len(row) for row in read] == [len(columns)] * (len(rows) + 1)


def test_plain_names_are_kept_as_they_are():
    for name in [*HOSTILE, "a,b", 'a"b', "a\nb", "'x", "model.layers.0"]:
        assert read_csv(report_csv(named(REPORT, name)))[0]["tensor_a"].removeprefix("'") == name.removeprefix("'")


# ---- Parquet ----


@pytest.mark.parametrize("table", PAIR_TABLES)
def test_parquet_reads_back_exactly(table):
    columns, rows = TABLES[table](REPORT)
    read = read_parquet(report_parquet(REPORT, table))
    assert read.column_names == [column.name for column in columns]
    kinds = {"text": "string", "whole": "int64", "real": "double"}
    for place, column in enumerate(columns):
        if column.kind in kinds:
            assert str(read.schema.field(place).type) == kinds[column.kind]
        cells = [tuple(cell) if isinstance(cell, list) else cell for cell in read.column(place).to_pylist()]
        assert cells == [row[place] for row in rows]


def test_parquet_says_what_it_is_of():
    kept = {key.decode(): value.decode() for key, value in read_parquet(report_parquet(REPORT)).schema.metadata.items()}
    assert kept["kinprint.schema"] == "kinprint.report"
    assert kept["kinprint.schema_version"] == "2"
    assert kept["kinprint.verdict"] == "derived"
    assert kept["kinprint.sentence"] == REPORT.verdict.sentence
    assert kept["kinprint.table"] == "measurements"


def test_two_files_of_one_report_are_equal():
    for table in PAIR_TABLES:
        assert report_parquet(REPORT, table) == report_parquet(REPORT, table)
        assert report_csv(REPORT, table) == report_csv(REPORT, table)


def test_half_characters_do_not_stop_it():
    report = named(REPORT, "half \ud800")
    assert read_csv(report_csv(report))[0]["tensor_a"] == "half ?"
    assert read_parquet(report_parquet(report)).column("tensor_a")[0].as_py() == "half ?"


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NeedsExtra, match="parquet"):
        report_parquet(REPORT)


# ---- reports with little in them ----


@pytest.mark.parametrize("table", PAIR_TABLES)
def test_an_older_report_and_one_without_anything_comparable(table, tmp_path):
    empty = empty_report(tmp_path)
    for report in (OLDER, empty, replace(empty, verdict=None, evidence=None)):
        columns, rows = TABLES[table](report)
        assert len(read_csv(report_csv(report, table))) == len(rows)
        read = read_parquet(report_parquet(report, table))
        assert (read.num_rows, read.num_columns) == (len(rows), len(columns))


# ---- all pairs of several models ----


def test_every_pair_of_models_is_one_row():
    report = pairs_report()
    columns, rows = verdict_rows(report)
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert len(rows) == len(report.pairs)
    pair, row = report.pairs[0], dict(zip(names, rows[0], strict=True))
    assert (row["number_a"], row["number_b"]) == (1, 2)
    assert (row["model_a"], row["name_b"], row["commit_b"]) == ("owner/base", "child", "c" * 40)
    assert (row["verdict"], row["kind"], row["sentence"]) == ("derived", "fine_tuned", pair.sentence)
    assert (row["log10_p"], row["log10_p_pairs"], row["stands"]) == (pair.log10_p, pair.log10_p_pairs, True)
    assert (row["norm_cosine"], row["norm_cosine_null"]) == (0.99, 0.99)
    assert (row["declared"], row["declared_against_measured"]) == ("undeclared", pair.declared.sentence)
    assert (row["controls_passed"], row["controls_run"], row["bytes_read"]) == (2, 2, 1000)
    assert (row["pairs"], row["threshold"], row["shared_parts"]) == (3, -6.0, ("mlp 4 of 4",))
    apart = dict(zip(names, rows[1], strict=True))
    assert [apart[name] for name in ("declared", "named_by", "direction", "came_first", "kind")] == [None] * 5


def test_what_does_not_stand_says_so():
    report = pairs_report(log10_p=-6.2)
    first = read_csv(pairs_csv(report))[0]
    assert (first["verdict"], first["stands"], first["direction"]) == ("does_not_stand", "false", "")
    assert first["sentence"] == "derived by itself, not after the correction for all pairs"
    assert [first[name] for name in ("kind", "declared", "declared_against_measured", "shared_parts")] == [""] * 4
    assert facts_of(report, report.pairs[0])["stands"] is False


def test_the_table_of_all_pairs_reads_back_exactly():
    report = pairs_report()
    columns, rows = verdict_rows(report)
    read = read_csv(pairs_csv(report))
    table = read_parquet(pairs_parquet(report))
    assert table.column_names == [column.name for column in columns] == list(read[0])
    assert str(table.schema.field("stands").type) == "bool"
    for place, column in enumerate(columns):
        cells = [tuple(cell) if isinstance(cell, list) else cell for cell in table.column(place).to_pylist()]
        assert cells == [row[place] for row in rows]
        if column.kind == "real":
            assert [float(row[column.name]) for row in read] == cells
    kept = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert (kept["kinprint.table"], kept["kinprint.schema"], kept["kinprint.pairs"]) == (
        "verdicts",
        "kinprint.pairs",
        "3",
    )
    assert pairs_csv(report) == pairs_csv(report)
    assert pairs_parquet(report) == pairs_parquet(report)


@pytest.mark.parametrize("name", FORMULAE)
def test_no_name_of_many_models_becomes_a_formula(name):
    assert [read_csv(pairs_csv(pairs_report((name, "b", "c"))))[0]["name_a"]] == [f"'{name}"]


def test_hostile_names_of_many_models_keep_rows_and_columns():
    report = hostile_report(pairs_report(), everything=True)
    read = list(csv.reader(io.StringIO(pairs_csv(report).decode("utf-8"), newline="")))
    assert [len(row) for row in read] == [len(VERDICTS)] * 4
    assert read_parquet(pairs_parquet(report)).num_rows == 3
    for name in (*HOSTILE, "half \ud800"):
        assert len(read_csv(pairs_csv(pairs_report((name, "b", "c"))))) == 3
        assert read_parquet(pairs_parquet(pairs_report((name, "b", "c")))).num_rows == 3


def test_without_pyarrow_the_extra_is_named_for_many_models(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NeedsExtra, match="parquet"):
        pairs_parquet(pairs_report())
