"""Tables and sentences at any width: no figure is cut, no word is broken, and lines wrap at spaces."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

import kinprint
from kinprint.render.content.blocks import Cell, Column, Table
from kinprint.render.forms import show
from kinprint.render.terminal.layout import print_table
from kinprint.render.terminal.lines import line, whole_line
from support.places import DEMO_MODELS, GOLDEN_REPORTS

WIDTHS = [30, 40, 60, 80, 120, 140]


def printed(printer, *given, width, **more):
    shown = io.StringIO()
    printer(*given, Console(file=shown, width=width, highlight=False, **more))
    return shown.getvalue()


@pytest.fixture(scope="module")
def inspected():
    return kinprint.inspect(DEMO_MODELS / "base")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_of_an_inspection_is_cut(inspected, width):
    shown = printed(show, inspected, width=width)
    for size in ("192 B", "768 B", "98.3 kB", "196.6 kB"):
        assert re.search(rf"(?<![\d.]){size}(?!\w)", shown), size
    for norm in inspected.norms:
        assert f"{norm.mean:.4f}" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_of_a_report_is_cut(width):
    report = kinprint.load(GOLDEN_REPORTS / "report_v2.json")
    shown = printed(show, report, width=width)
    found = [m.null.z for item in report.comparisons for m in item.measurements if m.null and m.null.z is not None]
    assert len(found) > 10
    assert [z for z in found if f"{z:+.2f}" not in shown] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_words_of_a_table_are_whole(width):
    columns = (Column("a", "Model"), Column("b", "log10 p", figures=True), Column("c", "What was found of it"))
    rows = [("unrelated – finetune", "-148.6", "derived, further training"), ("base", "≤ -10.10", "identical")]
    table = Table("", columns, tuple(tuple(Cell(text) for text in row) for row in rows))
    shown = printed(lambda console: print_table(table, console), width=width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    for text in ("unrelated", "finetune", "-148.6", "≤ -10.10", "derived,", "training", "identical"):
        assert text in shown


SENTENCE = "  · No evidence that either model derives from the other; a correlation of 0.6 would have been seen."


@pytest.mark.parametrize("width", WIDTHS)
def test_sentences_wrap_at_spaces_in_a_terminal(width):
    lines = printed(lambda console: line(console, SENTENCE), width=width, force_terminal=True).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert " ".join(text.strip() for text in lines) == SENTENCE.strip()
    assert all(text.startswith("    ") for text in lines[1:])


def test_what_is_piped_or_copied_stays_one_line():
    assert printed(lambda console: line(console, SENTENCE), width=30) == f"{SENTENCE}\n"
    assert printed(lambda console: whole_line(console, SENTENCE), width=30, force_terminal=True) == f"{SENTENCE}\n"
