"""Draw the strongest tests and the controls as bars of −log10 p, on a logarithmic scale, beside the threshold."""

import math

from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint.render.texts.words import Words
from kinprint.results.findings import SIGN_FLIPS, TESTED, Evidence, EvidenceTest, Verdict

_WIDE, _HIGH = 76.0, 34  # per cent of the width that the longest bar takes, its figure beside it; a name above each bar
_NAME = 64  # characters above a bar


def evidence_chart(verdict: Verdict, evidence: Evidence, words: Words, most: int = 5) -> Markup:
    """Return the chart of so many tests; empty where no test and no control has a p-value. It fits any width."""
    ran = sorted(
        (test.log10_p_holm, _label(test, words), test.bound, test.name)
        for test in evidence.tests
        if test.status == TESTED and test.log10_p_holm is not None
    )
    bars = [item[:3] for item in ran[:most]]
    bars += [
        (item.log10_p, words.say("chart.control", name=words.control(item.name)), False)
        for item in evidence.controls
        if item.log10_p is not None
    ]
    if not bars:
        return Markup("")
    alpha = verdict.log10_alpha
    last = max(12.0, *(-value for value, _, _ in bars), -alpha)
    limit = _WIDE * _share(-alpha, last)
    lines = [_bar(place, bar, last, alpha, words) for place, bar in enumerate(bars)]
    bottom = _HIGH * len(bars)
    rule = Markup('<text x="{:.1f}%" y="{}" text-anchor="middle" font-size="12">{}</text>').format(
        limit, bottom + 16, words.say("picture.threshold", odds=f"{alpha:g}")
    )
    told = words.say("chart.caption", n=min(len(ran), most), all=len(ran))
    if ran and ran[0][3] == SIGN_FLIPS:
        told = f"{told} {words.say('chart.signs')}"
    return Markup(
        '<figure class="kp-chart"><svg width="100%" height="{}" role="img" aria-label="{}">{}{}</svg>'
        '<figcaption class="kp-faint">{}</figcaption></figure>'
    ).format(bottom + 22, told, Markup("").join(lines), rule, told)


def _bar(place: int, bar: tuple[float, str, bool], last: float, alpha: float, words: Words) -> Markup:
    value, label, bound = bar
    y = _HIGH * place + 18
    length, limit = max(0.4, _WIDE * _share(-value, last)), _WIDE * _share(-alpha, last)
    name, figure = printable(label, _NAME), words.log_p(value, bound=bound)
    drawn = Markup('<text x="0" y="{}" font-size="12">{}</text>').format(y - 6, name)
    kind = "kp-past" if value <= alpha else "kp-mark"
    drawn += Markup('<rect x="0" y="{}" width="{:.1f}%" height="11" class="{}"/>').format(y, length, kind)
    drawn += Markup('<rect x="{:.1f}%" y="{}" width="2" height="13" class="kp-rule"/>').format(limit, y - 1)
    return drawn + Markup('<text x="{:.1f}%" y="{}" dx="5" font-size="12">{}</text>').format(length, y + 10, figure)


def _label(test: EvidenceTest, words: Words) -> str:
    return f"{words.label('test', test.name)}: {words.in_layer(words.part(test.scope), test.layer)}"


def _share(size: float, last: float) -> float:
    return math.log1p(max(0.0, size)) / math.log1p(last)
