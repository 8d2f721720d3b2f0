"""The published JSON Schemas: made from the dataclasses, accepting what is written, refusing what `build` would refuse."""

import copy
import json
from dataclasses import dataclass, field

import orjson
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from kinprint.comparison.pipeline import compare
from kinprint.errors import SchemaError
from kinprint.model.inspection import inspect
from kinprint.results.inspection import Inspection
from kinprint.results.later import LATER
from kinprint.results.options import Options
from kinprint.results.plain_json import build
from kinprint.results.report import Report
from kinprint.results.schema import TITLES, json_schema, publish, published, result_schema
from kinprint.results.tree import FamilyTree, PairsReport, PairSummary, TreeEdge, TreeModel, TreeRun, TreeSettings
from kinprint.sources.settings import Settings
from support.places import ROOT
from support.reports import empty_report, hostile_report

DEMO = ROOT / "demo" / "models"
GOLDEN = sorted((ROOT / "tests" / "golden").glob("report_v1*.json"))
MAKER = "make schema"
OLD = json.loads((ROOT / "docs" / "schema" / "report-v1.json").read_bytes())
FORMAT = Draft202012Validator(result_schema(Report))


@pytest.fixture(scope="module")
def report():
    options = Options(layers="0", roles=("input_norm", "attn_q"), rows=8, metrics=("pearson", "cosine"))
    return compare(str(DEMO / "base"), str(DEMO / "finetune"), options, settings=Settings())


@pytest.fixture
def data(report):
    return json.loads(report.to_json())


# ---- what is published ----


@pytest.mark.parametrize("name", sorted(published()))
def test_what_is_published_is_what_the_code_makes(name):
    kept = (ROOT / "docs" / "schema" / name).read_bytes()
    assert kept == published()[name], f"docs/schema/{name} is out of date: run {MAKER}"


def test_nothing_else_is_published(tmp_path):
    publish(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == published()
    kept = {path.name for path in (ROOT / "docs" / "schema").glob("*.json")}
    assert kept == set(made) | {f"{kind}-v1.json" for kind in ("inspection", "pairs", "report", "tree")}


@pytest.mark.parametrize("kind", TITLES)
def test_schemas_are_valid_and_have_a_name_of_their_own(kind):
    schema = result_schema(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:kinprint:schema:{kind.SCHEMA.partition('.')[2]}:2"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# ---- what fits ----


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_reports_of_before_fit(path):
    Draft202012Validator(OLD).validate(json.loads(path.read_bytes()))


def test_there_are_golden_reports():
    assert ROOT / "tests" / "golden" / "report_v1.json" in GOLDEN


def test_fresh_reports_fit(data):
    FORMAT.validate(data)


def test_a_report_without_anything_comparable_fits(tmp_path):
    FORMAT.validate(json.loads(empty_report(tmp_path).to_json()))


def test_a_report_of_hostile_names_fits(report):
    FORMAT.validate(json.loads(hostile_report(report, everything=True).to_json()))


def test_an_inspection_fits():
    found = inspect(str(DEMO / "base"), settings=Settings())
    validator = Draft202012Validator(result_schema(Inspection))
    data = json.loads(found.to_json())
    validator.validate(data)
    with pytest.raises(ValidationError):
        validator.validate(data | {"bytes_read": "3"})


def family_tree():
    models = tuple(
        TreeModel(i, name, name, name, None, "llama", 2, 0, 10, i, 0, None, ()) for i, name in enumerate("ab")
    )
    edge = TreeEdge(0, 1, "fine_tuned", "s", -9.0, -8.0, 0.1, 3, False, None, None, "undirected", 0.5, ())
    settings = TreeSettings(None, False, False, 0, -6.0, 0.9, 1)
    return FamilyTree(FamilyTree.SCHEMA, 2, models, (edge,), (), (), (), settings, TreeRun("0", 0.0, 0))


def test_a_tree_fits():
    validator = Draft202012Validator(result_schema(FamilyTree))
    data = json.loads(family_tree().to_json())
    validator.validate(data)
    data["edges"][0]["direction"] = "sideways"
    with pytest.raises(ValidationError, match="sideways"):
        validator.validate(data)


def test_all_pairs_fit():
    pair = PairSummary(
        0,
        1,
        "derived",
        None,
        "s",
        -9.0,
        -8.0,
        True,
        0.9,
        0.8,
        (),
        None,
        (),
        ("x",),
        controls_passed=2,
        controls_run=2,
        bytes_read=9,
    )
    validator = Draft202012Validator(result_schema(PairsReport))
    data = json.loads(PairsReport(PairsReport.SCHEMA, 2, ((0, 1),), (pair,), family_tree()).to_json())
    validator.validate(data)
    assert data["pairs"][0]["class"] == "derived"
    data["clusters"] = [["0", "1"]]
    with pytest.raises(ValidationError):
        validator.validate(data)


# ---- what does not ----


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), None),
        (("status",), "fine"),
        (("schema",), "other"),
        (("schema_version",), 1),
        (("bytes_read",), "3"),
        (("bytes_read",), 1.5),
        (("bytes_read",), True),
        (("summary",), {}),
        (("summary", 0), []),
        (("summary", 0, "compared"), None),
        (("summary", 0, "null", "z"), "1"),
        (("summary", 0, "null", "tail"), "both"),
        (("comparisons", 0, "a", "shape"), ["96"]),
        (("comparisons", 1, "rows"), [1]),
        (("comparisons", 1, "rows"), [1, 2, 3]),
        (("verdict", "class"), "stolen"),
        (("verdict", "class"), None),
        (("evidence", "tests", 0, "status"), "maybe"),
        (("settings", "roles"), "input_norm"),
        (("config", "differences"), None),
    ],
)
def test_a_value_of_another_kind_does_not_fit(data, path, value):
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ValidationError):
        FORMAT.validate(data)


