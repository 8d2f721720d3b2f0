"""Place every test and control of a pair on one axis: how seldom unrelated models would agree as much.

Holm's correction bounds the chance that *any* test of an unrelated pair falls below α by α. So the band up to α = 0.05 has a
plain meaning: of unrelated pairs, at least 95 in 100 have all of their tests inside it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kinprint.render.page.markup import PageWords
from kinprint.render.texts.words import power_of_ten
from kinprint.results.findings import TESTED, ControlFinding, Evidence, EvidenceTest, Verdict

BAND = -math.log10(0.05)
_BEND = 3.0  # the axis is linear up to here, and logarithmic beyond
_BEND_AT, _LAST_AT = 34.0, 97.0  # in per cent of the width
_FIRST_AT = 1.5
_LEAST_SPAN = 12.0
_TICKS = (1, 2, 3, 6, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
_WIDE, _NARROW = 560.0, 260.0  # pixels that the axis has at least, on a screen and on a phone
_TEXT, _RAISED, _BETWEEN = 7.4, 5.0, 10.0  # pixels of a character, of one in an exponent, and between two labels
_EXPONENT = frozenset("⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEFT, _RIGHT = 6.0, 92.0  # labels nearer to the edges grow inwards
MOST_TESTS = 12


@dataclass(frozen=True)
class Axis:
    """The map from log10 p to a place between 0 and 100 per cent of the width."""

    last: float

    def at(self, log10_p: float) -> float:
        """Return the place of a p-value."""
        size = max(0.0, -log10_p)
        if size <= _BEND:
            return round(_FIRST_AT + (_BEND_AT - _FIRST_AT) * size / _BEND, 2)
        share = math.log(size / _BEND) / math.log(self.last / _BEND)
        return round(min(_LAST_AT, _BEND_AT + (_LAST_AT - _BEND_AT) * share), 2)


@dataclass(frozen=True)
class Tick:
    """A label of the axis; ``minor`` ones are left out where there is little room."""

    at: float
    text: str
    anchor: str  # "start", "middle", "end"
    minor: bool


@dataclass(frozen=True)
class Mark:
    """One row: a test, control or the pair, its place (None if it has none, with the reason in ``text``), its value in words."""

    shape: str  # "pair", "test", "control", "failed"
    label: str
    note: str
    at: float | None
    text: str
    beyond: bool


@dataclass(frozen=True)
class EvidenceChart:
    """All that the template draws."""

    band: float
    threshold: float
    ticks: tuple[Tick, ...]
    pair: Mark
    controls: tuple[Mark, ...]
    tests: tuple[Mark, ...]
    more: int


def evidence_chart(verdict: Verdict | None, evidence: Evidence | None, words: PageWords) -> EvidenceChart | None:
    """Place the pair, its controls and its strongest tests; None where no test has a p-value."""
    if verdict is None or evidence is None:
        return None
    ran = [test for test in evidence.tests if test.status == TESTED and test.log10_p_holm is not None]
    ran.sort(key=lambda test: (_corrected(test), test.log10_p or 0.0))
    if not ran:
        return None
    figures = [_corrected(test) for test in ran]
    figures += [item.log10_p for item in evidence.controls if item.log10_p is not None]
    axis = Axis(max(_LEAST_SPAN, 1.05 * max(-figure for figure in figures)))
    alpha = verdict.log10_alpha
    strongest = _corrected(ran[0]) if verdict.log10_p is None else verdict.log10_p
    key = "picture.pair.note" if len(ran) == len(evidence.tests) else "picture.pair.note.off"
    note = words.say(key, n=len(ran), all=len(evidence.tests))
    odds = words.odds(strongest)
    pair = Mark("pair", words.say("picture.pair"), note, axis.at(strongest), odds, strongest <= alpha)
    return EvidenceChart(
        band=axis.at(-BAND),
        threshold=axis.at(alpha),
        ticks=tuple(_ticks(axis, alpha)),
        pair=pair,
        controls=tuple(_control(item, axis, alpha, words) for item in evidence.controls),
        tests=tuple(_test(test, axis, alpha, words) for test in ran[:MOST_TESTS]),
        more=max(0, len(ran) - MOST_TESTS),
    )


def _corrected(test: EvidenceTest) -> float:
    return test.log10_p_holm or 0.0


def _test(test: EvidenceTest, axis: Axis, alpha: float, words: PageWords) -> Mark:
    value, where = _corrected(test), words.in_layer(words.said(test.scope, 60), test.layer)
    return Mark("test", words.label("test", test.name), where, axis.at(value), words.odds(value), value <= alpha)


def _control(item: ControlFinding, axis: Axis, alpha: float, words: PageWords) -> Mark:
    known = words.has(f"control.{item.name}")
    name = words.label("control", item.name) if known else words.said(item.name, 60)
    status = words.label("control_status", item.status)
    note = words.say("picture.control.note", expected=words.label("class", item.expected), status=status)
    shape = "failed" if item.status == "failed" else "control"
    if item.log10_p is None:
        return Mark(shape, name, note, None, words.said(item.reason, 80) if item.reason else status, False)
    return Mark(shape, name, note, axis.at(item.log10_p), words.odds(item.log10_p), item.log10_p <= alpha)


def _ticks(axis: Axis, alpha: float) -> Iterable[Tick]:
    """Yield labels that touch neither each other nor the threshold, which has its own."""
    limit = axis.at(alpha)
    taken: dict[float, list[tuple[float, float]]] = {_WIDE: [(limit, limit)], _NARROW: [(limit, limit)]}
    for size in _TICKS:
        if size > axis.last:
            break
        at = axis.at(-size)
        text = f"1/{10**size:,}" if size <= 3 else f"1/{power_of_ten(size)}"
        anchor = "start" if at < _LEFT else "end" if at > _RIGHT else "middle"
        if _take(at, text, anchor, _WIDE, taken[_WIDE]):
            yield Tick(at, text, anchor, not _take(at, text, anchor, _NARROW, taken[_NARROW]))


def _take(at: float, text: str, anchor: str, width: float, taken: list[tuple[float, float]]) -> bool:
    """Return whether a label has room on an axis of `width` pixels, and reserve that room."""
    long = 100.0 * sum(_RAISED if c in _EXPONENT else _TEXT for c in text) / width
    low = at - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * long
    gap = 100.0 * _BETWEEN / width
    if any(low < end + gap and start < low + long + gap for start, end in taken):
        return False
    taken.append((low, low + long))
    return True
