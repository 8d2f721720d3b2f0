"""Say which of two related models came first, as far as a card or the cues of a tree tell: weights alone never do."""

from kinprint.results.context import DECLARED, DeclaredFinding
from kinprint.results.findings import DERIVED, IDENTICAL, NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.report import Report
from kinprint.results.tree import BACKWARD, FORWARD, PairsReport, PairSummary

UNKNOWN = "not determined by weights"
CONTRADICTED = "not determined: a card and the cues of the tree say the opposite of each other"
NO_PROOF = "no evidence of a relation was found; this does not prove that there is none"
DESCENT = (DERIVED, IDENTICAL)
"""Verdicts that make one model a relative of another, and not only of some of its parts."""


def direction(report: Report) -> tuple[str, str | None]:
    """Return what is known of which model came first, and the letter of the declared parent ("a", "b" or None)."""
    verdict = report.verdict
    parent = _declared_parent(verdict.class_ if verdict is not None else None, report.declared)
    if parent is None:
        return UNKNOWN, None
    return _told("B" if parent == "a" else "A", parent.upper()), parent


def direction_among(report: PairsReport, pair: PairSummary) -> tuple[str, int | None]:
    """Return what is known of which of two of many models came first, and the number of that one, or None.

    A pair tells nothing unless it stands after the correction for all pairs. A card counts as it does for two models. An arrow
    of the tree is told as the hypothesis that it is, and makes no ancestor: tools that read pedigrees do not read notes. Where
    it contradicts a card, neither counts.
    """
    if not related(pair):
        return UNKNOWN, None
    letter = _declared_parent(pair.class_, pair.declared)
    declared = None if letter is None else pair.a if letter == "a" else pair.b
    edge = next((edge for edge in report.tree.edges if {edge.parent, edge.child} == {pair.a, pair.b}), None)
    pointed = {FORWARD: edge.parent, BACKWARD: edge.child}.get(edge.direction) if edge is not None else None
    if declared is not None and pointed not in (None, declared):
        return CONTRADICTED, None
    told = []
    if declared is not None:
        told.append(_told(model_ref(pair.b if declared == pair.a else pair.a), model_ref(declared)))
    if edge is not None and pointed is not None:
        child = pair.b if pointed == pair.a else pair.a
        chance = max(edge.probability, 1.0 - edge.probability)
        told.append(
            f"hypothesis: cues of the tree point from {model_ref(pointed)} to {model_ref(child)} (probability {chance:.2f}, a "
            "stated prior and no measured frequency)"
        )
    return "; ".join(told) or UNKNOWN, declared


def related(pair: PairSummary) -> bool:
    """Return whether a pair of many shares something after the correction for all pairs, by its verdict as well as its figures."""
    return pair.significant and pair.class_ not in (NO_EVIDENCE, NOT_TESTABLE)


def model_ref(index: int) -> str:
    """Return how forms name one of many models: by its number, from 1, as the matrix and the files of pairs do."""
    return f"model-{index + 1}"


def pair_ref(pair: PairSummary) -> str:
    """Return how forms name a pair of many models: by both numbers, the smaller first, as its own report is named."""
    one, two = sorted((pair.a + 1, pair.b + 1))
    return f"{one}-{two}"


def _declared_parent(found: str | None, declared: DeclaredFinding | None) -> str | None:
    """Return the letter of the model that the other's card names as its base, where the weights agree."""
    if found not in DESCENT or declared is None or declared.state != DECLARED or len(declared.named_by) != 1:
        return None  # none names the other, or each the other
    return "b" if declared.named_by == ("A",) else "a"


def _told(child: str, parent: str) -> str:
    return f"declared: the card of {child} names {parent} as its base; weights do not tell the direction"
