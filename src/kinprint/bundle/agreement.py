"""Two reports side by side, value by value: which figures are equal, which nearly, which not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import orjson

from kinprint.plain import printable
from kinprint.verification import Problem

SAME_MACHINE = 1e-9
"""Relative difference that counts as rounding where software and processor are the same: threads may add in another order."""
OTHER_MACHINE = 1e-6
"""Likewise where software or processor differ."""
_SHOWN = 160  # characters of a value in a message
_MISSING = object()  # an entry of a list
_NO_FIELD = object()  # a field, which a later version may have added


@dataclass
class Agreement:
    """What the walk found."""

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


def agree(
    recorded: object, recomputed: object, *, tolerance: float, later: Collection[str], skip: tuple[str, ...]
) -> Agreement:
    """Compare two reports as they stand in JSON.

    Parameters
    ----------
    recorded, recomputed
        Parsed JSON.
    tolerance
        Relative difference up to which figures count as equal.
    later
        Fields that the recorded report may lack, being of a version before they were added. They are named, as nothing can be
        said of them.
    skip
        Fields of the top level that may differ.
    """
    found = Agreement()
    for path, left, right in _walk(recorded, recomputed, "", skip):
        if left is _NO_FIELD and path in later:
            found.newer.append(path)
        elif _is_number(left) and _is_number(right):
            found.figures += 1
            _figure(found, path, left, right, tolerance)
        elif _is_number(left) or _is_number(right):
            found.figures += 1
            found.differ.append(_problem(path, left, right))
        else:
            found.other_values += 1
            if left != right or type(left) is not type(right):  # what is missing equals nothing
                found.other_differ.append(_problem(path, left, right))
    return found


def _figure(found: Agreement, path: str, left: object, right: object, tolerance: float) -> None:
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if left == right and type(left) is type(right):
        found.exact += 1
        return
    rounding = isinstance(left, float) and isinstance(right, float)  # a count is never nearly right
    if rounding and math.isclose(left, right, rel_tol=tolerance, abs_tol=1e-300):
        found.close.append(_problem(path, left, right))
    else:
        found.differ.append(_problem(path, left, right))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _walk(left: object, right: object, path: str, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, object, object]]:
    """Yield all places where either side has a value that is no list and no object."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            if path or key not in skip:
                below = f"{path}.{printable(key, 80)}" if path else printable(key, 80)
                yield from _walk(left.get(key, _NO_FIELD), right.get(key, _NO_FIELD), below)
    elif isinstance(left, list) and isinstance(right, list):
        for number in range(max(len(left), len(right))):
            yield from _walk(
                left[number] if number < len(left) else _MISSING,
                right[number] if number < len(right) else _MISSING,
                f"{path}[{number}]",
            )
    else:
        yield path, left, right


def _problem(path: str, left: object, right: object) -> Problem:
    return Problem("field", path, _said(left), _said(right))


def _said(value: object) -> str:
    return "nothing" if value is _MISSING or value is _NO_FIELD else printable(orjson.dumps(value).decode(), _SHOWN)
