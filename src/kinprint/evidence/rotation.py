"""Models whose residual basis was rotated: tested by what no rotation can change, and by neurons of layers no fit has seen.

Two stages. The first is exact and reads a few hundred rows of gate and up in some layers: the Gram profiles of neurons that kept
their order (`kinprint.align.rotation`). The second is for neurons that were reordered as well: a rotation is fitted on some layers,
and the neurons of OTHER layers are matched under it, beside an empirical null, as `kinprint.evidence.neuron_matching` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.neuron_assignment import NeuronMatch, gate_up_agreement
from kinprint.align.rotation import (
    WIDE,
    FoundRotation,
    Index,
    Neurons,
    Rows,
    agreement,
    find_rotation,
    nearest_rotation,
)
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence.common_start import UNCLEAR, Origin, origin_of
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.neuron_gram import (
    GRAM,
    GRAM_LAYERS,
    GRAM_ROWS,
    LEAST_NEURONS,
    MLP_NEURONS,
    NO_MLP,
    Allowed,
    GramTable,
    OrderedNeurons,
    everything,
    gram_table,
    gram_test,
    neuron_sets,
    neurons_cost,
    read_neurons,
)
from kinprint.evidence.neuron_matching import LIKE_THE_NULL, beyond_null
from kinprint.model.weights import Weights
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, labelled

SEARCH_BYTES = 1 << 30  # what a search for layers may read where no budget says
ROTATED_BASIS = Text("rotated residual basis")
FIT_LAYERS, HELD_OUT = 2, 2
SEARCHED = 8  # layers of B tried for one of A, where depths differ
SAMPLED = 1024  # neurons of A matched in a layer that was held out
COLUMNS = 512  # residual dimensions that are enough to tell neurons apart once the basis is aligned
DRAWS, NULL_ROWS = 99, 128
COPY_ROWS, COPIED_SHARE = 128, 0.2  # neurons looked at, and share found beyond which layers of one model are copies
MAX_ELEMENTS = 1 << 26  # of one matrix: some 3 GB at the peak
MAX_WIDTH = 4096
STATISTIC = "rotated_neuron_agreement"
MATCHED = "neuron_match_rotated"


@dataclass(frozen=True)
class RotationEvidence:
    """What was found, log10 p by layer of B, the rotation, where the shared part comes from, and what could not be done.

    ``share`` is the largest share of neurons recognised in any pair of layers that was not fitted; None if none was tested.
    """

    tests: tuple[EvidenceTest, ...] = ()
    by_layer: Mapping[int, float] = field(default_factory=dict)
    layers: Mapping[int, int] = field(default_factory=dict)
    rotation: FoundRotation | None = None
    origin: Origin | None = None
    share: float | None = None
    in_order: bool = False
    untested: Text | None = None


# -- second stage: neurons in any order ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """One pair of layers that the rotation was not fitted on: how many neurons two kinds of rows pair alike."""

    layer_a: int
    layer_b: int
    rows: Index  # of A, that were matched
    match: NeuronMatch

    @property
    def share(self) -> float:
        """Share of neurons on which both agree."""
        return self.match.agreement / self.match.n


def choose_pairs(a: Weights, b: Weights, allowed: Allowed = everything) -> list[tuple[int, int]]:
    """Return pairs of layers at the same relative depth, spread over the models: first those to fit on, then those to test."""
    sets = sorted(neuron_sets(a, allowed)), sorted(neuron_sets(b, allowed))
    if not sets[0] or not sets[1]:
        raise DegenerateInput(NO_MLP)
    picked = evenly_spaced(sets[1], FIT_LAYERS + HELD_OUT, at="middles")
    if len(picked) < 2:
        raise DegenerateInput("a single layer: there is none left to test on")
    count_a, count_b = len(sets[0]), len(sets[1])
    pairs = [(sets[0][min(count_a - 1, round(sets[1].index(layer) * count_a / count_b))], layer) for layer in picked]
    return [*pairs[::2], *pairs[1::2]]


def _search(
    a: Weights, b: Weights, allowed: Allowed, *, seed: int
) -> tuple[FoundRotation, list[tuple[int, int]], int, tuple[int, int]]:
    """Find layers that belong together in models of different depths: fit on one of A's and each of B's, keep the best.

    Returns the rotation, for some other layers of A the layer of B that agrees best under it, and among how many it was chosen.
    """
    sets = neuron_sets(a, allowed), neuron_sets(b, allowed)
    layers_a, layers_b = sorted(sets[0]), sorted(sets[1])
    candidates = evenly_spaced(layers_b, SEARCHED, at="middles")
    blocks = {layer: read_neurons(b, layer, sets[1][layer]) for layer in candidates}
    anchor = layers_a[len(layers_a) // 3]
    one = read_neurons(a, anchor, sets[0][anchor])
    fits = [(find_rotation([(one, blocks[layer])], seed=seed), layer) for layer in candidates]
    found, chosen = max(fits, key=lambda item: item[0].agreement)
    pairs = []
    for layer in evenly_spaced([layer for layer in layers_a if layer != anchor], HELD_OUT, at="middles"):
        other = read_neurons(a, layer, sets[0][layer])
        rest = [candidate for candidate in candidates if candidate != chosen]
        if rest:
            pairs.append((layer, max(rest, key=lambda candidate: agreement(other, blocks[candidate], found.R))))
    return found, pairs, max(1, len(candidates) - 1) * len(candidates), (anchor, chosen)


def alike(one: Neurons, two: Neurons) -> bool:
    """Whether two layers of one model are copies, in whatever order: then what fits one fits the other."""
    if (one.gate is None) != (two.gate is None):
        return False
    few = one.take(np.arange(min(one.count, COPY_ROWS)))
    return agreement(few, two, np.eye(one.width, dtype=np.float32)) > COPIED_SHARE


def _not_fitted(
    a: Weights, b: Weights, fitted: Sequence[tuple[int, int]], tested: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the pairs whose layers are no copies, on either side, of those that the rotation was fitted on.

    Raises
    ------
    DegenerateInput
        If none is left.
    """
    kept = []
    for pair in tested:
        copies = False
        for side, model in enumerate((a, b)):
            sets = neuron_sets(model)
            here = read_neurons(model, pair[side], sets[pair[side]])
            copies = copies or any(
                other[side] == pair[side] or alike(here, read_neurons(model, other[side], sets[other[side]]))
                for other in fitted
            )
        if not copies:
            kept.append(pair)
    if not kept:
        raise DegenerateInput("the layers left to test on are copies of those that were fitted")
    return kept


