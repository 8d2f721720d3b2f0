"""Examine two models: cheap and decisive tests first, more reading only where the answer can change, then the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.progress import Progress
from kinprint.align.layer_alignment import NONE as NO_MAP
from kinprint.align.layer_alignment import kind_of_map
from kinprint.align.residual_basis import ColumnMatch
from kinprint.align.rotation import Rows
from kinprint.arch import Axis, Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment, SearchResult, assess
from kinprint.evidence.attempts import attempt, noting
from kinprint.evidence.basis import BasisEvidence, align_basis, part_origin, token_rotations
from kinprint.evidence.common_start import origin_of
from kinprint.evidence.components import NEURONS_MOVED, RESIDUAL_MOVED, of_one_function, with_power
from kinprint.evidence.controls import FAILED, able_tests, both_controls_aside, control_layers, run_controls
from kinprint.evidence.dimension_test import norms_agree
from kinprint.evidence.edit_kinds import KEEPING, MATCHES_NEURONS, NEGATED, REORDERED, RESIZED, ROTATED
from kinprint.evidence.editing import EditEvidence, examine_edits, merge_of
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.facts import Facts, shared_fields
from kinprint.evidence.head_products import Product, compare_heads
from kinprint.evidence.identity import confirm_identity
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.neuron_gram import ROTATION_CONTROLS, rotation_controls
from kinprint.evidence.neuron_matching import MOVED_NEURONS, NeuronEvidence, match_neurons
from kinprint.evidence.neuron_matching import REORDERED as REORDERED_NEURONS
from kinprint.evidence.power import power_of
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import ProbeRead, Scope, fill_probes, plan_extras
from kinprint.evidence.rotation import ROTATED_BASIS, RotationEvidence, examine_rotation, layer_rotation
from kinprint.evidence.same_function import check_function
from kinprint.evidence.sign_tests import negated_units
from kinprint.evidence.verdict import LOG10_ALPHA, TRUNK, decide
from kinprint.model.model import Model
from kinprint.model.weights import StoredWeights
from kinprint.results import findings
from kinprint.results.findings import ControlFinding, Evidence, FunctionFinding, LayerFinding, PowerFinding, Verdict
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.text import Text, joined, labelled

WORTH_SPARING = 4_000_000  # bytes: less is read in less time than it takes to find that it was not needed
EXTRA_SHARE = 0.5  # of what the comparison leaves of the budget: for layers, heads and tokens it did not need
EDIT_SHARE = 0.5  # of what is left after that: for larger slices, where the models are related
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

    def allowance(self, share: float) -> int | None:
        """Return a share of what is left of the budget; None without a budget."""
        left = self.session.remaining_bytes
        return None if left is None else int(max(left - self.spared, 0) * share)


def examine(case: Case, tell: Progress) -> tuple[Verdict, Evidence]:
    """Judge two models of which the comparison's slices are in the probes."""
    with noting() as broken:
        facts, stages = _gathered(case, tell)
    return decide(replace(facts, broken=tuple(broken))), _evidence(facts, stages)


