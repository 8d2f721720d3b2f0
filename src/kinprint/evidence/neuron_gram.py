"""Test neurons by their products with each other (Gram profiles), which no rotation of the residual basis changes.

The profiles (`kinprint.align.rotation`) of neurons that kept their order are compared in every pair of some layers; the number of
neurons that find their own place has an exact null, since the orders of unrelated models are independent.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from kinprint._util.cores import on_all_cores
from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.rotation import Index, Neurons, Rows, gram_profiles
from kinprint.arch import Role
from kinprint.arch.roles import UNIT_SETS
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence.exact_tests import NEURON_ORDER, counted
from kinprint.evidence.exchangeability import both_follow_index, fair_signs
from kinprint.evidence.reading import EVERYTHING, Scope
from kinprint.evidence.words import word
from kinprint.model.weights import Weights
from kinprint.results.findings import DERIVED, NO_EVIDENCE, ControlFinding, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.stats.fixedpoints import FixedPoints, fixed_points
from kinprint.text import Text, joined

GRAM_LAYERS = 8
MOST_LAYERS = 48  # compared where the first show a relation: some seconds
GRAM_ROWS = 512
"""Rows of gate and up that profiles are made of: half are tested, half are references."""
LEAST_NEURONS = 16
MOST_NEURONS = 8192  # of all experts of a layer together; of more, the first expert stands for the layer
KEPT_BYTES = 1 << 26
"""Of the neurons of a model up to which they are kept: a search comes back to each layer a dozen times."""
OWN_ORDER = -3.0
"""log10 p of a model's layers against each other below which its neurons have an order."""
COPIED = 0.8
"""Share of neurons found in place beyond which two layers of one model are taken for copies."""
MLP_NEURONS = Text("mlp neurons")
NO_MLP = Text("a side has no MLP matrices whose parts are known")
GRAM = "gram_fixed_points"


@dataclass(frozen=True)
class NeuronSet:
    """The matrices that hold the neurons of one layer, of all experts one below the other; no gate for MLPs of two matrices."""

    model: Weights
    layer: int
    gate: Role | None
    up: Role
    down: Role
    experts: tuple[int | None, ...]

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles of gate, where there is one, and up."""
        return (self.up,) if self.gate is None else (self.gate, self.up)

    @property
    def first(self) -> int:
        """Number of neurons of the first expert."""
        return self.model.shape(self.up, self.layer, self.experts[0])[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of neurons, and width of the residual stream."""
        shapes = [self.model.shape(self.up, self.layer, expert) for expert in self.experts]
        return sum(shape[0] for shape in shapes), shapes[0][1]

    def kinds(self, rows: tuple[int, int] | None = None) -> Iterator[Any]:
        """Read gate (None without), up and down rows one after the other: all, or some of gate and up of the first expert.

        Norm scales are folded in, and means are off where a recipe gave weights a sign.
        """
        if rows is None and self in self.model.kept:
            yield from self.model.kept[self].kinds
            return
        experts = self.experts[:1] if rows else self.experts
        for role in (self.gate, self.up):
            # not held here: while one matrix is looked at, the one before would stay in memory
            yield (
                role
                and fair_signs(_joined([self.model.folded(role, self.layer, expert=e, rows=rows) for e in experts]))[0]
            )
        if rows is None:
            yield _joined([self.model.matrix(self.down, self.layer, expert=e).T for e in experts])

    def read(self) -> Neurons:
        """Read the neurons; those of small models are kept, read by whichever thread comes first."""
        with self.model.lock:
            gate, up, down = self.kinds()
            found: Neurons = self.model.kept.get(self) or Neurons(gate, up, np.ascontiguousarray(down))
            if sum(X.nbytes for X in found.kinds if X is not None) * self.model.layers <= KEPT_BYTES:
                self.model.kept[self] = found
        return found

    def cost(self, rows: tuple[int, int] | None = None) -> int:
        """Return the bytes of the neurons, or of some rows of gate and up."""
        roles = [role for role in (self.gate, self.up, None if rows else self.down) if role is not None]
        experts = self.experts[:1] if rows else self.experts
        return sum(self.model.nbytes(role, self.layer, expert=e, rows=rows) for role in roles for e in experts)


def _joined(matrices: Sequence[Rows]) -> Rows:
    return matrices[0] if len(matrices) == 1 else np.concatenate(matrices)


