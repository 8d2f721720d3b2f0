"""Reduce models and reports on pairs to the facts that a family tree is inferred from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kinprint.evidence.facts import shared_fields
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.results.findings import DERIVED, IDENTICAL, SHARES_COMPONENTS, SHARES_INITIALISATION, Evidence, Verdict
from kinprint.results.models import FileSummary
from kinprint.results.report import Report
from kinprint.results.tree import Cue
from kinprint.text import Text, verbatim
from kinprint.tree.arborescence import Arc, pair_key

NO_SENTENCE = verbatim("")

RELATED = (IDENTICAL, DERIVED)  # verdicts that allow an edge: trained weights are shared in most layers
LINKED = (SHARES_COMPONENTS, SHARES_INITIALISATION)
SHARING = (*RELATED, *LINKED)

CONFIG, CARD = "config", "model card"  # where a model may name its parent
FLOOR = 0.01  # least correlation that a distance is taken of; below, a role counts as far as can be: −ln 0.01 = 4.6
CARRIED = {
    "embedding": ("embedding",),
    "head": ("head",),
    "norms": ("input_norm", "post_attention_norm", "attention_output_norm", "mlp_output_norm", "final_norm"),
}
"""Parts that stay in place when neurons and heads are reordered, and their roles."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts of one model."""

    name: str  # short, as drawn
    reference: str = ""  # as the user named it
    location: str = ""
    commit: str | None = None
    architecture: str = ""
    layers: int = 0
    experts: int = 0
    parameters: int = 0
    kurtosis: Mapping[str, float] = field(default_factory=dict)  # by matrix
    declares: tuple[tuple[str, str], ...] = ()  # where it says so, and what it names as its parent
    kind: str = ""  # where it is: "hub", "folder", …
    files: tuple[FileSummary, ...] = ()


@dataclass(frozen=True)
class PairFacts:
    """Result of one comparison. Cues are written as if A were the parent."""

    a: int
    b: int
    found: str
    kind: str | None = None
    sentence: Text = NO_SENTENCE
    log10_p: float | None = None
    distances: Mapping[str, float] = field(default_factory=dict)  # −ln correlation by role, weights in their places
    carried: Mapping[str, float] = field(default_factory=dict)  # the same of embeddings, head and norms
    cues: tuple[Cue, ...] = ()
    moved: bool = False  # depths differ, so other layers were looked at than in most pairs
    variant: str | None = None  # of the kind

    @property
    def key(self) -> Arc:
        """The pair, smaller number first."""
        return pair_key(self.a, self.b)

    def significant(self, pairs: int) -> bool:
        """Whether the verdict stands after a further correction for the number of pairs (Bonferroni)."""
        p = over_pairs(self.log10_p, pairs)
        return self.found == IDENTICAL or (p is not None and p <= LOG10_ALPHA)


def over_pairs(log10_p: float | None, pairs: int) -> float | None:
    """Return a p-value after correction for the number of pairs (Bonferroni)."""
    return None if log10_p is None else min(0.0, log10_p + math.log10(max(pairs, 1)))


def log_distance(correlation: float) -> float:
    """Return −ln r: additive along a path on which each step adds something independent of what was before."""
    return -math.log(min(1.0, max(correlation, FLOOR)))


def judged(report: Report) -> tuple[Verdict, Evidence]:
    """Return verdict and evidence of a report that has them."""
    assert report.verdict is not None
    assert report.evidence is not None
    return report.verdict, report.evidence


def pair_facts(report: Report, a: int, b: int, cues: tuple[Cue, ...] = ()) -> PairFacts:
    """Reduce a report on models number `a` and `b` to the facts that the tree needs."""
    verdict, evidence = judged(report)
    distances = {}
    for item in evidence.edits:
        equal = item.tensors > 0 and item.identical == item.tensors
        if equal or (item.correlation is None and item.edit == "identical"):
            distances[item.scope] = 0.0
        elif item.correlation is not None:
            distances[item.scope] = log_distance(item.correlation)
    return PairFacts(
        **shared_fields(verdict, PairFacts),
        a=a,
        b=b,
        found=verdict.class_,
        distances=distances,
        carried=_carried(report),
        cues=cues,
        moved=report.a.layers != report.b.layers,
    )


def _carried(report: Report) -> dict[str, float]:
    """Return distances of the parts that no reordering of neurons and heads moves, where tests show sharing."""
    # Norms are compared layer by layer as numbered, which says nothing where layers were put in or taken out.
    _, evidence = judged(report)
    kept = {item.component for item in evidence.components if item.shared}
    if report.a.layers != report.b.layers:
        kept.discard("norms")
    found: dict[str, list[float]] = {}
    for item in report.comparisons:
        part = next((name for name, roles in CARRIED.items() if name in kept and item.role in roles), None)
        if part is not None:
            values = [one.value for one in item.measurements if one.metric == "pearson" and one.value is not None]
            found.setdefault(part, []).extend(values)
    return {part: log_distance(sum(values) / len(values)) for part, values in found.items() if values}
