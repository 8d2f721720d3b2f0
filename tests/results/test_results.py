"""Reports as JSON: there and back, refused where they are not ours, and the same twice."""

import json
import math
from dataclasses import fields, replace

import orjson
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.errors import SchemaError
from kinprint.model.inspection import inspect
from kinprint.results.inspection import Inspection
from kinprint.results.older_reports import upgrade
from kinprint.results.options import Options
from kinprint.results.plain_json import build
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.places import GOLDEN_REPORTS, ROOT

DEMO = ROOT / "demo" / "models"
GOLDEN = GOLDEN_REPORTS / "report_v1.json"


@pytest.fixture(scope="module")
def report():
    options = Options(layers="0", roles=("input_norm", "attn_q", "mlp_down"), rows=8)
    return compare(str(DEMO / "base"), str(DEMO / "finetune"), options, settings=Settings())


@pytest.mark.parametrize("indent", [True, False])
def test_there_and_back(report, indent):
    raw = report.to_json(indent=indent)
    assert Report.from_json(raw) == report
    assert Report.from_json(raw).to_json(indent=indent) == raw


def test_json_is_strict(report):
    def refuse(word):
        raise AssertionError(word)

    data = json.loads(report.to_json(), parse_constant=refuse)
    assert (data["schema"], data["schema_version"]) == ("kinprint.report", 2)
    assert list(data) == [item.name for item in fields(Report)]


def test_two_runs_say_the_same(report):
    options = Options(layers="0", roles=("input_norm", "attn_q", "mlp_down"), rows=8)
    again = compare(str(DEMO / "base"), str(DEMO / "finetune"), options, settings=Settings())
    assert replace(again, run=report.run).to_json() == report.to_json()


def test_the_seed_moves_only_what_was_drawn(report):
    options = Options(layers="0", roles=("input_norm", "attn_q", "mlp_down"), rows=8, seed=1)
    other = compare(str(DEMO / "base"), str(DEMO / "finetune"), options, settings=Settings())
    for one, two in zip(report.comparisons, other.comparisons, strict=True):
        for left, right in zip(one.measurements, two.measurements, strict=True):
            if left.null is not None and left.null.n_draws is None and left.metric != "shuffled_cosine":
                assert left == right, left.metric


# ---- what is refused ----


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe", b'{"schema": "kinprint.report"}', b"NaN"]
)
def test_garbage_is_refused(raw):
    with pytest.raises(SchemaError):
        Report.from_json(raw)


@pytest.mark.parametrize(
    ("key", "value"), [("schema", "other"), ("schema", None), ("schema_version", 3), ("schema_version", "1")]
)
def test_another_schema_is_refused_with_a_next_step(report, key, value):
    data = json.loads(report.to_json()) | {key: value}
    with pytest.raises(SchemaError, match="cannot read a report of schema") as caught:
        Report.from_json(orjson.dumps(data))
    assert caught.value.exit_code == 6
    assert "run the comparison again" in caught.value.hint


@pytest.mark.parametrize("field", [item.name for item in fields(Report) if not item.metadata])
def test_a_missing_field_is_refused(report, field):
    data = json.loads(report.to_json())
    del data[field]
    with pytest.raises(SchemaError):
        Report.from_json(orjson.dumps(data))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), None),
        (("bytes_read",), "3"),
        (("bytes_read",), 1.5),
        (("bytes_read",), True),
        (("summary",), {}),
        (("summary", 0), []),
        (("summary", 0, "compared"), None),
        (("summary", 0, "null", "mean"), None),
        (("summary", 0, "null", "z"), "1"),
        (("comparisons", 0, "a", "shape"), ["96"]),
        (("comparisons", 1, "rows"), [1]),
        (("settings", "roles"), "input_norm"),
        (("config", "differences"), None),
    ],
)
def test_a_value_of_another_type_is_refused(report, path, value):
    data = json.loads(report.to_json())
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(SchemaError, match="does not fit schema version 2"):
        Report.from_json(orjson.dumps(data))


# ---- a report written before ----


def without_additions(today, then):
    """Drop fields that the old report has not, where they say nothing."""
    if isinstance(today, list):
        return [without_additions(*pair) for pair in zip(today, then, strict=True)]
    if not isinstance(today, dict):
        return today
    kept = {name: value for name, value in today.items() if name in then or value not in (None, [])}
    return {name: without_additions(value, then.get(name, value)) for name, value in kept.items()}


def test_the_golden_report_still_opens():
    report = Report.from_json(GOLDEN.read_bytes())
    today, then = json.loads(report.to_json()), json.loads(GOLDEN.read_bytes())
    upgrade(then)
    added = {"methods": [], "grids": [], "declared": None, "reads": []}
    assert {name: today.pop(name) for name in added} == added
    chosen = {"methods": [], "files": [], "bases": [], "null": None}
    later = {name: today["settings"].pop(name) for name in set(today["settings"]) - set(then["settings"])}
    assert later.items() >= chosen.items()
    assert today["run"].pop("problem") is None
    assert today["verdict"].pop("variant", None) == then["verdict"].pop("variant", None)
    assert (today.pop("schema_version"), then.pop("schema_version")) == (2, 1)
    assert without_additions(today, then) == then
    assert (report.status, report.a.reference, report.b.reference) == ("ok", "demo/models/base", "demo/models/finetune")
    assert [(item.role, item.layer, item.elements) for item in report.comparisons] == [
        ("input_norm", 0, 96),
        ("post_attention_norm", 0, 96),
    ]
    pearson = next(found for found in report.comparisons[0].measurements if found.metric == "pearson")
    assert pearson.value == pytest.approx(0.98, abs=0.02)
    assert pearson.null.sd == pytest.approx(1 / math.sqrt(95))
    assert pearson.null.z == pytest.approx(pearson.value * math.sqrt(95))
    assert sum(item.count for item in report.skipped) == 37


def test_the_golden_report_holds_today(report):
    golden = Report.from_json(GOLDEN.read_bytes())
    options = Options(layers="0", roles=("input_norm", "post_attention_norm"), metrics="all")
    today = compare(str(DEMO / "base"), str(DEMO / "finetune"), options, settings=Settings())
    for old, new in zip(golden.comparisons, today.comparisons, strict=True):
        found = {item.metric: item for item in new.measurements}
        for left, right in ((item, found[item.metric]) for item in old.measurements):
            assert left.value == pytest.approx(right.value, rel=1e-9, abs=1e-12)
            assert left.null.mean == pytest.approx(right.null.mean, rel=1e-9, abs=1e-12)
            assert left.null.sd == pytest.approx(right.null.sd, rel=1e-9, abs=1e-12)


def test_an_inspection_there_and_back():
    found = inspect(str(DEMO / "base"), settings=Settings())
    assert build(Inspection, json.loads(found.to_json())) == found
    assert len(found.norms) == 9
