"""What the page says of a verdict that takes more than a template: how sure it is, and its headline."""

from __future__ import annotations

import re

from kinprint.render.page.evidence_chart import BAND
from kinprint.render.texts.words import Words
from kinprint.results.findings import IDENTICAL, ControlFinding, Evidence, Verdict

_NOTHING_FOUND = re.compile(  # as `kinprint.evidence.verdict` writes it
    r"(?P<found>No evidence that either model derives from the other); (?P<seen>[^\n]+)\. "
    r"(?P<limit>This does not prove training from scratch\.)"
)


def certainty(verdict: Verdict, words: Words) -> str:
    """Say how surprising the evidence would be if the models were unrelated, in one or two sentences."""
    if verdict.log10_p is None:
        return words.say("sure.untested")
    odds, threshold = words.odds(verdict.log10_p), words.odds(verdict.log10_alpha)
    if verdict.class_ == IDENTICAL:
        key = "sure.identical"
    elif verdict.log10_p <= verdict.log10_alpha:
        key = "sure.beyond"
    else:
        key = "sure.between" if verdict.log10_p <= -BAND else "sure.inside"
    return words.say(key, odds=odds, tests=verdict.tests, threshold=threshold)


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
