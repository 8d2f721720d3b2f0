"""Least trees on few nodes: the minimum arborescence of a directed graph, and the minimum spanning forest of distances.

The arborescence is that of Chu & Liu (1965) and Edmonds (1967): every node takes its cheapest way in; a cycle of such
choices becomes one node, whose ways in cost what they would cost more than the choice they replace; and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Arc = tuple[int, int]  # from, to


def minimum_arborescence(costs: Mapping[Arc, float], root: int) -> dict[int, int]:
    """Return for every node but the root its parent, so that all hang on the root at the least total cost.

    Equal costs are decided by the numbers of the nodes, so the answer does not depend on the order of the mapping.

    Raises
    ------
    ValueError
        If a node cannot be reached from the root.
    """
    nodes = sorted({node for arc in costs for node in arc} | {root})
    arcs = [(source, target, cost, (source, target)) for (source, target), cost in sorted(costs.items())]
    chosen = _edmonds(nodes, [arc for arc in arcs if arc[1] != root and arc[0] != arc[1]], root)
    return {target: source for source, target in chosen}


_Named = tuple[int, int, float, Arc]  # ends among contracted nodes, cost, and the arc it stands for


def _edmonds(nodes: Sequence[int], arcs: Sequence[_Named], root: int) -> list[Arc]:
    best: dict[int, _Named] = {}
    for arc in arcs:
        if arc[1] not in best or arc[2] < best[arc[1]][2]:
            best[arc[1]] = arc
    missing = [node for node in nodes if node != root and node not in best]
    if missing:
        raise ValueError(f"node {missing[0]} cannot be reached from {root}")
    cycle = _cycle(best, nodes)
    if not cycle:
        return [arc[3] for arc in best.values()]
    merged = max(nodes) + 1
    inside = set(cycle)
    contracted: list[_Named] = []
    replaces: dict[Arc, int] = {}  # an arc into the cycle, and the node of the cycle it enters
    for source, target, cost, origin in arcs:
        if source in inside and target in inside:
            continue
        if target in inside:
            contracted.append((source, merged, cost - best[target][2], origin))
            replaces[origin] = target
        else:
            contracted.append((merged if source in inside else source, target, cost, origin))
    rest = [node for node in nodes if node not in inside]
    chosen = _edmonds([*rest, merged], contracted, root)
    entered = next(replaces[origin] for origin in chosen if origin in replaces)
    return [*chosen, *(best[node][3] for node in cycle if node != entered)]


def _cycle(best: Mapping[int, _Named], nodes: Sequence[int]) -> list[int]:
    """Return the nodes of a cycle of cheapest ways in, if there is one."""
    done: set[int] = set()
    for start in nodes:
        path: list[int] = []
        node = start
        while node not in done and node in best:
            done.add(node)
            path.append(node)
            node = best[node][0]
        if node in path:
            return path[path.index(node) :]
    return []


def spanning_forest(distances: Mapping[Arc, float]) -> list[Arc]:
    """Return the edges of the minimum spanning forest (Kruskal 1956), given each pair once, smaller number first."""
    parent: dict[int, int] = {node: node for pair in distances for node in pair}

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    kept = []
    for pair, _ in sorted(distances.items(), key=lambda item: (item[1], item[0])):
        one, two = find(pair[0]), find(pair[1])
        if one != two:
            parent[one] = two
            kept.append(pair)
    return kept


def components(nodes: Sequence[int], pairs: Sequence[Arc]) -> list[list[int]]:
    """Return the connected parts, each sorted, in the order of their least nodes."""
    group = {node: {node} for node in nodes}
    for one, two in pairs:
        if group[one] is not group[two]:
            small, large = sorted((group[one], group[two]), key=len)
            large |= small
            for node in small:
                group[node] = large
    seen: list[set[int]] = []
    for node in sorted(nodes):
        if not any(group[node] is known for known in seen):
            seen.append(group[node])
    return [sorted(part) for part in seen]