def objects(data, path=()):
    if isinstance(data, dict):
        yield path
        for key, value in data.items():
            if key != "values":  # of a text: named as its template likes
                yield from objects(value, (*path, key))
    elif isinstance(data, list) and data:
        yield from objects(data[0], (*path, 0))


def test_an_unknown_field_fits_nowhere(data):
    places = list(objects(data))
    assert len(places) > 15
    for path in places:
        changed = copy.deepcopy(data)
        at = changed
        for key in path:
            at = at[key]
        at["extra"] = 1
        assert not FORMAT.is_valid(changed), path


def test_a_missing_field_fits_only_if_build_takes_it(data):
    for key in list(data):
        left = {name: value for name, value in data.items() if name != key}
        try:
            Report.from_json(orjson.dumps(left))
            opens = True
        except SchemaError:
            opens = False
        assert FORMAT.is_valid(left) == opens, key


# ---- the rules, on a small class ----


@dataclass(frozen=True)
class Inner:
    """Something small."""

    value: float | None


@dataclass(frozen=True)
class Outer:
    """What it is,
    on two lines.

    More of it.

    Attributes
    ----------
    class_, flag : Two
        at once.
    pair : A pair.
    """

    class_: str
    flag: bool
    pair: tuple[int, str]
    inner: Inner | None
    many: tuple[Inner, ...] = field(default=(), metadata=LATER)


def test_the_rules_are_those_of_build():
    schema = json_schema(Outer)
    made = schema["$defs"]["Outer"]
    assert made["description"] == "What it is, on two lines."
    assert list(made["properties"]) == ["class", "flag", "pair", "inner", "many"]
    assert made["required"] == ["class", "flag", "pair", "inner"]
    assert made["properties"]["pair"]["description"] == "A pair."
    assert made["properties"]["flag"] == {"type": "boolean", "description": "class_, flag: Two at once."}
    good = {"class": "x", "flag": True, "pair": [1, "a"], "inner": {"value": None}}
    validator = Draft202012Validator(schema)
    for change, fits in [
        ({}, True),
        ({"inner": None}, True),
        ({"many": [{"value": 1}]}, True),
        ({"many": None}, False),
        ({"pair": ["a", 1]}, False),
        ({"pair": [1]}, False),
        ({"flag": 1}, False),
        ({"inner": {"value": "1"}}, False),
    ]:
        data = good | change
        assert validator.is_valid(data) == fits, change
        try:
            build(Outer, data)
            built = True
        except (TypeError, ValueError, KeyError):
            built = False
        assert built == fits, change


def test_only_dataclasses_have_a_schema():
    with pytest.raises(TypeError, match="expected a dataclass"):
        json_schema(int)