def _gathered(case: Case, tell: Progress) -> tuple[Facts, list[Text]]:
    """Return what the rules look at, and what was done for it."""
    models, probes, options, scope = case.models, case.probes, case.options, case.scope
    a, b = probes
    stages = [Text("comparison: {a} slices of A and {b} of B", a=len(a.samples), b=len(b.samples))]
    tell("evidence", 0, 4)
    assessment, case = _first_assessment(case, stages)
    controls = both_controls_aside(a, b, seed=options.seed)
    tell("evidence", 1, 4)
    if _all_same(assessment):
        identity, spent = confirm_identity(models, assessment.identity, case.allowance(1.0))
        assessment = replace(assessment, identity=identity)
        known = identity.share_read
        stages.append(Text("identity: {n:,} further bytes; {x:.1%} of all weights are now known", n=spent, x=known))
    assessment, neurons, basis, rotated = _search(case, assessment, stages)
    tell("evidence", 2, 4)
    basis_word = _basis_word(probes, basis, rotated)
    edits = _edits(case, assessment, neurons, stages)
    merge = _merge(case, stages) if options.parents else None
    function = _function(case, assessment, edits, stages, in_place=not basis_word and neurons.kind is None)
    tell("evidence", 3, 4)
    nothing_found = assessment.log10_p > LOG10_ALPHA
    power, seen, unsaid = _power(case, assessment) if nothing_found else ([], None, None)
    own, able = controls()
    controls_run = [*own, *_rotation_controls(case, rotated), *run_controls(options, a, case.session)]
    stages.append(Text("controls: {n} run", n=sum(item.status != "not run" for item in controls_run)))
    stages.append(Text("self and shuffled self look at {n} layers at most", n=control_layers(a, b)))
    components = with_power(assessment.components, assessment.tests, able)
    facts = replace(
        assessment.facts,
        components=of_one_function(components) if function and function.same else components,
        function=function,
        origin=(rotated if rotated.rejects(LOG10_ALPHA) else basis if basis_word else edits).origin,
        edits=edits.findings,
        norms=edits.norms,
        split=edits.split,
        merge=merge,
        controls=controls_run,
        power=power,
        neuron_kind=neurons.kind,
        basis=basis_word,
        able=able if seen is None else seen,
        untested=[*scope.limits, *(found.untested for found in (neurons, basis, rotated, edits) if found.untested)]
        + ([unsaid] if unsaid else []),
        null=case.null.title if any(test.name in MATCHES_NEURONS for test in assessment.tests) else None,
    )
    tell("evidence", 4, 4)
    return facts, stages


def _first_assessment(case: Case, stages: list[Text]) -> tuple[Assessment, Case]:
    """Read what the exact tests need beyond the comparison, and assess; where a part of it settles the matter, only that."""
    (a, b), seed, spent = case.probes, case.options.seed, 0

    def planned(*, first: bool = False) -> list[ProbeRead]:
        return plan_extras(case.models, case.probes, case.tokens, case.scope, first=first)

    def read(wanted: Sequence[ProbeRead]) -> int:
        return fill_probes(case.models, case.probes, wanted, case.allowance(EXTRA_SHARE))

    everything = sum(case.models[one.side].cost(one.want) for one in planned())
    if not case.options.thorough and everything > WORTH_SPARING and norms_agree(a, b):
        allowed = case.allowance(EXTRA_SHARE)
        spent = read(planned(first=True))
        assessment = assess(a, b, seed=seed)
        if assessment.settled:
            said = Text(
                "settled after {n:,} further bytes, for neurons and tokens: every layer and part shares; {m:,} bytes more, of "
                "neurons and heads, were not read, because they could change neither class nor kind (--thorough reads them)",
                n=spent,
                m=everything - spent,
            )
            stages.append(said)
            spared = max(everything if allowed is None else min(everything, allowed), spent) - spent
            return assessment, replace(case, spared=spared)
    spent += read(planned())
    what = Text(
        "exact tests: {n:,} further bytes, for layers, neurons, heads and tokens that the comparison did not need",
        n=spent,
    )
    stages.append(what)
    return assess(a, b, seed=seed), case


def _search(
    case: Case, assessment: Assessment, stages: list[Text]
) -> tuple[Assessment, NeuronEvidence, BasisEvidence, RotationEvidence]:
    """Look for disguises, one after the other, each with what the others found."""
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


