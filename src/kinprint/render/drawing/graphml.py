"""Write a family graph as GraphML, which Gephi, yEd, Cytoscape and networkx read. Every name is escaped."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from kinprint._util.plain import printable
from kinprint.results.graph import FamilyGraph, GraphEdge, GraphNode

_LONGEST = 400
_NODE = {
    "name": "string",
    "revision": "string",
    "architecture": "string",
    "layers": "int",
    "hidden": "int",
    "parameters": "long",
    "licence": "string",
    "family": "int",
    "declared_outside": "string",
}
_EDGE = {
    "state": "string",
    "log10_p": "double",
    "tests": "int",
    "standing": "int",
    "correlation": "double",
    "in_place": "double",
    "declared_base": "string",
    "same_files": "boolean",
    "explained": "boolean",
    "reason": "string",
}


def graph_graphml(graph: FamilyGraph) -> str:
    """Return the graph: undirected, as no direction is measured; the base that a card declares is an attribute of the edge."""
    family = {one: number for number, group in enumerate(graph.clusters) for one in group}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    for kind, declared in (("node", _NODE), ("edge", _EDGE)):
        for name, type_ in declared.items():
            lines.append(f'<key id="{kind}_{name}" for="{kind}" attr.name="{name}" attr.type="{type_}"/>')
    lines.append('<graph edgedefault="undirected">')
    for number, node in enumerate(graph.nodes):
        lines += [f'<node id="n{number}">', *_data("node", _of_node(node, family[number])), "</node>"]
    for edge in graph.edges:
        lines += [f'<edge source="n{edge.a}" target="n{edge.b}">', *_data("edge", _of_edge(edge)), "</edge>"]
    return "\n".join([*lines, "</graph>", "</graphml>", ""])


def _of_node(node: GraphNode, family: int) -> dict[str, object]:
    own = {name: getattr(node, name, None) for name in _NODE}
    return own | {"family": family, "declared_outside": ", ".join(node.outside) or None}


def _of_edge(edge: GraphEdge) -> dict[str, object]:
    own = {name: getattr(edge, name) for name in _EDGE}
    base = None if edge.declared_base is None else f"n{edge.declared_base}"
    return own | {"state": edge.state.value, "declared_base": base}


def _data(kind: str, values: dict[str, object]) -> list[str]:
    """Return the values that are there: what is not known is left out, not written as zero."""
    made = []
    for name, value in values.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else printable(str(value), _LONGEST)
        made.append(f"<data key={quoteattr(f'{kind}_{name}')}>{escape(text)}</data>")
    return made
