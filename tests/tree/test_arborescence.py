"""Least trees against brute force: every choice of parents, every set of edges."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinprint.tree.arborescence import components, minimum_arborescence, spanning_forest


def brute(costs, root):
    """The least total cost over all choices of a parent for each node that hang everything on the root."""
    nodes = sorted({node for arc in costs for node in arc} - {root})
    ways = [[source for source, target in costs if target == node] for node in nodes]
    best = math.inf
    for choice in itertools.product(*ways):
        parent = dict(zip(nodes, choice, strict=True))
        if all(reaches(parent, node, root) for node in nodes):
            best = min(best, sum(costs[parent[node], node] for node in nodes))
    return best


def reaches(parent, node, root):
    seen = set()
    while node != root:
        if node in seen:
            return False
        seen.add(node)
        node = parent[node]
    return True


@st.composite
def graphs(draw):
    size = draw(st.integers(2, 6))
    whole = draw(st.booleans())
    arcs = [(a, b) for a in range(size) for b in range(size) if a != b and b != 0]
    kept = [arc for arc in arcs if arc[0] == 0 or whole or draw(st.booleans())]
    return {arc: draw(st.integers(0, 12)) / 4 for arc in kept}


@settings(deadline=None)
@given(graphs())
def test_no_choice_of_parents_is_cheaper(costs):
    found = minimum_arborescence(costs, 0)
    assert set(found) == {node for arc in costs for node in arc} - {0}
    assert all(reaches(found, node, 0) for node in found)
    assert sum(costs[parent, node] for node, parent in found.items()) == pytest.approx(brute(costs, 0))


def test_a_cycle_of_cheap_arcs_is_entered_where_it_costs_least():
    costs = {(0, 1): 10.0, (0, 2): 9.0, (0, 3): 12.0, (1, 2): 1.0, (2, 3): 1.0, (3, 1): 1.0}
    assert minimum_arborescence(costs, 0) == {2: 0, 3: 2, 1: 3}


def test_cycles_within_cycles_are_resolved():
    costs = {(1, 2): 1.0, (2, 1): 1.0, (2, 3): 2.0, (3, 2): 1.5, (3, 4): 1.0, (4, 3): 1.0, (0, 1): 50.0, (0, 4): 20.0}
    found = minimum_arborescence(costs, 0)
    assert sum(costs[parent, node] for node, parent in found.items()) == brute(costs, 0) == 23.5


def test_the_order_of_the_mapping_does_not_matter():
    costs = {(a, b): 1.0 for a in range(5) for b in range(1, 5) if a != b}
    backwards = dict(reversed(costs.items()))
    assert minimum_arborescence(costs, 0) == minimum_arborescence(backwards, 0)


def test_a_node_out_of_reach_is_named():
    with pytest.raises(ValueError, match="node 3 cannot be reached from 0"):
        minimum_arborescence({(0, 1): 1.0, (3, 1): 1.0}, 0)


@settings(deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda p: p[0] < p[1]), st.integers(0, 9))
)
def test_the_spanning_forest_joins_what_is_joined_at_the_least_cost(distances):
    kept = spanning_forest(distances)
    nodes = sorted({node for pair in distances for node in pair})
    parts = components(nodes, list(distances))
    assert components(nodes, kept) == parts
    assert len(kept) == len(nodes) - len(parts)
    least = min(
        (
            sum(distances[pair] for pair in some)
            for some in itertools.combinations(distances, len(kept))
            if components(nodes, some) == parts
        ),
        default=0,
    )
    assert sum(distances[pair] for pair in kept) == least
