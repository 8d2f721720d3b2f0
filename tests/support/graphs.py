"""Synthetic family graphs: families of every size, relations in every state, and names that no page may believe."""

from __future__ import annotations

import random

from kinprint.catalog.graph import _Groups
from kinprint.results.graph import GRAPH_VERSION, EdgeState, FamilyGraph, GraphEdge, GraphNode

HOSTILE = '</script><img src=x onerror="alert(1)">'
_P = {EdgeState.BOTH: -40.5, EdgeState.SHOWN_ONLY: -12.25, EdgeState.DECLARED_ONLY: -0.5, EdgeState.NOT_COMPARED: None}


def synthetic_graph(count: int, seed: int = 1, second: str = HOSTILE) -> FamilyGraph:
    """Return a graph of so many models: some large families around one base, small ones, models alone; `second` ends a name."""
    rng = random.Random(seed)
    states: dict[tuple[int, int], EdgeState] = {}
    start = 0
    while start < count:
        size = min(count - start, int(rng.paretovariate(0.7)), 1500)
        for child in range(1, size):
            base = 0 if rng.random() < 0.6 else rng.randrange(child)
            states[start + base, start + child] = rng.choices(list(EdgeState), (6, 1, 2, 1))[0]
        for _ in range(size // 6):
            a, b = sorted(rng.sample(range(size), 2))
            states.setdefault((start + a, start + b), EdgeState.SHOWN_ONLY)
        start += size
    groups = _Groups(count)
    for pair, state in states.items():
        if state in (EdgeState.BOTH, EdgeState.SHOWN_ONLY):
            groups.join(*pair)
    total = count * (count - 1) // 2
    return FamilyGraph(
        schema=FamilyGraph.SCHEMA,
        schema_version=GRAPH_VERSION,
        catalog="synthetic",
        nodes=tuple(_node(number, rng, second if number == 1 else "") for number in range(count)),
        edges=tuple(_edge(*pair, state, rng) for pair, state in sorted(states.items())),
        clusters=groups.sets(),
        pairs=total,
        compared=len(states),
        neither=0,
        not_comparable=(),
        not_tested=total - len(states),
        log10_alpha=-6.0,
        made_by="kinprint 0.1.0",
    )


def _node(number: int, rng: random.Random, ending: str) -> GraphNode:
    name = f"synthetic-{rng.randrange(40)}/model-{number}{ending}"
    licence = rng.choice(("mit", "apache-2.0", None))
    return GraphNode(
        f"{number:064x}", name, f"{number:040x}", rng.choice(("llama", "qwen2")), 32, 4096, 7 * 10**9, licence
    )


def _edge(a: int, b: int, state: EdgeState, rng: random.Random) -> GraphEdge:
    base = None if state is EdgeState.SHOWN_ONLY else a
    tested = state is not EdgeState.NOT_COMPARED
    return GraphEdge(a, b, state, base, _P[state], 12 * tested, 0.9 * tested, rng.random() < 0.05, rng.random() < 0.5)
