"""CycloneDX: valid by the official schema whatever the report, and no pedigree that verdict and card do not bear out."""

import json
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kinprint.errors import NeedsExtra, SchemaError
from kinprint.findings import CLASSES
from kinprint.render.bom import UNKNOWN, bom_json, direction
from kinprint.results import FileSummary, Report
from kinprint.testing.reports import HOSTILE, empty_report, hostile_report

GOLDEN = Path(__file__).parents[1] / "golden"
REPORT = Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())
OLDER = Report.from_json((GOLDEN / "report_v1.json").read_bytes())
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OFFICIAL = JsonStrictValidator(SchemaVersion.V1_6)


def valid(report):
    content = bom_json(report)
    assert OFFICIAL.validate_str(content.decode()) is None
    return json.loads(content)


def of_class(report, found):
    return replace(report, verdict=replace(report.verdict, class_=found))


def declaring(report, *, a=(), b=(), state="declared", named_by=()):
    found = report.declared
    sides = {"a": replace(found.a, base_models=a), "b": replace(found.b, base_models=b)}
    return replace(report, declared=replace(found, state=state, named_by=named_by, **sides))


def on_hub(report, endpoint="https://huggingface.co", identity="size:3"):
    def moved(model, name):
        return replace(
            model,
            reference=f"Owner/{name}@main",
            kind="hub",
            location=f"{endpoint}/Owner/{name}",
            commit=COMMIT,
            files=(FileSummary("model.safetensors", 3, identity),),
        )

    return replace(report, a=moved(report.a, "Base-1"), b=moved(report.b, "Tuned-1"))


def properties(thing):
    found = {}
    for item in thing["properties"]:
        found.setdefault(item["name"], []).append(item["value"])
    return found


def model(data, letter):
    return next(item for item in data["components"] if item["bom-ref"] == f"model-{letter}")


# ---- valid ----


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("hostile", [False, True])
def test_every_class_of_verdict_is_valid(found, hostile):
    report = of_class(REPORT, found)
    data = valid(hostile_report(report, everything=True) if hostile else report)
    assert properties(data)["kinprint:verdict"] == [found]
    assert (data["bomFormat"], data["specVersion"]) == ("CycloneDX", "1.6")


def test_the_check_can_fail():
    data = json.loads(bom_json(REPORT))
    data["components"][0]["type"] = "paternity test"
    assert OFFICIAL.validate_str(json.dumps(data)) is not None
    data["components"][0] |= {"type": "file", "unknown": 1}
    assert OFFICIAL.validate_str(json.dumps(data)) is not None


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_of_models_and_licences_are_valid(text):
    declared = replace(REPORT.declared, a=replace(REPORT.declared.a, licence=text))
    valid(
        replace(REPORT, a=replace(REPORT.a, reference=text, commit=text, kind="hub", location=text), declared=declared)
    )


def test_an_older_report_and_one_without_anything_comparable(tmp_path):
    valid(OLDER)
    empty = empty_report(tmp_path)
    data = valid(empty)
    assert properties(data)["kinprint:status"] == ["not_comparable"]
    assert properties(data)["kinprint:reason"][0].startswith(empty.reason[:40])
    bare = valid(replace(empty, verdict=None, evidence=None))
    assert properties(bare)["kinprint:verdict"] == ["none"]
    assert "pedigree" not in model(bare, "b")


# ---- pedigree ----


def test_weights_alone_name_no_ancestor():
    for found in ("derived", "identical"):
        data = valid(declaring(of_class(REPORT, found), state="undeclared"))
        for letter, other in (("a", "b"), ("b", "a")):
            pedigree = model(data, letter)["pedigree"]
            assert set(pedigree) == {"variants", "notes"}
            assert [item["bom-ref"] for item in pedigree["variants"]] == [f"model-{other}-related-to-{letter}"]
            assert f"Direction: {UNKNOWN}." in pedigree["notes"]
        assert properties(data)["kinprint:direction"] == [UNKNOWN]


@pytest.mark.parametrize(("a", "b", "child"), [((), ("base",), "b"), (("tuned",), (), "a")])
def test_a_card_tells_the_direction_if_the_weights_agree(a, b, child):
    report = declaring(REPORT, a=a, b=b, named_by=(child.upper(),))
    data = valid(report)
    parent = "a" if child == "b" else "b"
    assert [item["name"] for item in model(data, child)["pedigree"]["ancestors"]] == [getattr(report, parent).reference]
    assert "descendants" in model(data, parent)["pedigree"]
    assert "ancestors" not in model(data, parent)["pedigree"]
    assert properties(data)["kinprint:direction"][0].startswith(f"declared: the card of {child.upper()} names")


