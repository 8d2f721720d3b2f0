"""Everything that two probes in memory say: layer map, battery, experts, parts, identity, power. Reads nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kinprint.arch import Axis, Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.battery import LayerMap, SamplePair, run_battery, sample_pairs
from kinprint.evidence.components import component_map, expert_map
from kinprint.evidence.layer_map import LayerEvidence, align_layers
from kinprint.evidence.probe import Probe
from kinprint.evidence.verdict import LOG10_ALPHA, Facts, Identity
from kinprint.evidence.words import word
from kinprint.results.findings import TESTED, ComponentFinding, EvidenceTest, ExpertFinding, PowerFinding
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni, holm
from kinprint.stats.joint import BOUND_ROWS
from kinprint.stats.moments import centred_rows, dot_moments
from kinprint.stats.power import least_correlation, least_row_cosine
from kinprint.stats.tails import analytic_tail, log10_p_chernoff
from kinprint.text import Text, joined, verbatim

POWER = 0.95
CAUTIOUS_POWER = 0.98
"""Norms: aimed at where 0.95 is stated, because the bound's critical value varies with the values as well (simulated)."""
POWER_LAYERS = 8  # layers on which the scatter of unrelated rows is measured
HALVINGS = 14  # of the interval in which the least correlation is sought: four digits
SEARCHED = Text("layers are paired by the map found from matrices; p is corrected for the search")


@dataclass(frozen=True)
class Assessment:
    """What two probes show. ``tests`` carry Holm's correction over all of them."""

    tests: tuple[EvidenceTest, ...]
    layers: LayerEvidence
    layer_map: Mapping[int, int]
    experts: tuple[ExpertFinding, ...]
    components: tuple[ComponentFinding, ...]
    identity: Identity
    neurons: Mapping[int, float] = field(default_factory=dict)

    @property
    def log10_p(self) -> float:
        """The least corrected p-value."""
        return min((t.log10_p_holm for t in self.tests if t.log10_p_holm is not None), default=0.0)

    @property
    def strongest(self) -> EvidenceTest | None:
        """The test with the least corrected p-value."""
        ran = [test for test in self.tests if test.log10_p_holm is not None]
        return min(ran, key=lambda test: test.log10_p_holm or 0.0, default=None)


def assess(a: Probe, b: Probe, *, seed: int = 0) -> Assessment:
    """Run the layer map, the battery under it, and all that follows from them."""
    layers = align_layers(a, b, seed=seed)
    found = layers.layer_map
    searched = any(layer != source for layer, source in found.items())
    layer_map = found if searched else {layer: layer for layer in range(min(a.layers, b.layers))}
    tests = run_battery(a, b, layer_map, seed=seed)
    if searched:
        tries = max(1, a.layers * b.layers)
        tests = [_penalised(test, tries) if test.scope not in _OUTSIDE else test for test in tests]
    if a.experts and not b.experts:  # the mixture is the child, whichever side it was given on
        experts = expert_map(b, a, {source: layer for layer, source in layer_map.items()})
    else:
        experts = expert_map(a, b, layer_map)
    tests += _summaries(layers, experts)
    return conclude((a, b), tests, layers, layer_map, experts, _identity(a, b, layer_map))


_OUTSIDE = {role.value for role in Role if role.info.scope == "model"}


def conclude(
    probes: tuple[Probe, Probe],
    tests: Sequence[EvidenceTest],
    layers: LayerEvidence,
    layer_map: LayerMap,
    experts: Sequence[ExpertFinding],
    identity: Identity,
    neurons: Mapping[int, float] | None = None,
) -> Assessment:
    """Correct the tests for their number and derive the parts that share."""
    numbered = [index for index, test in enumerate(tests) if test.log10_p is not None]
    adjusted = holm([tests[index].log10_p or 0.0 for index in numbered])
    corrected = list(tests)
    for index, value in zip(numbered, adjusted, strict=True):
        corrected[index] = replace(tests[index], log10_p_holm=value)
    parts = component_map(probes, corrected, layers, experts, neurons or {})
    return Assessment(tuple(corrected), layers, layer_map, tuple(experts), tuple(parts), identity, neurons or {})


