"""Make the family graph of a catalog from what its entries declare and what exact tests show of pairs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kinprint._version import __version__
from kinprint.catalog.entry import Entry
from kinprint.results.graph import GRAPH_VERSION, EdgeState, FamilyGraph, GraphEdge, GraphNode, ReasonCount
from kinprint.text import Text

LOG10_ALPHA = -6.0
"""Chance of one false relation in the whole graph, as a power of ten: p-values are multiplied by the number of pairs."""

_STRONG = re.compile(r"etag:[0-9a-f]{64}")  # the SHA-256 by which the hub names large files
_NOT_PROPOSED = Text("the search for relatives did not propose the pair")
Pair = tuple[int, int]


@dataclass(frozen=True)
class Shown:
    """What the exact tests say of a pair; `log10_p` is corrected for the tests, None with the reason if none could run."""

    log10_p: float | None
    tests: int = 0
    in_place: float = 0.0
    standing: int = 0
    correlation: float = 0.0
    reason: Text | None = None


class _Groups:
    """Sets of entries that are joined one pair after the other."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def find(self, one: int) -> int:
        while self._above[one] != one:
            self._above[one] = self._above[self._above[one]]
            one = self._above[one]
        return one

    def join(self, one: int, two: int) -> None:
        self._above[max(self.find(one), self.find(two))] = min(self.find(one), self.find(two))

    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Return all of them, larger ones first."""
        found: dict[int, list[int]] = {}
        for one in range(len(self._above)):
            found.setdefault(self.find(one), []).append(one)
        return tuple(sorted(map(tuple, found.values()), key=lambda group: (-len(group), group)))


def same_files(a: Entry, b: Entry) -> bool:
    """Whether two entries have the same weight files, by the digests that the hub gives; sizes alone tell nothing."""
    one, two = (sorted(identity for _, identity in entry.files) for entry in (a, b))
    return bool(one) and one == two and all(_STRONG.fullmatch(identity) for identity in one)


def declared_pairs(entries: Sequence[Entry]) -> tuple[dict[Pair, int], list[tuple[str, ...]]]:
    """Return pairs of which one names the other as its base, with the base; and for every entry the bases that are not here.

    A card names a repository without a commit, so all commits of it that are entered are meant.
    """
    places: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        places.setdefault(entry.name.lower(), []).append(number)
    pairs: dict[Pair, int] = {}
    outside: list[tuple[str, ...]] = []
    for number, entry in enumerate(entries):
        missing = []
        for base in entry.declared_bases:
            here = [place for place in places.get(base.lower(), []) if place != number]
            missing += [] if here or base.lower() == entry.name.lower() else [base]
            pairs.update({(min(number, place), max(number, place)): place for place in here})
        outside.append(tuple(missing))
    return pairs, outside


def family_graph(
    place: str, entries: Sequence[Entry], shown: Mapping[Pair, Shown], unread: Mapping[int, Text] | None = None
) -> FamilyGraph:
    """Put what was measured beside what is declared. `shown` holds the pairs that were proposed, smaller number first.

    Of entries that are `unread`, for a reason, no pair could be compared, whether it was proposed or not.
    """
    count = len(entries)
    total = count * (count - 1) // 2
    damaged = dict(unread or {})
    shown = {pair: found for pair, found in shown.items() if not damaged.keys() & set(pair)} if damaged else shown
    correction = math.log10(max(total, 1))
    declared, outside = declared_pairs(entries)
    explained = _joined_by_cards(entries, declared)
    related = _Groups(count)
    edges: list[GraphEdge] = []
    reasons = Counter({reason: count - 1 - others for others, reason in enumerate(damaged.values())})
    lost = reasons.total()
    compared = neither = 0
    for pair in sorted({*shown, *declared}):
        found, base = shown.get(pair), declared.get(pair)
        if found is None or found.log10_p is None:
            why = next((damaged[one] for one in pair if one in damaged), _NOT_PROPOSED)
            reason = why if found is None else found.reason
            if found is not None:
                reasons[reason or Text("no test could run")] += 1
            if base is not None:
                edges.append(GraphEdge(*pair, EdgeState.NOT_COMPARED, base, reason=reason))
            continue
        compared += 1
        log10_p = min(0.0, found.log10_p + correction)
        related_here = log10_p <= LOG10_ALPHA
        if not related_here and base is None:
            neither += 1
            continue
        if related_here:
            related.join(*pair)
        edge = _compared(pair, found, log10_p, base, same_files(entries[pair[0]], entries[pair[1]]))
        edges.append(replace(edge, explained=explained.find(pair[0]) == explained.find(pair[1])))
    return FamilyGraph(
        schema=FamilyGraph.SCHEMA,
        schema_version=GRAPH_VERSION,
        catalog=place,
        nodes=tuple(map(_node, entries, outside)),
        edges=tuple(edges),
        clusters=related.sets(),
        pairs=total,
        compared=compared,
        neither=neither,
        not_comparable=tuple(ReasonCount(reason, pairs) for reason, pairs in reasons.most_common()),
        not_tested=total - lost - len(shown),
        log10_alpha=LOG10_ALPHA,
        made_by=f"kinprint {__version__}",
    )


def _compared(pair: Pair, found: Shown, log10_p: float, base: int | None, same: bool) -> GraphEdge:
    return GraphEdge(
        *pair,
        _state(base is not None, log10_p <= LOG10_ALPHA),
        base,
        log10_p,
        found.tests,
        found.in_place,
        same,
        standing=found.standing,
        correlation=found.correlation,
    )


def _state(is_declared: bool, is_shown: bool) -> EdgeState:
    if is_declared and is_shown:
        return EdgeState.BOTH
    return EdgeState.DECLARED_ONLY if is_declared else EdgeState.SHOWN_ONLY


def _joined_by_cards(entries: Sequence[Entry], declared: Iterable[Pair]) -> _Groups:
    """Join entries by declarations, by a base that both name and the catalog does not hold, and by their repository."""
    joined = _Groups(len(entries))
    for pair in declared:
        joined.join(*pair)
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        for name in {entry.name.lower(), *(base.lower() for base in entry.declared_bases)}:
            joined.join(first.setdefault(name, number), number)
    return joined


def _node(entry: Entry, outside: tuple[str, ...]) -> GraphNode:
    return GraphNode(
        entry.key,
        entry.name,
        entry.revision,
        entry.architecture,
        entry.layers,
        entry.hidden,
        entry.parameters,
        entry.licence,
        outside,
    )
