"""The published figures that studies are checked against: as data, beside the table cells that measure them.

The numbers were printed in, or measured by the code of, four public repositories (January 2026); `published.json` names their
commits and says for each group how it came about. A study lists its `Claim`s: which figure, which cell of which of its tables,
and how far the two have to agree. `section_checks` evaluates such a list on what a part has found::

    Claim("cosine, {a}[{layer_a}] – {b}[{layer_b}]", "chahero_RESULTS/exp3_moe_layer10/{a}-{b}",
          "exp3_moe.cosine", {"a": "{a}", "layer_a": 10, "b": "{b}", "layer_b": 10})

A name in braces in the path stands for every key there that fits, read as a name of this program's (``k_proj``: ``attn_k``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson

from kinprint.studies.outcome import Check, Section, Table, Trust
from kinprint.studies.studied_models import KNOWN
from kinprint.text import Text, places

if TYPE_CHECKING:
    from kinprint.studies.opened import Stage

NAMES = {
    "solar": "Solar",
    "glm": "GLM",
    "phi": "Phi",
    "qwen3_4b": "Qwen3-4B",
    "qwen3_14b": "Qwen3-14B",
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "post_attention_norm",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "norm_pre": "input_norm",
    "norm_post": "post_attention_norm",
}
"""What the publications call models and roles, and what this program calls them."""

WRONG_D2 = Text(
    "Appendix D-2 fits no measurement: three independent readers agree with each other, not with it (layer 0: 0.127, not 0.950)"
)
WRONG_E3 = Text("Appendix E-3 says 0.94 and 0.01; two independent measurements give 0.986 and −0.002")
MIXED = Text(
    "a mixture: 0.95 for Solar is a mean over layers, 0.99 for Phi a best layer; on the same 32 layers all three are 0.93"
)
NEEDS_FULL = Text("published on more elements or draws: the long settings are needed to compare")


@cache
def published() -> dict[str, Any]:
    """Return all published figures; ``layerwise`` has Solar against GLM by norm and layer."""
    found: dict[str, Any] = orjson.loads((Path(__file__).parent / "published.json").read_bytes())
    rows = [dict(zip(found["anlgboy_sanity"]["cols"], row, strict=True)) for row in found["anlgboy_sanity"]["rows"]]
    found["layerwise"] = {
        category: {int(row["layer"]): row for row in rows if row["category"] == category}
        for category in ("norm_pre", "norm_post")
    }
    return found


def layerwise(category: str) -> dict[int, dict[str, float]]:
    """Return Solar against GLM by layer (``norm_pre`` or ``norm_post``): means, standard deviations, cosine, Pearson."""
    found: dict[int, dict[str, float]] = published()["layerwise"][category]
    return found


Bound: TypeAlias = dict[str, Any]
"""What the names in braces stand for."""


@dataclass(frozen=True)
class Claim:
    """A published figure, or several of one kind, and where a study measures it.

    Parameters
    ----------
    what
        Sentence that says what the number is; names in braces are those of the path, of ``where``, or columns of the row.
    figure
        Path in published.json, or the number itself.
    at
        ``table.column``, or a name among the values that a part hands over.
    where
        Cells of the row. Without a row there is no check; a pair is found in either order.
    of
        ``mean``, ``median``, ``sd``, ``min`` or ``max`` of all rows that fit; ``n`` is then how many there have to be.
    digits, trust, reason, within
        As in `kinprint.studies.outcome.Check`; digits and within may be functions of the published number.
    models
        Models that have to be the published ones; those that the path or ``where`` names have to be in any case.
    free
        Why replicas need not have this number: on them, the check has this remark and no result.
    full
        Whether only the long settings measure it: otherwise it is shown without a measured value.
    """

    what: str
    figure: str | float
    at: str
    where: Mapping[str, object] = field(default_factory=dict)
    of: str = ""
    n: int | None = None
    digits: int | Callable[[float], int] = 4
    trust: Trust = "measured"
    reason: Text | None = None
    within: float | Callable[[float], float | None] | None = None
    models: tuple[str, ...] = ()
    free: Text | None = None
    full: bool = False


_SUMMARIES: dict[str, Callable[[Any], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "sd": np.std,
    "min": np.min,
    "max": np.max,
}


def section_checks(
    stage: Stage, section: Section, claims: Iterable[Claim], values: Mapping[str, float | None] | None = None
) -> list[Check]:
    """Return published figures beside the cells of the section's tables, or beside `values` by name."""
    tables = {table.name: table for table in section.tables}
    found: list[Check] = []
    for claim in claims:
        for bound, number in _figures(claim.figure):
            where = {key: _filled(value, bound) for key, value in claim.where.items()}
            named = {name for name in (*claim.models, *bound.values(), *where.values()) if name in KNOWN}
            if not stage.original(*named):
                continue
            made = _check(stage, claim, number, bound | where, _filled(claim.at, bound), where, tables, values or {})
            found += [] if made is None else [made]
    return found


