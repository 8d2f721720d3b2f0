"""Reports made by strangers: no size in them takes memory, and whatever does not hold together is said in a line."""

import copy
import json
import random
from functools import cache
from pathlib import Path

import pytest

from kinprint._util.files import read_whole
from kinprint.errors import FileTooLarge, SchemaError
from kinprint.evidence.empirical_null import load_null, parse_null
from kinprint.model.inspection import inspect
from kinprint.render.forms import REPORT_FORMS
from kinprint.results.plain_json import MOST_PLACES
from kinprint.results.report import Report
from support.campaign import tried
from support.fuzzing import alarm
from support.places import DEMO_MODELS, GOLDEN_REPORTS
from support.reports import pairs_report

SAVED = json.loads((GOLDEN_REPORTS / "report_v2.json").read_bytes())
ODD = (None, [], {}, "", "x", -1, 0, 1, 10**9, 2**63 - 1, -(2**63), 1e308, -1e308, 1e-308, True, [1])


def places(data, path=()):
    """Yield the way to every value, of long lists only to the first ones."""
    inside = data.items() if isinstance(data, dict) else enumerate(data[:3]) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def put(data, path, value):
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


@pytest.fixture
def shown(inside, tmp_path):
    def run(data, *arguments):
        (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
        return inside("report", tmp_path / "r.json", *arguments)

    return run


NUMBERED = [
    ("a", "layers"),
    ("b", "layers"),
    ("a", "experts"),
    ("comparisons", 0, "layer"),
    ("evidence", "alignment", "layers", 0, "layer"),
    ("evidence", "alignment", "layers", 0, "source"),
    ("evidence", "alignment", "unread"),
    ("grids", 0, "layers_a"),
    ("verdict", "layer_map"),
]


@pytest.mark.parametrize("number", [10**9, MOST_PLACES + 1, -1])
@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: ".".join(map(str, path)))
def test_numbers_of_layers_and_experts_are_bounded(shown, tmp_path, path, number):
    data = copy.deepcopy(SAVED)
    put(data, path, [number] if path[-1] in ("unread", "layers_a", "layer_map") else number)
    done = shown(data, "--html", tmp_path / "x.html")
    assert done.code == 6
    assert f"from 0 to {MOST_PLACES}, got {number}" in done.err
    assert not (tmp_path / "x.html").exists()


LISTS = {"cosine": [[0.5]], "cosine_null": [[0.5]], "pearson": [[0.5]], "z": [[0.5]]}
CELLS = [
    "",
    "AAAA",
    "no base64",
    "\U0001f600",
    7,
    None,
    *({**LISTS, "z": z} for z in ([["x" * 9999]], [[0.5, 1.0]], ["a"], [{}], 7)),
]


@pytest.mark.parametrize("cells", CELLS, ids=str)
def test_grids_that_are_not_whole_are_refused(shown, cells):
    data = copy.deepcopy(SAVED)
    del data["grids"][0]["cells"]
    data["grids"][0] |= cells if isinstance(cells, dict) else {"cells": cells}
    done = shown(data)
    assert (done.code, "does not fit schema version 2" in done.err) == (6, True)


def test_as_many_layers_as_a_model_may_have_are_shown(shown, tmp_path):
    data = copy.deepcopy(SAVED)
    data["a"]["layers"] = MOST_PLACES
    assert shown(data, "--html", tmp_path / "x.html").code == 0
    assert (tmp_path / "x.html").stat().st_size < 4 << 20


def test_what_fits_the_schema_and_not_itself(shown, tmp_path, monkeypatch):
    def lost(*_arguments, **_more):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr("kinprint.cli.outputs.make", lost)
    done = shown(SAVED, "--html", tmp_path / "x.html")
    assert done.code == 6
    assert "r.json: cannot be shown: IndexError: tuple index out of range\n  next: the file is damaged" in done.err


@cache
def saved(kind):
    """Return a sound result of a kind as JSON, and the ways to all its values by the part of it where they lie."""
    if kind == "report":
        raw = json.dumps(SAVED)
    else:
        made = inspect(DEMO_MODELS / "base") if kind == "inspection" else pairs_report()
        raw = (made.tree if kind == "tree" else made).to_json()
    parts: dict = {}
    for path in places(json.loads(raw)):
        parts.setdefault((path[0], *(key for key in path[1:3] if isinstance(key, str))), []).append(path)
    return raw, parts


