"""The makers of awkward reports make what they promise."""

from dataclasses import fields, is_dataclass

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.reports import (
    HOSTILE,
    LONG,
    empty_report,
    hostile_model,
    hostile_report,
    hostile_text,
    wide_models,
    wide_report,
)


def strings(value, name=""):
    """Yield every string of a report with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, tuple):
        for item in value:
            yield from strings(item, name)
    elif is_dataclass(value):
        for item in fields(value):
            yield from strings(getattr(value, item.name), item.name)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = hostile_model(tmp_path_factory.mktemp("hostile"))
    return compare(str(folder), str(folder), Options(metrics=("cosine",), rows=8), settings=Settings())


def test_wide_models_are_a_pair(tmp_path):
    report = wide_report(tmp_path / "once", layers=3, metrics=("cosine", "pearson"))
    assert (report.a.layers, report.b.layers, report.verdict.class_) == (3, 3, "derived")
    assert len(report.comparisons) == 3 * 9 + 3
    again = wide_models(tmp_path / "twice", layers=3)
    for folder, name in zip(again, ("base", "tuned"), strict=True):
        for file in folder.iterdir():
            assert file.read_bytes() == (tmp_path / "once" / name / file.name).read_bytes()


def test_a_hostile_model_maps_and_its_names_reach_the_report(hostile):
    assert (hostile.status, hostile.verdict.class_, hostile.a.layers) == ("ok", "identical", 3)
    assert {text for text in HOSTILE if text in hostile.a.unmapped} == set(HOSTILE)
    assert hostile.tokenizer.kind_a == HOSTILE[1]
    assert [file.name.count("<img") for file in hostile.a.files] == [1, 0]
    assert "<script>" in hostile.a.reference


def test_a_hostile_report_is_hostile_everywhere(hostile):
    spoilt = hostile_report(hostile)
    assert Report.from_json(spoilt.to_json()) == spoilt
    before, after = list(strings(hostile)), list(strings(spoilt))
    assert [name for name, _ in before] == [name for name, _ in after]
    changed = {name for (name, old), (_, new) in zip(before, after, strict=True) if new == hostile_text(old)}
    same = {name for (name, old), (_, new) in zip(before, after, strict=True) if new == old}
    wanted = {"sentence", "tensor", "reference", "p_detail", "untested", "unmapped", "kinprint", "commit"}
    assert wanted - changed == {"commit"}  # a local model has none
    assert changed & same == set()
    assert {"schema", "status", "class_", "role", "metric"} <= same
    assert {text for text in HOSTILE if any(new.startswith(text) for _, new in after)} == set(HOSTILE)


def test_whoever_edits_the_json_can_spoil_the_keys_too(hostile):
    spoilt = hostile_report(hostile, everything=True)
    assert spoilt.comparisons[0].role == hostile_text(hostile.comparisons[0].role)
    assert spoilt.summary[0].role == spoilt.comparisons[0].role
    assert (spoilt.schema, spoilt.verdict.class_) == (hostile.schema, hostile.verdict.class_)


def test_an_empty_report_says_why(tmp_path):
    for report in (empty_report(tmp_path), empty_report()):
        assert (report.status, report.comparisons, report.verdict.class_) == ("not_comparable", (), "not_testable")
        assert "only model A has the role final_norm" in report.reason


def test_the_longest_name_is_ten_kilobytes():
    assert max(len(text) for text in HOSTILE) == len(LONG) == 10_000
    assert len(set(HOSTILE)) == len(HOSTILE)
