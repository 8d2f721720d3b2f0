"""Hints at which of two related models came first, read off one comparison. Each is a hypothesis with a stated weight.

Weights are log-odds, chosen by hand: what makers of models do often, against the rare reverse. Nothing here is a probability that
was measured. docs/tree.md says how they fare on the bundled models, and which thresholds were set while looking at those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from kinprint.metrics.identity import GRIDS
from kinprint.results.findings import FORWARD, EditFinding
from kinprint.results.models import TokenizerDifference
from kinprint.results.report import Report
from kinprint.results.tree import COUNTED, SHOWN_ONLY, TRUSTED, Cue
from kinprint.text import Text
from kinprint.tree.facts import CONFIG, ModelFacts

STRONG = 3.0
"""Log-odds 3.0 (20 : 1): the reverse would need weights that were lost to be found again."""

CLEAR = 1.6
"""Log-odds 1.6 (5 : 1): the reverse happens, but is rare in practice."""

FAINT = 0.25
"""Log-odds 0.25 (about 1.3 : 1): shown for what it is; two such never make an arrow."""

WEIGHTS, STRUCTURE, TOKENIZER, METADATA = "weights", "structure", "tokenizer", "metadata"

ZEROS = 0.05  # share of zeros that one side has more, from which it counts as pruned
MOST_MATRICES = 0.75  # share of matrices with heavier tails on one side from which kurtosis says anything
GROWTH = 0.25  # share by which a vocabulary may grow and still look extended, not the other one cut


def cues_of(report: Report, a: ModelFacts, b: ModelFacts, names: tuple[str, str]) -> tuple[Cue, ...]:
    """Return all hints in a comparison, as if A were the parent: positive strengths speak for that."""
    assert report.evidence is not None
    edits = report.evidence.edits
    return (
        *_quantised(edits, names),
        *_pruned(edits, names),
        *_cast(report, names),
        *_layers(report, names),
        *_experts(report, names),
        *_neurons(report, names),
        *_vocabulary(report.tokenizer, names),
        *_low_rank(edits),
        *_kurtosis(a, b, names),
    )


def _quantised(edits: Sequence[EditFinding], names: tuple[str, str]) -> Iterator[Cue]:
    """Take the one on a grid for the child; two quantised copies say nothing of each other."""
    signs: Counter[int] = Counter()
    for item in edits:
        if item.edit == "quantised" and item.direction is not None:
            signs[1 if item.direction == FORWARD else -1] += item.tensors
    if not signs or signs[1] == signs[-1]:
        return
    sign = 1 if signs[1] > signs[-1] else -1
    coarse, fine = (names[1], names[0]) if sign > 0 else names
    text = Text("the weights of {a} lie on a grid, those of {b} do not", a=coarse, b=fine)
    yield Cue("quantised", WEIGHTS, sign * STRONG, text)


def _pruned(edits: Sequence[EditFinding], names: tuple[str, str]) -> Iterator[Cue]:
    known = [(item.zeros_a, item.zeros_b) for item in edits if item.zeros_a is not None and item.zeros_b is not None]
    if not known:
        return
    zeros = fmean(a for a, _ in known), fmean(b for _, b in known)
    if abs(zeros[1] - zeros[0]) < ZEROS:
        return
    sign = 1 if zeros[1] > zeros[0] else -1
    sparse = names[1] if sign > 0 else names[0]
    most, least = max(zeros), min(zeros)
    text = Text("{x:.0%} of the weights of {name} are zero, against {y:.0%}", x=most, name=sparse, y=least)
    yield Cue("zeros", WEIGHTS, sign * STRONG, text)


def _cast(report: Report, names: tuple[str, str]) -> Iterator[Cue]:
    """Take a copy that lost digits in a coarser format for the child; without loss either may be the copy."""
    assert report.evidence is not None
    casts = [item for item in report.evidence.edits if item.edit == "cast"]
    if not casts or 2 * len(casts) <= len(report.evidence.edits):
        return
    formats = [_usual_format(report, side) for side in (0, 1)]
    if any(name not in GRIDS for name in formats):
        return
    bits = [GRIDS[name].precision for name in formats]
    if bits[0] == bits[1]:
        return
    lossy = any((item.changed_share or 0.0) > 0.0 for item in casts)
    if not lossy:
        text = Text("equal numbers as {a} and as {b}: either may be the copy", a=formats[0], b=formats[1])
        yield Cue("cast", WEIGHTS, 0.0, text)
        return
    sign = 1 if bits[1] < bits[0] else -1
    coarse = 1 if sign > 0 else 0
    text = Text("{name} is the other one rounded to {dtype}", name=names[coarse], dtype=formats[coarse])
    yield Cue("cast", WEIGHTS, sign * STRONG, text)


def _usual_format(report: Report, side: int) -> str:
    kinds = Counter((item.a, item.b)[side].dtype for item in report.comparisons if len(item.a.shape) == 2)
    return kinds.most_common(1)[0][0] if kinds else ""


def _layers(report: Report, names: tuple[str, str]) -> Iterator[Cue]:
    """Layers that occur twice were copied; layers without counterpart were more often dropped than put in."""
    assert report.evidence is not None
    depths = report.a.layers, report.b.layers
    sources = [item.source for item in report.evidence.alignment.layers if item.shared and item.source is not None]
    repeats = len(sources) - len(set(sources))
    if repeats and depths[1] >= depths[0]:
        text = Text(
            "{n} of the {m} layers of {b} repeat others, as seen from {a}",
            n=repeats,
            m=depths[1],
            b=names[1],
            a=names[0],
        )
        yield Cue("repeated layers", STRUCTURE, STRONG, text)
    elif sources and depths[0] != depths[1]:
        sign = 1 if depths[0] > depths[1] else -1
        deep, flat = (names[0], names[1]) if sign > 0 else (names[1], names[0])
        more = abs(depths[0] - depths[1])
        text = Text("{a} has {n} layers more than {b}, and they are no copies of its others", a=deep, n=more, b=flat)
        yield Cue("dropped layers", STRUCTURE, sign * CLEAR, text)


def _experts(report: Report, names: tuple[str, str]) -> Iterator[Cue]:
    assert report.evidence is not None
    made = [item for item in report.evidence.experts if item.shared and item.source is None]
    if made:
        text = Text("{n} experts of {b} look like the dense MLPs of {a}", n=len(made), b=names[1], a=names[0])
        yield Cue("experts of a dense model", STRUCTURE, STRONG, text)


def _neurons(report: Report, names: tuple[str, str]) -> Iterator[Cue]:
    """Of two models whose MLPs differ in width, one a subset of the other's neurons, the narrower is the child."""
    if report.verdict is None or report.verdict.kind != "width_pruned":
        return
    widths = [(c.a.shape[0], c.b.shape[0]) for c in report.comparisons if c.role == "mlp_up" and len(c.a.shape) == 2]
    if not widths or widths[0][0] == widths[0][1]:
        return
    sign = 1 if widths[0][1] < widths[0][0] else -1
    narrow = names[1] if sign > 0 else names[0]
    text = Text("{name} has a subset of the other's MLP neurons", name=narrow)
    yield Cue("fewer neurons", STRUCTURE, sign * CLEAR, text)