def fit(
    a: Weights, b: Weights, pairs: Sequence[tuple[int, int]], *, seed: int, start: Rows | None = None
) -> FoundRotation:
    """Fit a rotation on these pairs of layers."""
    sets = neuron_sets(a), neuron_sets(b)
    return find_rotation(
        ((read_neurons(a, i, sets[0][i]), read_neurons(b, j, sets[1][j])) for i, j in pairs), seed=seed, start=start
    )


def held_out(
    a: Weights,
    b: Weights,
    pairs: Sequence[tuple[int, int]],
    found: FoundRotation,
    *,
    seed: int,
    draws: int = DRAWS,
    beyond: float = 0.0,
) -> list[HeldOut]:
    """Match the neurons of layers that the rotation was not fitted on."""
    sets = neuron_sets(a), neuron_sets(b)
    results = []
    for i, j in pairs:
        one, two = read_neurons(a, i, sets[0][i]), read_neurons(b, j, sets[1][j])
        rng = np.random.default_rng([seed, i, j])
        rows = np.sort(rng.permutation(one.count)[:SAMPLED])
        one = one.take(rows)
        columns = np.sort(rng.permutation(one.width)[:COLUMNS])
        back = found.R.T[:, columns]
        first = (one.up, one.down) if one.gate is None or two.gate is None else (one.gate, one.up)
        second = (two.up, two.down) if one.gate is None or two.gate is None else (two.gate, two.up)
        match = gate_up_agreement(
            *(X[:, columns] for X in first),
            *(X @ back for X in second),
            draws=draws,
            seed=seed,
            up_signed=one.gate is None,
            null_rows=NULL_ROWS,
            beyond=beyond,
        )
        results.append(HeldOut(i, j, rows, match))
    return results


