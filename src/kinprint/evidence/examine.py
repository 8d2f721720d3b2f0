"""The evidence engine: cheap and decisive tests first, more reading only where it can change the answer, then the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kinprint._util.numeric import evenly_spaced
from kinprint.align.layer_alignment import NONE as NO_MAP
from kinprint.evidence.assess import Assessment, assess, conclude, facts_of, power_of
from kinprint.evidence.basis import BasisEvidence, align_basis, token_rotations
from kinprint.evidence.controls import CONTROL_LAYERS, own_controls, run_controls
from kinprint.evidence.edit_kinds import NEGATED, REORDERED, RESIZED, ROTATED
from kinprint.evidence.editing import EditEvidence, examine_edits, merge_of
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.identity import confirm_identity
from kinprint.evidence.neuron_gram import rotation_controls
from kinprint.evidence.neuron_matching import REORDERED as REORDERED_NEURONS
from kinprint.evidence.neuron_matching import NeuronEvidence, match_neurons
from kinprint.evidence.probe import Probe
from kinprint.evidence.reading import TOKEN_ROWS, Scope, fill_probes, plan_extras
from kinprint.evidence.rotation import ROTATED_BASIS, RotationEvidence, examine_rotation
from kinprint.evidence.verdict import LOG10_ALPHA, MATCHES_NEURONS, TRUNK, Facts, decide
from kinprint.model.model import Model
from kinprint.model.weights import StoredWeights
from kinprint.results.findings import Evidence, EvidenceTest, MergeFinding, Verdict
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.text import Text, joined, labelled

EXTRA_SHARE = 0.5  # of what the comparison leaves of the budget: for layers, heads and tokens it did not need
EDIT_SHARE = 0.5  # of what is left after that: for larger slices, where the models are related
CLEAR_COLUMNS = 0.5  # share of residual dimensions that tokens pair beyond doubt, below which it was no mere reordering
SEE_DEEP = Text("see --deep")
Tell = Callable[[str, int, int], None]


@dataclass
class _Diary:
    """What one examination may look at, and what it read when, for the report."""

    session: Session
    options: Options
    scope: Scope  # layers and roles that may be looked at
    null: EmpiricalNull
    stages: list[Text] = field(default_factory=list)

    def allowance(self, share: float) -> int | None:
        left = self.session.remaining_bytes
        return None if left is None else int(left * share)

    def note(self, text: Text) -> None:
        self.stages.append(text)


def examine(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    session: Session,
    tokens: Sequence[tuple[int, int]] | None,
    options: Options,
    scope: Scope,
    null: EmpiricalNull,
    tell: Tell,
) -> tuple[Verdict, Evidence]:
    """Judge two models of which the comparison's slices are in the probes; `scope` says which layers and roles may be looked at."""
    diary = _Diary(session, options, scope, null)
    a, b = probes
    diary.note(Text("comparison: {a} slices of A and {b} of B", a=len(a.samples), b=len(b.samples)))
    tell("evidence", 0, 4)
    extras = plan_extras(models, probes, sample_tokens(tokens), scope)
    spent = fill_probes(models, probes, extras, diary.allowance(EXTRA_SHARE))
    diary.note(
        Text(
            "exact tests: {n:,} further bytes, for layers, neurons, heads and tokens that the comparison did not need",
            n=spent,
        )
    )
    assessment = assess(a, b, seed=options.seed)
    tell("evidence", 1, 4)
    if _all_same(assessment):
        identity, spent = confirm_identity(models, assessment.identity, diary.allowance(1.0))
        assessment = replace(assessment, identity=identity)
        diary.note(
            Text("identity: {n:,} further bytes; {x:.1%} of all weights are now known", n=spent, x=identity.share_read)
        )
    assessment, neurons = _escalate(models, probes, assessment, diary)
    assessment, basis = _rebase(models, probes, assessment, tokens, diary)
    assessment, rotated = _find_rotation(models, probes, assessment, basis, tokens, diary)
    tell("evidence", 2, 4)
    basis_word = _basis_word(probes, basis, rotated)
    edits = EditEvidence()
    if assessment.log10_p <= LOG10_ALPHA and not _all_same(assessment):
        edits = examine_edits(models, probes, assessment, diary.allowance(EDIT_SHARE), scope)
        diary.note(Text("kind of edit: {n:,} further bytes, for larger slices of a few matrices", n=edits.spent))
    merge = _merge(models, probes, diary) if options.parents else None
    tell("evidence", 3, 4)
    own, able = own_controls(a, seed=options.seed)
    if rotated.tests:
        own += rotation_controls(
            StoredWeights(models[0]), log10_alpha=LOG10_ALPHA, seed=options.seed, allowed=scope.allows
        )
    controls = [*own, *run_controls(options, a, session)]
    diary.note(Text("controls: {n} run", n=sum(item.status != "not run" for item in controls)))
    diary.note(Text("self and shuffled self look at {n} layers at most", n=CONTROL_LAYERS))
    power = power_of(a, b, assessment)
    facts = replace(
        facts_of(a, b, assessment),
        origin=(rotated.origin if basis_word == ROTATED else basis.origin) if basis_word else edits.origin,
        edits=edits.findings,
        merge=merge,
        controls=controls,
        power=power,
        neuron_kind=neurons.kind,
        basis=basis_word,
        able=able,
        untested=[
            *scope.limits,
            *(text for text in (neurons.untested, basis.untested, rotated.untested, edits.untested) if text),
        ],
        null=null.title if any(test.name in MATCHES_NEURONS for test in assessment.tests) else None,
    )
    tell("evidence", 4, 4)
    return decide(facts), _evidence(facts, diary.stages)


