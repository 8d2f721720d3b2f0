"""Hold all that the rules of the verdict look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kinprint._util.records import dataclass
from kinprint.evidence.common_start import TRAINING, Origin
from kinprint.evidence.components import HEADS_MAY_DIFFER, shows_nothing
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.results import findings
from kinprint.text import Text

if TYPE_CHECKING:
    from kinprint.evidence.expert_split import ExpertSplit
    from kinprint.evidence.norm_edits import NormEdit

ORDERED = 1.5
"""Times √(2 ln n / d), which the best of n independent rows of width d comes to: trained rows lie in fewer directions. Measured on
strangers of width 96 put in order: 0.16 to 0.2, where 0.51 is allowed."""


@dataclass(frozen=True)
class Identity:
    """How much of what was read is byte for byte the same, and whether the two files could be the same at all."""

    tensors: int
    identical: int
    same_structure: bool
    share_read: float  # of all stored bytes of the smaller model


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    tests: Sequence[findings.EvidenceTest]
    alignment: findings.LayerAlignment
    components: Sequence[findings.ComponentFinding]
    identity: Identity
    layers_a: int
    layers_b: int
    experts: Sequence[findings.ExpertFinding] = ()
    origin: Origin | None = None
    edits: Sequence[findings.EditFinding] = ()
    norms: NormEdit | None = None
    split: ExpertSplit | None = None
    merge: findings.MergeFinding | None = None
    controls: Sequence[findings.ControlFinding] = ()
    power: Sequence[findings.PowerFinding] = ()
    heads_moved: bool = False  # whether attention agrees over heads, and far less in place
    neuron_kind: str | None = None  # "permuted", "subset", … where neurons were matched one by one
    basis: str | None = None  # "reordered" where the residual stream had to be aligned first
    able: frozenset[tuple[str, str]] = frozenset()  # tests, by name and scope, that see a planted relation
    limits: Sequence[Text] = ()  # what was asked for and not done, or not read
    untested: Sequence[Text] = ()  # what was not looked for
    null: Text | None = None
    broken: Sequence[Text] = ()  # why tests or searches could not run: then nothing is concluded by elimination
    function: findings.FunctionFinding | None = None

    @property
    def same_function(self) -> bool:
        """Whether both models were run, and compute the same function up to rounding."""
        return self.function is not None and self.function.same is True

    @property
    def log10_p(self) -> float | None:
        """The least corrected p-value of all tests that ran which a claim may rest on."""
        return min((test.log10_p_claim for test in self.ran if test.log10_p_claim is not None), default=None)

    @property
    def log10_p_order(self) -> float | None:
        """The least corrected p-value of the tests of order, whatever signs say."""
        ordered = (test.log10_p_holm for test in self.ran if test.log10_p_claim is not None)
        return min((p for p in ordered if p is not None), default=None)

    @property
    def ran(self) -> list[findings.EvidenceTest]:
        """Tests that ran, and have a p-value."""
        return [test for test in self.tests if test.status == findings.TESTED and test.log10_p is not None]

    def component(self, name: str) -> findings.ComponentFinding | None:
        """Return one part's finding."""
        return next((item for item in self.components if item.component == name), None)


def shared_fields(source: object, target: type) -> dict[str, Any]:
    """Return the values of the fields that a dataclass has in common with another, by name."""
    return {item.name: getattr(source, item.name) for item in fields(target) if hasattr(source, item.name)}


def likeness(facts: Facts, log10_alpha: float) -> tuple[float | None, float | None]:
    """Return how far weights correlate where MLPs agree, attention and norms do not, and how far an order may bring strangers."""
    # Tell neurons that were put in the order of another model's from neurons that share weights or a start. Before models are
    # merged, the units of one are put in the order in which they are most like the other's (Ainsworth et al. 2022, Git
    # Re-Basin), value channels of heads along with neurons. Their places and signs agree then, at any p-value, and no weight is
    # shared. The rows of q and k have an order of their own that nobody may change: a common start shows there too, an order
    # does not.
    mlp, norms, *outputs = (facts.component(name) for name in ("mlp", "norms", "mlp output"))
    found = {str(t.scope): t for t in facts.ran if t.name == "matrix_correlation" and t.statistic is not None}
    trained = facts.same_function or (facts.origin is not None and facts.origin.reading == TRAINING)
    neurons_agree = mlp is not None and any(item is not None and item.shared for item in (mlp, *outputs))
    if not neurons_agree or facts.neuron_kind is not None or trained:
        return None, None
    if not {"mlp_up", "mlp_down"} <= set(found) or not (
        shows_nothing(norms) and (_no_attention(facts) or _values_alone(facts))
    ):
        return None, None
    claimed = [t.statistic or 0.0 for t in found.values() if (t.log10_p_claim or 0.0) <= log10_alpha]
    neurons, width = found["mlp_down"].n, found["mlp_up"].n
    return max(claimed, default=0.0), order_alone(neurons, width)


def _no_attention(facts: Facts) -> bool:
    attention = facts.component("attention")
    moved = attention is not None and not attention.shared and attention.note is HEADS_MAY_DIFFER
    return moved or shows_nothing(attention)


def _values_alone(facts: Facts) -> bool:
    """Whether attention shares, and no more than value channels may: queries and keys do not, and would on a copy."""
    attention = facts.component("attention")
    asked = [t for t in facts.ran if t.name == "matrix_correlation" and str(t.scope) in ("attn_q", "attn_k")]
    seen = len(asked) == 2 and all((t.name, str(t.scope)) in facts.able for t in asked)
    return (
        attention is not None
        and attention.shared > 0
        and seen
        and all((t.log10_p_holm or 0.0) > LAYER_ALPHA for t in asked)
    )


def order_alone(neurons: int, width: int) -> float:
    """Return how far the rows of strangers may correlate whose neurons were put in the order of another model's."""
    return ORDERED * math.sqrt(2.0 * math.log(max(2, neurons)) / max(1, width))
