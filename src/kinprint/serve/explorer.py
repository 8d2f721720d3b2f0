"""Answer people who look around: the families of the catalog as a graph and as a table, and all that is known of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse

from kinprint._util.plain import printable
from kinprint.errors import NotFound
from kinprint.render.page.markup import PageWords
from kinprint.results.graph import EdgeState, GraphEdge, GraphNode
from kinprint.serve.api import Chosen, Given
from kinprint.serve.families import DECLARED, FACETS, KINDS, MOST_DRAWN, NONE, STATES, Filters, named
from kinprint.serve.layers import layers_picture
from kinprint.serve.pages import RECENT, language, page
from kinprint.serve.references import reference
from kinprint.serve.references import shown as shown_name
from kinprint.serve.service import Service
from kinprint.serve.state import Job
from kinprint.text import Text

router = APIRouter(include_in_schema=False)
ROWS = 50  # of a table
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
QUICK = {
    "declared_only": Filters(kind="not_shown", declared="yes"),
    "shown_only": Filters(kind="shown", declared="no"),
    "unexplained": Filters(kind="shown", declared="unexplained"),
}
"""What journalists and licence teams look for, with one click."""


@router.get("/families")
def families(
    request: Request, service: Given, filters: Chosen, relations: PageNumber = 1, models: PageNumber = 1
) -> HTMLResponse:
    """Show the graph, filters, and the tables that say the same."""
    found = service.families.current()
    nodes, edges = found.select(filters)
    lang, at = language(request), {"relations": relations, "models": models}

    def link(chosen: Filters = filters, **pages: int) -> str:
        values = {name: value for name, value in asdict(chosen).items() if value} | pages
        return "/families?" + urlencode(values | {"lang": lang})

    return page(
        request,
        "families.html",
        found=found,
        graph=found.graph,
        filters=filters,
        link=link,
        turn=lambda table, number: link(filters, **(at | {table: number})),
        quick=QUICK,
        facets=FACETS,
        kinds=KINDS,
        declared=DECLARED,
        none=NONE,
        states=STATES,
        explained=EdgeState.SHOWN_ONLY,
        most_drawn=MOST_DRAWN,
        counts=(len(nodes), len(edges)),
        at=at,
        pages={"relations": -(-len(edges) // ROWS), "models": -(-len(nodes) // ROWS)},
        edges=[found.graph.edges[number] for number in edges[ROWS * (relations - 1) : ROWS * relations]],
        nodes=[(number, found.graph.nodes[number]) for number in nodes[ROWS * (models - 1) : ROWS * models]],
        named=named,
    )


@router.get("/families/graph.json")
def drawing(service: Given) -> Response:
    """Return what is drawn: all models and relations, by their numbers."""
    return _json(service.families.current().drawing)


@router.get("/families/shown.json")
def shown(service: Given, filters: Chosen) -> Response:
    """Return the numbers of models and relations that a visitor wants to see."""
    nodes, edges = service.families.current().select(filters)
    return _json(orjson.dumps({"nodes": nodes, "edges": edges}))


@router.get("/families/models/{number}")
def node(request: Request, service: Given, number: Annotated[int, Path(ge=0, le=10_000_000)]) -> HTMLResponse:
    """Return what is shown beside the graph of a model that was chosen there."""
    found = service.families.current()
    if number >= len(found.graph.nodes):
        raise NotFound(Text("there is no such page"))
    values: dict[str, Any] = {"number": number, "node": found.graph.nodes[number], "named": named, "found": found}
    return page(request, "family_node.html", **values)


@router.get("/models/{name:path}")
def model(name: str, request: Request, service: Given) -> HTMLResponse:
    """Show what is known of a model: what its card claims beside what the weights say, relatives, layers, comparisons."""
    entry = service.entry(name)
    kept = reference(name, service.options, service.endpoint) if entry is None or service.nameable(name) else None
    entry = entry or service.entry(shown_name(kept or name))
    found = service.last_search(name) if kept else None
    comparisons = service.state.about(kept, RECENT) if kept else []
    if entry is None and found is None and not comparisons:
        raise NotFound(Text("nothing is known here of {name}", name=printable(name, 120)))
    related = _relations(service, entry.key) if entry is not None else []
    values: dict[str, Any] = {
        "entry": entry,
        "found": found,
        "comparisons": comparisons,
        "related": related,
        "kept": kept,
    }
    return page(
        request,
        "model.html",
        name=shown_name(kept or name),
        layers=layers_picture(service.fingerprint(entry.key), PageWords(language(request))) if entry else [],
        claims=[(base, _said_of(base, related, found, comparisons)) for base in entry.declared_bases] if entry else [],
        explained=EdgeState.SHOWN_ONLY,
        **values,
    )


def _relations(service: Service, key: str) -> list[tuple[GraphNode, GraphEdge]]:
    """Return the relations that the graph has of an entry, with the models at their other ends."""
    if not service.families.there:
        return []
    graph = service.families.current().graph
    own = next((number for number, node in enumerate(graph.nodes) if node.key == key), None)
    edges = [edge for edge in graph.edges if own in (edge.a, edge.b)]
    return [(graph.nodes[edge.b if edge.a == own else edge.a], edge) for edge in edges]


def _said_of(
    base: str, related: Sequence[tuple[GraphNode, GraphEdge]], found: Job | None, comparisons: Sequence[Job]
) -> dict[str, Any]:
    """Return what the weights say of a declared base, from the most thorough look that there was: comparison, search, graph."""
    same = base.lower()
    for job in comparisons:
        summary = job.summary or {}
        if any(shown_name(str(summary.get(side))).partition("@")[0].lower() == same for side in ("a", "b")):
            return {"from": "comparison", "id": job.id, "headline": summary["headline"], "log10_p": summary["log10_p"]}
    for one in (found.summary or {}).get("relatives", []) if found is not None else []:
        if one["name"].lower() == same:
            return {"from": "search", "class": one["class"], "log10_p": one["log10_p"]}
    for node, edge in related:
        if node.name.lower() == same:
            return {"from": "graph", "edge": edge, "log10_p": edge.log10_p}
    return {"from": "nothing", "log10_p": None}


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")
