"""Say how sure a verdict is, and what would have been seen where nothing was found."""

from __future__ import annotations

from kinprint.render.page.evidence_chart import BAND
from kinprint.render.texts.words import Words
from kinprint.results.findings import IDENTICAL, Verdict
from kinprint.text import Text


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


def nothing_found(sentence: str, words: Words) -> tuple[str, str]:
    """Split the sentence of a verdict without evidence: what readers want first, and what would have been seen; else both empty."""
    found = sentence.values.get("found") if isinstance(sentence, Text) else None
    if not isinstance(found, Text) or "q" not in found.values:
        return "", ""
    values = found.values
    seen = [
        words.say("verdict.seen.of", quantity=words.engine(quantity).text, x=f"{values[x]:.2g}")
        for quantity, x in ((values["q"], "x"), (values.get("r"), "y"))
        if isinstance(quantity, str)
    ]
    return words.say("verdict.nothing_found"), words.say("verdict.seen", what=words.say("or").join(seen))
