"""Hold all that the rules of the verdict look at."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from kinprint.evidence.common_start import Origin
from kinprint.evidence.expert_split import ExpertSplit
from kinprint.evidence.norm_edits import NormEdit
from kinprint.results import findings
from kinprint.text import Text


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
    neuron_kind: str | None = None  # "permuted", "subset", … where neurons were matched one by one
    basis: str | None = None  # "reordered" where the residual stream had to be aligned first
    able: frozenset[tuple[str, str]] = frozenset()  # tests, by name and scope, that see a planted relation
    untested: Sequence[Text] = ()
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
