"""The family graph of a whole catalog: who shares weights or a start with whom, and what their cards declare."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from kinprint.results.later import LATER
from kinprint.results.result import Result
from kinprint.text import Text

GRAPH_VERSION = 1


class EdgeState(StrEnum):
    """What is declared of two models against what was measured. Pairs that are neither are counted, and are no edges."""

    BOTH = "declared and shown"
    DECLARED_ONLY = "declared, not shown"
    SHOWN_ONLY = "shown, not declared"
    NOT_COMPARED = "declared, could not be compared"


@dataclass(frozen=True)
class GraphNode:
    """One entry of the catalog; ``outside`` are bases that it declares and the catalog does not hold."""

    key: str
    name: str
    revision: str | None
    architecture: str
    layers: int
    hidden: int
    parameters: int
    licence: str | None
    outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphEdge:
    """Two entries, by their numbers. No direction is measured: ``declared_base`` is the one that the other's card names.

    ``log10_p`` is corrected for all tests and all pairs of the catalog; None where no test could run. Of ``tests`` that ran
    ``standing`` reject independence, each corrected for all of them; ``correlation`` is the mean of those that stand and
    correlate values, 0 if none does. ``in_place`` is the largest share of dimensions, rows or neurons found at their own places.
    ``explained``: cards, or a common repository, join the two, directly or through other entries.
    """

    a: int
    b: int
    state: EdgeState
    declared_base: int | None = None
    log10_p: float | None = None
    tests: int = 0
    in_place: float = 0.0
    same_files: bool = False
    explained: bool = False
    reason: Text | None = None
    standing: int = field(default=0, metadata=LATER)
    correlation: float = field(default=0.0, metadata=LATER)


@dataclass(frozen=True)
class ReasonCount:
    """Why pairs could not be compared, and how many."""

    reason: Text
    pairs: int


@dataclass(frozen=True)
class FamilyGraph(Result):
    """All entries of a catalog, the relations shown among them, and clusters: entries that shown relations join, larger first.

    Of ``pairs`` = n(n-1)/2, ``compared`` were tested, ``not_comparable`` could not be, ``not_tested`` were not proposed by recall
    vectors: nothing is known of them. ``neither`` were compared and are neither declared nor shown.
    """

    SCHEMA: ClassVar = "kinprint.graph"
    CALLED: ClassVar = "a family graph"
    VERSIONS: ClassVar = (GRAPH_VERSION,)

    schema: str
    schema_version: int
    catalog: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    clusters: tuple[tuple[int, ...], ...]
    pairs: int
    compared: int
    neither: int
    not_comparable: tuple[ReasonCount, ...]
    not_tested: int
    log10_alpha: float  # a relation is shown from here on, corrected
    made_by: str

    def count(self, state: EdgeState) -> int:
        """Return how many edges are in a state."""
        return sum(edge.state is state for edge in self.edges)

    def __repr__(self) -> str:
        joined = sum(len(group) > 1 for group in self.clusters)
        return f"<FamilyGraph: {len(self.nodes)} models, {joined} families, {len(self.edges)} edges>"
