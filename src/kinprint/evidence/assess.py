"""Assess two probes in memory: layer map, battery, experts, parts and identity. Nothing is read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Self

from kinprint._util.arenas import give_back
from kinprint._util.records import dataclass
from kinprint.align.layer_alignment import IDENTITY
from kinprint.arch import Role
from kinprint.evidence.attempts import attempt, beside, is_broken
from kinprint.evidence.battery import run_battery
from kinprint.evidence.common_start import Origin
from kinprint.evidence.components import NOT_TESTED, SHARED, component_map, expert_map
from kinprint.evidence.facts import Facts, Identity
from kinprint.evidence.layer_map import LAYER_ALPHA, LayerEvidence, align_layers, untested_layers
from kinprint.evidence.probe import LayerMap, Probe, SamplePair, sample_pairs
from kinprint.evidence.words import word
from kinprint.results.findings import OFF, SIGN_FLIPS, ComponentFinding, EvidenceTest, ExpertFinding, LayerFinding
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni, holm
from kinprint.text import Text

SEARCHED = Text("layers are paired by the map found from matrices; p is corrected for the search")
IN_PLACE = frozenset({"matrix_correlation", "fixed_points", "head_fixed_points", "token_rows", "layer_map"})
"""Tests by the order of units that make claims about weights in place."""
_OUTSIDE = {role.value for role in Role if role.info.scope == "model"}


@dataclass(frozen=True)
class Assessment:
    """What two probes show: tests with Holm's correction over all of them, and the parts that share by them."""

    probes: tuple[Probe, Probe]
    layers: LayerEvidence
    layer_map: LayerMap
    experts: tuple[ExpertFinding, ...]
    identity: Identity
    tests: tuple[EvidenceTest, ...] = ()
    components: tuple[ComponentFinding, ...] = ()
    neurons: Mapping[int, float] = field(default_factory=dict)  # log10 p of MLPs that were compared after an alignment
    moved: frozenset[str] = frozenset()  # parts that an alignment showed not to stand in place
    heads: Mapping[int, float] = field(default_factory=dict)  # log10 p of attention by products over heads
    heads_moved: bool = False  # whether products agree far more than heads in place, in most layers

    @property
    def strongest(self) -> EvidenceTest | None:
        """The test with the least corrected p-value."""
        ran = [test for test in self.tests if test.log10_p_claim is not None]
        return min(ran, key=lambda test: test.log10_p_claim or 0.0, default=None)

    @property
    def log10_p(self) -> float:
        """The least corrected p-value that a claim may rest on."""
        return (self.strongest.log10_p_claim or 0.0) if self.strongest is not None else 0.0

    @property
    def settled(self) -> bool:
        """Whether every layer and every part shares beyond doubt, in place: then no further row could change class or kind."""
        states = {item.component: item.state for item in self.components if (item.log10_p or 0.0) <= 2 * LAYER_ALPHA}
        return (
            self.layers.alignment.kind == IDENTITY
            and all(item.shared for item in self.layers.alignment.layers)
            and all(item.state in (SHARED, NOT_TESTED) for item in self.components)
            and SHARED in (states.get("mlp"), states.get("experts"))
            and states.get("attention") == SHARED
        )

    def extended(
        self, tests: Sequence[EvidenceTest], neurons: Mapping[int, float], moved: frozenset[str] = frozenset()
    ) -> Self:
        """Return the assessment with further tests, all corrected anew, what they say of MLPs, and which parts they moved."""
        # what an earlier search held against each other in vain says nothing once another one found how the models are related
        before = {layer: p for layer, p in self.neurons.items() if p <= LAYER_ALPHA or not moved}
        every, neurons, moved = [*self.tests, *tests], {**before, **neurons}, self.moved | moved
        adjusted = iter(holm([test.log10_p for test in every if test.log10_p is not None]))
        corrected = [test if test.log10_p is None else replace(test, log10_p_holm=next(adjusted)) for test in every]
        flips = [test for test in corrected if test.name == SIGN_FLIPS]
        signs = {str(test.scope): test.log10_p_holm for test in flips if test.log10_p_holm is not None}
        # signs that could not be looked at do not agree: a suspect that breaks their test gains nothing
        signs |= {str(test.scope): 0.0 for test in flips if is_broken(test.reason)}
        corrected = [replace(test, log10_p_signs=self._signs_of(test, signs)) for test in corrected]
        parts = component_map(self.probes, corrected, self.layers, self.experts, neurons, moved, self.heads)
        return replace(self, tests=tuple(corrected), components=tuple(parts), neurons=neurons, moved=moved)

    def _signs_of(self, test: EvidenceTest, signs: Mapping[str, float]) -> float | None:
        """Return the p-value of the signs that a test of order needs beside it; None if none of its units have such a symmetry."""
        if test.name not in IN_PLACE:
            return None
        scopes = self.layers.alignment.scopes if test.name == "layer_map" else (str(test.scope),)
        return min((signs[scope] for scope in scopes if scope in signs), default=None)

    def without(self, component: str, why: Text) -> Self:
        """Return the assessment with a part called untested, and why."""
        untested = ComponentFinding(component, NOT_TESTED, 0, 0, None, why)
        return replace(self, components=tuple(untested if x.component == component else x for x in self.components))

    @property
    def facts(self) -> Facts:
        """What the rules of the verdict look at, as far as the probes tell; the caller adds controls and the rest."""
        return Facts(
            tests=self.tests,
            alignment=self.layers.alignment,
            components=self.components,
            identity=self.identity,
            layers_a=self.probes[0].layers,
            layers_b=self.probes[1].layers,
            experts=self.experts,
            heads_moved=self.heads_moved,
        )


