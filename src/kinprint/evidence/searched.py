"""What searches for a disguise and for the edit return, apart from the searches: these are loaded only where one is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

from kinprint._util.records import dataclass
from kinprint.align.assignment import PERMUTED, SUBSET, SUBSET_IN_ORDER
from kinprint.evidence.assess import SearchResult
from kinprint.evidence.common_start import UNCLEAR, Origin, Pairs
from kinprint.results.findings import EditFinding
from kinprint.text import Text, labelled

if TYPE_CHECKING:
    from kinprint.align.residual_basis import ColumnMatch
    from kinprint.align.rotation import Rows
    from kinprint.evidence.expert_split import ExpertSplit
    from kinprint.evidence.norm_edits import NormEdit
    from kinprint.evidence.rotated_layers import Fitted

REORDERED_NEURONS, ROTATED_BASIS = Text("reordered neurons"), Text("rotated residual basis")
SINGLE_WEIGHTS = Text("what was done to single weights")
EXPERTS_REORDERED, EXPERTS_REMOVED, INTO_EXPERTS = "experts reordered", "experts removed", "into experts"
MOVED_NEURONS = frozenset({PERMUTED, SUBSET, SUBSET_IN_ORDER, EXPERTS_REORDERED, EXPERTS_REMOVED, INTO_EXPERTS})
"""Kinds of matches after which MLPs, experts and routers do not stand in place."""


@dataclass(frozen=True)
class NeuronEvidence(SearchResult):
    """Tests of layers whose neurons were matched, and the kind of reordering that most of them show."""

    kind: str | None = None
    slices: Mapping[str, Pairs] = field(default_factory=dict)  # up rows paired by gate rows, and gate rows by up rows


@dataclass(frozen=True)
class BasisEvidence(SearchResult):
    """Tests after the alignment, and the map of residual dimensions that they rest on."""

    match: ColumnMatch | None = None
    norms: Pairs = ()  # of layers at the same place, in A's order
    slices: Mapping[str, Pairs] = field(default_factory=dict)  # rows of all layers by role, in A's order and signs


@dataclass(frozen=True)
class RotationEvidence(SearchResult):
    """Tests of both stages, rotations, and the largest share of neurons recognised in any pair of layers not fitted."""

    layers: Mapping[int, int] = field(default_factory=dict)  # layer of B to the layer of A that it was held against
    fitted: Fitted | None = None  # the best fit
    rotations: Mapping[int, Rows] = field(default_factory=dict)  # by layer of B, as far as they were fitted
    share: float | None = None  # None if no pair was tested
    in_order: bool = False

    @property
    def turn(self) -> Rows | None:
        """The rotation of the layer that matches best; None where none was fitted."""
        known = [layer for layer in self.by_layer if layer in self.rotations]
        return self.rotations[min(known, key=lambda layer: self.by_layer[layer])] if known else None

    def mirrored(self) -> Self:
        """Return the same as seen from the other side; of layers that were held against one of the other's, the best stays."""
        best = sorted(
            self.layers, key=lambda layer: -self.by_layer.get(layer, 0.0)
        )  # a later one takes the place of others
        turned = {self.layers[layer]: layer for layer in best}
        return replace(
            self,
            tests=tuple(
                replace(test, layer=None if test.layer is None else self.layers.get(test.layer)) for test in self.tests
            ),
            by_layer={layer: self.by_layer[at] for layer, at in sorted(turned.items()) if at in self.by_layer},
            layers=dict(sorted(turned.items())),
            fitted=None,
            rotations={layer: self.rotations[at].T for layer, at in turned.items() if at in self.rotations},
        )


@dataclass(frozen=True)
class EditEvidence:
    """What was found about the edit."""

    findings: tuple[EditFinding, ...] = ()
    origin: Origin | None = None
    spent: int = 0
    untested: Text | None = None
    norms: NormEdit | None = None
    split: ExpertSplit | None = None

    @classmethod
    def not_run(cls, why: Text) -> Self:
        """Return what stands for a search that broke off: no kind, and no word on whether training is shared."""
        return cls(origin=Origin(UNCLEAR, (why,)), untested=labelled(SINGLE_WEIGHTS, why))
