"""Collect cues to which of two related models came first from one comparison. Each cue is a hypothesis with a stated weight.

Weights are log-odds, chosen by hand: what makers of models do often, against the rare reverse. No weight is a
measured probability. docs/tree.md says how cues fare on the bundled models, and which thresholds were set while looking at those.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from kinprint.evidence.rules import TRUNK
from kinprint.metrics.identity import GRIDS
from kinprint.results.findings import FORWARD, EditFinding, Evidence
from kinprint.results.models import TokenizerDifference
from kinprint.results.report import Report
from kinprint.results.tree import SHOWN_ONLY, TRUSTED, Cue
from kinprint.text import Text
from kinprint.tree.facts import CONFIG, ModelFacts, judged

Names = tuple[str, ...]  # of A and B; read backwards where B is the parent

STRONG = 3.0  # log-odds 3.0 (20 : 1): the reverse would need weights that were lost to be found again
LEANING = 0.5
"""Log-odds 0.5 (1.6 : 1): of a part and a whole, both may be parts of an unseen one. With position and kurtosis it makes 79 %."""

FAINT = 0.25  # log-odds 0.25 (about 1.3 : 1): shown for what it is; two such never make an arrow
EXPLAINED = frozenset({"identical", "quantised", "pruned", "cast"})
"""Edits after which the other model's weights follow from those of the one, number by number."""

ONE_WAY = frozenset({"quantised", "pruned"})  # without a direction, both may come from an unseen model

WEIGHTS, STRUCTURE, TOKENIZER, METADATA = "weights", "structure", "tokenizer", "metadata"
POSITION = "position"  # in the shape of the tree

ZEROS = 0.05  # share of zeros that one side has more, from which it counts as pruned
MOST_MATRICES = 0.75  # share of matrices with heavier tails on one side from which kurtosis says anything
GROWTH = 0.25  # share by which a vocabulary may grow and still look extended, not the other one cut


def cues_of(report: Report, a: ModelFacts, b: ModelFacts) -> tuple[Cue, ...]:
    """Return all cues in a comparison, as if A were the parent: positive strengths speak for that."""
    evidence, names = judged(report)[1], (a.name, b.name)
    directed = (
        *_quantised(evidence.edits, names),
        *_pruned(evidence.edits, names),
        *_cast(report, evidence.edits, names),
        *_layers(report, evidence, names),
        *_experts(evidence, names),
        *_neurons(report, names),
        *_vocabulary(report.tokenizer, names),
    )
    signs = {cue.strength > 0.0 for cue in directed if cue.strength}
    apart = any(item.component in TRUNK and not item.shared for item in evidence.components)
    apart = apart or (a.experts != b.experts and min(a.experts, b.experts) > 0)
    if apart or not explained(evidence.edits) or len(signs) > 1:  # each shows an edit that the other has not
        directed = tuple(map(weakened, directed))
    return (*directed, *_low_rank(evidence.edits), *_kurtosis(a, b))


def explained(edits: Sequence[EditFinding]) -> bool:
    """Whether all that differs in place follows from edits that have a direction: then no third model has changed in between."""
    # A model made of an unseen ancestor, beside one that was trained from it, shows the same grids, zeros, layers or experts; but
    # then weights differ in other ways too.
    known = [item for item in edits if item.edit in EXPLAINED and (item.edit not in ONE_WAY or item.direction)]
    return 0 < len(known) == len(edits)


def weakened(cue: Cue) -> Cue:
    """Return a cue without weight: an unseen common ancestor would leave the same."""
    if abs(cue.strength) <= FAINT:
        return cue
    text = Text("{cue}; children of one unseen ancestor would look the same", cue=cue.says)
    return replace(cue, strength=0.0, says=text)


def _quantised(edits: Sequence[EditFinding], names: Names) -> Iterator[Cue]:
    """Take the model on a grid for the child; two quantised copies say nothing of each other."""
    signs: Counter[int] = Counter()
    for item in edits:
        if item.edit == "quantised" and item.direction is not None:
            signs[1 if item.direction == FORWARD else -1] += item.tensors
    if signs[1] != signs[-1]:
        sign = 1 if signs[1] > signs[-1] else -1
        fine, coarse = names[::sign]
        text = Text("the weights of {a} lie on a grid, those of {b} do not", a=coarse, b=fine)
        yield Cue("quantised", WEIGHTS, sign * STRONG, text)


