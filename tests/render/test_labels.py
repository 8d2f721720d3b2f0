"""One thing, one name: terminal, Markdown, notebook and page give the engine's identifiers the same labels."""

import io
import json
import re
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from kinprint.evidence.edit_kinds import _PLAIN, _REPLACED
from kinprint.evidence.words import _TESTS, word
from kinprint.render.content.pairs import legend
from kinprint.render.markdown.report import pairs_markdown, report_markdown
from kinprint.render.notebook.report import pairs_notebook, report_notebook
from kinprint.render.page.report import report_html
from kinprint.render.tables.report import report_csv
from kinprint.render.terminal.report import print_pairs, print_report
from kinprint.render.texts.words import Words
from kinprint.results.findings import CLASSES, ControlFinding
from kinprint.results.report import Report
from kinprint.text import Text
from support.places import GOLDEN_REPORTS
from support.reports import pairs_report

IN_ENGLISH = Words()
GOLDEN = GOLDEN_REPORTS / "report_v2.json"
REPORT = Report.from_json(GOLDEN.read_bytes())
EXPECTED = Text("expected {a}, found {b}", a=word("no_evidence"), b=word("derived"))
KINDS = sorted({kind for kind, _ in (*_PLAIN.values(), *_REPLACED.values())})


def printed(report: Report, **options) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=False, highlight=False)
    print_report(report, console, **options)
    return console.file.getvalue()


def all_forms(report: Report) -> dict[str, str]:
    return {
        "terminal": printed(report, explain=True),
        "markdown": report_markdown(report).replace("\\", ""),
        "notebook": _text(report_notebook(report)),
        "page": _text(report_html(report).decode()),
    }


def _text(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)))


def with_verdict(**changes) -> Report:
    return replace(REPORT, verdict=replace(REPORT.verdict, **changes))


def test_what_a_test_would_have_told_is_no_claim():
    named = [name for name in map(str, _TESTS) if not IN_ENGLISH.label("off", name).startswith(("whether ", "which "))]
    assert named == []


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    label = IN_ENGLISH.kind(kind)
    bare = {kind, kind.replace("_", " ")} if "_" in kind else set()
    for form, text in all_forms(with_verdict(kind=kind)).items():
        assert label in text, form
        assert not [word for word in bare - {label} if word in text], form


@pytest.mark.parametrize("class_", CLASSES)
def test_classes(class_):
    label = IN_ENGLISH.label("class", class_)
    for form, text in all_forms(with_verdict(class_=class_, kind=None)).items():
        assert label in text, form
        assert class_ not in text or class_ == label, form


def test_a_kind_is_as_precise_as_the_sentence_everywhere():
    for form, text in all_forms(with_verdict(kind="re_based", variant="rotated")).items():
        assert "residual dimensions rotated" in text, form


def test_tests_parts_edits_and_controls():
    evidence = REPORT.evidence
    wanted = {IN_ENGLISH.label("test", test.name) for test in evidence.tests}
    wanted |= {IN_ENGLISH.label("component", item.component) for item in evidence.components}
    wanted |= {IN_ENGLISH.label("edit", item.edit) for item in evidence.edits}
    wanted |= {IN_ENGLISH.control(item.name) for item in evidence.controls}
    forms = all_forms(REPORT)
    for form in ("terminal", "markdown", "page"):
        assert [label for label in wanted if label not in forms[form]] == [], form
    bare = [test.name for test in evidence.tests if "_" in test.name]
    assert bare
    for form in ("terminal", "notebook"):
        text = re.sub(r"--(roles|metrics|methods?)\s\S+", "", forms[form])
        assert [name for name in bare if re.search(rf"\b{name}\b", text)] == [], form


def test_a_control_that_failed_names_no_identifiers():
    failed = ControlFinding("self", "no_evidence", "failed", "shares_components", -1.0, 1.0, EXPECTED)
    report = replace(REPORT, evidence=replace(REPORT.evidence, controls=(failed,)))
    for form, text in all_forms(report).items():
        assert "no_evidence" not in text, form
        assert "shares_components" not in text, form
        assert "expected no evidence, found derived" in text, form


def test_all_pairs():
    report = pairs_report()
    console = Console(file=io.StringIO(), width=200, force_terminal=False, highlight=False)
    print_pairs(report, console)
    for text in (console.file.getvalue(), pairs_markdown(report), _text(pairs_notebook(report))):
        assert "derived, further training" in text
        assert not re.search("fine.tuned|no_evidence", text)
    assert legend(IN_ENGLISH).startswith(
        "= identical, D derived, c shares components, i shares initialisation, · no evidence"
    )


def test_data_keep_identifiers():
    assert json.loads(REPORT.to_json())["verdict"]["kind"] == REPORT.verdict.kind == "fine_tuned"
    tests = report_csv(REPORT, "tests").decode()
    assert all(test.name in tests for test in REPORT.evidence.tests)


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_what_has_no_label_is_shown_in_its_own_words(lang):
    words = Words(lang)
    assert words.verdict("some_new_class", "some_new_kind") == "some new class, some new kind"
    assert words.control("owner/model") == "owner/model"
    assert words.reason("a reason nobody wrote").text == "a reason nobody wrote"
