"""How much of what the engine writes in real reports is translated."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.render.texts.words import Words
from kinprint.results.measurements import NOT_COMPARABLE
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from kinprint.text import Text
from support.places import ROOT
from support.reports import empty_report

DEMO, FAMILY = ROOT / "demo" / "models", ROOT / "tests" / "family"
EVERYTHING = Options()
FEW = Options(rows=8, metrics=("cosine", "pearson", "cv_diff", "byte_identity"))
LEAST = replace(FEW, layers="0-1")


def said(value, where="Report"):
    """Yield every sentence of a report, with the field it is in."""
    if isinstance(value, Text):
        yield where, value
    elif isinstance(value, tuple):
        for item in value:
            yield from said(item, where)
    elif is_dataclass(value):
        kind = type(value).__name__
        for field in fields(value):
            yield from said(getattr(value, field.name), f"{kind}.{field.name}")


def read(a: Path, b: Path, options: Options = FEW, **asked) -> Report:
    return compare(str(a), str(b), options, **asked, settings=Settings(offline=True))


def untranslated(reports):
    """Return how many distinct texts there are, and those that stay English."""
    korean = Words("ko")
    texts = {text: where for report in reports for where, text in said(report) if text}
    given = {side.reference for report in reports for side in (report.a, report.b)}
    given |= {control.name for report in reports if report.evidence for control in report.evidence.controls}
    ours = {text: where for text, where in texts.items() if text not in given or korean.engine(text).lang == "ko"}
    return len(ours), sorted((where, text) for text, where in ours.items() if korean.engine(text).lang != "ko")


def check(reports):
    count, missing = untranslated(reports)
    listed = "\n".join(f"{where}: {text}" for where, text in missing)
    assert count > 50
    assert len(missing) <= 0.05 * count, listed
    assert not any(where == "Verdict.sentence" for where, _ in missing), listed


def test_reports_of_a_child_and_of_a_stranger_are_translated():
    check([read(DEMO / "base", DEMO / name, LEAST) for name in ("finetune", "unrelated")])


def test_a_report_of_nothing_comparable_says_why_in_korean(tmp_path):
    report = empty_report(tmp_path)
    assert report.status == NOT_COMPARABLE
    assert untranslated([report])[1] == []


@pytest.mark.slow
def test_reports_with_every_metric_and_a_layer_map_are_translated():
    check([read(DEMO / "base", DEMO / "grown", EVERYTHING), read(DEMO / "base", DEMO / "base")])


@pytest.mark.nightly
def test_reports_of_a_whole_family_are_translated():
    names = sorted(path.name for path in FAMILY.iterdir() if path.is_dir() and (path / "config.json").exists())
    assert len(names) > 10
    check([read(DEMO / "base", FAMILY / name) for name in names])


@pytest.mark.nightly
def test_reports_of_deep_searches_and_controls_are_translated():
    base, stranger = DEMO / "base", DEMO / "unrelated"
    check(
        [
            *(read(base, FAMILY / name, deep=True) for name in ("rotated_tuned", "disguised_tuned")),
            read(base, DEMO / "permuted", deep=True),
            read(base, stranger, controls=(str(DEMO / "finetune"),)),
            read(base, DEMO / "finetune", controls=(str(stranger), str(DEMO / "missing"))),
            read(base, stranger, methods=("fixed_points", "norms", "gram", "pdf", "match")),
        ]
    )