def _pruned(edits: Sequence[EditFinding], names: Names) -> Iterator[Cue]:
    known = [(item.zeros_a, item.zeros_b) for item in edits if item.zeros_a is not None and item.zeros_b is not None]
    if not known:
        return
    zeros = fmean(a for a, _ in known), fmean(b for _, b in known)
    if abs(zeros[1] - zeros[0]) >= ZEROS:
        sign = 1 if zeros[1] > zeros[0] else -1
        (least, most), sparse = sorted(zeros), names[::sign][1]
        text = Text("{x:.0%} of the weights of {name} are zero, against {y:.0%}", x=most, name=sparse, y=least)
        yield Cue("zeros", WEIGHTS, sign * STRONG, text)


def _cast(report: Report, edits: Sequence[EditFinding], names: Names) -> Iterator[Cue]:
    """Take a copy that lost digits in a coarser format for the child; without loss either may be the copy."""
    casts = [item for item in edits if item.edit == "cast"]
    formats = [_usual_format(report, side) for side in (0, 1)]
    if not casts or 2 * len(casts) <= len(edits) or any(name not in GRIDS for name in formats):
        return
    bits = [GRIDS[name].precision for name in formats]
    if bits[0] == bits[1]:
        return
    sign = 1 if bits[1] < bits[0] else -1
    if any((item.changed_share or 0.0) > 0.0 for item in casts):
        child, coarse = names[::sign][1], formats[::sign][1]
        text = Text("{name} is the other one rounded to {dtype}", name=child, dtype=coarse)
        yield Cue("cast", WEIGHTS, sign * STRONG, text)
    else:
        text = Text("equal numbers as {a} and as {b}: either may be the copy", a=formats[0], b=formats[1])
        yield Cue("cast", WEIGHTS, 0.0, text)


def _usual_format(report: Report, side: int) -> str:
    kinds = Counter((item.a, item.b)[side].dtype for item in report.comparisons if len(item.a.shape) == 2)
    return kinds.most_common(1)[0][0] if kinds else ""


def _layers(report: Report, evidence: Evidence, names: Names) -> Iterator[Cue]:
    """Take layers that occur twice for copies; layers without counterpart were more often dropped than put in."""
    more = report.a.layers - report.b.layers
    found = evidence.alignment.layers
    sources = [source for item in found for source in item.sources]
    in_b, in_a = len(sources) - len(set(sources)), sum(len(item.also) for item in found)
    sign, depth = (1, report.b.layers) if in_b > in_a else (-1, report.a.layers)
    # where either has layers that the other has not, both may have been made of a third
    whole = all(item.sources for item in found) and len(set(sources)) == report.a.layers
    if (
        whole
        and not evidence.alignment.unread
        and min(in_a, in_b) == 0 < max(in_a, in_b)
        and (in_a > in_b) == (more > 0)
    ):
        a, b = names[::sign]
        n = max(in_a, in_b)
        text = Text("{n} of the {m} layers of {b} repeat others, as seen from {a}", n=n, m=depth, b=b, a=a)
        yield Cue("repeated layers", STRUCTURE, sign * STRONG, text)
    elif sources and more:
        sign, n = 1 if more > 0 else -1, abs(more)
        deep, flat = names[::sign]
        text = Text("{a} has {n} layers more than {b}, and they are no copies of its others", a=deep, n=n, b=flat)
        yield Cue("dropped layers", STRUCTURE, sign * LEANING, text)


def _experts(evidence: Evidence, names: Names) -> Iterator[Cue]:
    made = sum(item.shared and item.source is None for item in evidence.experts)
    if made:
        text = Text("{n} experts of {b} look like the dense MLPs of {a}", n=made, b=names[1], a=names[0])
        yield Cue("experts of a dense model", STRUCTURE, STRONG, text)