def neuron_sets(model: Weights, scope: Scope = EVERYTHING) -> dict[int, NeuronSet]:
    """Return for each layer the matrices that make its MLP: dense, else shared, else all experts, or the first if they are many."""
    found: dict[int, NeuronSet] = {}
    for layer in range(model.layers):
        for gate, up, down, expert in UNIT_SETS:
            if model.has(up, layer, expert) and model.has(down, layer, expert) and scope.allows(up, layer):
                gated = gate if model.has(gate, layer, expert) else None
                every = range(model.experts) if expert is not None else ()
                experts = tuple(e for e in every if model.has(up, layer, e) and model.has(down, layer, e)) or (expert,)
                few = sum(model.shape(up, layer, e)[0] for e in experts) <= MOST_NEURONS
                found[layer] = NeuronSet(model, layer, gated, up, down, experts if few else (expert,))
                break
    # Where stages have widths of their own, no basis serves all: layers that read and write the model's width are looked at.
    sides = {
        n: (model.shape(s.up, n, s.experts[0])[1], model.shape(s.down, n, s.experts[0])[0]) for n, s in found.items()
    }
    usual = {n: each for n, each in found.items() if sides[n] == (model.hidden, model.hidden)}
    return usual or {n: each for n, each in found.items() if sides[n][0] == sides[n][1]}


def halves(count: int, rng: np.random.Generator) -> tuple[Index, Index]:
    """Draw which half of the neurons is tested, and which half serves as references."""
    order = rng.permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


@dataclass(frozen=True)
class GramTable:
    """Fixed points of Gram profiles for every pair of layers looked at, and how many neurons each could have had."""

    layers_a: tuple[int, ...]
    layers_b: tuple[int, ...]
    counts: FloatArray  # layers of A × layers of B
    log10_p: FloatArray
    tested: int
    reason: Text | None = None

    def best(self) -> tuple[int, int]:
        """Return the places, not the numbers, of the best pair of layers."""
        i, j = np.unravel_index(np.argmin(self.log10_p), self.log10_p.shape)
        return int(i), int(j)


@dataclass(frozen=True)
class GramSide:
    """The Gram profiles of one model: some layers, for each the profiles of tested neurons and the lengths of all rows read."""

    layers: tuple[int, ...]
    profiles: Sequence[Rows]
    lengths: Sequence[FloatArray]
    rows: int


def gram_side(
    model: Weights,
    *,
    seed: int = 0,
    count: int = GRAM_LAYERS,
    rows: int = GRAM_ROWS,
    scope: Scope = EVERYTHING,
    layers: Sequence[int] = (),
) -> GramSide:
    """Read up to `rows` neurons of some layers, and make the profiles of half of them with the other half as references."""
    sets = neuron_sets(model, scope)
    layers = layers or evenly_spaced(sorted(sets), count, at="middles")
    if not layers:
        raise DegenerateInput(NO_MLP)
    limit = min(rows, *(sets[layer].first for layer in layers))
    if limit < LEAST_NEURONS:
        raise DegenerateInput("{n} neurons: expected at least {m}", n=limit, m=LEAST_NEURONS)
    tested, references = halves(limit, np.random.default_rng([seed, limit]))
    profiles, lengths = [], []
    for layer in layers:
        gate, up = sets[layer].kinds((0, limit))
        profiles.append(gram_profiles(gate, up, references, tested))
        lengths.append(np.linalg.norm(up, axis=1).astype(np.float64))
    return GramSide(tuple(layers), profiles, lengths, limit)


def gram_sides(
    a: Weights, b: Weights, *, seed: int = 0, count: int = GRAM_LAYERS, scope: Scope = EVERYTHING
) -> list[GramSide]:
    """Read two models, and make the profiles of as many neurons as both have."""

    def side(model: Weights, rows: int = GRAM_ROWS) -> GramSide:
        return gram_side(model, seed=seed, count=count, rows=rows, scope=scope)

    sides = on_all_cores(side, (a, b))
    rows = min(found.rows for found in sides)
    return [found if found.rows == rows else side(model, rows) for found, model in zip(sides, (a, b), strict=True)]


class OrderedNeurons(DegenerateInput):
    """The places of neurons mean something in a model, or that cannot be ruled out: no order of them proves anything."""


def _own_order(side: GramSide) -> Text | None:
    """Say if the places of neurons mean something in one model: then its layers recognise each other's neurons by place.

    Two layers of one model have orders of their own, so that their neurons should find no places in each other, unless neurons are
    copies of each other, grouped, concatenated from experts, or sorted by anything; an unrelated model made alike would then be
    taken for related. Layers that are copies of each other are left out; a model with no two layers left cannot be checked.
    """
    alike = [(one, two) for two, one in combinations(side.profiles, 2) if one.shape == two.shape]
    points = on_all_cores(lambda pair: fixed_points(*pair, centre=True), alike)
    found = [item.log10_p for item in points if item.count < COPIED * item.n]
    if not found:
        return Text("it has no two layers, different from each other, to check that places of neurons mean nothing")
    least = bonferroni(min(found), len(found))
    if least <= OWN_ORDER:
        return Text("the places of its neurons mean something: its own layers share them (log10 p {p:.1f})", p=least)
    return None


