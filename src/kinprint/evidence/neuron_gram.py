"""Neurons as they are seen without a residual basis: which matrices make them, and exact tests on their products.

The Gram profiles of neurons that kept their order (`kinprint.align.rotation`) are held against each other in every pair of some
layers; how many neurons find their own place has an exact null, since unrelated models know nothing of each other's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.rotation import Index, Neurons, Rows, gram_profiles
from kinprint.arch import Role
from kinprint.arch.roles import MLPS
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence.battery import NEURON_ORDER, ORDER_Z, waves
from kinprint.evidence.words import word
from kinprint.model.weights import Weights
from kinprint.results.findings import DERIVED, NO_EVIDENCE, ControlFinding, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.stats.fixedpoints import fixed_points
from kinprint.text import Text, joined

GRAM_LAYERS = 8
GRAM_ROWS = 512
"""Rows of gate and up that profiles are made of: half are tested, half are references."""
LEAST_NEURONS = 16
OWN_ORDER = -3.0
"""log10 p of a model's layers against each other below which its neurons have an order."""
COPIED = 0.8
"""Share of neurons found in place beyond which two layers of one model are taken for copies."""
MLP_NEURONS = Text("mlp neurons")
NO_MLP = Text("a side has no MLP matrices whose parts are known")
GRAM = "gram_fixed_points"
Allowed = Callable[[Role, int | None], bool]


# -- what to look at -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeuronSet:
    """Where one layer keeps its neurons; no gate for MLPs of two matrices."""

    gate: Role | None
    up: Role
    down: Role
    expert: int | None


def everything(role: Role, layer: int | None) -> bool:  # noqa: ARG001 - the default of a callback
    """Allow everything."""
    return True


def neuron_sets(model: Weights, allowed: Allowed = everything) -> dict[int, NeuronSet]:
    """Return for each layer the matrices that make its MLP: dense, else shared, else the first expert."""
    found: dict[int, NeuronSet] = {}
    for layer in range(model.layers):
        for gate, up, down, expert in MLPS:
            if not (model.has(up, layer, expert) and model.has(down, layer, expert) and allowed(up, layer)):
                continue
            found[layer] = NeuronSet(gate if model.has(gate, layer, expert) else None, up, down, expert)
            break
    return found


def read_neurons(model: Weights, layer: int, where: NeuronSet) -> Neurons:
    """Read the neurons of one layer, norm scales folded in."""
    gate = None if where.gate is None else model.folded(where.gate, layer, expert=where.expert)
    up = model.folded(where.up, layer, expert=where.expert)
    return Neurons(gate, up, np.ascontiguousarray(model.matrix(where.down, layer, expert=where.expert).T))


def neurons_cost(model: Weights, layer: int, where: NeuronSet, rows: tuple[int, int] | None = None) -> int:
    """Return the bytes of a layer's neurons, or of some rows of gate and up."""
    roles = [role for role in (where.gate, where.up, None if rows else where.down) if role is not None]
    return sum(model.nbytes(role, layer, expert=where.expert, rows=rows) for role in roles)


