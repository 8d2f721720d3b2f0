"""The family graph: clusters, corrected p-values, declared against measured, and its forms."""

import io
import math
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from kinprint.catalog.graph import LOG10_ALPHA, Shown, declared_pairs, family_graph, same_files
from kinprint.render.forms import make, show
from kinprint.results.graph import EdgeState, FamilyGraph
from kinprint.text import Text
from support.catalogs import make_item

GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


def entry(number, name, *bases, files=None, revision="same"):
    changed = {"declared_bases": bases, "revision": f"{number:040x}" if revision == "same" else revision}
    return make_item(number, name, **changed, **({"files": files} if files else {})).entry


def states(graph):
    return {(edge.a, edge.b): edge.state for edge in graph.edges}


def test_the_four_cases_and_what_could_not_be_compared():
    entries = [
        entry(0, "kin/base"),
        entry(1, "kin/child", "KIN/Base"),
        entry(2, "kin/quiet"),
        entry(3, "kin/liar", "kin/base"),
        entry(4, "kin/odd", "kin/base", "far/away"),
        entry(5, "kin/alone"),
    ]
    shown = {(a, b): Shown(0.0, 5) for a in range(6) for b in range(a + 1, 6)}
    shown |= {(0, 1): Shown(-40.0, 9, 0.9), (0, 2): Shown(-30.0, 9, 0.5), (1, 2): Shown(-20.0, 9, 0.4)}
    shown |= {(0, 4): Shown(None, reason=Text("no test could run"))}
    graph = family_graph("here", entries, shown)
    assert states(graph) == {
        (0, 1): EdgeState.BOTH,
        (0, 2): EdgeState.SHOWN_ONLY,
        (0, 3): EdgeState.DECLARED_ONLY,
        (0, 4): EdgeState.NOT_COMPARED,
        (1, 2): EdgeState.SHOWN_ONLY,
    }
    edges = {(edge.a, edge.b): edge for edge in graph.edges}
    assert edges[0, 1].log10_p == pytest.approx(-40.0 + math.log10(15))
    assert (edges[0, 1].declared_base, edges[0, 2].declared_base) == (0, None)
    assert not edges[0, 2].explained
    assert edges[0, 4].reason == "no test could run"
    assert graph.clusters == ((0, 1, 2), (3,), (4,), (5,))
    assert (graph.pairs, graph.compared, graph.neither, graph.not_tested) == (15, 14, 10, 0)
    assert [(item.reason, item.pairs) for item in graph.not_comparable] == [("no test could run", 1)]
    assert graph.nodes[4].outside == ("far/away",)


def test_p_values_are_corrected_for_all_pairs_also_those_not_tested():
    entries = [entry(n, f"kin/m{n}") for n in range(200)]
    pairs = 200 * 199 // 2
    just = LOG10_ALPHA - math.log10(pairs)
    graph = family_graph("here", entries, {(0, 1): Shown(just - 0.01, 3), (2, 3): Shown(just + 0.01, 3)})
    assert states(graph) == {(0, 1): EdgeState.SHOWN_ONLY}
    assert (graph.neither, graph.not_tested) == (1, pairs - 2)


def test_a_declared_pair_that_was_not_proposed_is_not_called_false():
    graph = family_graph("here", [entry(0, "kin/a"), entry(1, "kin/b", "kin/a")], {})
    assert states(graph) == {(0, 1): EdgeState.NOT_COMPARED}
    assert graph.edges[0].reason == "the search for relatives did not propose the pair"
    assert (graph.not_tested, graph.not_comparable) == (1, ())


def test_siblings_by_a_base_that_is_not_here_are_explained():
    entries = [entry(0, "kin/a", "far/base"), entry(1, "kin/b", "Far/Base"), entry(2, "kin/c"), entry(3, "kin/c")]
    shown = {(0, 1): Shown(-99.0, 1), (0, 2): Shown(-99.0, 1), (2, 3): Shown(-99.0, 1)}
    explained = {(edge.a, edge.b): edge.explained for edge in family_graph("here", entries, shown).edges}
    assert explained == {(0, 1): True, (0, 2): False, (2, 3): True}


def test_a_card_means_all_commits_of_its_base_and_not_itself():
    entries = [entry(0, "kin/a"), entry(1, "kin/a"), entry(2, "kin/b", "kin/a", "kin/b")]
    pairs, outside = declared_pairs(entries)
    assert pairs == {(0, 2): 0, (1, 2): 1}
    assert outside == [(), (), ()]


def test_sizes_do_not_make_files_the_same():
    digest = "etag:" + "ab" * 32
    one, two = (("m.safetensors", digest),), (("other.safetensors", digest),)
    assert same_files(entry(0, "a/a", files=one), entry(1, "b/b", files=two))
    size = (("m.safetensors", "988816 bytes"),)
    assert not same_files(entry(0, "a/a", files=size), entry(1, "b/b", files=size))
    assert not same_files(entry(0, "a/a", files=one), entry(1, "b/b", files=(*two, *two)))


@pytest.fixture
def hostile():
    entries = [entry(0, 'kin/<b>&"]]>'), entry(1, "kin/child", 'kin/<b>&"]]>'), entry(2, "kin/c")]
    return family_graph("here", entries, {(0, 1): Shown(-40.0, 9, 0.9), (0, 2): Shown(-40.0, 9, 0.9)})


def test_graphml_is_well_formed_whatever_models_are_called(hostile):
    root = ET.fromstring(make(hostile, "graphml"))
    nodes, edges = root.findall(f".//{GRAPHML}node"), root.findall(f".//{GRAPHML}edge")
    assert (len(nodes), len(edges)) == (3, 2)
    assert root.find(f"{GRAPHML}graph").get("edgedefault") == "undirected"
    names = [data.text for node in nodes for data in node if data.get("key") == "node_name"]
    assert names[0] == 'kin/<b>&"]]>'
    declared = {key.get("id") for key in root.findall(f"{GRAPHML}key")}
    assert {data.get("key") for item in (*nodes, *edges) for data in item} <= declared


def test_json_comes_back_the_same(hostile):
    assert FamilyGraph.from_json(make(hostile, "json")) == hostile


@pytest.mark.parametrize(("lang", "said"), [("en", "no direction is measured"), ("ko", "방향은 측정하지 않습니다")])
def test_a_terminal_shows_the_families(hostile, lang, said):
    stream = io.StringIO()
    show(hostile, Console(file=stream, width=140), lang=lang)
    shown = stream.getvalue()
    assert said in shown
    assert shown.count("kin/child") == 1
    assert "-39.5" in shown
    assert " %" not in shown  # nor does Korean write it apart


def test_commits_of_one_repository_are_told_apart_in_a_terminal():
    entries = [entry(0, "kin/a", revision="a" * 40), entry(1, "kin/a", revision="b" * 40), entry(2, "kin/c", "kin/a")]
    stream = io.StringIO()
    show(family_graph("here", entries, {(0, 1): Shown(-40.0, 9, 0.9)}), Console(file=stream, width=140))
    assert "kin/a@aaaaaaaa" in stream.getvalue()
    assert "kin/a@bbbbbbbb" in stream.getvalue()
    assert "kin/c@" not in stream.getvalue()
