"""Draw how far each role stands from its null in each layer: a map of cells in few colours, one path for each colour."""

from typing import Any

from kinprint._util.numeric import median
from kinprint.results.measurements import TensorComparison
from kinprint.results.report import Report

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
