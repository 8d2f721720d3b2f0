"""`kinprint scan`, `catalog add --org` and `catalog tree` from the command line."""

import json

import pytest

from kinprint.catalog.store import open_catalog
from kinprint.refs import is_repo
from kinprint.scan.wanted import well_known
from support.hub import HubServer
from support.places import ROOT
from support.tiny_models import write_tiny

pytestmark = pytest.mark.slow
CARD = "---\nlicense: mit\nbase_model: kin/m0\n---\n"


@pytest.fixture
def kin_hub(tmp_path, monkeypatch):
    """Three models: one, its copy that says so, and a stranger that says so too."""
    seeds = {"m0": (0, None), "copy": (0, CARD), "stranger": (5, CARD)}
    with HubServer() as server:
        for name, (seed, card) in seeds.items():
            server.add_repo(f"kin/{name}", write_tiny(tmp_path / name, seed, card))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
        yield server


def test_an_organisation_is_scanned_and_its_families_are_shown(kin_hub, inside, tmp_path):
    catalog, graphml = tmp_path / "c.db", tmp_path / "g.graphml"
    done = inside("scan", "--org", "kin", "--catalog", str(catalog), "--workers", "2", "--format", "json")
    assert done.code == 0
    report = json.loads(done.out)
    assert (report["wanted"], report["added"], report["failed"]) == (3, 3, [])
    done = inside("scan", "kin/m0", "kin/nowhere", "--catalog", str(catalog), "--workers", "1")
    assert done.code == 3
    assert "kin/nowhere" in done.out
    assert "no such repository" in done.out
    assert "NotFound" not in done.out
    tree = ["catalog", "tree", "--catalog", str(catalog), "--workers", "1"]
    done = inside(*tree, "--graphml", str(graphml), "--format", "json")
    graph = json.loads(done.out)
    names = [node["name"] for node in graph["nodes"]]
    found = {frozenset((names[edge["a"]], names[edge["b"]])): edge for edge in graph["edges"]}
    assert {pair: edge["state"] for pair, edge in found.items()} == {
        frozenset(("kin/m0", "kin/copy")): "declared and shown",
        frozenset(("kin/m0", "kin/stranger")): "declared, not shown",
    }
    assert found[frozenset(("kin/m0", "kin/copy"))]["same_files"]
    assert graph["neither"] == 1
    assert "<graphml" in graphml.read_text()


def test_catalog_add_takes_an_organisation(kin_hub, inside, tmp_path):
    catalog = tmp_path / "c.db"
    assert inside("catalog", "add", "--org", "kin", "--catalog", str(catalog)).code == 0
    with open_catalog(catalog, read_only=True) as opened:
        assert {entry.name for entry in opened.entries()} == {"kin/m0", "kin/copy", "kin/stranger"}


def test_a_starter_catalog_is_made_of_the_models_that_come_along(inside, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    catalog = tmp_path / "starter.db"
    assert inside("scan", "--starter", "--catalog", str(catalog), "--workers", "1", "--offline").code == 0
    with open_catalog(catalog, read_only=True) as opened:
        names = {entry.name for entry in opened.entries()}
    assert names == {"base", "finetune", "grown", "permuted", "unrelated"}


def test_the_well_known_models_are_names_and_each_is_one():
    names = [model.model for model in well_known()]
    assert 200 <= len(names) == len({name.lower() for name in names}) <= 250
    assert all(map(is_repo, names))


def test_wrong_usage_is_told(inside, tmp_path):
    assert "give a LIST of models" in inside("scan").err
    assert "--org NAME" in inside("catalog", "add").err
    catalog, graph = str(tmp_path / "c.db"), str(tmp_path / "g")
    done = inside("catalog", "tree", "--catalog", catalog, "--json", graph, "--graphml", graph)
    assert (done.code, "--graphml and --json both name" in done.err) == (2, True)
    for size, *command in (("0", "scan", "a/b", "--catalog", catalog), ("10MB", "catalog", "tree")):
        done = inside(*command, "--memory", size)
        assert (done.code, "expected 200MB or more" in done.err) == (2, True)
    done = inside("scan", "a/b", "--catalog", catalog, "--workers", "2", "--scheduler", "tcp://127.0.0.1:9")
    assert (done.code, "--workers is for this machine" in done.err) == (2, True)


def test_jobs_of_strangers_have_a_limit_of_memory(inside):
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    done = inside("serve", "--memory", "0")
    assert (done.code, "has a limit: give a size" in done.err) == (2, True)
