"""Every form speaks Korean: no English sentence is left of the demo pairs, and tables fit the terminal."""

import io
import re
from html import unescape

import pytest
from rich.cells import cell_len
from rich.console import Console

from kinprint.comparison.pipeline import compare
from kinprint.render.content import report as content
from kinprint.render.forms import make, show
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.korean import wrong_korean
from support.places import DEMO_MODELS
from support.reports import pairs_report

PAIRS = ("finetune", "unrelated", "grown")
OPTIONS = Options(rows=16, layers="0-1", metrics=("cosine", "pearson", "cv_diff"))
FORMS = ("terminal", "markdown", "notebook", "html")
CODE = re.compile(r"```.*?```|`[^`]*`|<code\b.*?</code>|<(script|style)\b.*?</\1>", re.DOTALL)
NAMES = re.compile(r"--[a-z-]+( [A-Z]+)?|\b\w*[_./]\w[\w./-]*|[A-Za-z]:|\([^)]*\)")
RUN = re.compile(r"[A-Za-z']{3,}(?: [A-Za-z']{2,}){2,}")  # three English words in a row


@pytest.fixture(scope="module")
def reports():
    base = str(DEMO_MODELS / "base")
    return {name: compare(base, str(DEMO_MODELS / name), OPTIONS, settings=Settings(offline=True)) for name in PAIRS}


def printed(result, width=100, **wishes):
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False)
    show(result, console, lang="ko", **wishes)
    return console.file.getvalue()


def english(text):
    """Return runs of English words, names and identifiers aside."""
    plain = unescape(re.sub(r"<[^>]*>", " ", CODE.sub(" ", text)))
    return [run for run in RUN.findall(NAMES.sub(" ", plain)) if not run.startswith("kinprint")]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("form", FORMS)
def test_no_english_sentence_is_left_of_a_pair(reports, form, name):
    report = reports[name]
    text = printed(report, explain=True) if form == "terminal" else make(report, form, lang="ko").decode()
    assert english(text) == []
    assert wrong_korean(*text.splitlines()) == []
    assert len(re.findall("[가-힣]", text)) > 300


@pytest.mark.parametrize("form", FORMS)
def test_no_english_sentence_is_left_of_all_pairs(form):
    report = pairs_report()
    text = printed(report) if form == "terminal" else make(report, form, lang="ko").decode()
    assert english(text) == []
    assert wrong_korean(*text.splitlines()) == []
    assert "추가 학습" in text


def test_this_test_can_fail(reports):
    assert english(make(reports["finetune"], "markdown", lang="en").decode())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal_and_cut_nothing(reports, width):
    text = printed(reports["grown"], width)
    assert "…" not in text
    tables = [line for line in text.splitlines() if re.search(r"\d  +[-+≤]?\d", line)]
    assert len(tables) > 20
    assert max(map(cell_len, tables)) <= max(width, 80)


def test_both_languages_hold_the_same_figures(reports):
    from kinprint.render.texts.words import Words

    for name in PAIRS:
        one, two = (content.roles_table(reports[name].summary, Words(lang)) for lang in ("en", "ko"))
        assert [[cell.value for cell in row] for row in one.rows] == [[cell.value for cell in row] for row in two.rows]
