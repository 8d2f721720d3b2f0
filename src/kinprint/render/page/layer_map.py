"""The layer map as two rails with links, and what is counted beside it."""

from __future__ import annotations

from dataclasses import dataclass

from kinprint.render.page.markup import PageWords, ranges
from kinprint.results.findings import TESTED, LayerFinding
from kinprint.results.report import Report

_MARGIN, _TOP, _BOTTOM, _HEIGHT = 30, 34, 116, 150
_CLOSEST, _WIDEST, _ROOM = 20, 44, 960  # between layers; few of them stand apart, many scroll
_MOST_LAYERS = 400  # beyond this a drawing says nothing that the table does not


@dataclass(frozen=True)
class Node:
    """One layer on a rail."""

    x: int
    layer: int
    matched: bool


@dataclass(frozen=True)
class Rails:
    """Two rails: layers of A above, layers of B below, and a link for each match."""

    width: int
    height: int
    top: int
    bottom: int
    a: tuple[Node, ...]
    b: tuple[Node, ...]
    links: tuple[tuple[int, int, bool], ...]  # x of A, x of B, whether it joins layers of the same number


@dataclass(frozen=True)
class LayerMap:
    """What the page says of the layer map."""

    made: bool
    kind: str
    matched: int
    layers: tuple[LayerFinding, ...]
    rails: Rails | None
    describe: str
    unused: str | None  # layers of A that no layer of B matches


def layer_map_of(report: Report, words: PageWords) -> LayerMap | None:
    """Return the layer map of a report, or None if none was sought."""
    if report.evidence is None:
        return None
    alignment = report.evidence.alignment
    if alignment.status != TESTED:
        return LayerMap(False, alignment.kind, 0, (), None, "", None)
    joined = {
        item.layer: item.source
        for item in alignment.layers
        if item.shared and item.source is not None and item.layer < report.b.layers and item.source < report.a.layers
    }
    pairs = ", ".join(f"{layer}←{source}" for layer, source in joined.items())
    describe = words.say("map.describe", pairs=pairs) if pairs else words.say("map.describe.none")
    free = sorted(set(range(report.a.layers)) - set(joined.values()))
    fits = 0 < max(report.a.layers, report.b.layers) <= _MOST_LAYERS
    return LayerMap(
        True,
        alignment.kind,
        len(joined),
        alignment.layers,
        _rails(report.a.layers, report.b.layers, joined) if fits else None,
        describe,
        ranges(free) if joined and free else None,
    )


def _rails(layers_a: int, layers_b: int, joined: dict[int, int]) -> Rails:
    most = max(layers_a, layers_b)
    pitch = min(_WIDEST, max(_CLOSEST, _ROOM // most))
    at = [_MARGIN + pitch // 2 + pitch * layer for layer in range(most)]
    sources = set(joined.values())
    a = tuple(Node(at[layer], layer, layer in sources) for layer in range(layers_a))
    b = tuple(Node(at[layer], layer, layer in joined) for layer in range(layers_b))
    links = tuple((at[source], at[layer], source == layer) for layer, source in joined.items())
    return Rails(_MARGIN * 2 + pitch * most, _HEIGHT, _TOP, _BOTTOM, a, b, links)
