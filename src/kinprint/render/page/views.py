"""What the page says that takes more than a template: certainty in words, the example, what was read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kinprint.render.page.evidence_chart import BAND
from kinprint.render.page.markup import Voice
from kinprint.results.context import DeclaredFinding, FileReads
from kinprint.results.findings import (
    IDENTICAL,
    TESTED,
    ControlFinding,
    Evidence,
    EvidenceTest,
    MethodFinding,
    MethodNull,
    Verdict,
)
from kinprint.results.measurements import CosineExplained, NullResult, RoleSummary, TensorComparison
from kinprint.results.report import Report

MOST_SPANS = 40
_NOTHING_FOUND = re.compile(  # as `kinprint.evidence.verdict` writes it
    r"(?P<found>No evidence that either model derives from the other); (?P<seen>[^\n]+)\. "
    r"(?P<limit>This does not prove training from scratch\.)"
)
_TELLING = 0.5  # a cosine above this is one that readers would take for likeness


def certainty(verdict: Verdict, voice: Voice) -> str:
    """Say how surprising the evidence would be if the models were unrelated, in one or two sentences."""
    if verdict.log10_p is None:
        return voice.t("sure.untested")
    values = {
        "odds": voice.odds(verdict.log10_p),
        "tests": verdict.tests,
        "threshold": voice.odds(verdict.log10_alpha),
    }
    if verdict.class_ == IDENTICAL:
        return voice.t("sure.identical", **values)
    if verdict.log10_p <= verdict.log10_alpha:
        return voice.t("sure.beyond", **values)
    if verdict.log10_p <= -BAND:
        return voice.t("sure.between", **values)
    return voice.t("sure.inside", **values)


def headline(sentence: str) -> tuple[str, str | None]:
    """Split a verdict's sentence into what readers want first, and what would have been seen; None if it says nothing of that."""
    parts = _NOTHING_FOUND.fullmatch(sentence)
    if parts is None:
        return sentence, None
    seen = parts["seen"]
    return f"{parts['found']}. {parts['limit']}", f"{seen[:1].upper()}{seen[1:]}."


def failed(evidence: Evidence | None) -> tuple[ControlFinding, ...]:
    """Return the controls that did not give the answer that is known."""
    return tuple(item for item in evidence.controls if item.status == "failed") if evidence else ()


def declares_something(declared: DeclaredFinding | None) -> bool:
    """Whether the card or config of either model says anything of its origin: a table of nothing tells nothing."""
    sides = (declared.a, declared.b) if declared else ()
    return any(side.base_models or side.relation or side.licence for side in sides)


@dataclass(frozen=True)
class Example:
    """The cosine of one pair of tensors, taken apart."""

    role: str
    layer: int | None
    found: CosineExplained
    sign: int
    telling: bool  # whether the cosine is high enough to mislead


def example_of(comparisons: Iterable[TensorComparison]) -> Example | None:
    """Return the comparison whose cosine owes most to spread: the highest that no correlation would have as well."""
    explained = [(item, item.explained) for item in comparisons if item.explained is not None]
    if not explained:
        return None
    item, found = max(explained, key=lambda pair: (abs(pair[1].if_independent), -(pair[0].layer or 0)))
    sign = -1 if found.if_independent < 0 else 1
    return Example(item.role, item.layer, found, sign, abs(found.if_independent) >= _TELLING)


def statistic_of(item: RoleSummary) -> float | None:
    """Return what the role's null is of, or the plain mean where there is no test."""
    return item.statistic if item.statistic is not None else item.mean_pearson


def off_tests(evidence: Evidence | None) -> tuple[tuple[str, tuple[EvidenceTest, ...]], ...]:
    """Return tests that did not run, those with the same reason together."""
    found: dict[str, list[EvidenceTest]] = {}
    for test in evidence.tests if evidence else ():
        if test.status != TESTED:
            found.setdefault(test.reason or "", []).append(test)
    return tuple((reason, tuple(tests)) for reason, tests in found.items())


@dataclass(frozen=True)
class Unlike:
    """Tensors of one role that could not be compared, for one reason."""

    role: str
    reason: str | None
    layers: tuple[int, ...]
    count: int


def not_comparable(comparisons: Iterable[TensorComparison]) -> tuple[Unlike, ...]:
    """Return comparisons without a single measurement, by role and reason."""
    found: dict[tuple[str, str | None], list[TensorComparison]] = {}
    for item in comparisons:
        if not item.measurements:
            found.setdefault((item.role, item.reason), []).append(item)
    return tuple(
        Unlike(role, reason, tuple(sorted({i.layer for i in items if i.layer is not None})), len(items))
        for (role, reason), items in found.items()
    )


def deciding(item: MethodFinding) -> MethodNull | None:
    """Return the null that a method's reading rests on: an exact one, else the empirical one, else what there is."""
    if item.chance is not None and item.chance.exact:
        return item.chance
    return item.empirical or item.chance


def null_kind(null: MethodNull | None) -> str:
    """Return which sort of null it is, as a key of the page's words."""
    if null is None:
        return "none"
    return "exact" if null.exact else "empirical" if null.largest is not None else "approximate"


def shown_spans(item: FileReads) -> tuple[tuple[int, int], ...]:
    """Return the first spans of a file: a page need not hold thousands."""
    return item.spans[:MOST_SPANS]


def assumptions_of(report: Report) -> tuple[str, ...]:
    """Return all that has to hold for the figures to mean what they say, each once."""
    texts = list(report.verdict.assumptions) if report.verdict else []
    nulls: list[NullResult] = [item.null for item in report.summary if item.null is not None]
    return tuple(dict.fromkeys([*texts, *(text for null in nulls for text in null.assumptions)]))