def _edits(case: Case, assessment: Assessment, neurons: NeuronEvidence, stages: list[Text]) -> EditEvidence:
    """Look at what was done to single weights, where the models are related and not the same."""
    if assessment.log10_p > LOG10_ALPHA or _all_same(assessment):
        return EditEvidence()
    edits = attempt(
        lambda: examine_edits(case.models, assessment, case.allowance(EDIT_SHARE), case.scope, neurons.slices),
        EditEvidence.not_run,
    )
    stages.append(Text("kind of edit: {n:,} further bytes, for larger slices of a few matrices", n=edits.spent))
    if not _open(assessment):
        return edits
    origin, spent = attempt(
        lambda: part_origin(case.models, assessment, case.tokens, case.allowance(EDIT_SHARE)),
        lambda why: (EditEvidence.not_run(why).origin, 0),
    )
    stages.append(Text("origin of the parts that share: {n:,} further bytes, for token rows", n=spent))
    return replace(edits, origin=origin)


def _power(case: Case, assessment: Assessment) -> tuple[list[PowerFinding], frozenset[tuple[str, str]], Text | None]:
    """Return how weak a relation would have been seen, which tests see a strong one, and why that is not known."""

    def run() -> tuple[list[PowerFinding], frozenset[tuple[str, str]], Text | None]:
        power = power_of(assessment)
        return power, able_tests(case.probes, power, seed=case.options.seed), None

    return attempt(run, lambda why: ([], frozenset(), labelled(Text("power"), why)))


def _rotation_controls(case: Case, rotated: RotationEvidence) -> list[ControlFinding]:
    if not rotated.tests:
        return []
    model, seed = StoredWeights(case.models[0]), case.options.seed
    return attempt(
        lambda: rotation_controls(model, log10_alpha=LOG10_ALPHA, seed=seed, scope=case.scope),
        lambda why: [ControlFinding(name, ok, FAILED, None, None, None, why) for name, ok, _ in ROTATION_CONTROLS],
    )


def _evidence(facts: Facts, stages: Sequence[Text]) -> Evidence:
    shown = shared_fields(facts, Evidence)
    lists = {name: tuple(value) for name, value in shown.items() if isinstance(value, list)}
    return Evidence(**shown | lists, stages=tuple(stages))


def _all_same(assessment: Assessment) -> bool:
    identity = assessment.identity
    return identity.same_structure and identity.identical == identity.tensors


def _search_neurons(case: Case, assessment: Assessment, stages: list[Text]) -> tuple[Assessment, NeuronEvidence]:
    """Match neurons where other parts share and the MLPs do not, or where the user wants to be sure."""
    mlp = next((item for item in assessment.components if item.component == "mlp"), None)
    found_related = _related(assessment)
    experts = bool(assessment.experts) and all(item.shared for item in assessment.experts)
    unmatched = mlp is None or not mlp.shared or assessment.layers.unmatched("mlp")
    suspicious = found_related and unmatched and not experts
    if not suspicious and not case.options.deep:
        why = Text("the MLPs share in place") if found_related else Text("nothing suggests it; --deep looks anyway")
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
    partly = not _open(assessment) and _partly_moved(assessment)
    unsolved = _open(assessment) or partly or bool(negated_units(assessment.tests, Axis.RESIDUAL))
    if not widths_differ and not (unsolved and (case.options.deep or _related(assessment))):
        return assessment, BasisEvidence(untested=_see_deep(assessment, REORDERED_BASIS))
    found = align_basis(case.models, assessment, case.tokens, allowance=case.allowance(0.8), seed=case.options.seed)
    spent, count = found.spent, len(found.tests)
    stages.append(Text("residual stream aligned by tokens: {n:,} further bytes, {m} tests after it", n=spent, m=count))
    if partly and (found.match is None or float(np.mean(found.match.index == np.arange(found.match.index.size))) > 0.9):
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
    if not ((case.options.deep or _related(assessment)) and (_open(assessment) or blurred)):
        return assessment, RotationEvidence(untested=_see_deep(assessment, ROTATED_BASIS))
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
    untested = _related(assessment) and not any(item.tested for item in mlps)
    if attention is None or not (untested or any(item.shared for item in mlps) or basis.rejects(LOG10_ALPHA)):
        return assessment
    # heads that were reordered stand in place here and there by chance, where MLPs share everywhere
    few = 0 < 2 * attention.shared < attention.tested and all(item.shared == item.tested for item in mlps)
    if not few and (attention.shared or not (attention.note or untested)):
        return assessment
    if basis.rejects(LOG10_ALPHA) and _blurred(basis) and not rotated.rejects(LOG10_ALPHA):
        return assessment  # attention cannot be compared in a basis of which little is known
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
    return replace(assessment, heads=found).extended((), {})


