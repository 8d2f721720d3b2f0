"""Draw the layer map of a report as two rows of layers with links, and count the matches."""

from __future__ import annotations

from dataclasses import dataclass

from kinprint._util.plain import ranges
from kinprint.render.content.evidence import map_pairs, unread_layers
from kinprint.render.page.markup import PageWords
from kinprint.results.findings import TESTED, LayerFinding
from kinprint.results.report import Report

_MARGIN, _TOP, _BOTTOM, _HEIGHT = 30, 34, 116, 150
_CLOSEST, _WIDEST, _ROOM = 20, 44, 960  # between layers; few of them stand apart, many scroll
_MOST_LAYERS = 400  # beyond this a drawing says nothing that the table does not


@dataclass(frozen=True)
class Node:
    """One layer in its row."""

    x: int
    layer: int
    matched: bool
    read: bool = True


@dataclass(frozen=True)
class Rails:
    """Two rows: layers of A above, layers of B below, and a link for each match."""

    width: int
    height: int
    top: int
    bottom: int
    a: tuple[Node, ...]
    b: tuple[Node, ...]
    links: tuple[tuple[int, int, bool], ...]  # x of A, x of B, whether it joins layers of the same number


@dataclass(frozen=True)
class LayerMapFigure:
    """What the page shows of the layer map."""

    made: bool
    kind: str
    matched: int
    layers: tuple[LayerFinding, ...]
    rails: Rails | None
    describe: str
    unused: str | None  # layers of A that no layer of B matches
    unread: str = ""  # layers of either model that were not read


def layer_map_of(report: Report, words: PageWords) -> LayerMapFigure | None:
    """Return the layer map of a report, or None if none was sought."""
    if report.evidence is None:
        return None
    alignment = report.evidence.alignment
    if alignment.status != TESTED:
        return LayerMapFigure(False, alignment.kind, 0, (), None, "", None)
    joined = [(a, b) for a, b in alignment.matches if a < report.a.layers and b < report.b.layers]
    pairs = map_pairs(alignment.layers)
    describe = words.say("map.describe", pairs=pairs) if pairs else words.say("map.describe.none")
    free = sorted(set(range(report.a.layers)) - {source for source, _ in joined} - set(alignment.unread_a))
    fits = 0 < max(report.a.layers, report.b.layers) <= _MOST_LAYERS
    return LayerMapFigure(
        True,
        alignment.kind,
        len({layer for _, layer in joined}),
        alignment.layers,
        _rails(report, joined) if fits else None,
        describe,
        ranges(free) if joined and free else None,
        " ".join(unread_layers(alignment, words)),
    )


def _rails(report: Report, joined: list[tuple[int, int]]) -> Rails:
    assert report.evidence is not None
    alignment, most = report.evidence.alignment, max(report.a.layers, report.b.layers)
    pitch = min(_WIDEST, max(_CLOSEST, _ROOM // most))
    at = [_MARGIN + pitch // 2 + pitch * layer for layer in range(most)]
    rows = [
        tuple(Node(at[layer], layer, layer in matched, layer not in unread) for layer in range(count))
        for count, matched, unread in (
            (report.a.layers, {source for source, _ in joined}, alignment.unread_a),
            (report.b.layers, {layer for _, layer in joined}, alignment.unread),
        )
    ]
    links = tuple((at[source], at[layer], source == layer) for source, layer in joined)
    return Rails(_MARGIN * 2 + pitch * most, _HEIGHT, _TOP, _BOTTOM, rows[0], rows[1], links)