def _penalised(test: EvidenceTest, tries: int) -> EvidenceTest:
    if test.log10_p is None:
        return test
    return replace(test, log10_p=bonferroni(test.log10_p, tries), assumptions=(*test.assumptions, SEARCHED))


def _summaries(layers: LayerEvidence, experts: Sequence[ExpertFinding]) -> list[EvidenceTest]:
    """Return the layer map and the expert map as one test each: their best entry, already corrected for the search."""
    tests = []
    tested = [item for item in layers.alignment.layers if item.log10_p is not None]
    if tested:
        tests.append(
            EvidenceTest(
                "layer_map",
                Text("layers"),
                statistic=float(sum(item.shared for item in tested)),
                null_mean=0.0,
                log10_p=min(item.log10_p or 0.0 for item in tested),
                n=tested[0].tries,
                blocks=len(layers.alignment.layers),
                null=Text("random orders of residual dimensions and neurons"),
                p_method=PMethod.LEAST_LAYER,
                p_detail=Text(
                    "least of {n} layers, corrected for {m} candidates each and for the layers",
                    n=len(tested),
                    m=tested[0].tries,
                ),
            )
        )
    known = [item.log10_p for item in experts if item.log10_p is not None]
    if known:
        tests.append(
            EvidenceTest(
                "expert_map",
                word("experts"),
                statistic=float(sum(item.shared for item in experts)),
                null_mean=0.0,
                log10_p=min(known),
                n=len(known),
                blocks=len(known),
                null=Text("a random order of neurons in each expert"),
                p_method=PMethod.LEAST_EXPERT,
            )
        )
    return tests


def _identity(a: Probe, b: Probe, layer_map: LayerMap) -> Identity:
    pairs = list(sample_pairs(a, b, layer_map))
    identical = sum(_same_bytes(place) for place in pairs)
    same = a.layers == b.layers and a.experts == b.experts and a.samples.keys() == b.samples.keys()
    same = same and all(a.samples[key].shape == b.samples[key].shape for key in a.samples)
    same = same and all(layer == source for layer, source in layer_map.items())
    read = sum(sample.stored.size for sample in b.samples.values())
    total = b.stored_elements or sum(math.prod(sample.shape) for sample in b.samples.values())
    return Identity(len(pairs), identical, same, read / total if total else 0.0)


def _same_bytes(place: SamplePair) -> bool:
    """Whether the rows read of both sides are the same, as they are stored."""
    if place.a.dtype != place.b.dtype or place.a.shape != place.b.shape:
        return False
    rows = min(len(place.a.stored), len(place.b.stored))
    return place.a.stored[:rows].tobytes() == place.b.stored[:rows].tobytes()


def facts_of(a: Probe, b: Probe, assessment: Assessment) -> Facts:
    """Return what the rules of the verdict look at, as far as the probes tell; the caller adds controls and the rest."""
    return Facts(
        tests=assessment.tests,
        alignment=assessment.layers.alignment,
        components=assessment.components,
        identity=assessment.identity,
        layers_a=a.layers,
        layers_b=b.layers,
        experts=assessment.experts,
    )


# -- power ---------------------------------------------------------------------------------------------------------------


def power_of(a: Probe, b: Probe, assessment: Assessment) -> list[PowerFinding]:
    """State for each norm role and each matrix of neurons the weakest relation that its test would have seen."""
    count = sum(test.log10_p is not None for test in assessment.tests)
    level = LOG10_ALPHA - math.log10(max(count, 1))  # the first step of Holm's correction
    found = []
    for test in assessment.tests:
        if test.status != TESTED or test.log10_p is None:
            continue
        if test.name == "norm_joint":
            found.append(_norm_power(a, b, assessment.layer_map, test, level))
        elif test.name == "fixed_points" and test.blocks:
            found.append(_row_power(a, b, assessment.layer_map, test, level))
    return found