def spoilt(number, kind):
    """Return a saved result with one to three values changed, as often in one part of it as in another."""
    raw, parts = saved(kind)
    rng, data = random.Random(number), json.loads(raw)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(parts[rng.choice(sorted(parts))])
        try:
            value = data
            for key in path:
                value = value[key]
        except (LookupError, TypeError):
            continue
        like = {int: (0, -1, 1, 7, 9999, 2**62), float: (0.0, -1.0, 1e308, -1e308, 1e-300), str: ("", "x", "derived")}
        like[list] = ([], value[:-1], value + value[:1]) if isinstance(value, list) else ()
        put(data, path, rng.choice(ODD if rng.random() < 0.3 else like.get(type(value)) or ODD))
    return data, rng


OPTIONS = {"report": [form.option for form in REPORT_FORMS], "pairs": ["--html", "--markdown", "--csv", "--sarif"]}


def campaign(shown, folder, kind, first, cases):
    """Show spoilt results and write them in all forms; return how many are refused. All else but success fails here."""
    refused = 0
    for number in range(first, first + cases):
        data, rng = spoilt(number, kind)
        forms = [rng.choice(OPTIONS[kind]), folder / "x"] if kind in OPTIONS else []
        explain = ["--explain"] if kind == "report" else []
        chosen = ["--lang", rng.choice(["en", "ko"]), "--format", rng.choice(["json", "table"]), *explain]
        with alarm():  # a tree that went in a circle was drawn without an end
            done = shown(data, *forms, *chosen)
        refusal = done.code == 6 and done.err.splitlines()[-1].startswith("  next: ") and "Hang" not in done.err
        sound = done.code == 0 or refusal
        tried("spoilt results through report", failed=not sound)
        assert sound, (number, done.code, done.err)
        refused += done.code == 6
    return refused


@pytest.mark.parametrize("form", ["--html", "--markdown", "--csv", "--sarif"])
def test_a_pair_of_models_that_are_not_there(shown, tmp_path, form):
    data = json.loads(saved("pairs")[0])
    data["pairs"][0]["a"] = 2**63 - 1
    done = shown(data, form, tmp_path / "x")
    assert (done.code, "cannot be shown" in done.err, "Traceback" in done.err) == (6, True, False)


def test_a_tree_whose_edges_go_in_a_circle(shown):
    data = json.loads(saved("tree")[0])
    edge = data["edges"][0]
    data["edges"].append({**edge, "parent": edge["child"], "child": edge["parent"]})
    done = shown(data)  # without an end, before
    assert (done.code, "the edges of the tree lead from model" in done.err, "Traceback" in done.err) == (6, True, False)


KINDS = ["report", "pairs", "tree", "inspection"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_spoilt_results(shown, tmp_path, kind):
    assert 0 < campaign(shown, tmp_path, kind, 0, 16) < 16


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(5))
def test_spoilt_results(shown, tmp_path, part, kind):
    assert 0 < campaign(shown, tmp_path, kind, 1000 * part, 1000) < 1000


def test_denser_than_any_report_is_refused_before_it_is_parsed(inside, tmp_path):
    dense = b'{"schema": "kinprint.report", "schema_version": 2, "x": [' + b"{}," * 50_000 + b"{}]}"
    (tmp_path / "dense.json").write_bytes(dense)
    done = inside("report", tmp_path / "dense.json")
    assert (done.code, "has 50003 opening brackets" in done.err) == (6, True)
    for opened in (Report.from_json, lambda raw: parse_null(raw, "null.json")):
        with pytest.raises(SchemaError, match="opening brackets"):
            opened(dense)


def test_files_without_an_end_are_refused():
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("no such device")
    with pytest.raises(FileTooLarge, match="expected at most 1000 bytes"):
        read_whole(endless, 1000)


def test_a_null_and_a_report_that_are_too_large(inside, tmp_path):
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(FileTooLarge):
        load_null(tmp_path / "large.json")
    done = inside("report", tmp_path / "large.json")
    assert (done.code, "expected at most" in done.err) == (5, True)
    with pytest.raises(SchemaError):
        Report.from_json(b"[" * 100_000)
