"""Print the family graph of a catalog."""

from collections import Counter

from rich.console import Console

from kinprint.render.content.blocks import Block, Line, Section
from kinprint.render.content.cells import count, facts_table, figure, name, sentence, table, titled
from kinprint.render.terminal.layout import print_sections
from kinprint.render.texts.words import DASH, Words
from kinprint.results.graph import EdgeState, FamilyGraph, GraphEdge

_MOST_FAMILIES, _MOST_LINES, _MOST_REASONS = 20, 40, 10
_ALIKE = 10.0
"""Powers of ten within which p-values say nothing of which relation is stronger: with all in place they are at the floor of their
test, and what they are corrected for (the map of layers alone 2.4 powers in models of six layers) makes the difference."""


def print_graph(graph: FamilyGraph, console: Console, *, lang: str = "en") -> None:
    """Print the families with their strongest relations, what is declared and not shown, and what was not compared."""
    words = Words(lang)
    families = [group for group in graph.clusters if len(group) > 1]
    sections = [_summary(graph, len(families), words)]
    sections += [_family(graph, group, number, words) for number, group in enumerate(families[:_MOST_FAMILIES], 1)]
    doubtful = [edge for edge in graph.edges if edge.state in (EdgeState.DECLARED_ONLY, EdgeState.NOT_COMPARED)]
    sections += [_edges(graph, doubtful, words.say("graph.declared_title"), words)] if doubtful else []
    if len(families) > _MOST_FAMILIES:
        more = Line(words.say("graph.more_families", n=len(families) - _MOST_FAMILIES))
        sections.append(Section("", (more,)))
    print_sections(sections, console, words)


def _summary(graph: FamilyGraph, families: int, words: Words) -> Section:
    alone = sum(len(group) == 1 for group in graph.clusters)
    not_comparable = sum(item.pairs for item in graph.not_comparable)
    facts = {
        "catalog.place": name(graph.catalog),
        "graph.models": count(len(graph.nodes)),
        "graph.families": count(families),
        "graph.alone": count(alone),
        "graph.pairs": count(graph.pairs),
        "graph.both": count(graph.count(EdgeState.BOTH)),
        "graph.declared_only": count(graph.count(EdgeState.DECLARED_ONLY)),
        "graph.shown_only": count(graph.count(EdgeState.SHOWN_ONLY)),
        "graph.unexplained": count(sum(_unexplained(edge) for edge in graph.edges)),
        "graph.neither": count(graph.neither),
        "graph.not_comparable": count(not_comparable),
        "graph.not_tested": count(graph.not_tested),
    }
    notes: list[Block] = [Line(words.say("graph.no_direction", alpha=f"{graph.log10_alpha:g}"))]
    if graph.not_tested:
        notes.append(Line(words.say("graph.recall_only")))
    reasons = graph.not_comparable
    notes += [Line(f"{item.pairs} × {words.engine(item.reason).text}") for item in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        notes.append(Line(words.say("graph.more", n=len(reasons) - _MOST_REASONS)))
    return titled(facts_table(words, "graph.title", facts), *notes)


def _family(graph: FamilyGraph, group: tuple[int, ...], number: int, words: Words) -> Section:
    title = words.say("graph.family", k=number, n=len(group))
    return _edges(graph, _spanning(graph, group), title, words)


def _spanning(graph: FamilyGraph, group: tuple[int, ...]) -> list[GraphEdge]:
    """Return the fewest shown relations that join a family, the strongest."""
    inside = set(group)
    shown = [edge for edge in graph.edges if edge.a in inside and edge.state in (EdgeState.BOTH, EdgeState.SHOWN_ONLY)]
    above = {one: one for one in group}

    def top(one: int) -> int:
        while above[one] != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    chosen = []
    for edge in _strongest_first(shown):
        if top(edge.a) != top(edge.b):
            above[top(edge.a)] = top(edge.b)
            chosen.append(edge)
    return sorted(chosen, key=lambda item: (item.a, item.b))


def _strongest_first(edges: list[GraphEdge]) -> list[GraphEdge]:
    """Sort relations: with the most in place; then by p, and where that says little, by the tests that stand and by correlation."""
    groups: list[list[GraphEdge]] = []
    for edge in sorted(edges, key=lambda item: (-item.in_place, item.log10_p or 0.0)):
        first = groups[-1][0] if groups else edge
        near = first.in_place == edge.in_place and (edge.log10_p or 0.0) - (first.log10_p or 0.0) <= _ALIKE
        if groups and near:
            groups[-1].append(edge)
        else:
            groups.append([edge])
    return [
        edge
        for group in groups
        for edge in sorted(group, key=lambda item: (-item.standing, -item.correlation, item.a, item.b))
    ]


def _edges(graph: FamilyGraph, edges: list[GraphEdge], title: str, words: Words) -> Section:
    rows, names = [], _names(graph)
    for edge in edges[:_MOST_LINES]:
        base = DASH if edge.declared_base is None else names[edge.declared_base]
        p = DASH if edge.log10_p is None else f"{edge.log10_p:.1f}"
        share = DASH if edge.log10_p is None else f"{100 * edge.in_place:.0f}%"
        note = sentence(words, edge.reason) if edge.reason is not None else name(_state(edge, words))
        rows.append(
            (
                name(names[edge.a]),
                name(names[edge.b]),
                figure(p, edge.log10_p),
                figure(share, edge.in_place),
                name(base),
                note,
            )
        )
    more = [Line(words.say("graph.more", n=len(edges) - len(rows)))] if len(edges) > len(rows) else []
    return titled(table(words, title, "graph_a graph_b log10_p# in_place# graph_base note", rows), *more)


def _names(graph: FamilyGraph) -> list[str]:
    """Return the names of all entries, with their commits where several have one name."""
    times = Counter(node.name for node in graph.nodes)
    return [
        f"{node.name}@{node.revision[:8]}" if times[node.name] > 1 and node.revision else node.name
        for node in graph.nodes
    ]


def _unexplained(edge: GraphEdge) -> bool:
    return edge.state is EdgeState.SHOWN_ONLY and not edge.explained


def _state(edge: GraphEdge, words: Words) -> str:
    joined = edge.state is EdgeState.SHOWN_ONLY and edge.explained
    said = words.say("graph.state.explained" if joined else f"graph.state.{edge.state.name.lower()}")
    return words.say("graph.same_files", said=said) if edge.same_files else said
