"""Check measured figures against published ones.

The numbers were printed in, or measured by the code of, four public repositories (January 2026); `published.json` names their
commits and says for each group how it came about. ``claims.json`` beside a study lists, for each part, which figure is which
cell of which of the part's tables, and how far the two have to agree (`Claim`)::

    {"what": "cosine, {a} and {b}", "figure": "chahero_RESULTS/exp3_moe_layer10/{a}-{b}",
     "at": "exp3_moe.cosine", "where": {"a": "{a}", "layer_a": 10, "b": "{b}", "layer_b": 10}}

A name in braces in a path stands for every key that fits, read as a name of this program's (``k_proj``: ``attn_k``).
`published_checks` evaluates what is claimed on what a part has found.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson

from kinprint.studies.outcome import Check, Section, Trust
from kinprint.studies.studied_models import KNOWN
from kinprint.text import Text, places

if TYPE_CHECKING:
    from kinprint.studies.opened import StudyRun

NEEDS_FULL = Text("published on more elements or draws: the long settings are needed to compare")


@cache
def published() -> dict[str, Any]:
    """Return all published figures; ``layerwise`` has Solar against GLM by norm and layer."""
    found: dict[str, Any] = orjson.loads((Path(__file__).parent / "published.json").read_bytes())
    found["layerwise"] = {"norm_pre": {}, "norm_post": {}}
    for values in found["anlgboy_sanity"]["rows"]:
        row = dict(zip(found["anlgboy_sanity"]["cols"], values, strict=True))
        found["layerwise"][row["category"]][int(row["layer"])] = row
    return found


Bound: TypeAlias = dict[str, Any]  # what the names in braces stand for


@dataclass(frozen=True)
class Claim:
    """A published figure, or several of one kind, and where a study measures it; see `Check` for digits, trust, reason, within.

    Rows of a table are found by the cells of ``where``: a list means any of these, ``{"up_to": n}`` any number that is not
    greater, and a pair is found in either order. Without a row there is no check.
    """

    what: str  # what the number is; names in braces are bound ones, those of ``texts``, or columns of the row
    figure: str | float  # path in published.json, or the number itself
    at: str  # ``table.column``, or a name among the values that a part hands over
    figure_of: str = ""  # summary of all numbers that the path stands for
    where: Bound = field(default_factory=dict)
    of: str = ""  # ``count``, ``mean``, ``median``, ``sd``, ``min`` or ``max`` of all rows that fit
    n: int | None = None  # how many rows have to fit
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # names and values to bind, in all combinations
    digits: int | str = 4  # ``printed``: those of the number itself
    small: int | None = None  # digits of numbers below 0.01, which then agree within half a unit and no more
    trust: Trust = "measured"
    reason: str | None = None
    within: float | str | None = None  # or the name of a value
    models: Sequence[str] = ()  # that have to be the published ones, beside those that the path or ``where`` names
    texts: Mapping[str, str] = field(default_factory=dict)  # words with a translation that ``what`` may name
    free: str | None = None  # why replicas need not have this number: a remark without a result
    fitted: str | None = None  # how far replicas were made to have this number: a remark
    full: bool = False  # measured by the long settings only
    compared: bool = True  # False: published for another setting; shown without a result

    def bindings(self) -> Iterator[Bound]:
        """Yield the combinations of ``each``, of which ``n,layer`` binds two names at a time."""
        for values in itertools.product(*self.each.values()):
            bound: Bound = {}
            for names, value in zip(self.each, values, strict=True):
                several = names.split(",")
                bound |= zip(several, value if len(several) > 1 else [value], strict=True)
            yield bound

    def tolerance(self, number: float, within: float | None) -> tuple[int, float | None]:
        """Return the digits that a number is compared to, and another tolerance if there is one."""
        if self.small is not None and abs(number) < 0.01:
            return self.small, 0.5 * 10.0**-self.small
        if self.digits != "printed":
            return int(self.digits), within
        mantissa, exponent = f"{number:.6e}".split("e")
        return len(mantissa.rstrip("0").partition(".")[2]) - int(exponent), within


@cache
def claims(study: str) -> dict[str, list[Claim]]:
    """Return what a study's ``claims.json`` says of each part."""
    data = orjson.loads((Path(__file__).parent / study.replace("-", "_") / "claims.json").read_bytes())
    return {part: [Claim(**claim) for claim in found] for part, found in data.items()}