def _norm_power(a: Probe, b: Probe, layer_map: LayerMap, test: EvidenceTest, level: float) -> PowerFinding:
    left, right = [], []
    for place in sample_pairs(a, b, layer_map):
        if place.role.value != test.scope or place.a.stored.shape != place.b.stored.shape:
            continue
        one, two = (centred_rows(sample.values[None, :]) for sample in (place.a, place.b))
        lengths = float(np.linalg.norm(one)), float(np.linalg.norm(two))
        if min(lengths) > 0.0:
            left.append(one[0] / lengths[0])
            right.append(two[0] / lengths[1])
    A, B = np.array(left), np.array(right) / max(len(right), 1)
    step = max(1, -(-len(A) // BOUND_ROWS))
    few_a, few_b = A[::step], np.array(right)[::step] / max(len(right[::step]), 1)  # as `joint_tail` takes them
    try:
        moments, few = dot_moments(A, B), dot_moments(few_a, few_b, shape=False)

        def log10_p_of(statistic: float) -> float:
            log10_p, method = analytic_tail(statistic / moments.sd, moments)
            if method is PMethod.NORMAL:
                return log10_p
            return bonferroni(min(log10_p, log10_p_chernoff(few_a, few_b, statistic)), 2)

        # the bound looks at a few layers, whose mean scatters more
        least = least_correlation(
            max(moments.sd, few.sd), level, CAUTIOUS_POWER, log10_p_of=log10_p_of, halvings=HALVINGS
        )
        reason = None if least is not None else _beyond_a_copy(test, level)
    except (DegenerateInput, ValueError) as error:
        least, reason = None, error.reason if isinstance(error, DegenerateInput) else verbatim(str(error))
    return PowerFinding(
        "norm_joint",
        test.scope,
        Text("correlation of norm scales"),
        least,
        POWER,
        level,
        test.n,
        A.shape[-1],
        test.blocks,
        reason,
    )


def _beyond_a_copy(test: EvidenceTest, level: float) -> Text:
    """Say that nothing reaches the level, which is that of the strongest test: Holm's correction asks less of the others."""
    reason = Text("by itself not even a copy reaches the level of 10^{x:.1f} with these values", x=level)
    if test.log10_p_holm is not None and test.log10_p_holm <= LOG10_ALPHA:
        return joined((reason, Text("it counts here because stronger tests were passed before it")))
    return reason


def _row_power(a: Probe, b: Probe, layer_map: LayerMap, test: EvidenceTest, level: float) -> PowerFinding:
    sizes: list[int] = []
    widths: list[float] = []
    for place in sample_pairs(a, b, layer_map):
        if place.role.value == test.scope and place.role.info.axes[1] is Axis.RESIDUAL:
            limit = b.head_size(place.b) if place.role is Role.ATTN_V else None
            rows = min(len(place.a.stored), len(place.b.stored))
            sizes.append(min(rows, limit or rows))
            if len(widths) < POWER_LAYERS:
                widths.append(_effective_width(place))
    n, width, blocks = min(sizes), max(1, int(min(widths))), min(test.blocks, len(sizes))
    least = least_row_cosine(n, width, blocks, level, POWER)
    reason = None if least is not None else Text("{n} rows in each of {m} layers cannot reach the level", n=n, m=blocks)
    return PowerFinding(
        "fixed_points", test.scope, Text("cosine of rows"), least, POWER, level, n, width, blocks, reason
    )


def _effective_width(place: SamplePair) -> float:
    """Return the width at which random rows would have cosines as scattered as those of rows that do not belong together.

    Uneven columns make rows of unrelated models more alike than the width suggests, and hide weak relations.
    """
    rows = min(len(place.a.stored), len(place.b.stored), 64)
    one, two = place.a.values[:rows], place.b.values[:rows]
    if one.shape != two.shape or rows < 2:
        return float(one.shape[1])
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(two, axis=1)[None, :]
    cosines = np.divide(one @ two.T, lengths, out=np.zeros((rows, rows)), where=lengths > 0.0)
    off = cosines[~np.eye(rows, dtype=bool)]
    return min(float(one.shape[1]), 1.0 / max(float(np.mean(off * off)), 1e-12))