# -- first stage: neurons in their order ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class GramTable:
    """Fixed points of Gram profiles for every pair of layers looked at, and how many neurons each could have had."""

    layers_a: tuple[int, ...]
    layers_b: tuple[int, ...]
    counts: FloatArray  # layers of A × layers of B
    log10_p: FloatArray
    tested: int
    reason: Text | None = None

    @property
    def tries(self) -> int:
        """Pairs of layers that were tried."""
        return self.counts.size

    def best(self) -> tuple[int, int]:
        """Return the places, not the numbers, of the best pair of layers."""
        place = int(np.argmin(self.log10_p))
        return place // self.log10_p.shape[1], place % self.log10_p.shape[1]


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
    allowed: Allowed = everything,
) -> GramSide:
    """Read up to `rows` neurons of some layers, and make the profiles of half of them with the other half as references."""
    sets = neuron_sets(model, allowed)
    layers = evenly_spaced(sorted(sets), count, at="middles")
    if not layers:
        raise DegenerateInput(NO_MLP)
    limit = min(rows, *(model.shape(sets[layer].up, layer, sets[layer].expert)[0] for layer in layers))
    if limit < LEAST_NEURONS:
        raise DegenerateInput("{n} neurons: expected at least {m}", n=limit, m=LEAST_NEURONS)
    order = np.random.default_rng([seed, limit]).permutation(limit)
    tested, references = np.sort(order[: limit // 2]), np.sort(order[limit // 2 :])
    made = [_profiles(model, layer, sets[layer], limit, references, tested) for layer in layers]
    return GramSide(tuple(layers), [profile for profile, _ in made], [length for _, length in made], limit)


def gram_table(
    a: Weights, b: Weights, *, seed: int = 0, count: int = GRAM_LAYERS, allowed: Allowed = everything
) -> GramTable:
    """Read two models and hold their profiles against each other."""
    one = gram_side(a, seed=seed, count=count, allowed=allowed)
    two = gram_side(b, seed=seed, count=count, rows=one.rows, allowed=allowed)
    if two.rows < one.rows:
        one = gram_side(a, seed=seed, count=count, rows=two.rows, allowed=allowed)
    return hold_gram(one, two)


class OrderedNeurons(DegenerateInput):
    """The places of neurons mean something in a model, or that cannot be ruled out: no order of them proves anything."""


def own_order(side: GramSide) -> Text | None:
    """Say if the places of neurons mean something in one model: then its layers recognise each other's neurons by place.

    Two layers of one model have orders of their own, so that their neurons should find no places in each other. They do if
    neurons are copies of each other, grouped, concatenated from experts, or sorted by anything; an unrelated model made alike would
    then be taken for kin. Layers that are copies of each other tell nothing here and are left out; a model in which no two
    layers are left cannot be checked, and is not tested.
    """
    found = []
    for i, one in enumerate(side.profiles):
        for j in range(i):
            two = side.profiles[j]
            if one.shape != two.shape:
                continue
            points = fixed_points(one, two, centre=True)
            if points.count < COPIED * points.n:
                found.append(points.log10_p)
    if not found:
        return Text("it has no two layers, different from each other, to check that places of neurons mean nothing")
    least = bonferroni(min(found), len(found))
    if least <= OWN_ORDER:
        return Text("the places of its neurons mean something: its own layers share them (log10 p {p:.1f})", p=least)
    return None


def hold_gram(a: GramSide, b: GramSide) -> GramTable:
    """Count, for every pair of layers, neurons whose profile is nearest to that of the same neuron of the other model.

    Raises
    ------
    OrderedNeurons
        If places of neurons mean something in either model, or that cannot be checked.
    DegenerateInput
        If no pair of layers can be held against each other.
    """
    for side, model in (("A", a), ("B", b)):
        why = own_order(model)
        if why is not None:
            raise OrderedNeurons("model {side}: {why}", side=side, why=why)
    counts = np.zeros((len(a.layers), len(b.layers)))
    log10_p = np.zeros_like(counts)
    skipped: dict[Text, int] = {}
    for i, one in enumerate(a.profiles):
        for j, two in enumerate(b.profiles):
            why = None
            if one.shape != two.shape:
                why = Text("only one of them has a gate, or they have other numbers of neurons")
            elif _both_sorted(a.lengths[i], b.lengths[j]):
                why = Text("in both, lengths of neurons follow their index: their order has a meaning")
            if why is not None:
                skipped[why] = skipped.get(why, 0) + 1
                continue
            found = fixed_points(one, two, centre=True)
            counts[i, j], log10_p[i, j] = found.count, found.log10_p
    if sum(skipped.values()) == counts.size:
        raise DegenerateInput("no pair of layers can be held against each other: {why}", why=next(iter(skipped)))
    reasons = [
        Text("{n} of {m} pairs of layers left out: {why}", n=number, m=counts.size, why=why)
        for why, number in skipped.items()
    ]
    return GramTable(a.layers, b.layers, counts, log10_p, len(a.profiles[0]), joined(reasons) if reasons else None)


def _profiles(
    model: Weights, layer: int, where: NeuronSet, limit: int, references: Index, tested: Index
) -> tuple[Rows, FloatArray]:
    rows = (0, limit)
    gate = None if where.gate is None else model.folded(where.gate, layer, expert=where.expert, rows=rows)
    up = model.folded(where.up, layer, expert=where.expert, rows=rows)
    return gram_profiles(gate, up, references, tested), np.linalg.norm(up, axis=1).astype(np.float64)


def _both_sorted(one: FloatArray, two: FloatArray) -> bool:
    """Whether neurons were put in order of their size on both sides: then their places mean something."""
    excess = float(np.abs(waves(one) * waves(two)).sum()) * math.sqrt(min(one.size, two.size))
    return excess > ORDER_Z


def gram_test(table: GramTable) -> EvidenceTest:
    """Return the best pair of layers as one test, corrected for all that were tried."""
    i, j = table.best()
    return EvidenceTest(
        GRAM,
        MLP_NEURONS,
        layer=table.layers_b[j],
        statistic=float(table.counts[i, j]),
        null_mean=1.0,
        null_sd=1.0,
        z=float(table.counts[i, j]) - 1.0,
        log10_p=bonferroni(float(table.log10_p[i, j]), table.tries),
        n=table.tested,
        blocks=table.tries,
        null=Text("a random order of neurons"),
        p_method=PMethod.BEST_LAYERS,
        p_detail=Text("1/k! for the best of {n} pairs of layers, corrected for them", n=table.tries),
        assumptions=(NEURON_ORDER, Text("products of neurons with each other do not depend on the residual basis")),
        reason=table.reason,
    )


# -- controls ------------------------------------------------------------------------------------------------------------

ROTATED_SELF, ROTATED_SHUFFLED = "rotated self", "rotated shuffled self"
REFLECTIONS = 8  # of which the control's rotation is made: as good as any, and no d³ work


def rotation_controls(
    model: Weights, *, log10_alpha: float, seed: int = 0, allowed: Allowed = everything
) -> list[ControlFinding]:
    """Hold a layer of A against itself in another basis, which must be found, and with neurons reordered too: unrelated."""
    expected = ((ROTATED_SELF, DERIVED, False), (ROTATED_SHUFFLED, NO_EVIDENCE, True))
    try:
        sets = neuron_sets(model, allowed)
        layer = evenly_spaced(sorted(sets), 1, at="middles")[0]
        where = sets[layer]
        rows = (0, min(GRAM_ROWS, model.shape(where.up, layer, where.expert)[0]))
        gate = None if where.gate is None else model.folded(where.gate, layer, expert=where.expert, rows=rows)
        up = model.folded(where.up, layer, expert=where.expert, rows=rows)
    except (DegenerateInput, BudgetExceeded, IndexError) as error:
        why = NO_MLP if isinstance(error, IndexError) else error.reason
        return [ControlFinding(name, wanted, "not run", None, None, None, why) for name, wanted, _ in expected]
    rng = np.random.default_rng([seed, rows[1]])
    order = rng.permutation(rows[1])
    tested, references = np.sort(order[: rows[1] // 2]), np.sort(order[rows[1] // 2 :])
    mirrors = rng.standard_normal((REFLECTIONS, up.shape[1])).astype(np.float32)
    here = gram_profiles(gate, up, references, tested)
    rotated = [None if X is None else _reflected(X, mirrors) for X in (gate, up)]
    findings = []
    for name, wanted, shuffle in expected:
        moved = rng.permutation(rows[1]) if shuffle else np.arange(rows[1])
        assert rotated[1] is not None
        there = gram_profiles(None if rotated[0] is None else rotated[0][moved], rotated[1][moved], references, tested)
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