_SUMMARIES: dict[str, Callable[[Any], Any]] = {"": itemgetter(0), "count": len, "mean": np.mean, "median": np.median}
_SUMMARIES |= {"sd": np.std, "min": np.min, "max": np.max}


def published_checks(
    run: StudyRun, section: Section, made: Iterable[Claim], values: Mapping[str, float | None] | None = None
) -> list[Check]:
    """Return published figures beside the cells of the section's tables, or beside `values` (the section's own) by name."""
    values = section.values if values is None else values
    found = []
    for claim in made:
        for first in claim.bindings():
            figures = list(_figures(claim.figure, first))
            if claim.figure_of:
                figures = [(first, float(_SUMMARIES[claim.figure_of]([number for _, number in figures])))]
            for bound, number in figures:
                where, models = _filled(claim.where, bound), _filled(list(claim.models), bound)
                named = [name for name in (*models, *bound.values(), *where.values()) if isinstance(name, str)]
                if run.original(*(name for name in named if name in KNOWN)):
                    found.append(_check(run, section, claim, number, bound, values))
    return [check for check in found if check is not None]


def _check(
    run: StudyRun, section: Section, claim: Claim, number: float, bound: Bound, values: Mapping[str, float | None]
) -> Check | None:
    at, where, row = _filled(claim.at, bound), _filled(claim.where, bound), {}
    if at in values:
        measured = values[at]
    else:
        rows, column = _rows(section, at, where)
        if not rows or (claim.n is not None and len(rows) != claim.n):
            return None
        row, cell = rows[0], _SUMMARIES[_filled(claim.of, bound)]([row[column] for row in rows])
        measured = None if cell is None else float(cell)
    remark = (run.request.replicas and _filled(claim.fitted, bound)) or claim.reason
    reason, comparable = remark and Text(remark), claim.compared
    if claim.full and not run.request.full:
        measured, reason = None, reason if claim.trust == "wrong" else NEEDS_FULL
    if claim.free is not None and run.request.replicas:
        reason, comparable = Text(claim.free), False
    known = where | bound | row | {name: Text(text) for name, text in _filled(dict(claim.texts), bound).items()}
    what = Text(claim.what, **{name: known[name] for name, _ in places(claim.what)})
    within = _filled(claim.within, bound)
    digits, within = claim.tolerance(number, values[within] if isinstance(within, str) else within)
    return Check(what, number, measured, digits, claim.trust, reason or None, within, comparable)


def _rows(section: Section, at: str, where: Bound) -> tuple[list[Bound], str]:
    """Return the rows that have these cells, and the column; those of the pair in the other order if there are none."""
    name, _, column = at.partition(".")
    records = [
        dict(zip((item.key for item in table.columns), row, strict=True))
        for table in section.tables
        if table.name == name
        for row in table.rows
    ]
    for turn in (str, _other_side):
        rows = [row for row in records if all(_fits(row.get(turn(key)), value) for key, value in where.items())]
        if rows and turn(column) in rows[0]:
            return rows, turn(column)
    return [], column


def _fits(cell: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return cell is not None and bool(cell <= wanted["up_to"])
    return cell in wanted if isinstance(wanted, list) else bool(cell == wanted)


def _other_side(key: str) -> str:
    stem, underscore, side = key.rpartition("_")
    return stem + underscore + {"a": "b", "b": "a"}.get(side, side)


def _filled(value: Any, bound: Bound) -> Any:
    """Return data with the names in braces filled in; what is nothing but one such name keeps its type."""
    if isinstance(value, dict):
        return {key: _filled(item, bound) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, bound) for item in value]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\{(\w+)\}", value)
    return bound[whole[1]] if whole else value.format(**bound)


def _figures(figure: str | float, first: Bound) -> Iterator[tuple[Bound, float]]:
    """Yield each number that a path stands for, with all names that are bound."""
    if not isinstance(figure, str) or figure.strip("{}") in first:
        yield first, _filled(figure, first)
        return
    found: list[tuple[Bound, Any]] = [(first, published())]
    for name, value in first.items():
        figure = figure.replace(f"{{{name}}}", str(value))
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
    return int(text) if text.isdecimal() else published()["_meta"]["names"].get(text, text)
