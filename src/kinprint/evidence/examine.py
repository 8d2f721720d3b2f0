"""Examine two models: cheap and decisive tests first, more reading only where the answer can change, then the verdict.

What searches need is imported where one is made: few comparisons make any, and it is a fifth of all that a comparison loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kinprint._util.arenas import give_back
from kinprint._util.progress import Progress
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment, assess
from kinprint.evidence.attempts import attempt, noting
from kinprint.evidence.components import of_one_function, with_power, without_weak
from kinprint.evidence.controls import FAILED, Controls, able_tests, both_controls_aside, control_layers, run_controls
from kinprint.evidence.dimension_test import norms_agree
from kinprint.evidence.edit_kinds import KEEPING, MATCHES_NEURONS, too_weak
from kinprint.evidence.facts import Facts, shared_fields
from kinprint.evidence.power import power_of
from kinprint.evidence.reading import ProbeRead, fill_probes, plan_extras
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.evidence.searched import (
    EditEvidence,
    NeuronEvidence,
    RotationEvidence,
)
from kinprint.evidence.searches import Case, basis_word, is_open, is_related, search
from kinprint.evidence.verdict import decide
from kinprint.results import findings
from kinprint.results.findings import ControlFinding, Evidence, FunctionFinding, PowerFinding, Verdict
from kinprint.text import Text, joined, labelled

WORTH_SPARING = 4_000_000  # bytes: less is read in less time than it takes to find that it was not needed
EXTRA_SHARE = 0.5  # of what the comparison leaves of the budget: for layers, heads and tokens it did not need
EDIT_SHARE = 0.5  # of what is left after that: for larger slices, where the models are related


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
    give_back()
    assessment, case, controls = _first_assessment(case, stages)
    give_back()
    tell("evidence", 1, 4)
    if _all_same(assessment):
        from kinprint.evidence.identity import confirm_identity

        identity, spent = confirm_identity(models, assessment.identity, case.allowance(1.0))
        assessment = replace(assessment, identity=identity)
        known = identity.share_read
        stages.append(Text("identity: {n:,} further bytes; {x:.1%} of all weights are now known", n=spent, x=known))
    assessment, neurons, basis, rotated = search(case, assessment, stages)
    tell("evidence", 2, 4)
    turned = basis_word(probes, basis, rotated)
    edits = _edits(case, assessment, neurons, stages)
    merge, no_merge = _merge(case, assessment, stages) if options.parents else (None, None)
    give_back()
    function = _function(case, assessment, edits, stages, in_place=not turned and neurons.kind is None)
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
        origin=(rotated if rotated.rejects(LOG10_ALPHA) else basis if turned else edits).origin,
        edits=edits.findings,
        norms=edits.norms,
        split=edits.split,
        merge=merge,
        controls=controls_run,
        power=power,
        neuron_kind=neurons.kind,
        basis=turned,
        able=able if seen is None else seen,
        limits=[*([no_merge] if no_merge else []), *scope.limits, *_experts_left(assessment)],
        untested=[
            *(found.untested for found in (neurons, basis, rotated, edits) if found.untested),
        ]
        + ([unsaid] if unsaid else []),
        null=case.null.title if any(test.name in MATCHES_NEURONS for test in assessment.tests) else None,
    )
    tell("evidence", 4, 4)
    weak = {item.component for item in facts.components if facts.edits and too_weak(facts, item.component)}
    return replace(facts, components=without_weak(facts.components, weak)), stages


def _first_assessment(case: Case, stages: list[Text]) -> tuple[Assessment, Case, Callable[[], Controls]]:
    """Read what the exact tests need beyond the comparison, and assess; where a part of it settles the matter, only that.

    The controls of what was read begin beside it.
    """
    (a, b), seed, spent = case.probes, case.options.seed, 0

    def planned(*, first: bool = False) -> list[ProbeRead]:
        return plan_extras(case.models, case.probes, case.tokens, case.scope, first=first)

    def read(wanted: Sequence[ProbeRead]) -> int:
        return fill_probes(case.models, case.probes, wanted, case.allowance(EXTRA_SHARE))

    everything = sum(case.models[one.side].cost(one.want) for one in planned())
    if not case.options.thorough and everything > WORTH_SPARING and norms_agree(a, b):
        allowed = case.allowance(EXTRA_SHARE)
        spent = read(planned(first=True))
        controls = both_controls_aside(a, b, seed=seed)
        assessment = assess(a, b, seed=seed)
        if assessment.settled:
            said = Text(
                "settled after {n:,} further bytes, for neurons and tokens: every layer and part shares; {m:,} bytes more, of "
                "neurons and heads, were not read, because they could change neither class nor kind (--thorough reads them)",
                n=spent,
                m=everything - spent,
            )
            stages.append(said)
            case.when_read(case.probes)  # searches and edits read into probes of their own
            spared = max(everything if allowed is None else min(everything, allowed), spent) - spent
            return assessment, replace(case, spared=spared), controls
        del controls  # of fewer slices: their forks end here
    spent += read(planned())
    what = Text(
        "exact tests: {n:,} further bytes, for layers, neurons, heads and tokens that the comparison did not need",
        n=spent,
    )
    stages.append(what)
    case.when_read(case.probes)
    controls = both_controls_aside(a, b, seed=seed)
    return assess(a, b, seed=seed), case, controls


def _edits(case: Case, assessment: Assessment, neurons: NeuronEvidence, stages: list[Text]) -> EditEvidence:
    """Look at what was done to single weights, where the models are related and not the same."""
    if assessment.log10_p > LOG10_ALPHA or _all_same(assessment):
        return EditEvidence()
    from kinprint.evidence.editing import examine_edits

    edits = attempt(
        lambda: examine_edits(case.models, assessment, case.allowance(EDIT_SHARE), case.scope, neurons.slices),
        EditEvidence.not_run,
    )
    stages.append(Text("kind of edit: {n:,} further bytes, for larger slices of a few matrices", n=edits.spent))
    if not is_open(assessment):
        return edits
    from kinprint.evidence.basis import part_origin

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
    from kinprint.evidence.neuron_gram import ROTATION_CONTROLS, rotation_controls
    from kinprint.model.weights import StoredWeights

    model, seed = StoredWeights(case.models[0]), case.options.seed
    return attempt(
        lambda: rotation_controls(model, log10_alpha=LOG10_ALPHA, seed=seed, scope=case.scope),
        lambda why: [ControlFinding(name, ok, FAILED, None, None, None, why) for name, ok, _ in ROTATION_CONTROLS],
    )


def _evidence(facts: Facts, stages: Sequence[Text]) -> Evidence:
    shown = shared_fields(facts, Evidence)
    lists = {name: tuple(value) for name, value in shown.items() if isinstance(value, list)}
    return Evidence(**shown | lists, stages=tuple(stages))


def _experts_left(assessment: Assessment) -> list[Text]:
    """Say of how many experts nothing was held against the other model's in place."""
    looked_at = [(p.experts, {key[2] for key in p.samples} - {None}) for p in assessment.probes if p.experts]
    if assessment.identity.share_read >= 1.0 or not looked_at:
        return []
    left, total = max((total - len(found), total) for total, found in looked_at)
    said = Text("{n} of {m} experts of each layer: not compared in place (see --experts)", n=left, m=total)
    return [said] if left > 0 else []


