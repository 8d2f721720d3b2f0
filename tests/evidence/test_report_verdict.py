"""The verdict in report.json: what scripts rely on, the way back, and files that are no such report."""

import json
from dataclasses import replace

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.errors import SchemaError
from kinprint.lab.zoo.derive import drop_layers, noise
from kinprint.results.findings import CLASSES, Evidence, Verdict
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings

ALWAYS = ("class", "kind", "sentence", "log10_p", "layer_map", "reasons", "against", "untested", "assumptions", "rules")
CASES = ("derived", "no_evidence", "identical", "not_testable")


@pytest.fixture(scope="module")
def reports(small, folder, judge):
    """One report of each of four classes."""
    state, config, tokenizer = small(70)
    a = folder("report", state, config, tokenizer)
    child = folder("report_child", *drop_layers(noise(state, 0.1, 1), config, (0, 2)), tokenizer)
    other = folder("report_other", *small(71))
    return {
        "derived": judge(a, child, controls=(other,)),
        "no_evidence": judge(a, other),
        "identical": judge(a, a),
        "not_testable": judge(a, child, controls=(child,)),
    }


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(reports, case):
    report = reports[case]
    assert isinstance(report.verdict, Verdict)
    assert isinstance(report.evidence, Evidence)
    assert report.verdict.class_ == case
    for indent in (True, False):
        assert Report.from_json(report.to_json(indent=indent)) == report


@pytest.mark.parametrize("case", CASES)
def test_what_scripts_rely_on_is_always_there(reports, case):
    verdict = json.loads(reports[case].to_json())["verdict"]
    assert set(ALWAYS) <= set(verdict)
    assert verdict["class"] == case
    assert verdict["class"] in CLASSES
    assert "class_" not in verdict
    assert isinstance(verdict["reasons"], list)
    assert verdict["reasons"]
    assert isinstance(verdict["untested"], list)
    assert verdict["untested"]
    assert isinstance(verdict["log10_p"], float)
    assert verdict["log10_p"] <= 0
    assert verdict["sentence"]


def test_the_layer_map_and_the_kind(reports):
    derived, unrelated = (json.loads(reports[case].to_json())["verdict"] for case in ("derived", "no_evidence"))
    assert derived["layer_map"] == [0, 2]
    assert derived["kind"] == "depth_changed"
    assert unrelated["layer_map"] is None
    assert unrelated["kind"] is None


def test_the_evidence_is_complete(reports):
    """Every test has statistic, null, z, p, n, assumptions and status; those that are off have a reason."""
    data = json.loads(reports["derived"].to_json())["evidence"]
    assert set(data) >= {"tests", "alignment", "components", "experts", "edits", "controls", "power", "stages"}
    fields = {"name", "scope", "statistic", "null_mean", "null_sd", "z", "log10_p", "log10_p_holm", "n", "null"}
    for test in data["tests"]:
        assert fields | {"assumptions", "status", "reason", "p_method"} <= set(test)
        assert (test["status"] == "ok") == (test["reason"] is None)
        if test["status"] == "ok":
            assert test["log10_p"] <= test["log10_p_holm"] <= 0
            assert test["n"] > 0
            assert test["null"]
            assert test["p_method"]
    assert [item["name"] for item in data["controls"]][:2] == ["self", "shuffled self"]
    assert [item["source"] for item in data["alignment"]["layers"]] == [0, 2]
    assert all(stage for stage in data["stages"])


def test_the_rules_are_in_the_report(reports):
    for case in CASES:
        rules = json.loads(reports[case].to_json())["verdict"]["rules"]
        assert [rule["fired"] for rule in rules] == [False] * (len(rules) - 1) + [True]
        assert rules[-1]["outcome"] == case
        assert all(rule["question"] and rule["inputs"] for rule in rules)


def test_what_was_asked_is_in_the_settings(reports):
    settings = json.loads(reports["derived"].to_json())["settings"]
    assert len(settings["controls"]) == 1
    assert (settings["related"], settings["parents"], settings["deep"]) == ([], [], False)


def test_the_same_question_gives_the_same_answer(reports):
    """Nothing but the run itself may differ between two runs."""
    once = reports["no_evidence"]
    again = compare(once.a.reference, once.b.reference, Options(metrics=("byte_identity",)), settings=Settings())
    assert replace(again, run=once.run) == once


def test_no_verdict_is_possible(reports):
    """A report of measurements alone has neither verdict nor evidence, and is read back."""
    data = json.loads(reports["identical"].to_json())
    data["verdict"] = data["evidence"] = None
    found = Report.from_json(json.dumps(data).encode())
    assert (found.verdict, found.evidence) == (None, None)


BROKEN = {
    "no class": lambda data: data["verdict"].pop("class"),
    "class under its Python name": lambda data: data["verdict"].update(class_=data["verdict"].pop("class")),
    "reasons no list": lambda data: data["verdict"].update(reasons="because"),
    "p no number": lambda data: data["verdict"].update(log10_p="-12"),
    "map of words": lambda data: data["verdict"].update(layer_map=["0", "1"]),
    "rules no objects": lambda data: data["verdict"].update(rules=["controls"]),
    "verdict a word": lambda data: data.update(verdict="derived"),
    "no evidence key": lambda data: data.pop("evidence"),
    "a test without status": lambda data: data["evidence"]["tests"][0].pop("status"),
    "version": lambda data: data.update(schema_version=99),
    "schema": lambda data: data.update(schema="other"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_no_such_report(reports, how):
    data = json.loads(reports["derived"].to_json())
    BROKEN[how](data)
    with pytest.raises(SchemaError):
        Report.from_json(json.dumps(data).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{", b"{}", b"\xff"])
def test_what_is_no_report_at_all(raw):
    with pytest.raises(SchemaError):
        Report.from_json(raw)
