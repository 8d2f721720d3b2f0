"""Look for disguises of a relation: reordered neurons, another residual basis, heads; each with what the others found.

What a search needs is imported where it is made: few comparisons make any, and it is a fifth of all that a comparison loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kinprint._util.records import dataclass
from kinprint.align.layer_alignment import NONE as NO_MAP
from kinprint.align.layer_alignment import kind_of_map
from kinprint.arch import Axis
from kinprint.evidence.assess import Assessment, SearchResult
from kinprint.evidence.attempts import attempt
from kinprint.evidence.common_start import origin_of
from kinprint.evidence.components import NEURONS_MOVED, RESIDUAL_MOVED
from kinprint.evidence.edit_kinds import NEGATED, REORDERED, RESIZED, ROTATED
from kinprint.evidence.exchangeability import along_few_directions
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import Scope
from kinprint.evidence.rules import LOG10_ALPHA, TRUNK
from kinprint.evidence.searched import (
    MOVED_NEURONS,
    REORDERED_NEURONS,
    ROTATED_BASIS,
    BasisEvidence,
    NeuronEvidence,
    RotationEvidence,
)
from kinprint.evidence.sign_tests import negated_units
from kinprint.model.model import Model
from kinprint.results import findings
from kinprint.results.findings import LayerFinding
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.text import Text, labelled

if TYPE_CHECKING:
    from kinprint.align.residual_basis import ColumnMatch
    from kinprint.align.rotation import Rows
    from kinprint.evidence.empirical_null import EmpiricalNull
    from kinprint.evidence.head_products import Product

MOST_STAY = 0.95
"""Share of residual dimensions in their places, with their signs, beyond which none counts as moved. Coarse rounding and replaced
layers leave all; of fewer that an evader moves, what was read in place shows the relation."""
CLEAR_COLUMNS = 0.5  # share of residual dimensions that tokens pair beyond doubt, below which it was no mere reordering
MOST_IN_PLACE = 0.8
"""Share of dimensions or neurons at their places below which others were reordered, not only trained."""
REORDERED_BASIS = Text("reordered residual dimensions")
SEE_DEEP = Text("see --deep")


@dataclass(frozen=True)
class Case:
    """Two models to examine, what was read of them, and what may still be read."""

    models: tuple[Model, Model]
    probes: tuple[Probe, Probe]
    session: Session
    tokens: Sequence[tuple[int, int]] | None  # ids of shared tokens, in A and in B
    options: Options
    scope: Scope  # layers and roles that may be looked at
    null: EmpiricalNull
    spared: int = 0  # bytes that were not needed, and are not spent on anything else
    when_read: Callable[[tuple[Probe, Probe]], None] = lambda _: None  # told once the probes hold all that they will

    def allowance(self, share: float) -> int | None:
        """Return a share of what is left of the budget; None without a budget."""
        left = self.session.remaining_bytes
        return None if left is None else int(max(left - self.spared, 0) * share)


def search(
    case: Case, assessment: Assessment, stages: list[Text]
) -> tuple[Assessment, NeuronEvidence, BasisEvidence, RotationEvidence]:
    """Look for disguises, one after the other, each with what the others found."""
    # Units that are all alike cannot be paired, and are the worst case of assigning them: a minute for four layers.
    if (few := along_few_directions(*case.probes)) is not None:
        stages.append(Text("disguises were not looked for: {why}", why=few))
        of_neurons, of_basis, of_rotation = (
            labelled(what, few) for what in (REORDERED_NEURONS, REORDERED_BASIS, ROTATED_BASIS)
        )
        unsought = NeuronEvidence(untested=of_neurons), BasisEvidence(untested=of_basis)
        return assessment, *unsought, RotationEvidence(untested=of_rotation)
    assessment, neurons = attempt(
        lambda: _search_neurons(case, assessment, stages),
        lambda why: (assessment, NeuronEvidence(untested=labelled(REORDERED_NEURONS, why))),
    )
    assessment, basis = attempt(
        lambda: _search_basis(case, assessment, stages),
        lambda why: (assessment, BasisEvidence(untested=labelled(REORDERED_BASIS, why))),
    )
    assessment, rotated = attempt(
        lambda: _search_rotation(case, assessment, basis, stages),
        lambda why: (assessment, RotationEvidence(untested=labelled(ROTATED_BASIS, why))),
    )
    assessment = attempt(
        lambda: _search_heads(case, assessment, basis, rotated, stages),
        lambda why: assessment.without("attention", why),
    )
    return assessment, neurons, basis, rotated


def _search_neurons(case: Case, assessment: Assessment, stages: list[Text]) -> tuple[Assessment, NeuronEvidence]:
    """Match neurons where other parts share and the MLPs do not, or where the user wants to be sure."""
    mlp = next((item for item in assessment.components if item.component == "mlp"), None)
    found_related = is_related(assessment)
    experts = bool(assessment.experts) and all(item.shared for item in assessment.experts)
    unmatched = mlp is None or not mlp.shared or assessment.layers.unmatched("mlp")
    suspicious = found_related and unmatched and not experts
    if not suspicious and not case.options.deep:
        why = Text("the MLPs share in place") if found_related else Text("nothing suggests it (--deep looks anyway)")
        stages.append(Text("reordered neurons were not looked for: {why}", why=why))
        return assessment, NeuronEvidence(untested=None if found_related else labelled(REORDERED_NEURONS, why))
    layers = assessment.layers
    candidates = layers.layer_map if layers.alignment.kind != NO_MAP else assessment.layer_map
    found = _matched(case, candidates)
    stages.append(Text("reordered neurons: {n:,} further bytes, {m} layers", n=found.spent, m=len(found.tests)))
    if not found.tests:
        return assessment, found
    moved = found.kind in MOVED_NEURONS and found.rejects(LOG10_ALPHA)
    return assessment.extended(found.tests, found.by_layer, NEURONS_MOVED if moved else frozenset()), found


def _matched(case: Case, layer_map: Mapping[int, int], columns: ColumnMatch | None = None) -> NeuronEvidence:
    from kinprint.evidence.neuron_matching import match_neurons

    return match_neurons(
        case.models,
        layer_map,
        allowance=case.allowance(0.8),
        null=case.null,
        seed=case.options.seed,
        columns=columns,
        scope=case.scope,
    )


def _search_basis(case: Case, assessment: Assessment, stages: list[Text]) -> tuple[Assessment, BasisEvidence]:
    """Align the residual stream by shared tokens where widths differ, where only parts outside the layers share, or on request."""
    widths_differ = case.probes[0].hidden != case.probes[1].hidden
    partly = not is_open(assessment) and _partly_moved(assessment)
    unsolved = is_open(assessment) or partly or bool(negated_units(assessment.tests, Axis.RESIDUAL))
    if not widths_differ and not (unsolved and (case.options.deep or is_related(assessment))):
        return assessment, BasisEvidence(untested=_see_deep(assessment, REORDERED_BASIS))
    from kinprint.evidence.basis import align_basis

    found = align_basis(case.models, assessment, case.tokens, allowance=case.allowance(0.8), seed=case.options.seed)
    spent, count = found.spent, len(found.tests)
    stages.append(Text("residual stream aligned by tokens: {n:,} further bytes, {m} tests after it", n=spent, m=count))
    if (partly and found.match is None) or (not widths_differ and found.match is not None and _stays(found.match)):
        return assessment, BasisEvidence()
    in_place = (
        max((test.statistic or 0.0) / test.n for test in found.tests if test.n) if found.rejects(LOG10_ALPHA) else 0.0
    )
    if found.match is not None and in_place < MOST_IN_PLACE:  # neurons may be reordered as well
        matched = _matched(case, assessment.layer_map, found.match)
        spent, count = matched.spent, len(matched.tests)
        stages.append(Text("neurons matched after that: {n:,} further bytes, {m} layers", n=spent, m=count))
        origin = origin_of(matched.slices, found.norms) if matched.slices else found.origin
        found = replace(found, tests=(*found.tests, *matched.tests), by_layer=matched.by_layer, origin=origin)
    return _rebased(assessment, found), found


def _partly_moved(assessment: Assessment) -> bool:
    """Whether some residual dimensions stand in place and others do not, by their scales: training leaves nearly all."""
    found = [test for test in assessment.tests if test.name == "dimension_fixed_points"]
    return any(
        (test.log10_p or 0.0) <= LOG10_ALPHA and (test.statistic or 0.0) < MOST_IN_PLACE * test.n for test in found
    )


def _search_rotation(
    case: Case, assessment: Assessment, basis: BasisEvidence, stages: list[Text]
) -> tuple[Assessment, RotationEvidence]:
    """Look for a rotated basis where only parts outside the layers share, or the user asks, and no clear map was found."""
    # a reordering pairs dimensions one to one; what a rotation leaves of such pairs can be enough to reject, not to name it
    # and layers that do not match in the order found may match others
    misplaced = max(basis.by_layer.values(), default=0.0) > LOG10_ALPHA / 2
    blurred = _blurred(basis) or (basis.rejects(LOG10_ALPHA) and misplaced)
    if not ((case.options.deep or is_related(assessment)) and (is_open(assessment) or blurred)):
        return assessment, RotationEvidence(untested=_see_deep(assessment, ROTATED_BASIS))
    from kinprint.evidence.basis import token_rotations
    from kinprint.evidence.rotation import examine_rotation
    from kinprint.model.weights import StoredWeights

    starts = token_rotations(case.models, case.tokens, case.allowance(0.3))
    a, b = StoredWeights(case.models[0]), StoredWeights(case.models[1])
    # the search fits one side to the other: it is made in one order, whichever of the models is called A
    turned = case.probes[0].rank() > case.probes[1].rank()
    if turned:
        a, b, starts = b, a, [start.T for start in starts]
    found = examine_rotation(
        a,
        b,
        null=case.null,
        allowance=case.allowance(0.9),
        seed=case.options.seed,
        starts=starts,
        scope=case.scope,
    )
    found = found.mirrored() if turned else found
    spent, count = a.bytes_read + b.bytes_read, len(found.tests)
    stages.append(Text("rotated residual basis: {n:,} further bytes, {m} tests", n=spent, m=count))
    return _rebased(_remapped(assessment, found), found), found


def _remapped(assessment: Assessment, found: RotationEvidence) -> Assessment:
    """Return the assessment with the layer map that a search for a rotated basis found, if it did."""
    if not found.rejects(LOG10_ALPHA):
        return assessment
    counts = [probe.layers for probe in assessment.probes]
    shared = {layer for layer, p in found.by_layer.items() if p <= LAYER_ALPHA}
    layers = tuple(
        LayerFinding(layer, found.layers[layer] if layer in shared else None, None, None, p, 1, layer in shared)
        for layer, p in sorted(found.by_layer.items())
    )
    pairs = tuple(found.layers[layer] if layer in shared else None for layer in range(counts[1]))
    unread = tuple(layer for layer in range(counts[1]) if layer not in found.by_layer)
    alignment = replace(
        assessment.layers.alignment,
        status=findings.TESTED,
        kind=kind_of_map(pairs, counts[0]),
        layers=layers,
        reason=None,
        unread=unread,
        unread_a=tuple(layer for layer in range(counts[0]) if unread and layer not in pairs),
    )
    return replace(assessment, layers=replace(assessment.layers, alignment=alignment))


def _rebased(assessment: Assessment, found: SearchResult) -> Assessment:
    """Return the assessment with what a search for another residual basis found."""
    moved = RESIDUAL_MOVED if found.rejects(LOG10_ALPHA) else frozenset()
    return assessment.extended(found.tests, found.by_layer, moved) if found.tests else assessment


def _search_heads(
    case: Case, assessment: Assessment, basis: BasisEvidence, rotated: RotationEvidence, stages: list[Text]
) -> Assessment:
    """Compare attention by products over heads, where MLPs share, or cannot be tested while other parts share, and it does not."""
    parts = {item.component: item for item in assessment.components}
    attention, mlps = parts.get("attention"), [parts[name] for name in ("mlp", "experts") if name in parts]
    untested = is_related(assessment) and not any(item.tested for item in mlps)
    if attention is None or not (untested or any(item.shared for item in mlps) or basis.rejects(LOG10_ALPHA)):
        return assessment
    # heads that were reordered stand in place here and there by chance, where MLPs share everywhere
    few = 0 < 2 * attention.shared < attention.tested and all(item.shared == item.tested for item in mlps)
    if not few and (attention.shared or not (attention.note or untested)):
        return assessment
    if basis.rejects(LOG10_ALPHA) and _blurred(basis) and not rotated.rejects(LOG10_ALPHA):
        return assessment  # attention cannot be compared in a basis of which little is known
    from kinprint.evidence.head_products import compare_heads
    from kinprint.evidence.rotation import layer_rotation
    from kinprint.model.weights import StoredWeights

    a, b = StoredWeights(case.models[0]), StoredWeights(case.models[1])
    layers = dict(assessment.layers.layer_map or assessment.layer_map)

    def aligned(layer: int, factors: Product) -> Product:
        if rotated.rejects(LOG10_ALPHA):
            R = rotated.rotations.get(layer)
            R = layer_rotation(a, b, (layers[layer], layer)) if R is None else R
            return factors[0] @ R, factors[1] @ R
        if basis.match is not None and basis.rejects(LOG10_ALPHA):
            return basis.match.columns_of_b(factors[0], b.hidden), basis.match.columns_of_b(factors[1], b.hidden)
        return factors

    if rotated.rejects(LOG10_ALPHA):
        layers = dict(rotated.layers)
    found = compare_heads(a, b, layers, aligned, case.allowance(0.5), seed=case.options.seed)
    spent = a.bytes_read + b.bytes_read
    stages.append(Text("attention by products over heads: {n:,} further bytes, {m} layers", n=spent, m=len(found)))
    heads, moved = {layer: item.log10_p for layer, item in found.items()}, sum(item.moved for item in found.values())
    return replace(assessment, heads=heads, heads_moved=2 * moved >= len(found) > 0).extended((), {})


def _see_deep(assessment: Assessment, what: Text) -> Text | None:
    """Say that --deep would look for something, where nothing was found."""
    return None if is_related(assessment) else labelled(what, SEE_DEEP)


def _blurred(basis: BasisEvidence) -> bool:
    return basis.match is not None and basis.match.share < CLEAR_COLUMNS


def is_related(assessment: Assessment) -> bool:
    """Whether the models share anything, by the tests so far."""
    return assessment.log10_p <= LOG10_ALPHA


def is_open(assessment: Assessment) -> bool:
    """Whether nothing was found yet, or nothing inside the layers: norms, for one, survive every change of signs."""
    trunk = any(item.component in TRUNK and item.shared for item in assessment.components)
    return assessment.log10_p > LOG10_ALPHA or not (trunk or any(item.shared for item in assessment.experts))


def basis_word(probes: tuple[Probe, Probe], basis: BasisEvidence, rotated: RotationEvidence) -> str | None:
    """Return how the residual stream was changed, if the tests after its alignment show a relation."""
    if not (rotated.rejects(LOG10_ALPHA) or basis.rejects(LOG10_ALPHA)):
        return None
    if probes[0].hidden != probes[1].hidden:
        return RESIZED
    match = basis.match
    if rotated.rejects(LOG10_ALPHA) and (_blurred(basis) or not basis.rejects(LOG10_ALPHA)):
        match = None if rotated.turn is None else _order_of(rotated.turn)
        if match is None:
            return ROTATED
    if match is None or float(np.mean(match.in_place != 0.0)) <= MOST_STAY:
        return REORDERED
    return None if _stays(match) else NEGATED


def _stays(match: ColumnMatch) -> bool:
    """Whether the map of residual dimensions is none: they stand in their places, with their signs."""
    return float(np.mean(match.in_place > 0.0)) > MOST_STAY


def _order_of(R: Rows) -> ColumnMatch | None:
    """Return the order and signs of residual dimensions that a rotation amounts to; None if it mixes them."""
    from kinprint.align.residual_basis import ColumnMatch

    index = np.abs(R).argmax(axis=1)
    share = float(np.mean(np.abs(R).max(axis=1) ** 2 > CLEAR_COLUMNS))
    sign = np.sign(R[np.arange(len(R)), index]).astype(np.int8)
    return ColumnMatch(index, sign, share) if share > CLEAR_COLUMNS else None