def hold_gram(a: GramSide, b: GramSide, *, checked: bool = False) -> GramTable:
    """Count, for every pair of layers, neurons whose profile is nearest to that of the same neuron of the other model.

    Raises OrderedNeurons if places of neurons mean something in either model, or that cannot be checked, unless it was `checked` on
    some of the layers; DegenerateInput if no pair of layers can be compared.
    """
    for side, model in (("A", a), ("B", b)):
        why = None if checked else _own_order(model)
        if why is not None:
            raise OrderedNeurons("model {side}: {why}", side=side, why=why)
    counts = np.zeros((len(a.layers), len(b.layers)))
    log10_p = np.zeros_like(counts)
    skipped, places = Counter[Text](), list[tuple[int, int]]()
    for i, one in enumerate(a.profiles):
        for j, two in enumerate(b.profiles):
            why = None
            if one.shape != two.shape:
                why = Text("only one of them has a gate, or they have other numbers of neurons")
            elif both_follow_index(a.lengths[i], b.lengths[j]):
                why = Text("in both, lengths of neurons follow their index: their order has a meaning")
            if why is not None:
                skipped[why] += 1
                continue
            places.append((i, j))
    points = on_all_cores(lambda at: fixed_points(a.profiles[at[0]], b.profiles[at[1]], centre=True), places)
    for place, found in zip(places, points, strict=True):
        counts[place], log10_p[place] = found.count, found.log10_p
    if skipped.total() == counts.size:
        raise DegenerateInput("no pair of layers can be held against each other: {why}", why=next(iter(skipped)))
    reasons = [
        Text("{n} of {m} pairs of layers left out: {why}", n=number, m=counts.size, why=why)
        for why, number in skipped.items()
    ]
    return GramTable(a.layers, b.layers, counts, log10_p, len(a.profiles[0]), joined(reasons) if reasons else None)


def gram_test(table: GramTable) -> EvidenceTest:
    """Return the best pair of layers as one test, corrected for all that were tried."""
    i, j = table.best()
    found = FixedPoints(int(table.counts[i, j]), table.tested, float(table.log10_p[i, j]))
    return replace(
        counted(GRAM, MLP_NEURONS, [found], NEURON_ORDER),
        layer=table.layers_b[j],
        log10_p=bonferroni(found.log10_p, table.counts.size),
        blocks=table.counts.size,
        null=Text("a random order of neurons"),
        p_method=PMethod.BEST_LAYERS,
        p_detail=Text("1/k! for the best of {n} pairs of layers, corrected for them", n=table.counts.size),
        assumptions=(NEURON_ORDER, Text("products of neurons with each other do not depend on the residual basis")),
        reason=table.reason,
    )


# -- controls ------------------------------------------------------------------------------------------------------------

ROTATED_SELF, ROTATED_SHUFFLED = "rotated self", "rotated shuffled self"
REFLECTIONS = 8  # of which the control's rotation is made: as good as any, and no d³ work


ROTATION_CONTROLS = ((ROTATED_SELF, DERIVED, False), (ROTATED_SHUFFLED, NO_EVIDENCE, True))
"""Controls of the search for a rotated basis: name, answer, and whether neurons are reordered too."""


def rotation_controls(
    model: Weights, *, log10_alpha: float, seed: int = 0, scope: Scope = EVERYTHING
) -> list[ControlFinding]:
    """Hold a layer of A against itself in another basis, which must be found, and with neurons reordered too: unrelated."""
    try:
        sets = neuron_sets(model, scope)
        where = sets[evenly_spaced(sorted(sets), 1, at="middles")[0]]
        count = min(GRAM_ROWS, where.first)
        gate, up = where.kinds((0, count))
    except (DegenerateInput, BudgetExceeded, IndexError) as error:
        why = NO_MLP if isinstance(error, IndexError) else error.reason
        return [ControlFinding(name, wanted, "not run", None, None, None, why) for name, wanted, _ in ROTATION_CONTROLS]
    rng = np.random.default_rng([seed, count])
    tested, references = halves(count, rng)
    mirrors = rng.standard_normal((REFLECTIONS, up.shape[1])).astype(np.float32)
    here = gram_profiles(gate, up, references, tested)
    gate, up = None if gate is None else _reflected(gate, mirrors), _reflected(up, mirrors)
    findings = []
    for name, wanted, shuffle in ROTATION_CONTROLS:
        moved = rng.permutation(count) if shuffle else np.arange(count)
        there = gram_profiles(None if gate is None else gate[moved], up[moved], references, tested)
        found = fixed_points(here, there, centre=True)
        said = DERIVED if found.log10_p <= log10_alpha else NO_EVIDENCE
        reason = None if said == wanted else Text("expected {a}, found {b}", a=word(wanted), b=word(said))
        status = "passed" if said == wanted else "failed"
        findings.append(ControlFinding(name, wanted, status, said, found.log10_p, found.count - 1.0, reason))
    return findings


def _reflected(X: Rows, mirrors: Rows) -> Rows:
    """Return the rows after one reflection in each hyperplane."""
    rotated = X.astype(np.float64)
    for mirror in mirrors:
        direction = mirror / np.linalg.norm(mirror)
        rotated -= 2.0 * np.outer(rotated @ direction, direction)
    return rotated.astype(np.float32)
