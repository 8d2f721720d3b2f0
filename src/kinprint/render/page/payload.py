"""Pack the data that the page's scripts need: the report's own JSON, deflated, and beside it what is shown of its texts and names.

Figures come from the report itself, which the page can also save as a file. Names of strangers and sentences are made safe to show
here, each once, and the scripts use nothing else of the report's texts.
"""

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kinprint._util.plain import printable
from kinprint.render.page.markup import PageWords, middle_cut
from kinprint.results.context import LayerGrid
from kinprint.results.measurements import OK, Measurement, TensorComparison
from kinprint.results.report import Report
from kinprint.results.search import SearchReport
from kinprint.results.tree import PairsReport

LESS, BOUND, NO_TEST = 1, 2, 4  # flags of a measurement: closer is less; p is a bound; there is no null
_TEXT, _NAME = 300, 160
MOST_LAYERS = 128  # of either side of a grid: a cell has four pixels then
_LEVEL = 4  # of deflating: 26 ms for two models of 48 layers; level 6 takes 66, for 5% fewer bytes


def _place(found: dict[Any, int], value: object) -> int:
    """Return the place of a value among those found, each of which stands once."""
    return found.setdefault(value, len(found))


def packed(report: Report | PairsReport | SearchReport, voices: Sequence[PageWords], **shown: Any) -> bytes:
    """Return a line of JSON with what is shown, and the report's JSON after it, deflated, as base64."""
    words = {voice.lang: voice.templates("js.") for voice in voices}
    if isinstance(report, Report):
        report = replace(report, grids=tuple(grid.every(_step(grid)) for grid in report.grids))
    head = orjson.dumps({"lang": voices[0].lang, "words": words, **shown})
    return base64.b64encode(zlib.compress(b"%b\n%b" % (head, report.to_json()), _LEVEL))


def shown_of(report: Report, voices: Sequence[PageWords]) -> dict[str, Any]:
    """Return what scripts may show of a report's names and sentences."""
    said = [
        {
            "role": printable(grid.role, 60),
            "step": _step(grid),
            "null": _said(grid.null, voices),
            "off": None if grid.status == OK else _said(grid.reason, voices),
        }
        for grid in report.grids
    ]
    matches = report.evidence.alignment.matches if report.evidence is not None else []
    return {"measured": _measured(report.comparisons, voices), "grids": said, "map": matches}


def _step(grid: LayerGrid) -> int:
    """Return how many layers share one that is drawn."""
    return -(-max(1, len(grid.layers_a), len(grid.layers_b)) // MOST_LAYERS)


def _said(text: str | None, voices: Sequence[PageWords]) -> dict[str, str]:
    return {voice.lang: voice.said(text, _TEXT) if text else "" for voice in voices}


def _measured(comparisons: Iterable[TensorComparison], voices: Sequence[PageWords]) -> dict[str, Any]:
    """Return place, metric, source of p, remark and flags of every measurement, in the order of the report."""
    tables: list[dict[Any, int]] = [{} for _ in range(5)]
    names, roles, metrics, texts, hows = tables
    places: list[list[Any]] = []
    rows: list[list[int]] = []
    for item in comparisons:
        tensors = [_place(names, middle_cut(printable(side.tensor, 4 * _NAME), _NAME)) for side in (item.a, item.b)]
        for found in item.measurements or (Measurement("", item.status, reason=item.reason),):
            null = found.null
            how = _place(hows, (null.p_method, null.n_draws) if null else None)
            why = _place(texts, found.reason or (null.p_text if null else None))
            flags = LESS * (null.tail == "less") | BOUND * null.p_method.bound if null else NO_TEST
            rows.append([len(places), _place(metrics, printable(found.metric, 60)), how, why, flags])
        places.append([_place(roles, printable(item.role, 60)), item.layer, item.expert, *tensors])
    return {
        "roles": [*roles],
        "metrics": [*metrics],
        "names": [*names],
        "hows": [{voice.lang: printable(voice.how(*how), 40) if how else "" for voice in voices} for how in hows],
        "texts": [_said(text, voices) for text in texts],
        "places": places,
        "rows": rows,
    }