def _evidence(facts: Facts, stages: Sequence[Text]) -> Evidence:
    return Evidence(
        tests=tuple(facts.tests),
        alignment=facts.alignment,
        components=tuple(facts.components),
        experts=tuple(facts.experts),
        edits=tuple(facts.edits),
        merge=facts.merge,
        controls=tuple(facts.controls),
        power=tuple(facts.power),
        stages=tuple(stages),
    )


def sample_tokens(tokens: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]] | None:
    """Return up to `TOKEN_ROWS` shared tokens, evenly spaced from a quarter on: the first are special tokens and bytes."""
    if not tokens:
        return None
    return evenly_spaced(tokens[len(tokens) // 4 :], TOKEN_ROWS)


def _all_same(assessment: Assessment) -> bool:
    identity = assessment.identity
    return identity.same_structure and identity.identical == identity.tensors


def _escalate(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    assessment: Assessment,
    diary: _Diary,
) -> tuple[Assessment, NeuronEvidence]:
    """Match neurons where other parts share and the MLPs do not, or where the user wants to be sure."""
    mlp = next((item for item in assessment.components if item.component == "mlp"), None)
    experts = any(item.shared for item in assessment.experts)
    suspicious = assessment.log10_p <= LOG10_ALPHA and (mlp is None or mlp.shared < mlp.tested) and not experts
    if not suspicious and not diary.options.deep:
        why = (
            Text("the MLPs share in place")
            if assessment.log10_p <= LOG10_ALPHA
            else Text("nothing suggests it; --deep looks anyway")
        )
        diary.note(Text("reordered neurons were not looked for: {why}", why=why))
        silent = assessment.log10_p > LOG10_ALPHA
        return assessment, NeuronEvidence(untested=labelled(REORDERED_NEURONS, why) if silent else None)
    neurons = match_neurons(
        models,
        _candidates(assessment),
        allowance=diary.allowance(0.8),
        null=diary.null,
        seed=diary.options.seed,
        scope=diary.scope,
    )
    diary.note(Text("reordered neurons: {n:,} further bytes, {m} layers", n=neurons.spent, m=len(neurons.tests)))
    if not neurons.tests:
        return assessment, neurons
    found = {layer: p for layer, p in (neurons.by_layer or {}).items() if p <= LOG10_ALPHA / 2 or assessment.layers.mlp}
    return _with(assessment, probes, neurons.tests, found), neurons


def _with(
    assessment: Assessment,
    probes: tuple[Probe, Probe],
    tests: Sequence[EvidenceTest],
    by_layer: Mapping[int, float],
) -> Assessment:
    """Return an assessment with further tests, all corrected anew, and what they say of the MLPs of layers."""
    return conclude(
        probes,
        [*assessment.tests, *tests],
        assessment.layers,
        assessment.layer_map,
        assessment.experts,
        assessment.identity,
        {**assessment.neurons, **by_layer},
    )


def _rebase(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    assessment: Assessment,
    tokens: Sequence[tuple[int, int]] | None,
    diary: _Diary,
) -> tuple[Assessment, BasisEvidence]:
    """Align the residual stream by shared tokens where widths differ, or where nothing was found and the user asks."""
    widths_differ = probes[0].hidden != probes[1].hidden
    if not widths_differ and not (diary.options.deep and _open(assessment)):
        silent = assessment.log10_p > LOG10_ALPHA
        return assessment, BasisEvidence(
            untested=labelled(Text("reordered residual dimensions"), SEE_DEEP) if silent else None
        )
    found = align_basis(
        models, probes, assessment.layer_map, tokens, allowance=diary.allowance(0.8), seed=diary.options.seed
    )
    diary.note(
        Text(
            "residual stream aligned by tokens: {n:,} further bytes, {m} tests after it",
            n=found.spent,
            m=len(found.tests),
        )
    )
    if found.match is not None and not any((test.log10_p or 0.0) <= LOG10_ALPHA for test in found.tests):
        # neurons may be reordered as well
        matched = match_neurons(
            models,
            assessment.layer_map,
            allowance=diary.allowance(0.8),
            null=diary.null,
            seed=diary.options.seed,
            columns=found.match,
            scope=diary.scope,
        )
        diary.note(
            Text("neurons matched after that: {n:,} further bytes, {m} layers", n=matched.spent, m=len(matched.tests))
        )
        found = replace(found, tests=(*found.tests, *matched.tests), by_layer=matched.by_layer)
    if not found.tests:
        return assessment, found
    return _with(assessment, probes, found.tests, found.by_layer or {}), found


def _find_rotation(
    models: tuple[Model, Model],
    probes: tuple[Probe, Probe],
    assessment: Assessment,
    basis: BasisEvidence,
    tokens: Sequence[tuple[int, int]] | None,
    diary: _Diary,
) -> tuple[Assessment, RotationEvidence]:
    """Look for a rotated residual basis where the user asks, and nothing was found or only through a poor map of dimensions."""
    silent = assessment.log10_p > LOG10_ALPHA
    unsolved = _open(assessment)
    # a reordering pairs dimensions one to one; what a rotation leaves of such pairs can be enough to reject, not to name it
    blurred = basis.match is not None and basis.match.share < CLEAR_COLUMNS
    if not (diary.options.deep and (unsolved or blurred)):
        return assessment, RotationEvidence(untested=labelled(ROTATED_BASIS, SEE_DEEP) if silent else None)
    a, b = StoredWeights(models[0]), StoredWeights(models[1])
    starts = token_rotations(models, tokens, diary.allowance(0.3), seed=diary.options.seed)
    found = examine_rotation(
        a,
        b,
        null=diary.null,
        log10_alpha=LOG10_ALPHA,
        allowance=diary.allowance(0.9),
        seed=diary.options.seed,
        starts=starts,
        allowed=diary.scope.allows,
    )
    diary.note(
        Text(
            "rotated residual basis: {n:,} further bytes, {m} tests", n=a.bytes_read + b.bytes_read, m=len(found.tests)
        )
    )
    if not found.tests:
        return assessment, found
    return _with(assessment, probes, found.tests, found.by_layer), found


def _open(assessment: Assessment) -> bool:
    """Whether nothing was found yet, or nothing inside the layers: norms, for one, survive every change of signs."""
    trunk = any(item.component in TRUNK and item.shared for item in assessment.components)
    return assessment.log10_p > LOG10_ALPHA or not (trunk or any(item.shared for item in assessment.experts))


def _basis_word(probes: tuple[Probe, Probe], basis: BasisEvidence, rotated: RotationEvidence) -> str | None:
    """Return how the residual stream was changed, if the tests after its alignment show a relation."""
    if any((test.log10_p or 0.0) <= LOG10_ALPHA for test in rotated.tests):
        return ROTATED
    if not any((test.log10_p or 0.0) <= LOG10_ALPHA for test in basis.tests):
        return None
    if probes[0].hidden != probes[1].hidden:
        return RESIZED
    in_place = basis.match is not None and np.array_equal(basis.match.index, np.arange(basis.match.index.size))
    return NEGATED if in_place else REORDERED


def _candidates(assessment: Assessment) -> Mapping[int, int]:
    return assessment.layers.layer_map if assessment.layers.alignment.kind != NO_MAP else assessment.layer_map


def _merge(models: tuple[Model, Model], probes: tuple[Probe, Probe], diary: _Diary) -> MergeFinding | None:
    found, spent, problem = merge_of(models, probes, diary.options.parents, diary.session, diary.allowance(0.9))
    said = Text("merge: {n:,} further bytes", n=spent)
    diary.note(joined((said, problem)) if problem else said)
    return found