def _neurons(report: Report, names: Names) -> Iterator[Cue]:
    """Take the narrower of two models whose MLP neurons are a subset of the other's for the child."""
    if report.verdict is None or "width_pruned" not in report.verdict.kinds:
        return
    widths = [(c.a.shape[0], c.b.shape[0]) for c in report.comparisons if c.role == "mlp_up" and len(c.a.shape) == 2]
    if widths and widths[0][0] != widths[0][1]:
        sign = 1 if widths[0][1] < widths[0][0] else -1
        text = Text("{name} has a subset of the other's MLP neurons", name=names[::sign][1])
        yield Cue("fewer neurons", STRUCTURE, sign * LEANING, text)


def _vocabulary(found: TokenizerDifference, names: Names) -> Iterator[Cue]:
    """Take a vocabulary with all tokens of the other under the same numbers, and a few more, for an extended one."""
    a, b, common = found.tokens_a, found.tokens_b, found.tokens_common
    if a is None or b is None or a == b or not min(a, b) == common == found.same_id:
        return
    sign = 1 if a < b else -1
    (fewer, more), small, grown = names[::sign], min(a, b), abs(a - b)
    text = Text("{a} has all {n} tokens of {b} under the same numbers, and {m} more", a=more, n=small, b=fewer, m=grown)
    # after much growth the smaller vocabulary may as well be the larger one cut
    strength = LEANING if grown <= GROWTH * small else FAINT
    yield Cue("vocabulary growth", TOKENIZER, sign * strength, text)


def _low_rank(edits: Sequence[EditFinding]) -> Iterator[Cue]:
    ranks = [item.rank for item in edits if item.edit == "low_rank" and item.rank]
    if ranks:
        text = Text(
            "they differ by matrices of rank {n} at most, as a merged LoRA leaves; that has no direction", n=max(ranks)
        )
        yield Cue("low-rank difference", WEIGHTS, 0.0, text)


def _kurtosis(a: ModelFacts, b: ModelFacts) -> Iterator[Cue]:
    """Expect heavier tails in the parent, as Horwitz et al. (2024) find for specialisation; for generalisation the reverse."""
    both = [(a.kurtosis[key], b.kurtosis[key]) for key in a.kurtosis.keys() & b.kurtosis.keys()]
    differing = [(one, two) for one, two in both if one != two]
    if not differing:
        return
    heavier = sum(one > two for one, two in differing) / len(differing)
    strength = FAINT if heavier >= MOST_MATRICES else -FAINT if heavier <= 1.0 - MOST_MATRICES else 0.0
    text = Text(
        "{x:.0%} of {n} matrices have heavier tails in {name}; which end that marks is uncertain",
        x=heavier,
        n=len(differing),
        name=a.name,
    )
    yield Cue("kurtosis", WEIGHTS, strength, text)


def declared(models: Sequence[ModelFacts], child: int, parent: int, *, trusted: bool) -> Iterator[Cue]:
    """Return what a child's own card and config say of a parent, as a cue from parent to child; counted only if asked for."""
    for where, what in models[child].declares:
        if names_same(what, models[parent].reference):
            name = models[child].name
            text = Text("the model card of {name} names {other} as its origin", name=name, other=what)
            if where == CONFIG:
                text = Text("the config of {name} names {other} as its origin", name=name, other=what)
            yield Cue("declared origin", METADATA, STRONG, text, TRUSTED if trusted else SHOWN_ONLY)


def names_same(declared_name: str, reference: str) -> bool:
    """Whether a declared origin names a model that was given: by repository, or by the last part of its path."""
    names = [text.strip().rstrip("/").removeprefix("hf://") for text in (declared_name, reference)]
    one, two = (name.split("@")[0].lower() for name in names)
    if not one or not two:
        return False
    if one.count("/") == 1 and two.count("/") == 1 and not two.startswith("."):
        return one == two
    return one.rsplit("/", 1)[-1] == two.rsplit("/", 1)[-1]


def reversed_cue(cue: Cue) -> Cue:
    """Return the same cue, read from the other end."""
    return replace(cue, strength=-cue.strength if cue.strength else 0.0)