def _all_same(assessment: Assessment) -> bool:
    identity = assessment.identity
    return identity.same_structure and identity.identical == identity.tensors


def _function(
    case: Case, assessment: Assessment, edits: EditEvidence, stages: list[Text], *, in_place: bool
) -> FunctionFinding | None:
    """Run both models, where the edit may have kept the function: gates in place allow no change but that of norms before them."""
    gates = {item.edit for item in edits.findings if item.scope == Role.MLP_GATE.value}
    if not is_related(assessment) or _all_same(assessment) or (in_place and gates - KEEPING) or case.scope.limits:
        return None
    from kinprint.evidence.same_function import check_function

    before, layers = case.session.bytes_delivered, assessment.layers.layer_map or assessment.layer_map
    found = attempt(
        lambda: check_function(case.models, case.tokens, layers, case.options, case.allowance(0.8)),
        lambda why: FunctionFinding(same=None, reason=why),
    )
    stages.append(Text("function: {n:,} further bytes, to run both models", n=case.session.bytes_delivered - before))
    return found


def _merge(case: Case, assessment: Assessment, stages: list[Text]) -> tuple[findings.MergeFinding | None, Text | None]:
    """Return what explains B as a merge of A and the parents given, or why nothing can."""
    from kinprint.evidence.editing import merge_of

    before, found, problems = case.session.bytes_delivered, None, list[Text]()
    try:
        label = case.models[0].label
        found = attempt(
            lambda: merge_of(label, assessment, case.options.parents, case.session, case.allowance(0.9)),
            problems.append,
        )
    except DegenerateInput as error:
        problems.append(error.reason)
    spent = case.session.bytes_delivered - before
    stages.append(joined((Text("merge: {n:,} further bytes", n=spent), *problems)))
    why = labelled(Text("merge of A and the models given as parents"), joined(problems)) if problems else None
    return found, why
