"""Pack the data that the page's scripts need: columns of numbers as base64, each text once.

A pair of 48 layers has some nine thousand measurements. Four bytes a figure hold seven digits, more than a page shows; the
report's JSON has all of them.
"""

from __future__ import annotations

import base64
import math
import struct
from array import array
from collections.abc import Iterable
from functools import cache
from typing import Any

import orjson

from kinprint._util.plain import printable
from kinprint.render.page.markup import PageWords, middle_cut
from kinprint.results.context import LayerGrid
from kinprint.results.measurements import OK, Measurement, TensorComparison
from kinprint.results.report import Report

_LARGEST = float.fromhex("0x1.fffffep+127")  # of single precision
LESS, BOUND, NO_TEST = 1, 2, 4  # flags of a measurement: closer is less; p is a bound; there is no null
_FIGURES, _WHOLE = ("value", "mean", "sd", "z", "p"), ("place", "metric", "n", "how", "why", "flags")
_TEXT, _NAME = 300, 160
MOST_LAYERS = 128  # of either side of a layer grid: a cell has four pixels then, and a role's grids 350 KB


class _Interned(dict[str, int]):
    """Texts, each once, and the place of each in their order."""

    def place(self, text: str) -> int:
        return self.setdefault(text, len(self))


def payload_of(report: Report, words: PageWords) -> str:
    """Return the scripts' data as JSON that may stand inside a script element."""
    data = {
        "lang": words.lang,
        "words": words.templates("js."),
        "measured": _measured(report.comparisons, words),
        "grids": [_grid(grid, words) for grid in report.grids],
        "map": report.evidence.alignment.matches if report.evidence is not None else [],
    }
    return embedded(data)


def embedded(data: object) -> str:
    """Return data as JSON without anything that could end a script element, or start a comment in one."""
    text = orjson.dumps(data).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _measured(comparisons: Iterable[TensorComparison], words: PageWords) -> dict[str, Any]:
    texts, names, roles, metrics = _Interned(), _Interned(), _Interned(), _Interned()
    how = cache(lambda method, draws: texts.place(printable(words.how(method, draws), 40)))
    places: list[list[Any]] = []
    rows: list[tuple[Any, ...]] = []
    for item in comparisons:
        tensors = [names.place(middle_cut(printable(side.tensor, 4 * _NAME), _NAME)) for side in (item.a, item.b)]
        for found in item.measurements or (Measurement("", item.status, reason=item.reason),):
            null = found.null
            why = found.reason or (null.p_text if null else None)
            whole = (
                len(places),
                metrics.place(printable(found.metric, 60)),
                null.n if null else 0,
                how(null.p_method, null.n_draws) if null else texts.place(""),
                texts.place(words.said(why, _TEXT) if why else ""),
                LESS * (null.tail == "less") | BOUND * null.p_method.bound if null else NO_TEST,
            )
            figures = (null.mean, null.sd, null.z, null.log10_p) if null else (None,) * 4
            rows.append((found.value, *figures, *whole))
        places.append([roles.place(printable(item.role, 60)), item.layer, item.expert, *tensors])
    return {
        "roles": list(roles),
        "metrics": list(metrics),
        "texts": list(texts),
        "names": list(names),
        "places": places,
        **{key: _singles(row[at] for row in rows) for at, key in enumerate(_FIGURES)},
        **{key: _packed(array("I", [row[at] for row in rows])) for at, key in enumerate(_WHOLE, len(_FIGURES))},
    }


def _singles(figures: Iterable[float | None]) -> str:
    """Return figures in single precision: what is too large is the largest, what does not exist is NaN."""
    column = array("f", [math.nan if figure is None else figure for figure in figures])
    if math.inf in column or -math.inf in column:
        column = array("f", [math.copysign(_LARGEST, each) if math.isinf(each) else each for each in column])
    return _packed(column)


def _packed(column: array[Any]) -> str:
    if struct.pack("=H", 1) != struct.pack("<H", 1):  # scripts read little-endian on every machine in use
        column.byteswap()
    return base64.b64encode(column.tobytes()).decode()


def _grid(grid: LayerGrid, words: PageWords) -> dict[str, Any]:
    step = -(-max(1, len(grid.layers_a), len(grid.layers_b)) // MOST_LAYERS)
    head: dict[str, Any] = {
        "role": printable(grid.role, 60),
        "n": grid.n,
        "null": words.said(grid.null, _TEXT) if grid.null else "",
        "rows": grid.rows,
        "a": grid.layers_a[::step],
        "b": grid.layers_b[::step],
        "thinned": words.say("heat.thinned", n=step) if step > 1 else "",
    }
    if grid.status != OK:
        return {**head, "off": words.said(grid.reason, _TEXT)}
    parts = grid.grids().items()
    return {**head, **{key: _singles(value for row in part[::step] for value in row[::step]) for key, part in parts}}
