"""Compare two reports value by value: which figures are equal, which are equal within rounding, which differ."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeAlias

import orjson

from kinprint._util.plain import printable
from kinprint.results.verification import Problem
from kinprint.text import Text, verbatim

SAME_MACHINE = 1e-9
"""Relative difference that counts as rounding where software and processor are the same: threads may add in another order."""
OTHER_MACHINE = 1e-6  # likewise where software or processor differ
_SHOWN = 160  # characters of a value in a message
_MISSING = object()  # an entry of a list
_NO_FIELD = object()  # a field, which a later version may have added
_NUMBERS = frozenset({int, float})
_PLAIN = _NUMBERS | {str, bool, type(None)}
Place: TypeAlias = "tuple[Place, str | int] | None"
"""Where a value stands: the place above it and its key or number there."""


@dataclass
class Agreement:
    """Figures and other values of two reports, counted and listed by how well they agree."""

    # Places are many, and are put into words only where the reports differ.
    tolerance: float = SAME_MACHINE
    later: Collection[str] = ()  # fields that a report of an older version may lack
    figures: int = 0
    exact: int = 0
    close: list[Problem] = field(default_factory=list)
    differ: list[Problem] = field(default_factory=list)
    other_values: int = 0
    other_differ: list[Problem] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)  # fields that a report of an older version does not have

    @property
    def problems(self) -> list[Problem]:
        """Everything that is not equal."""
        return [*self.other_differ, *self.differ]

    def compare(self, left: object, right: object, place: Place) -> None:
        """Compare what stands at one place of both, and below it."""
        if isinstance(left, dict) and isinstance(right, dict):
            keys = left if left.keys() == right.keys() else dict.fromkeys([*left, *right])
            self._below([(key, left.get(key, _NO_FIELD), right.get(key, _NO_FIELD)) for key in keys], place)
        elif isinstance(left, list) and isinstance(right, list):
            pairs = zip_longest(left, right, fillvalue=_MISSING)
            self._below([(number, one, two) for number, (one, two) in enumerate(pairs)], place)
        else:
            self._below([("", left, right)], None)

    def _below(self, entries: list[tuple[str | int, object, object]], place: Place) -> None:
        figures = others = 0
        for key, one, two in entries:
            kind = type(one)
            if kind is type(two) and kind in _PLAIN and one == two and (one != 0.0 or str(one) == str(two)):  # not −0
                figures += kind in _NUMBERS
                others += kind not in _NUMBERS
            elif isinstance(one, dict | list) and isinstance(two, dict | list) and kind is type(two):
                self.compare(one, two, (place, key))
            else:
                self._differ(one, two, _path((place, key)))
        self.figures += figures
        self.exact += figures
        self.other_values += others

    def _differ(self, left: object, right: object, path: str) -> None:
        problem = Problem("field", path, _said(left), _said(right))
        if left is _NO_FIELD and path in self.later:
            self.newer.append(path)
        elif not (_is_number(left) or _is_number(right)):
            self.other_values += 1
            self.other_differ.append(problem)
        else:
            self.figures += 1
            near = (
                isinstance(left, float)  # a count is never nearly right
                and isinstance(right, float)
                and math.isclose(left, right, rel_tol=self.tolerance, abs_tol=1e-300)
            )
            (self.close if near else self.differ).append(problem)


def agree(
    recorded: object, recomputed: object, *, tolerance: float, later: Collection[str], skip: tuple[str, ...]
) -> Agreement:
    """Compare two reports as parsed from JSON."""
    # Figures count as equal up to a relative `tolerance`. Fields of the top level in `skip` may differ. Fields in `later` may be
    # missing from the recorded report, being added after its version: these are listed, as nothing can be said of them.
    found = Agreement(tolerance, later)
    left, right = (
        {key: value for key, value in side.items() if key not in skip} if isinstance(side, dict) else side
        for side in (recorded, recomputed)
    )
    found.compare(left, right, None)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _path(place: Place) -> str:
    """Return a place as it is written in messages, such as ``comparisons[3].measurements[0].value``."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{printable(step, 80)}")
    return "".join(reversed(steps)).removeprefix(".")


def _said(value: object) -> Text:
    if value is _MISSING or value is _NO_FIELD:
        return Text("nothing")
    return verbatim(printable(orjson.dumps(value).decode(), _SHOWN))
