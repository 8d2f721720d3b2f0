"""Draw the strongest tests and the controls as bars of −log10 p, on a logarithmic scale, beside the threshold."""

import math

from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint.render.texts.words import Words
from kinprint.results.findings import TESTED, Evidence, EvidenceTest, Verdict

_LEFT, _WIDE, _HIGH = 330.0, 310.0, 20
_NAME = 52  # characters beside a bar


def evidence_chart(verdict: Verdict, evidence: Evidence, words: Words, most: int = 5) -> Markup:
    """Return the chart of so many tests; empty where no test and no control has a p-value."""
    ran = sorted(
        (test.log10_p_holm, _label(test, words), test.bound)
        for test in evidence.tests
        if test.status == TESTED and test.log10_p_holm is not None
    )
    bars = ran[:most]
    bars += [
        (item.log10_p, words.say("chart.control", name=words.control(item.name)), False)
        for item in evidence.controls
        if item.log10_p is not None
    ]
    if not bars:
        return Markup("")
    alpha = verdict.log10_alpha
    last = max(12.0, *(-value for value, _, _ in bars), -alpha)
    limit = _LEFT + _WIDE * _share(-alpha, last)
    lines = [_bar(place, bar, last, alpha, words) for place, bar in enumerate(bars)]
    bottom = 8 + _HIGH * len(bars)
    rule = Markup(
        '<path d="M{0:.1f} 2V{1}" class="kp-rule"/>'
        '<text x="{0:.1f}" y="{2}" text-anchor="middle" font-size="12">{3}</text>'
    ).format(limit, bottom, bottom + 14, words.say("picture.threshold", odds=f"{alpha:g}"))
    told = words.say("chart.caption", n=min(len(ran), most), all=len(ran))
    return Markup(
        '<figure class="kp-chart"><svg viewBox="0 0 710 {}" role="img" aria-label="{}">{}{}</svg>'
        '<figcaption class="kp-faint">{}</figcaption></figure>'
    ).format(bottom + 20, told, Markup("").join(lines), rule, told)


def _bar(place: int, bar: tuple[float, str, bool], last: float, alpha: float, words: Words) -> Markup:
    value, label, bound = bar
    y = 8 + _HIGH * place
    length = max(1.5, _WIDE * _share(-value, last))
    name, figure = printable(label, _NAME), words.log_p(value, bound=bound)
    drawn = Markup('<text x="{}" y="{}" text-anchor="end" font-size="12">{}</text>').format(_LEFT - 6, y + 10, name)
    kind = "kp-past" if value <= alpha else "kp-mark"
    drawn += Markup('<rect x="{}" y="{}" width="{:.1f}" height="11" class="{}"/>').format(_LEFT, y, length, kind)
    return drawn + Markup('<text x="{:.1f}" y="{}" font-size="12">{}</text>').format(_LEFT + length + 5, y + 10, figure)


def _label(test: EvidenceTest, words: Words) -> str:
    return f"{words.label('test', test.name)}: {words.in_layer(words.engine(test.scope).text, test.layer)}"


def _share(size: float, last: float) -> float:
    return math.log1p(max(0.0, size)) / math.log1p(last)
