"""Reports written before still open, come back byte for byte, and render in every form."""

import io
import json
import runpy
from pathlib import Path

import pytest
from rich.console import Console

from kinprint.render.markdown.report import report_markdown
from kinprint.render.notebook.report import report_notebook
from kinprint.render.page.report import report_html
from kinprint.render.sarif.report import report_sarif
from kinprint.render.tables.report import report_csv, report_parquet
from kinprint.render.terminal.report import print_report
from kinprint.results.report import Report

HERE = Path(__file__).parent
NAMES = ("report_v1", "report_v1_annexes", "report_v2")


def terminal(report):
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    print_report(report, console)
    return console.file.getvalue().encode()


def parquet(report):
    pytest.importorskip("pyarrow")
    return report_parquet(report)


def bom(report):
    pytest.importorskip("cyclonedx")
    from kinprint.render.bom.report import report_cyclonedx

    return report_cyclonedx(report)


FORMS = {
    "terminal": terminal,
    "html": report_html,
    "html, Korean": lambda report: report_html(report, lang="ko"),
    "markdown": lambda report: report_markdown(report).encode(),
    "csv": report_csv,
    "parquet": parquet,
    "notebook": lambda report: report_notebook(report).encode(),
    "bom": bom,
    "sarif": report_sarif,
}


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    return Report.from_json((HERE / f"{request.param}.json").read_bytes())


def test_what_this_version_wrote_comes_back_byte_for_byte():
    raw = (HERE / "report_v2.json").read_bytes()
    assert Report.from_json(raw).to_json() + b"\n" == raw


def test_an_older_report_tells_as_data_what_its_sentences_told():
    old, new = (Report.from_json((HERE / f"{name}.json").read_bytes()) for name in ("report_v1_annexes", "report_v2"))
    for one, two in zip(old.evidence.tests, new.evidence.tests, strict=True):
        assert (one.p_method, str(one.p_text)) == (two.p_method, str(two.p_text))
    assert (old.verdict.variant, old.evidence.edits[0].direction) == (new.verdict.variant, None)
    assert [m.null.p_method for c in old.comparisons for m in c.measurements if m.null] == [
        m.null.p_method for c in new.comparisons for m in c.measurements if m.null
    ]


def test_grids_may_be_lists_as_they_were_before_they_were_packed():
    now = Report.from_json((HERE / "report_v2.json").read_bytes())
    data = json.loads((HERE / "report_v2.json").read_bytes())
    for grid, packed in zip(data["grids"], now.grids, strict=True):
        del grid["cells"]
        grid |= packed.grids()
    assert isinstance(data["grids"][0]["z"][0][0], float)
    assert Report.from_json(json.dumps(data).encode()) == now


def test_it_holds_everything_that_a_report_can_hold():
    report = Report.from_json((HERE / "report_v1_annexes.json").read_bytes())
    assert [len(part) > 0 for part in (report.grids, report.reads, report.methods, report.comparisons)] == [True] * 4
    assert (report.declared.state, report.declared.b.base_models) == ("declared", ("base",))
    assert report.evidence.merge.parents == ("base", "other/tuned")
    assert [item.name for item in report.evidence.controls] == ["self", "shuffled self", "other/base", "base"]
    raw = (HERE / "report_v1_annexes.json").read_text(encoding="utf-8")
    assert "/tmp" not in raw  # nothing of the machine that wrote it
    assert "/work" not in raw


@pytest.mark.parametrize("form", FORMS)
def test_it_renders_in_every_form(golden, form):
    made = FORMS[form](golden)
    assert len(made) > 500
    if form not in ("csv", "parquet"):  # those hold measurements only
        assert (
            golden.verdict.class_.encode() in made or golden.verdict.sentence[:40].encode() in made or "Korean" in form
        )
    assert FORMS[form](golden) == made


def test_the_same_comparison_gives_the_same_today():
    old = Report.from_json((HERE / "report_v1_annexes.json").read_bytes())
    new = runpy.run_path(str(HERE / "make_report_v2.py"))["golden_report"]()
    assert [(item.model, item.file, item.spans, item.sha256) for item in new.reads] == [
        (item.model, item.file, item.spans, item.sha256) for item in old.reads
    ]
    assert (new.verdict.class_, new.verdict.kind, new.declared) == (old.verdict.class_, old.verdict.kind, old.declared)
    for one, two in zip(new.grids, old.grids, strict=True):
        assert (one.role, one.layers_a, one.layers_b, one.n) == (two.role, two.layers_a, two.layers_b, two.n)
        for name, rows in one.grids().items():
            for left, right in zip(rows, two.grids()[name], strict=True):
                assert left == pytest.approx(right, rel=1e-4, abs=1e-6)
    for one, two in zip(new.comparisons, old.comparisons, strict=True):
        assert [item.value for item in one.measurements] == pytest.approx(
            [item.value for item in two.measurements], rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_strict_json(name):
    def refuse(word):
        raise AssertionError(word)

    data = json.loads((HERE / f"{name}.json").read_bytes(), parse_constant=refuse)
    assert (data["schema"], f"_v{data['schema_version']}" in name) == ("kinprint.report", True)