@pytest.mark.parametrize(
    ("a", "b", "state", "named_by"),
    [
        (("tuned",), ("base",), "declared", ("A", "B")),  # each names the other
        (("third",), ("third",), "declared", ()),  # siblings
        ((), ("base",), "declared_not_shown", ("B",)),
        ((), ("other/elsewhere",), "other_declared", ()),
    ],
)
def test_otherwise_the_direction_stays_open(a, b, state, named_by):
    assert direction(declaring(REPORT, a=a, b=b, state=state, named_by=named_by)) == (UNKNOWN, None)


@pytest.mark.parametrize("found", ["no_evidence", "not_testable", "shares_components", "shares_initialisation"])
def test_no_relative_without_a_derivation(found):
    data = valid(of_class(REPORT, found))
    for letter in "ab":
        assert set(model(data, letter)["pedigree"]) == {"notes"}
    assert ("kinprint:no_proof" in properties(data)) == (found == "no_evidence")
    assert ("does not prove" in model(data, "b")["pedigree"]["notes"]) == (found == "no_evidence")


# ---- components ----


def test_models_of_the_hub_have_a_package_address():
    data = valid(on_hub(REPORT))
    assert model(data, "a")["purl"] == f"pkg:huggingface/Owner/Base-1@{COMMIT}"
    assert (model(data, "b")["group"], model(data, "b")["name"]) == ("Owner", "Tuned-1")
    elsewhere = valid(on_hub(REPORT, "http://127.0.0.1:9"))
    assert "repository_url=" in model(elsewhere, "a")["purl"]
    assert "purl" not in model(valid(REPORT), "a")


@pytest.mark.parametrize(
    ("identity", "known"),
    [
        (f"etag:{'ab' * 32}", True),
        (f'etag:"{"ab" * 32}"', True),
        (f'etag:W/"{"ab" * 32}"', False),
        ("etag:abcdef", False),
        ("size:3", False),
        ("", False),
    ],
)
def test_only_known_hashes_are_given(identity, known):
    (file,) = model(valid(on_hub(REPORT, identity=identity)), "a")["components"]
    assert file.get("hashes") == ([{"alg": "SHA-256", "content": "ab" * 32}] if known else None)
    assert ("kinprint:hash_source" in properties(file)) == known
    local = replace(REPORT, a=replace(REPORT.a, files=(FileSummary("x", 3, identity),)))
    assert "hashes" not in model(valid(local), "a")["components"][0]


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("apache-2.0", {"id": "Apache-2.0"}),
        ("MIT", {"id": "MIT"}),
        ("llama3", {"name": "llama3"}),
        ("MIT OR x", {"name": "MIT OR x"}),
        ("", None),
        ("  ", None),
        (None, None),
    ],
)
def test_licences_as_declared(licence, expected):
    declared = replace(REPORT.declared, a=replace(REPORT.declared.a, licence=licence))
    found = model(valid(replace(REPORT, declared=declared)), "a").get("licenses")
    assert found == (None if expected is None else [{"license": {"acknowledgement": "declared", **expected}}])


def test_the_evidence_is_there():
    data = valid(REPORT)
    found = properties(data)
    verdict = REPORT.verdict
    assert found["kinprint:sentence"] == [verdict.sentence]
    assert float(found["kinprint:log10_p"][0]) == verdict.log10_p
    assert float(found["kinprint:threshold"][0]) == verdict.log10_alpha
    assert found["kinprint:tests"] == [str(verdict.tests)]
    assert found["kinprint:limits"] == ["; ".join(verdict.against)]
    assert len(found["kinprint:control"]) == len(REPORT.evidence.controls)
    assert found["kinprint:declared"] == ["declared"]
    assert found["kinprint:seed"] == ["0"]
    assert sorted(text.rsplit(" ", 1)[1] for text in found["kinprint:reads_sha256"]) == sorted(
        item.sha256 for item in REPORT.reads
    )
    assert data["metadata"]["tools"]["components"][0]["version"] == REPORT.run.kinprint
    assert data["metadata"]["timestamp"] == REPORT.run.started
    assert model(data, "a")["modelCard"]["modelParameters"]["architectureFamily"] == REPORT.a.architecture


# ---- the same twice ----


def test_the_same_report_gives_the_same_bytes_and_another_another_number():
    assert bom_json(REPORT) == bom_json(REPORT)
    number = json.loads(bom_json(REPORT))["serialNumber"]
    assert uuid.UUID(number.removeprefix("urn:uuid:")).version == 5
    later = replace(REPORT, run=replace(REPORT.run, started="2031-01-01T00:00:00+00:00", elapsed_s=9.0, local_bytes=1))
    assert json.loads(bom_json(later))["serialNumber"] == number
    other = replace(REPORT, bytes_read=REPORT.bytes_read + 1)
    assert json.loads(bom_json(other))["serialNumber"] != number


def test_a_report_without_a_date_is_refused():
    with pytest.raises(SchemaError, match="when it was made"):
        bom_json(replace(REPORT, run=replace(REPORT.run, started="yesterday")))


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclonedx.output.json", None)
    with pytest.raises(NeedsExtra, match="bom"):
        bom_json(REPORT)
