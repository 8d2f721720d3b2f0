"""Show the families of a catalog: its graph, what a visitor chose to see of it, and what the browser draws."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import orjson

from kinprint._util.files import read_whole
from kinprint._util.plain import printable
from kinprint.catalog.graph import family_graph
from kinprint.catalog.store import open_catalog
from kinprint.errors import KinprintError, NotFound
from kinprint.results.graph import EdgeState, FamilyGraph, GraphEdge, GraphNode
from kinprint.results.result import MOST_BYTES
from kinprint.serve.options import ServeOptions
from kinprint.text import Text

log = logging.getLogger("kinprint.serve")
MOST_DRAWN = 20_000  # models: the layout of 10,000 takes some seconds of a browser's time
MOST_CHOICES = 200  # of architectures, organisations, licences that are offered
FRESH_S = 60.0  # how old a graph of cards alone may be
NONE = "-"  # what stands for "none stated" in an address
STATES = tuple(EdgeState)
KINDS = {
    "shown": (EdgeState.BOTH, EdgeState.SHOWN_ONLY),
    "not_shown": (EdgeState.DECLARED_ONLY,),
    "not_compared": (EdgeState.NOT_COMPARED,),
    "same_files": STATES,
}
DECLARED = ("yes", "no", "unexplained")
FACETS = ("architecture", "organisation", "licence")


@dataclass(frozen=True)
class Filters:
    """What a visitor wants to see: of models a part of their names and values, of relations their kind and declaration."""

    text: str = ""
    architecture: str = ""
    organisation: str = ""
    licence: str = ""
    kind: str = ""  # one of KINDS
    declared: str = ""  # one of DECLARED

    def model(self, node: GraphNode) -> bool:
        """Whether a model is one of those asked for."""
        if self.text and self.text.lower() not in node.name.lower():
            return False
        chosen = self.architecture or self.organisation or self.licence
        return not chosen or all(getattr(self, name) in ("", value) for name, value in facets(node).items())

    def relation(self, edge: GraphEdge) -> bool:
        """Whether a relation is of the kind asked for."""
        alone = edge.state is EdgeState.SHOWN_ONLY
        if self.declared and alone is (self.declared == "yes"):
            return False
        if self.declared == "unexplained" and edge.explained:
            return False
        return not self.kind or (edge.same_files if self.kind == "same_files" else edge.state in KINDS[self.kind])


def facets(node: GraphNode) -> dict[str, str]:
    """Return the values of a model that can be chosen by."""
    owner, slash, _ = node.name.partition("/")
    return {
        "architecture": node.architecture or NONE,
        "organisation": owner if slash else NONE,
        "licence": node.licence or NONE,
    }


class Families:
    """One graph, held in memory. `tested` is false where it shows what cards declare and nothing else."""

    def __init__(self, graph: FamilyGraph, *, tested: bool, made: float) -> None:
        self.graph, self.tested, self.made = graph, tested, made
        self.select = lru_cache(maxsize=64)(self._select)

    @cached_property
    def choices(self) -> dict[str, list[tuple[str, int]]]:
        """For each facet the most frequent values, and how many models have them."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
        for node in self.graph.nodes:
            for name, value in facets(node).items():
                counts[name][value] += 1
        return {name: found.most_common(MOST_CHOICES) for name, found in counts.items()}

    @cached_property
    def degrees(self) -> Counter[int]:
        """How many relations each model has here."""
        return Counter(end for edge in self.graph.edges for end in (edge.a, edge.b))

    def _select(self, filters: Filters) -> tuple[list[int], list[int]]:
        """Return the models and relations asked for: a relation with one end that is asked for brings the other along."""
        nodes, edges = self.graph.nodes, self.graph.edges
        wanted = {number for number, node in enumerate(nodes) if filters.model(node)}
        kept = [
            number
            for number, edge in enumerate(edges)
            if (edge.a in wanted or edge.b in wanted) and filters.relation(edge)
        ]
        ends = {end for number in kept for end in (edges[number].a, edges[number].b)}
        return sorted(ends if filters.kind or filters.declared else wanted | ends), kept

    @cached_property
    def drawing(self) -> bytes:
        """What the browser draws, as JSON: models of the largest families first where there are too many."""
        order = [number for group in self.graph.clusters for number in group]
        drawn = sorted(order[:MOST_DRAWN])
        inside = set(drawn)
        edges = [
            (number, edge.a, edge.b, STATES.index(edge.state))
            for number, edge in enumerate(self.graph.edges)
            if edge.a in inside and edge.b in inside
        ]
        names = [printable(self.graph.nodes[number].name, 200) for number in drawn]
        return orjson.dumps({"nodes": drawn, "names": names, "edges": edges})


class FamilySource:
    """Finds the graph of a server: the file that the operator names, read again when it changes, or else the catalog's cards."""

    def __init__(self, options: ServeOptions) -> None:
        self._file, self._catalog = options.families, options.catalog
        self._lock = threading.Lock()
        self._held: tuple[Any, Families] | None = None

    @property
    def there(self) -> bool:
        """Whether this server has a graph to show."""
        return self._file is not None or self._catalog is not None

    def current(self) -> Families:
        """Return the graph as it is now."""
        if not self.there:
            raise NotFound(Text("this server has no catalog to search"), hint=Text("it is started with --catalog"))
        with self._lock:
            try:
                stamp = _stamp(self._file) if self._file is not None else int(time.time() / FRESH_S)
                if self._held is None or self._held[0] != stamp:
                    made = _read(self._file) if self._file is not None else _cards(str(self._catalog))
                    self._held = (stamp, made)
            except (KinprintError, OSError) as error:
                if self._held is None:
                    raise NotFound(Text("the graph of the catalog cannot be read")) from error
                log.warning("the graph of the catalog cannot be read anew: %s", type(error).__name__)
            return self._held[1]


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _read(file: Path) -> Families:
    graph = FamilyGraph.from_json(read_whole(file, MOST_BYTES))
    return Families(graph, tested=True, made=file.stat().st_mtime)


def _cards(catalog: str) -> Families:
    with open_catalog(catalog, read_only=True) as opened:
        graph = family_graph("", list(opened.entries()), {})
    why = Text("no pairs of this catalog have been tested yet")
    edges = tuple(replace(edge, reason=why) for edge in graph.edges)
    return Families(replace(graph, edges=edges), tested=False, made=time.time())


def plain_edge(families: Families, edge: GraphEdge) -> dict[str, Any]:
    """Return a relation as the API shows it, with names for numbers."""
    nodes = families.graph.nodes
    base = edge.declared_base
    return {
        "a": nodes[edge.a].name,
        "b": nodes[edge.b].name,
        "state": edge.state.value,
        "declared_base": None if base is None else nodes[base].name,
        "log10_p": edge.log10_p,
        "in_place": edge.in_place if edge.log10_p is not None else None,
        "same_files": edge.same_files,
        "explained": edge.explained,
        "reason": None if edge.reason is None else printable(str(edge.reason), 300),
    }


def named(node: GraphNode) -> str:
    """Return how a model is asked for: at the commit that the catalog has."""
    return f"{node.name}@{node.revision}" if node.revision else node.name