def _see_deep(assessment: Assessment, what: Text) -> Text | None:
    """Say that --deep would look for something, where nothing was found."""
    return None if _related(assessment) else labelled(what, SEE_DEEP)


def _blurred(basis: BasisEvidence) -> bool:
    return basis.match is not None and basis.match.share < CLEAR_COLUMNS


def _related(assessment: Assessment) -> bool:
    return assessment.log10_p <= LOG10_ALPHA


def _open(assessment: Assessment) -> bool:
    """Whether nothing was found yet, or nothing inside the layers: norms, for one, survive every change of signs."""
    trunk = any(item.component in TRUNK and item.shared for item in assessment.components)
    return assessment.log10_p > LOG10_ALPHA or not (trunk or any(item.shared for item in assessment.experts))


def _basis_word(probes: tuple[Probe, Probe], basis: BasisEvidence, rotated: RotationEvidence) -> str | None:
    """Return how the residual stream was changed, if the tests after its alignment show a relation."""
    if not (rotated.rejects(LOG10_ALPHA) or basis.rejects(LOG10_ALPHA)):
        return None
    if probes[0].hidden != probes[1].hidden:
        return RESIZED
    index = None if basis.match is None else basis.match.index
    if rotated.rejects(LOG10_ALPHA) and (_blurred(basis) or not basis.rejects(LOG10_ALPHA)):
        index = None if rotated.turn is None else _order_of(rotated.turn)
        if index is None:
            return ROTATED
    return NEGATED if index is not None and np.array_equal(index, np.arange(index.size)) else REORDERED


def _order_of(R: Rows) -> NDArray[np.intp] | None:
    """Return the order of residual dimensions that a rotation amounts to, signs aside; None if it mixes them."""
    index = np.abs(R).argmax(axis=1)
    alone = np.abs(R).max(axis=1) ** 2 > CLEAR_COLUMNS
    return index if float(alone.mean()) > CLEAR_COLUMNS else None


def _function(
    case: Case, assessment: Assessment, edits: EditEvidence, stages: list[Text], *, in_place: bool
) -> FunctionFinding | None:
    """Run both models, where the edit may have kept the function: gates in place allow no change but that of norms before them."""
    gates = {item.edit for item in edits.findings if item.scope == Role.MLP_GATE.value}
    if not _related(assessment) or _all_same(assessment) or (in_place and gates - KEEPING) or case.scope.limits:
        return None
    before, layers = case.session.bytes_delivered, assessment.layers.layer_map or assessment.layer_map
    found = attempt(
        lambda: check_function(case.models, case.tokens, layers, case.options, case.allowance(0.8)),
        lambda why: FunctionFinding(same=None, reason=why),
    )
    stages.append(Text("function: {n:,} further bytes, to run both models", n=case.session.bytes_delivered - before))
    return found


def _merge(case: Case, stages: list[Text]) -> findings.MergeFinding | None:
    before, found, problems = case.session.bytes_delivered, None, list[Text]()
    try:
        label = case.models[0].label
        found = attempt(
            lambda: merge_of(label, case.probes, case.options.parents, case.session, case.allowance(0.9)),
            problems.append,
        )
    except DegenerateInput as error:
        problems.append(error.reason)
    spent = case.session.bytes_delivered - before
    stages.append(joined((Text("merge: {n:,} further bytes", n=spent), *problems)))
    return found