def matched_test(found: HeldOut, null: EmpiricalNull, layers: int) -> EvidenceTest:
    """Return one held-out layer as a test; inside the empirical null its p-value is 1."""
    match = found.match
    inside = found.share <= null.largest(STATISTIC)
    scale = len(match.gate_index) / match.null_rows
    return EvidenceTest(
        MATCHED,
        MLP_NEURONS,
        layer=found.layer_b,
        statistic=float(match.agreement),
        null_mean=match.null_mean * scale,
        null_sd=match.null_sd * scale,
        z=match.z,
        log10_p=0.0 if inside else bonferroni(match.log10_p, layers),
        n=match.n,
        blocks=1,
        null=Text("permuted residual dimensions, {n} draws, and {null}", n=match.n_draws, null=null.title),
        p_method=PMethod.INSIDE_NULL if inside else match.p_method,
        p_detail=None if inside else beyond_null(match),
        assumptions=(
            Text("the rotation was fitted on other layers"),
            LIKE_THE_NULL,
        ),
    )


# -- both ----------------------------------------------------------------------------------------------------------------


def examine_rotation(
    a: Weights,
    b: Weights,
    *,
    null: EmpiricalNull,
    log10_alpha: float,
    allowance: int | None = None,
    seed: int = 0,
    starts: Sequence[Rows] = (),
    allowed: Allowed = everything,
) -> RotationEvidence:
    """Look for a relation that a rotation of the residual basis hides: neurons in order first, then in any order.

    Parameters
    ----------
    log10_alpha : at which the first stage counts as found, and the second is not entered.
    allowance : bytes that may be read; None for any number.
    starts : first guesses of the rotation, from shared tokens for example.
    allowed : which role in which layer may be read.
    """
    if a.hidden != b.hidden:
        return RotationEvidence(
            untested=labelled(ROTATED_BASIS, Text("widths {a} and {b} differ", a=a.hidden, b=b.hidden))
        )
    before = a.bytes_read + b.bytes_read
    try:
        count = _affordable(a, b, allowance, allowed)
        table = gram_table(a, b, seed=seed, count=count, allowed=allowed)
        found = _in_order(a, b, table, log10_alpha, None if allowance is None else allowance // 2, seed)
        if found.in_order:
            return found
    except (BudgetExceeded, OrderedNeurons) as error:
        return RotationEvidence(untested=labelled(ROTATED_BASIS, error.reason))
    except DegenerateInput as error:
        found = RotationEvidence((EvidenceTest(GRAM, MLP_NEURONS, status=OFF, reason=error.reason),), share=0.0)
    left = None if allowance is None else allowance - (a.bytes_read + b.bytes_read - before)
    return _reordered(a, b, found, null, left, seed, starts, allowed)


def _in_order(
    a: Weights, b: Weights, table: GramTable, log10_alpha: float, allowance: int | None, seed: int
) -> RotationEvidence:
    """Return what the first stage shows: a relation, or nothing yet."""
    first = gram_test(table)
    share = float(table.counts.max()) / table.tested
    if (first.log10_p or 0.0) > log10_alpha:
        return RotationEvidence((first,), share=share)
    by_layer = {
        layer: bonferroni(float(table.log10_p[:, j].min()), len(table.layers_a))
        for j, layer in enumerate(table.layers_b)
    }
    layers = {layer: table.layers_a[int(table.log10_p[:, j].argmin())] for j, layer in enumerate(table.layers_b)}
    i, j = table.best()
    origin = _origin(a, b, table.layers_a[i], table.layers_b[j], seed, allowance)
    return RotationEvidence((first,), by_layer, layers, None, origin, share, in_order=True)


def _too_large(model: Weights, layer: int) -> Text | None:
    """Say if a layer is too large for what holds it in memory whole, or too wide for what takes the cube of its width."""
    where = neuron_sets(model)[layer]
    neurons, width = model.shape(where.up, layer, where.expert)
    if width > MAX_WIDTH or neurons * width > MAX_ELEMENTS:
        return Text(
            "{n} neurons of width {w}: expected a width up to {m} and {v} values at most",
            n=neurons,
            w=width,
            m=MAX_WIDTH,
            v=MAX_ELEMENTS,
        )
    return None


def _affordable(a: Weights, b: Weights, allowance: int | None, allowed: Allowed) -> int:
    """Return how many layers of either side fit a third of the allowance."""
    if allowance is None:
        return GRAM_LAYERS
    costs = []
    for model in (a, b):
        found = neuron_sets(model, allowed)
        if not found:
            raise DegenerateInput(NO_MLP)
        layer, where = next(iter(found.items()))
        costs.append(
            neurons_cost(model, layer, where, (0, min(GRAM_ROWS, model.shape(where.up, layer, where.expert)[0])))
        )
    count = min(GRAM_LAYERS, allowance // 3 // max(1, sum(costs)))
    if count < 2:  # with one there is no check that places of neurons mean nothing
        raise DegenerateInput(
            "two layers take {x:.1f} MB and {y:.1f} MB may be read; see --budget",
            x=2 * sum(costs) / 1e6,
            y=allowance / 3e6,
        )
    return count


def _reordered(
    a: Weights,
    b: Weights,
    first: RotationEvidence,
    null: EmpiricalNull,
    allowance: int | None,
    seed: int,
    starts: Sequence[Rows],
    allowed: Allowed,
) -> RotationEvidence:
    """Fit a rotation on some layers and match the neurons of others."""
    why = Text("rotated residual basis with reordered neurons")
    try:
        pairs = choose_pairs(a, b, allowed)
        sets = neuron_sets(a), neuron_sets(b)
        for i, j in pairs:
            if (reason := _too_large(a, i) or _too_large(b, j)) is not None:
                return replace(first, untested=labelled(why, reason))
        # those fitted are read for every start and to tell copies, those tested once more for what comes after
        reads = 2 + len(starts)
        cost = reads * sum(neurons_cost(a, i, sets[0][i]) + neurons_cost(b, j, sets[1][j]) for i, j in pairs)
        if allowance is not None and cost > allowance:
            needed = Text(
                "{n} layers take {x:.0f} MB and {y:.0f} MB are left; see --budget",
                n=len(pairs),
                x=cost / 1e6,
                y=allowance / 1e6,
            )
            return replace(first, untested=labelled(why, needed))
        # one layer of a wide model has rows enough to determine a rotation, and each more takes half a minute
        cut = 1 if a.hidden > WIDE else (len(pairs) + 1) // 2
        fits = [fit(a, b, pairs[:cut], seed=seed, start=start) for start in (None, *starts)]
        rotation, tested, tries = max(fits, key=lambda found: found.agreement), pairs[cut : cut + HELD_OUT], len(fits)
        fitted = pairs[:cut]
        if a.layers != b.layers and cost * SEARCHED <= (allowance if allowance is not None else SEARCH_BYTES):
            searched, others, further, anchor = _search(a, b, allowed, seed=seed)
            if searched.agreement > rotation.agreement:
                rotation, tested = searched, others
            tries += further
            fitted = fitted if rotation is not searched else [anchor]
        tested = _not_fitted(a, b, fitted, tested)
        results = held_out(a, b, tested, rotation, seed=seed, beyond=null.largest(STATISTIC))
        strongest = max(results, key=lambda found: found.share)
        origin = _origin_matched(a, b, strongest, rotation)
    except (DegenerateInput, BudgetExceeded) as error:
        off = EvidenceTest(MATCHED, MLP_NEURONS, status=OFF, reason=error.reason)
        return replace(first, tests=(*first.tests, off), untested=labelled(why, error.reason))
    tests = [matched_test(found, null, len(results) * tries) for found in results]
    by_layer = {test.layer: test.log10_p for test in tests if test.layer is not None and test.log10_p is not None}
    layers = {found.layer_b: found.layer_a for found in results}
    share = max(first.share or 0.0, strongest.share)
    return RotationEvidence((*first.tests, *tests), by_layer, layers, rotation, origin, share, in_order=False)


def _unexamined(why: Text) -> Origin:
    """Return the reading that claims least: weights or initialisation."""
    return Origin(UNCLEAR, None, None, None, None, uniform=False, reasons=(Text("not examined: {why}", why=why),))


def _origin(a: Weights, b: Weights, layer_a: int, layer_b: int, seed: int, allowance: int | None) -> Origin:
    """Compare neurons in their places, in a basis fitted on one half of them, in the other half."""
    sets = neuron_sets(a)[layer_a], neuron_sets(b)[layer_b]
    cost = neurons_cost(a, layer_a, sets[0]) + neurons_cost(b, layer_b, sets[1])
    if allowance is not None and cost > allowance:
        return _unexamined(Text("two layers take {x:.0f} MB; see --budget", x=cost / 1e6))
    if (reason := _too_large(a, layer_a) or _too_large(b, layer_b)) is not None:
        return _unexamined(reason)
    try:
        one, two = read_neurons(a, layer_a, sets[0]), read_neurons(b, layer_b, sets[1])
    except (DegenerateInput, BudgetExceeded) as error:
        return _unexamined(error.reason)
    count = min(one.count, two.count)
    order = np.random.default_rng([seed, count]).permutation(count)
    fitted, other = order[: count // 2], order[count // 2 : count // 2 + SAMPLED]
    left, right = one.take(fitted).directions(), two.take(fitted).directions()
    total = left.up.T @ right.up + left.down.T @ right.down
    if left.gate is not None and right.gate is not None:
        total = total + left.gate.T @ right.gate
    return _slopes(one.take(other), two.take(other), nearest_rotation(total))


def _origin_matched(a: Weights, b: Weights, found: HeldOut, rotation: FoundRotation) -> Origin:
    """Compare the neurons that both kinds of rows paired alike."""
    one = read_neurons(a, found.layer_a, neuron_sets(a)[found.layer_a])
    two = read_neurons(b, found.layer_b, neuron_sets(b)[found.layer_b])
    agreed = found.match.gate_index == found.match.up_index
    agreed &= found.match.gate_index >= 0
    if np.count_nonzero(agreed) < LEAST_NEURONS:
        return _unexamined(Text("too few neurons are paired alike"))
    return _slopes(one.take(found.rows[agreed]), two.take(found.match.gate_index[agreed]), rotation.R)


def _slopes(one: Neurons, two: Neurons, R: Rows) -> Origin:
    """Hold paired neurons against each other in one basis; rows of B get the lengths of A's, since neurons may be rescaled."""
    slices: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
    for name in ("gate", "up", "down"):
        left, right = getattr(one, name), getattr(two, name)
        if left is None or right is None:
            continue
        rotated = right.astype(np.float64) @ R.T.astype(np.float64)
        values = left.astype(np.float64)
        scale = np.linalg.norm(values, axis=1) / np.maximum(np.linalg.norm(rotated, axis=1), 1e-30)
        if name != "gate" and one.gate is not None:
            scale = scale * np.where(np.einsum("ij,ij->i", values, rotated) < 0.0, -1.0, 1.0)
        slices[name] = [(values, rotated * scale[:, None])]
    return origin_of(slices, [])