@dataclass(frozen=True)
class SearchResult:
    """What a search for a disguised relation found, after the assessment: further tests, and what could not be done."""

    tests: tuple[EvidenceTest, ...] = ()
    by_layer: Mapping[int, float] = field(default_factory=dict)  # log10 p of layers of B
    origin: Origin | None = None
    spent: int = 0  # bytes read
    untested: Text | None = None

    def rejects(self, log10_alpha: float) -> bool:
        """Whether a test is below the threshold."""
        return any((test.log10_p or 0.0) <= log10_alpha for test in self.tests)


@dataclass(frozen=True)
class _Experts:
    """The map of experts, as it comes from a fork, or why there is none."""

    found: tuple[ExpertFinding, ...]
    broken: Text | None = None


def assess(a: Probe, b: Probe, *, seed: int = 0) -> Assessment:
    """Run the layer map, the battery under it, and all that follows from them."""
    untested = partial(untested_layers, a, b)
    layers = attempt(lambda: align_layers(a, b, seed=seed), lambda why: LayerEvidence(untested(why), {}, {}))
    give_back()
    found = layers.layer_map
    searched = any(layer != source for layer, source in found.items())
    layer_map = found if searched else {layer: layer for layer in range(min(a.layers, b.layers))}
    dense, mixture = (a, b), layer_map
    if a.experts and not b.experts:  # the mixture is the child, whichever side it was given on
        dense, mixture = (b, a), {source: layer for layer, source in layer_map.items()}

    def matched() -> _Experts:
        return attempt(lambda: _Experts(tuple(expert_map(*dense, mixture))), lambda why: _Experts((), why))

    experts = beside(matched, _Experts) if dense[1].experts and a.is_wide and b.is_wide else matched
    tests = run_battery(a, b, layer_map, seed=seed)
    for place, test in enumerate(tests if searched else ()):
        if test.log10_p is not None and test.scope not in _OUTSIDE:
            p = bonferroni(test.log10_p, max(1, a.layers * b.layers))
            tests[place] = replace(test, log10_p=p, assumptions=(*test.assumptions, SEARCHED))
    mapped = experts()
    if mapped.broken is not None:
        tests.append(EvidenceTest("expert_map", word("experts"), status=OFF, reason=mapped.broken))
    tests += _summaries(layers, mapped.found)
    return Assessment((a, b), layers, layer_map, mapped.found, _identity(a, b, layer_map)).extended(tests, {})


def _summaries(layers: LayerEvidence, experts: Sequence[ExpertFinding]) -> list[EvidenceTest]:
    """Return the layer map and the expert map as one test each: their best entry, already corrected for the search."""
    tests = []
    if tested := [item for item in layers.alignment.layers if item.log10_p is not None]:
        n, tries = len(tested), tested[0].tries
        test = EvidenceTest(
            "layer_map",
            Text("layers"),
            n=tries,
            blocks=len(layers.alignment.layers),
            null=Text("random orders of residual dimensions and neurons"),
            p_method=PMethod.LEAST_LAYER,
            p_detail=Text("least of {n} layers, corrected for {m} candidates each and for the layers", n=n, m=tries),
        )
        tests.append(_best_entry(test, tested))
    if known := [item for item in experts if item.log10_p is not None]:
        test = EvidenceTest(
            "expert_map",
            word("experts"),
            n=len(known),
            blocks=len(known),
            null=Text("a random order of neurons in each expert"),
            p_method=PMethod.LEAST_EXPERT,
        )
        tests.append(_best_entry(test, known))
    return tests


def _best_entry(test: EvidenceTest, entries: Sequence[LayerFinding | ExpertFinding]) -> EvidenceTest:
    shared, least = float(sum(item.shared for item in entries)), min(item.log10_p or 0.0 for item in entries)
    return replace(test, statistic=shared, null_mean=0.0, log10_p=least)


def _identity(a: Probe, b: Probe, layer_map: LayerMap) -> Identity:
    pairs = list(sample_pairs(a, b, layer_map))
    same = (
        a.layers == b.layers
        and a.experts == b.experts
        and a.samples.keys() == b.samples.keys()
        and all(a.samples[key].shape == b.samples[key].shape for key in a.samples)
        and all(layer == source for layer, source in layer_map.items())
    )
    read = sum(sample.stored.size for sample in b.samples.values())
    total = b.stored_elements or sum(math.prod(sample.shape) for sample in b.samples.values())
    return Identity(len(pairs), sum(map(_same_bytes, pairs)), same, read / total if total else 0.0)


def _same_bytes(pair: SamplePair) -> bool:
    """Whether the rows read of both sides are the same, as they are stored."""
    if pair.a.dtype != pair.b.dtype or pair.a.shape != pair.b.shape:
        return False
    rows = min(len(pair.a.stored), len(pair.b.stored))
    return pair.a.stored[:rows].tobytes() == pair.b.stored[:rows].tobytes()