def _check(
    stage: Stage,
    claim: Claim,
    number: float,
    bound: Bound,
    at: str,
    where: Mapping[str, object],
    tables: Mapping[str, Table],
    values: Mapping[str, float | None],
) -> Check | None:
    if at in values:
        row, measured = {}, values[at]
    else:
        name, _, column = at.partition(".")
        rows, column = _rows(tables[name], where, column) if name in tables else ([], column)
        if not rows or (claim.n is not None and len(rows) != claim.n):
            return None
        row, cells = rows[0], [row[column] for row in rows]
        measured = _SUMMARIES[claim.of](cells) if claim.of else cells[0]
        measured = None if measured is None else float(measured)
    reason, comparable = claim.reason, True
    if claim.full and not stage.request.full:
        measured, reason = None, NEEDS_FULL
    if claim.free is not None and stage.request.replicas:
        reason, comparable = claim.free, False
    known = row | bound
    what = Text(claim.what, **{name: known[name] for name, _ in places(claim.what)})
    digits = claim.digits(number) if callable(claim.digits) else claim.digits
    within = claim.within(number) if callable(claim.within) else claim.within
    return Check(what, number, measured, digits, claim.trust, reason, within, comparable)


def _rows(table: Table, where: Mapping[str, object], column: str) -> tuple[list[dict[str, Any]], str]:
    """Return the rows that have these cells, and the column; those of the pair in the other order if there are none."""
    records = [dict(zip((item.key for item in table.columns), row, strict=True)) for row in table.rows]
    for turn in (str, _other_side):
        wanted = {turn(key): value for key, value in where.items()}
        rows = [row for row in records if all(row.get(key) == value for key, value in wanted.items())]
        if rows and turn(column) in rows[0]:
            return rows, turn(column)
    return [], column


def _other_side(key: str) -> str:
    swap = {"a": "b", "b": "a"}
    stem, underscore, side = key.rpartition("_")
    return stem + underscore + swap.get(side, side)


def _filled(value: Any, bound: Bound) -> Any:
    """Return a value with the names in its braces filled in; what is nothing but one such name keeps its type."""
    if not isinstance(value, str) or "{" not in value:
        return value
    whole = re.fullmatch(r"\{(\w+)\}", value)
    return bound[whole[1]] if whole else value.format(**bound)


def _figures(figure: str | float) -> Iterator[tuple[Bound, float]]:
    """Yield each number that a path stands for, with the names it binds."""
    if not isinstance(figure, str):
        yield {}, figure
        return
    found: list[tuple[Bound, Any]] = [({}, published())]
    for step in figure.split("/"):
        pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(step)))
        found = [
            (bound | {name: _read(text) for name, text in match.groupdict().items()}, inner)
            for bound, outer in found
            for key, inner in (outer.items() if isinstance(outer, dict) else enumerate(outer))
            if (match := pattern.fullmatch(str(key)))
        ]
    if not found:
        raise ValueError(f"no published figure is called {figure!r}")
    yield from ((bound, number) for bound, number in found if isinstance(number, int | float))


def _read(text: str) -> str | int:
    return int(text) if text.isdecimal() else NAMES.get(text, text)
