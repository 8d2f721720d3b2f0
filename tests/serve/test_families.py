"""The families of a catalog: one choice for graph, table and API; names that are not believed; a file that changes."""

import json
import os
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from kinprint.catalog.store import open_catalog
from kinprint.errors import NotFound
from kinprint.results.graph import EdgeState, FamilyGraph
from kinprint.serve import families as module
from kinprint.serve.families import Families, FamilySource, Filters
from kinprint.serve.options import ServeOptions
from support.catalogs import make_item
from support.graphs import HOSTILE, synthetic_graph


@pytest.fixture(scope="module")
def families():
    return Families(synthetic_graph(300), tested=True, made=0.0)


CHOICES = {
    (): {*EdgeState},
    ("kind=shown",): {EdgeState.BOTH, EdgeState.SHOWN_ONLY},
    ("declared=yes", "kind=not_shown"): {EdgeState.DECLARED_ONLY},  # declared but not shown
    ("declared=no", "kind=shown"): {EdgeState.SHOWN_ONLY},  # shown but not declared
    ("declared=unexplained",): {EdgeState.SHOWN_ONLY},
    ("kind=not_compared",): {EdgeState.NOT_COMPARED},
    ("kind=same_files",): {*EdgeState},
    ("architecture=llama",): {*EdgeState},
    ("licence=-", "organisation=synthetic-3"): {*EdgeState},
}


@pytest.mark.parametrize("chosen", CHOICES)
def test_relations_are_what_was_asked_for_and_bring_both_ends(families, chosen):
    given = dict(item.split("=") for item in chosen)
    nodes, edges = families.select(Filters(**given))
    graph = families.graph
    found = [graph.edges[number] for number in edges]
    assert {edge.state for edge in found} <= CHOICES[chosen]
    assert found or "organisation=synthetic-3" in chosen
    assert {end for edge in found for end in (edge.a, edge.b)} <= set(nodes)
    if given.get("declared") == "unexplained":
        assert not any(edge.explained for edge in found)
    if "architecture" in given:
        assert all("llama" in {graph.nodes[edge.a].architecture, graph.nodes[edge.b].architecture} for edge in found)
    if not given:
        assert (len(nodes), len(edges)) == (300, len(graph.edges))


@pytest.mark.parametrize("chosen", CHOICES)
def test_graph_table_and_programs_are_told_the_same(server, families, chosen):
    query = "&".join(chosen)
    told = server.ask(f"/api/families?limit=200&{query}").json
    shown = server.ask(f"/families/shown.json?{query}").json
    page = server.ask(f"/families?lang=en&{query}").text
    assert (told["models"], told["relations"]) == (len(shown["nodes"]), len(shown["edges"]))
    assert f"Relations: {told['relations']:,}" in page
    assert f"Models: {told['models']:,}" in page
    assert (shown["nodes"], shown["edges"]) == families.select(Filters(**dict(item.split("=") for item in chosen)))


def test_a_part_of_a_name_finds_a_model_and_its_relations(server):
    told = server.ask("/api/families?" + urlencode({"text": "MODEL-17"})).json
    assert any(name.endswith("/model-17") for name in told["names"])
    assert all("model-17" in edge["a"] + edge["b"] for edge in told["edges"])
    assert server.ask("/api/families?text=nowhere").json["names"] == []


def test_every_row_of_the_table_is_on_one_page_of_it(server, families):
    rows, number = [], 1
    while found := re.findall(r'<tr><th scope="row"><a href="/models/[^"]*">(.*?)</a>.*?</tr>', _page(server, number)):
        rows += found
        number += 1
    assert len(rows) == len(families.graph.edges)
    assert server.ask("/families?relations=0").status == 422
    assert server.ask("/families?kind=all").status == 422


def _page(server, number):
    page = server.ask(f"/families?lang=ko&relations={number}&models=1000").text
    return page.partition('id="relations"')[2].partition('id="models-title"')[0]


def test_no_name_is_believed(server):
    page = server.ask("/families?text=model-1").text
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
    fragment = server.ask("/families/models/1").text
    assert "<img src=x" not in fragment
    assert HOSTILE in json.loads(server.ask("/families/graph.json").body)["names"][1]  # drawn as text
    assert server.ask("/families/models/300").status == 404
    assert server.ask("/families/models/-1").status == 404


def test_what_is_drawn_is_limited_to_the_largest_families(families, monkeypatch):
    monkeypatch.setattr(module, "MOST_DRAWN", 40)
    drawn = json.loads(Families(families.graph, tested=True, made=0.0).drawing)
    largest = families.graph.clusters[0]
    assert len(drawn["nodes"]) == 40
    assert set(largest[:40]) <= set(drawn["nodes"])
    assert all({a, b} <= set(drawn["nodes"]) for _, a, b, _ in drawn["edges"])


def test_the_operators_file_is_read_again_when_it_changes_and_kept_while_it_is_broken(tmp_path):
    file = tmp_path / "families.json"
    file.write_bytes(synthetic_graph(5).to_json())
    source = FamilySource(ServeOptions(folder=tmp_path, families=file))
    assert len(source.current().graph.nodes) == 5
    assert source.current() is source.current()
    for content in (b"{", b""):
        file.write_bytes(content)
        assert len(source.current().graph.nodes) == 5
    file.unlink()
    assert len(source.current().graph.nodes) == 5
    file.write_bytes(synthetic_graph(9).to_json())
    os.utime(file, (1, 1))
    assert len(source.current().graph.nodes) == 9


def test_without_tests_there_is_what_cards_declare_and_it_says_so(tmp_path):
    with open_catalog(tmp_path / "catalog.db") as catalog:
        catalog.add_all([make_item(0, "o/base"), make_item(1, "o/child", declared_bases=("o/base", "o/elsewhere"))])
    found = FamilySource(ServeOptions(folder=tmp_path, catalog=str(tmp_path / "catalog.db"))).current()
    assert not found.tested
    (edge,) = found.graph.edges
    assert edge.state is EdgeState.NOT_COMPARED
    assert edge.reason == "no pairs of this catalog have been tested yet"
    assert found.graph.nodes[1].outside == ("o/elsewhere",)
    assert found.select(Filters(kind="shown")) == ([], [])


def test_a_server_without_a_catalog_has_no_families(tmp_path):
    source = FamilySource(ServeOptions(folder=tmp_path))
    assert not source.there
    with pytest.raises(NotFound, match="no catalog"):
        source.current()


def test_an_empty_graph_is_shown(families):
    graph = replace(families.graph, nodes=(), edges=(), clusters=())
    assert FamilyGraph.from_json(graph.to_json()) == graph
    assert Families(graph, tested=True, made=0.0).select(Filters()) == ([], [])
    assert json.loads(Families(graph, tested=True, made=0.0).drawing) == {"nodes": [], "names": [], "edges": []}
