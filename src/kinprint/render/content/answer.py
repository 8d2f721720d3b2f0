"""Say what a comparison found in a few plain lines: what comes first, for readers who are no statisticians."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kinprint._util.numeric import median
from kinprint._util.plain import ranges
from kinprint.render.repeat_command import compare_again
from kinprint.render.texts.words import Words, decimals
from kinprint.results.findings import (
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SAME_STRUCTURE,
    EvidenceTest,
    LayerAlignment,
    LayerFinding,
    Verdict,
)
from kinprint.results.report import Report

# rows of these are neurons
_NEURONS = frozenset(f"{part}_{half}" for part in ("mlp", "expert", "shared") for half in ("gate", "up"))
_CONTROLS = frozenset({"self", "shuffled self"})
_KEYS = {
    "neuron_match": "answer.found",
    "neuron_match_aligned": "answer.found_turned",
    "neuron_match_rotated": "answer.found_turned",
    "gram_fixed_points": "answer.alike",
}
_CORRELATIONS = ("matrix_correlation", "token_rows", "norm_joint")
_ORDINARY = math.log10(0.05)  # a p-value above this, after correction, is one that unrelated models give every day
SPREAD = 3  # standard deviations of the null that a drawing marks
MOST = 3  # reasons
ROOM = 200  # characters for what was not tested
FEW = 12  # layers, or runs of layers, that are named one by one
MORE = 10  # times the budget, where it was too small for something
_PLACES = 4  # decimals of a cosine


@dataclass(frozen=True)
class Picture:
    """The raw cosine of a role inside what shuffling gives: medians over its layers."""

    role: str
    tensors: int
    x: float
    mean: float
    sd: float

    @property
    def span(self) -> tuple[float, float]:
        """Ends of the axis: the null with some room, and the cosine."""
        room = (SPREAD + 1) * self.sd
        return min(self.x, self.mean - room), max(self.x, self.mean + room)

    @property
    def z(self) -> float:
        """Distance from the null in its standard deviations."""
        return abs(self.x - self.mean) / self.sd if self.sd else 0.0

    @property
    def figures(self) -> dict[str, str]:
        """Cosine, and mean and spread of its null, as they are written: what is less than 1 is not written as 1."""
        return {name: decimals(getattr(self, name), _PLACES) for name in ("x", "mean", "sd")}


@dataclass(frozen=True)
class Answer:
    """Lines of the answer, without the marks that a form puts before them."""

    verdict: str
    sentence: str
    reasons: tuple[str, ...]
    picture: Callable[[int], str] | None  # from the columns of the line that it draws
    untested: str | None


def answer_of(report: Report, words: Words) -> Answer | None:
    """Return the answer; None where nothing was judged."""
    verdict = report.verdict
    if verdict is None:
        return None
    said = words.verdict(verdict.class_, verdict.kind, verdict.variant, verdict.kinds)
    return Answer(
        f"{said}: {_why_not(report, verdict, words)}" if verdict.class_ == NOT_TESTABLE else said,
        _sentence(report, verdict, words),
        (*_reasons(report, verdict, words)[:MOST], *_towers(report, words)),
        partial(_line, picture, words) if (picture := picture_of(report)) is not None else None,
        untested(verdict, words),
    )


def _sentence(report: Report, verdict: Verdict, words: Words) -> str:
    """Return the sentence; where a reason says what would have been noticed, in plainer words, without that."""
    plainer = verdict.class_ == NO_EVIDENCE and verdict.variant is None and _noticed(report, words)
    return words.say("verdict.nothing_found") if plainer else words.engine(verdict.sentence).text


def _reasons(report: Report, verdict: Verdict, words: Words) -> list[str]:
    """Return reasons in plain words; where a verdict rests on something else, its own first reasons."""
    own = [words.reason(text).text for text in verdict.reasons]
    evidence = report.evidence
    if verdict.class_ == NOT_TESTABLE:
        return _not_tested(report, words)
    if evidence is None or verdict.log10_p is None or verdict.variant == SAME_STRUCTURE:
        return own
    odds = {"odds": words.odds(verdict.log10_p, bound=verdict.class_ != NO_EVIDENCE), "n": verdict.tests}
    passed = {control.name for control in evidence.controls if control.status == "passed"}
    controls = [words.say("answer.controls")] if passed >= _CONTROLS else []
    if verdict.class_ == NO_EVIDENCE:
        said = [words.say("answer.ordinary" if verdict.log10_p > _ORDINARY else "answer.falls_short", **odds)]
        return [*said, *_noticed(report, words), *controls]
    found = [t for t in evidence.tests if t.log10_p_claim is not None and t.log10_p_claim <= verdict.log10_alpha]
    found.sort(key=lambda test: test.log10_p_claim or 0.0)
    lines = ((tell(test, words) for test in found) for tell in (_points, _found, _together))
    said = [first for each in lines if (first := next(filter(None, each), None))]
    if verdict.class_ == IDENTICAL:  # bytes that are equal prove it by themselves: nothing is at odds with chance
        return said or own
    layers = _layers(evidence.alignment, report.b.layers, words)
    said = [*layers, *(said or own)[: MOST - len(layers)], *controls]
    return said if len(said) >= MOST else [*said, words.say("answer.odds", **odds)]


def _layers(found: LayerAlignment, layers: int, words: Words) -> list[str]:
    """Say which layers of A those of B match, as far as they were read."""
    matched = [item for item in found.layers if item.sources]
    if not matched:
        return []
    if len(matched) < layers:
        key = "answer.matched.unread" if len(found.layers) < layers else "answer.matched"
        return [words.say(key, matched=len(matched), layers=len(found.layers))]
    if all(item.sources == (item.layer,) for item in matched):
        return [words.say("answer.in_place", n=layers)]
    return [words.say("answer.mapped", layers=ranges([item.layer for item in matched]), sources=_in_order(matched))]


def _in_order(matched: Sequence[LayerFinding]) -> str:
    """Write the layers of A in the order of B, one by one if they are few, else in runs."""
    each = ["+".join(map(str, item.sources)) for item in matched]
    if len(each) <= FEW:
        return ", ".join(each)
    runs: list[list[str]] = []
    for one in each:
        if runs and one.isdecimal() and runs[-1][-1].isdecimal() and int(one) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], one]
        else:
            runs.append([one])
    shown = ["–".join(run) for run in runs]
    return ", ".join([*shown[:FEW], *(["…"] if len(shown) > FEW else [])])


def _towers(report: Report, words: Words) -> list[str]:
    """Return the answers on towers beside the main models."""
    compared = [item for item in report.towers if item.class_ is not None]
    answers = [(words.label("tower", item.tower), words.verdict(item.class_ or "", item.kind)) for item in compared]
    return [words.say("answer.tower", tower=tower, answer=answer) for tower, answer in answers]


def _why_not(report: Report, verdict: Verdict, words: Words) -> str:
    """Return why a pair cannot be tested, in a few words."""
    a, b = report.a.hidden, report.b.hidden
    compared = report.reason is None and not (verdict.rules and verdict.rules[-1].name == "comparable")
    if a and b and a != b and not compared:
        return words.say("verdict.widths", a=f"{a:,}", b=f"{b:,}")
    return words.engine(report.reason or next(iter(verdict.reasons), "–")).text


def _not_tested(report: Report, words: Words) -> list[str]:
    """Return why parts could not be tested, those with the same reason together."""
    parts: dict[str, list[str]] = {}
    for item in report.evidence.components if report.evidence is not None else ():
        if item.note and not item.tested:
            parts.setdefault(words.engine(item.note).text, []).append(words.label("component", item.component))
    return [f"{', '.join(names)}: {note}" for note, names in parts.items()]


def _noticed(report: Report, words: Words) -> list[str]:
    """Say how small a share of common weights would have been noticed, if that is known.

    Rows of which a share of the weights is common, the rest being independent, have that share as their cosine.
    """
    power = report.evidence.power if report.evidence is not None else ()
    known = [(item.least, item) for item in power if item.name == "fixed_points" and item.least is not None]
    if not known:
        return []
    least, item = min(known, key=lambda pair: pair[0])
    return [
        words.say(
            "answer.noticed", share=words.share(least), scope=words.part(item.scope), chance=words.share(item.power)
        )
    ]


def _points(test: EvidenceTest, words: Words) -> str | None:
    units = {"dimension_fixed_points": "residual", "fixed_points": "neuron" if str(test.scope) in _NEURONS else None}
    unit = units.get(test.name)
    if unit is None or test.statistic is None or test.null_mean is None:
        return None
    figures = {"n": f"{test.statistic:.0f}", "all": test.n, "mean": f"{test.null_mean:.0f}"}
    return words.say("answer.points", units=words.label("unit", unit), scope=words.part(test.scope), **figures)


def _found(test: EvidenceTest, words: Words) -> str | None:
    """Tell of neurons that were matched one by one, or known by the others of their layer, in place or not."""
    key = _KEYS.get(test.name)
    if key is None or test.layer is None or test.statistic is None or test.null_mean is None:
        return None
    figures = {"n": f"{test.statistic:.0f}", "all": test.n, "mean": f"{test.null_mean:.0f}"}
    return words.say(key, layer=test.layer, **figures)


def _together(test: EvidenceTest, words: Words) -> str | None:
    if test.name not in _CORRELATIONS or test.statistic is None or test.null_mean is None or test.null_sd is None:
        return None
    figures = {"x": test.statistic, "mean": test.null_mean, "sd": test.null_sd}
    shown = {name: decimals(value, 3 if 0 < test.null_sd < 0.005 else 2) for name, value in figures.items()}
    return words.say("answer.together", scope=words.part(test.scope), **shown)


def picture_of(report: Report) -> Picture | None:
    """Return the raw cosine of a role, of norms if there are any, beside what shuffling gives; None where nothing has both."""
    kinds = {line.role: line.kind for line in report.summary}
    known: dict[str, list[tuple[float, float, float]]] = {}
    for item in report.comparisons:
        for m in () if item.role.startswith("unnamed") else item.measurements:  # those have no part in the answer
            if m.metric == "cosine" and m.value is not None and m.null is not None:
                known.setdefault(item.role, []).append((m.value, m.null.mean, m.null.sd))
    role = max(known, key=lambda role: (kinds.get(role) == "norm", len(known[role])), default=None)
    if role is None:
        return None
    return Picture(role, len(known[role]), *(median(values) for values in zip(*known[role], strict=True)))


def _line(picture: Picture, words: Words, columns: int) -> str:
    """Draw the picture as one line of text, the drawing as wide as `columns`."""
    drawn, (low, high) = ["─"] * columns, picture.span
    ends = (picture.mean - SPREAD * picture.sd, picture.mean + SPREAD * picture.sd)
    for mark, value in zip("├┤┼●", (*ends, picture.mean, picture.x), strict=True):
        drawn[round((value - low) / (high - low or 1.0) * (columns - 1))] = mark
    return words.say("answer.picture", scope=words.part(picture.role), line="".join(drawn), **picture.figures)


def untested(verdict: Verdict, words: Words, *, why: bool = True) -> str | None:
    """Name the first thing that was not tested, and the second if there is room; with `why` beside its reason."""
    said = [words.reason(text).text.rstrip(".") for text in verdict.untested]
    if not said:
        return None
    if not why:
        said = [text.split(": ", 1)[0] for text in said]
    shown = said[:2] if sum(map(len, said[:2])) <= (ROOM if why else ROOM // 2) else said[:1]
    more = len(said) - len(shown)
    listed = "; ".join(shown)
    return words.say("answer.untested.more", said=listed, n=more) if more else f"{listed}."


def next_step(report: Report, verdict: Verdict, *, page: bool) -> str:
    """Return the command worth trying next, with what was chosen for this one: a deeper look where nothing was found, else a page.

    Where the page is written already it is a bundle, for others to check; where the budget kept something from being tested,
    which a reason then names, it has a larger one.
    """
    settings, budget = report.settings, report.settings.budget_bytes
    deeper = verdict.class_ in (NO_EVIDENCE, NOT_TESTABLE) and not settings.deep
    step = ["--deep"] if deeper else ["--bundle", "evidence.zip"] if page else ["--html", "report.html"]
    if budget is not None and any("--budget" in text for text in verdict.untested):
        settings, step = replace(settings, budget_bytes=MORE * budget), ["--deep"] if deeper else []
    return compare_again([*step, *settings.arguments(changed=True)], [report.a.reference, report.b.reference])
