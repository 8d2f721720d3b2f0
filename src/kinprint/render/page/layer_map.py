"""Draw the layer map of a report as two rows of layers with links, and count the matches."""

from typing import Any

from kinprint._util.plain import ranges
from kinprint.render.content.evidence import map_pairs, unread_layers
from kinprint.render.page.markup import PageWords
from kinprint.results.findings import TESTED, LayerAlignment
from kinprint.results.report import Report

_MARGIN, _TOP, _BOTTOM, _HEIGHT = 30, 34, 116, 150
_CLOSEST, _WIDEST, _ROOM = 20, 44, 960  # between layers; few of them stand apart, many scroll
_MOST_LAYERS = 400  # beyond this a drawing says nothing that the table does not


def layer_map_of(report: Report, words: PageWords) -> dict[str, Any] | None:
    """Return what the template shows of the layer map, or None if none was sought."""
    if report.evidence is None:
        return None
    alignment, depths = report.evidence.alignment, (report.a.layers, report.b.layers)
    if alignment.status != TESTED:
        return {"made": False}
    joined = [(a, b) for a, b in alignment.matches if a < depths[0] and b < depths[1]]
    pairs = map_pairs(alignment.layers)
    free = sorted(set(range(depths[0])) - {a for a, _ in joined} - set(alignment.unread_a))
    return {
        "made": True,
        "kind": alignment.kind,
        "matched": len({b for _, b in joined}),
        "layers": alignment.layers,
        "rails": _rails(alignment, depths, joined) if 0 < max(depths) <= _MOST_LAYERS else None,
        "describe": words.say("map.describe", pairs=pairs) if pairs else words.say("map.describe.none"),
        "unused": ranges(free) if joined and free else None,  # layers of A that no layer of B matches
        "unread": " ".join(unread_layers(alignment, words)),
    }


def _rails(alignment: LayerAlignment, depths: tuple[int, int], joined: list[tuple[int, int]]) -> dict[str, Any]:
    """Return two rows, layers of A above and of B below, and a link for each match."""
    most = max(depths)
    pitch = min(_WIDEST, max(_CLOSEST, _ROOM // most))
    at = [_MARGIN + pitch // 2 + pitch * layer for layer in range(most)]
    rows = [
        [
            {"x": at[layer], "layer": layer, "matched": layer in matched, "read": layer not in unread}
            for layer in range(depth)
        ]
        for depth, matched, unread in (
            (depths[0], {a for a, _ in joined}, alignment.unread_a),
            (depths[1], {b for _, b in joined}, alignment.unread),
        )
    ]
    links = [(at[a], at[b], a == b) for a, b in joined]  # places, and whether the layers have the same number
    size = {"width": _MARGIN * 2 + pitch * most, "height": _HEIGHT, "top": _TOP, "bottom": _BOTTOM}
    return {**size, "a": rows[0], "b": rows[1], "links": links}
