"""Say on the first screen what was found: a traffic light, a headline, plain reasons, one picture, and what it does not say."""

import math
from typing import Any

from markupsafe import escape

from kinprint._util.plain import printable
from kinprint.render.content.answer import SPREAD, answer_of, picture_of, untested
from kinprint.render.page.markup import PageWords, powers
from kinprint.results import findings
from kinprint.results.report import Report

_LIGHTS = {
    findings.IDENTICAL: "related",
    findings.DERIVED: "related",
    findings.SHARES_COMPONENTS: "part",
    findings.SHARES_INITIALISATION: "part",
    findings.NO_EVIDENCE: "none",
}
_EDGE, _LEAST = 4.0, 0.8  # per cent of the picture's width: beside the axis, and that a null has at least
_TAILS = SPREAD + 1  # standard deviations of the null that are drawn, to either side
_CURVE = "M0 100" + "".join(f"L{t} {100 * (1 - math.exp(-((t / 10 - 4) ** 2) / 2)):.1f}" for t in range(81)) + "V100z"
_HEADLINE, _LINE = 200, 600  # characters


def first_screen(report: Report, words: PageWords) -> dict[str, Any]:
    """Return what the first screen shows."""
    verdict, answer = report.verdict, answer_of(report, words)
    shown = {"light": "off", "reasons": (), "claim": None, "untested": None, "picture": _drawn(report, words)}
    if verdict is None or answer is None:
        why = f"{words.say('verdict.not_comparable')} {words.said(report.reason)}" if report.reason else None
        return {**shown, "headline": words.say("verdict.none"), "sentence": why or words.say("verdict.none.why")}
    headline, sentence = answer.verdict, words.sentence(verdict.sentence, 900)
    if answer.sentence != words.engine(verdict.sentence).text:  # a plainer one
        sentence = escape(answer.sentence)
    left = untested(verdict, words, why=False)
    return {
        **shown,
        "light": _LIGHTS.get(verdict.class_, "off"),
        "headline": _begun(powers(printable(headline, _HEADLINE))),
        "sentence": sentence,
        "reasons": [powers(printable(text, _LINE)) for text in answer.reasons],
        "untested": _begun(printable(left, _LINE)) if left else None,
        "claim": words.label("claim", verdict.class_),
    }


def _drawn(report: Report, words: PageWords) -> dict[str, Any] | None:
    """Place the raw cosine and its null on the axis of the picture; None where there is nothing to place."""
    picture = picture_of(report)
    if picture is None or picture.sd <= 0:
        return None
    low, high = picture.span
    unit = (100 - 2 * _EDGE) / (high - low)
    at, mean = (_EDGE + unit * (value - low) for value in (picture.x, picture.mean))
    width = max(_LEAST, 2 * _TAILS * picture.sd * unit)
    related = report.verdict is not None and _LIGHTS.get(report.verdict.class_) in ("related", "part")
    stands = "outside" if picture.z > SPREAD else "other" if related else "inside"
    figures = {**picture.figures, "role": printable(words.part(picture.role), 60)}
    return {
        "curve": _CURVE,
        "x": round(at, 2),
        "x_anchor": _anchor(at),
        "mean": round(mean, 2),
        "mean_anchor": _anchor(mean),
        "left": round(mean - width / 2, 2),
        "width": round(width, 2),
        "here": words.say("picture.here", **figures),
        "shuffled": words.say("picture.shuffled", **figures),
        "says": words.say(f"picture.says.{stands}", z=f"{picture.z:.0f}", **figures),
        "drawn": words.say("picture.drawn", n=picture.tensors),
        "synthetic": words.say("picture.synthetic") if report.a.synthetic or report.b.synthetic else None,
    }


def _begun(text: str) -> str:
    """Begin with a capital."""
    return text[:1].upper() + text[1:]


def _anchor(at: float) -> str:
    """Return how a label at this place stays inside the picture."""
    return "start" if at < 30 else "end" if at > 70 else "middle"
