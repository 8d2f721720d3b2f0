"""Draw maps of layers: which match which, as two rows with links, and how far each role of each stands from its null."""

from typing import Any

from kinprint._util.numeric import median
from kinprint._util.plain import ranges
from kinprint.render.content.evidence import map_pairs, unread_layers
from kinprint.render.page.markup import PageWords
from kinprint.results.findings import TESTED, LayerAlignment
from kinprint.results.measurements import TensorComparison
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


_EDGES = (-3, 3, 5, 10, 20, 40)  # of z, between colours
_UNKNOWN = "unknown"
_USUAL = "pearson"


def role_map(report: Report) -> dict[str, Any] | None:
    """Return roles, layers and the cells of each colour; None where no tensor stands beside a null."""
    found: dict[str, dict[int | None, list[float | None]]] = {}
    for item in report.comparisons:
        found.setdefault(item.role, {}).setdefault(item.layer, []).append(closeness(item))
    if not any(z is not None for row in found.values() for several in row.values() for z in several):
        return None
    columns = sorted({layer for row in found.values() for layer in row}, key=lambda at: -1 if at is None else at)
    places = {layer: number for number, layer in enumerate(columns)}
    cells: dict[str, list[str]] = {key: [] for key in (*map(str, range(len(_EDGES) + 1)), _UNKNOWN)}
    for row, layers in enumerate(found.values()):
        for layer, several in layers.items():
            known = [z for z in several if z is not None]
            key = str(sum(median(known) > edge for edge in _EDGES)) if known else _UNKNOWN
            cells[key].append(f"M{places[layer]} {row}h.94v.9h-.94z")
    edges = (None, *_EDGES, None)
    bins = [
        {"key": key, "path": "".join(drawn), "count": len(drawn), "low": low, "high": high}
        for (key, drawn), low, high in zip(cells.items(), (*edges[:-1], None), (*edges[1:], None), strict=True)
    ]
    return {"roles": [*found], "columns": columns, "bins": bins}


def closeness(item: TensorComparison) -> float | None:
    """Return how far a tensor stands from its null, in standard deviations, up being closer; None where it has no null."""
    nulls = {found.metric: found.null for found in item.measurements if found.null is not None}
    null = nulls.get(_USUAL, next(iter(nulls.values()), None))
    if null is None or null.z is None:
        return None
    return -null.z if null.tail == "less" else null.z
