"""The family graph of a whole catalog: damaged entries stop no other, and families hang together by what is strongest."""

import io
import sqlite3

import pytest
from rich.console import Console

from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.render.forms import show
from kinprint.render.terminal.graph import _spanning
from kinprint.results.graph import FamilyGraph
from kinprint.scan.all_pairs import catalog_graph, work
from kinprint.scan.frames import LENGTH, unpack
from support.places import DEMO_MODELS

NAMES = ("base", "finetune", "grown", "permuted")


class Here:
    """Workers that are this very process."""

    width, where = 1, "here"

    def __init__(self):
        self._done = []

    def submit(self, number, task):
        self._done.append((number, work(unpack(task[LENGTH:]), None)))

    def next_done(self, _wait_s):
        return self._done.pop(0)


@pytest.fixture(scope="module")
def items():
    return {name: fingerprint_model(DEMO_MODELS / name) for name in NAMES}


@pytest.fixture
def catalog(items, tmp_path):
    with SqliteCatalog(tmp_path / "c.db") as opened:
        opened.add_all(items.values())
        yield opened


def damage(catalog, name):
    """Put zeros in the place of an entry's fingerprint."""
    with sqlite3.connect(catalog.path) as db:
        entry = "(SELECT id FROM entries WHERE name = ?)"
        db.execute(f"UPDATE fingerprints SET data = zeroblob(length(data)) WHERE id = {entry}", (name,))
    db.close()


def joined(graph):
    names = [node.name for node in graph.nodes]
    family = max(graph.clusters, key=len)
    return {(names[edge.a], names[edge.b]) for edge in _spanning(graph, family)}


def test_a_family_is_joined_by_the_relations_that_most_tests_show(catalog):
    graph = catalog_graph(catalog, Here())
    # permuted has all its dimensions in place too, at the same p, and none of its neurons
    assert joined(graph) == {("base", "finetune"), ("base", "grown"), ("base", "permuted")}
    edges = {(edge.a, edge.b): edge for edge in graph.edges}
    assert edges[0, 3].standing < edges[0, 1].standing < edges[0, 1].tests
    assert 0.95 < edges[0, 1].correlation < edges[0, 3].correlation <= 1.0
    assert FamilyGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("candidates", [None, 0, 3])
def test_a_damaged_entry_is_named_and_stops_no_other(catalog, candidates):
    damage(catalog, "grown")
    graph = catalog_graph(catalog, Here(), candidates=candidates)
    assert joined(graph) == {("base", "finetune"), ("base", "permuted")}
    (reason,) = graph.not_comparable
    assert reason.pairs == 3
    assert "the entry grown cannot be read" in reason.reason
    assert "SHA-256 is not the entry's key" in reason.reason
    assert graph.compared + reason.pairs + graph.not_tested == graph.pairs == 6
    stream = io.StringIO()
    show(graph, Console(file=stream, width=200))
    assert "3 × the entry grown cannot be read" in stream.getvalue()


def test_pairs_of_two_damaged_entries_count_once(catalog):
    damage(catalog, "grown")
    damage(catalog, "permuted")
    graph = catalog_graph(catalog, Here())
    assert sorted(item.pairs for item in graph.not_comparable) == [2, 3]
    assert (graph.compared, graph.not_tested, graph.pairs) == (1, 0, 6)
