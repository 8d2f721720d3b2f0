"""Find the minimum arborescence of a small directed graph, and the minimum spanning forest of pairwise distances.

The arborescence is that of Chu & Liu (1965) and Edmonds (1967): every node takes its cheapest way in; a cycle of such
choices becomes one node, whose ways in cost what they would cost more than the choice they replace; and so on.
"""

from collections.abc import Mapping, Sequence

Arc = tuple[int, int]  # from, to


def pair_key(one: int, two: int) -> Arc:
    """Return a pair of nodes without direction: the smaller number first."""
    return (one, two) if one < two else (two, one)


def minimum_arborescence(costs: Mapping[Arc, float], root: int) -> dict[int, int]:
    """Return every node's parent at the least total cost, ties by the nodes' numbers; ValueError if a node cannot be reached."""
    nodes = sorted({node for arc in costs for node in arc} | {root})
    arcs = [(source, target, cost, (source, target)) for (source, target), cost in sorted(costs.items())]
    chosen = _edmonds(nodes, [arc for arc in arcs if arc[1] != root and arc[0] != arc[1]], root)
    return {target: source for source, target in chosen}


_Named = tuple[int, int, float, Arc]  # ends among contracted nodes, cost, and the arc it stands for


def _edmonds(nodes: Sequence[int], arcs: Sequence[_Named], root: int) -> list[Arc]:
    best: dict[int, _Named] = {}
    for arc in arcs:
        best[arc[1]] = min(best.get(arc[1], arc), arc, key=lambda known: known[2])
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
    group = {node: {node} for pair in distances for node in pair}
    return [pair for pair in sorted(distances, key=lambda pair: (distances[pair], pair)) if _join(group, *pair)]


def components(nodes: Sequence[int], pairs: Sequence[Arc]) -> list[list[int]]:
    """Return the connected parts, each sorted, in the order of their least nodes."""
    group = {node: {node} for node in nodes}
    for pair in pairs:
        _join(group, *pair)
    return sorted({id(part): sorted(part) for part in group.values()}.values())


def _join(group: dict[int, set[int]], one: int, two: int) -> bool:
    """Unite the groups of two nodes; return False if both are in one group already."""
    small, large = sorted((group[one], group[two]), key=len)
    if small is large:
        return False
    large |= small
    group.update(dict.fromkeys(small, large))
    return True


def neighbours(edges: Sequence[Arc]) -> dict[int, list[int]]:
    """Return the nodes next to each node."""
    found: dict[int, list[int]] = {}
    for one, two in edges:
        found.setdefault(one, []).append(two)
        found.setdefault(two, []).append(one)
    return found