def _vocabulary(found: TokenizerDifference, names: tuple[str, str]) -> Iterator[Cue]:
    """Take a vocabulary with all tokens of the other under the same numbers, and a few more, for an extended one."""
    a, b, common, same = found.tokens_a, found.tokens_b, found.tokens_common, found.same_id
    if a is None or b is None or common is None or same is None or a == b:
        return
    small, large, sign = (a, b, 1) if a < b else (b, a, -1)
    if common != small or same != common:
        return
    more, fewer = (names[1], names[0]) if sign > 0 else names
    text = Text(
        "{a} has all {n} tokens of {b} under the same numbers, and {m} more", a=more, n=small, b=fewer, m=large - small
    )
    # so much more that the smaller one may well be the larger one cut
    strength = CLEAR if large - small <= GROWTH * small else FAINT
    yield Cue("vocabulary growth", TOKENIZER, sign * strength, text)


def _low_rank(edits: Sequence[EditFinding]) -> Iterator[Cue]:
    ranks = [item.rank for item in edits if item.edit == "low_rank" and item.rank]
    if ranks:
        text = Text(
            "they differ by matrices of rank {n} at most, as a merged LoRA leaves; that has no direction", n=max(ranks)
        )
        yield Cue("low-rank difference", WEIGHTS, 0.0, text)


def _kurtosis(a: ModelFacts, b: ModelFacts, names: tuple[str, str]) -> Iterator[Cue]:
    """Heavier tails in the parent, as Horwitz et al. (2024) find for specialisation; for generalisation the reverse."""
    common = a.kurtosis.keys() & b.kurtosis.keys()
    differing = [key for key in common if a.kurtosis[key] != b.kurtosis[key]]
    if not differing:
        return
    heavier = sum(a.kurtosis[key] > b.kurtosis[key] for key in differing) / len(differing)
    strength = FAINT if heavier >= MOST_MATRICES else -FAINT if heavier <= 1.0 - MOST_MATRICES else 0.0
    text = Text(
        "{x:.0%} of {n} matrices have heavier tails in {name}; which end that marks is uncertain",
        x=heavier,
        n=len(differing),
        name=names[0],
    )
    yield Cue("kurtosis", WEIGHTS, strength, text)


def declared(models: Sequence[ModelFacts], child: int, parent: int, *, trusted: bool) -> Iterator[Cue]:
    """Return what a child's own card and config say of a parent, as a cue from parent to child; counted only if asked for."""
    for where, what in models[child].declares:
        if names_same(what, models[parent].reference):
            name = models[child].name
            if where == CONFIG:
                text = Text("the config of {name} names {other} as its origin", name=name, other=what)
            else:
                text = Text("the model card of {name} names {other} as its origin", name=name, other=what)
            status = TRUSTED if trusted else SHOWN_ONLY
            yield Cue("declared origin", METADATA, STRONG, text, status)


def names_same(declared_name: str, reference: str) -> bool:
    """Whether a declared origin names a model that was given: by repository, or by the last part of its path."""
    one, two = (
        text.strip().rstrip("/").removeprefix("hf://").split("@")[0].lower() for text in (declared_name, reference)
    )
    if not one or not two:
        return False
    if one.count("/") == 1 and two.count("/") == 1 and not two.startswith("."):
        return one == two
    return one.rsplit("/", 1)[-1] == two.rsplit("/", 1)[-1]


def reversed_cue(cue: Cue) -> Cue:
    """Return the same hint, read from the other end."""
    return Cue(cue.name, cue.source, -cue.strength if cue.strength else 0.0, cue.says, cue.status)


def position(strength: float, says: Text) -> Cue:
    """Return a hint that comes from the shape of the tree."""
    return Cue("position", "position", strength, says, COUNTED)
