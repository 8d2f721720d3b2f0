"""Test models whose residual basis may be rotated, by invariants of rotation, and by neurons of layers that no fit has seen.

Two stages. The first is exact and reads a few hundred rows of gate and up in some layers: the Gram profiles of neurons that kept
their order (`kinprint.evidence.neuron_gram`). The second is for neurons that were reordered as well: a rotation is fitted on some
layers, and the neurons of OTHER layers are matched under it, beside an empirical null, as in `kinprint.evidence.neuron_matching`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.align.neuron_assignment import LEAST_DRAWS, MAX_ASSIGNED, NeuronMatch, gate_up_agreement
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
from kinprint.evidence import neuron_gram as grams
from kinprint.evidence.assess import SearchResult
from kinprint.evidence.common_start import UNCLEAR, Origin, origin_of
from kinprint.evidence.empirical_null import EmpiricalNull
from kinprint.evidence.neuron_gram import GRAM_LAYERS, MLP_NEURONS, NO_MLP, Allowed, everything, neuron_sets
from kinprint.evidence.neuron_matching import DRAWS, NULL_ROWS, agreement_test
from kinprint.model.weights import Weights
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, labelled

SEARCH_BYTES = 1 << 30  # what a search for layers may read where no budget says
ROTATED_BASIS = Text("rotated residual basis")
FIT_LAYERS, HELD_OUT = 2, 2
SEARCHED, SEARCHED_NARROW = (
    8,
    32,
)  # layers of the deeper model tried for one of the other: of wide models, and of others
CLEAR_FIT = 0.5  # share of neurons fitted that agree beyond which no other layer is tried
SAMPLED = 1024  # neurons of A matched in a layer that was held out
COLUMNS = 512  # residual dimensions that are enough to tell neurons apart once the basis is aligned
COPY_ROWS, COPIED_SHARE = 128, 0.2  # neurons looked at, and share found beyond which layers of one model are copies
MAX_ELEMENTS = 1 << 26  # of one matrix: some 3 GB at the peak
MAX_WIDTH = 4096
STATISTIC = "rotated_neuron_agreement"
MATCHED = "neuron_match_rotated"

ORIGIN_LAYERS = 3  # layers in which it is asked whether training is shared

Pair = tuple[int, int]  # a layer of A and one of B
Slices = dict[str, list[tuple[FloatArray, FloatArray]]]
T = TypeVar("T")


@dataclass(frozen=True)
class RotationEvidence(SearchResult):
    """Tests of both stages, the rotation, and the largest share of neurons recognised in any pair of layers not fitted."""

    layers: Mapping[int, int] = field(default_factory=dict)  # layer of B to the layer of A that it matched
    rotation: FoundRotation | None = None
    share: float | None = None  # None if no pair was tested
    in_order: bool = False


@dataclass(frozen=True)
class HeldOut:
    """One pair of layers that the rotation was not fitted on: how many neurons two kinds of rows pair alike."""

    pair: Pair
    rows: Index  # of A, that were matched
    match: NeuronMatch

    @property
    def share(self) -> float:
        """Share of neurons on which both agree."""
        return self.match.agreement / self.match.n


def choose_pairs(a: Weights, b: Weights, allowed: Allowed = everything) -> list[Pair]:
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


def _read(a: Weights, b: Weights, pair: Pair) -> tuple[Neurons, Neurons]:
    return neuron_sets(a)[pair[0]].read(), neuron_sets(b)[pair[1]].read()


def _cost(a: Weights, b: Weights, pair: Pair) -> int:
    return neuron_sets(a)[pair[0]].cost() + neuron_sets(b)[pair[1]].cost()


def _search(
    a: Weights, b: Weights, allowed: Allowed, count: int, *, seed: int
) -> tuple[FoundRotation, list[Pair], int, Pair]:
    """Find layers that belong together in models of different depths: fit on one of the shallower model and each of the deeper.

    Layers of the shallower model are likelier to occur in the other. Return the rotation, for some other layers the layer of the
    deeper model that agrees best, the number of choices, and the pair fitted, as layers of A and of B.
    """
    flipped = a.layers > b.layers
    sets = neuron_sets(a, allowed), neuron_sets(b, allowed)
    few, many = sets[::-1] if flipped else sets
    candidates = evenly_spaced(sorted(many), count, at="middles")
    blocks = {layer: many[layer].read() for layer in candidates}

    def ordered(one: T, two: T) -> tuple[T, T]:
        return (two, one) if flipped else (one, two)

    anchors = sorted(few)
    fits: list[tuple[FoundRotation, int, int]] = []
    for anchor in dict.fromkeys((anchors[len(anchors) // 3], anchors[2 * len(anchors) // 3])):
        one = few[anchor].read()
        fits += [(find_rotation([ordered(one, blocks[at])], seed=seed), anchor, at) for at in candidates]
        if max(fit.agreement for fit, _, _ in fits) > CLEAR_FIT:
            break
    found, anchor, chosen = max(fits, key=lambda item: item[0].agreement)
    rest = [candidate for candidate in candidates if candidate != chosen]
    pairs = []
    for layer in evenly_spaced([layer for layer in anchors if layer != anchor], HELD_OUT, at="middles"):
        if rest:
            other = few[layer].read()
            nearest = max(rest, key=lambda at: agreement(*ordered(other, blocks[at]), found.R))
            pairs.append(ordered(layer, nearest))
    return found, pairs, max(1, len(rest)) * len(fits), ordered(anchor, chosen)


def alike(one: Neurons, two: Neurons) -> bool:
    """Whether two layers of one model are copies, in whatever order: then what fits one fits the other."""
    if (one.gate is None) != (two.gate is None):
        return False
    few = one.take(np.arange(min(one.count, COPY_ROWS)))
    return agreement(few, two, np.eye(one.width, dtype=np.float32)) > COPIED_SHARE


def _not_fitted(a: Weights, b: Weights, fitted: Sequence[Pair], tested: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose layers are no copies, on either side, of those that the rotation was fitted on."""

    def copied(here: Neurons, layer: int, side: int) -> bool:
        sets = neuron_sets((a, b)[side])
        return any(other[side] == layer or alike(here, sets[other[side]].read()) for other in fitted)

    kept = [pair for pair in tested if not any(map(copied, _read(a, b, pair), pair, (0, 1)))]
    if not kept:
        raise DegenerateInput("the layers left to test on are copies of those that were fitted")
    return kept


def fit(a: Weights, b: Weights, pairs: Sequence[Pair], *, seed: int, start: Rows | None = None) -> FoundRotation:
    """Fit a rotation on these pairs of layers."""
    return find_rotation((_read(a, b, pair) for pair in pairs), seed=seed, start=start)


def held_out(
    a: Weights, b: Weights, pairs: Sequence[Pair], R: Rows, *, seed: int, draws: int = DRAWS, beyond: float = 0.0
) -> list[HeldOut]:
    """Match the neurons of layers that the rotation was not fitted on."""
    results = []
    for pair in pairs:
        one, two = _read(a, b, pair)
        rng = np.random.default_rng([seed, *pair])
        rows = np.sort(rng.permutation(one.count)[:SAMPLED])
        one = one.take(rows)
        columns = np.sort(rng.permutation(one.width)[:COLUMNS])
        back = R.T[:, columns]
        gated = one.gate is not None and two.gate is not None
        first, second = ((side.gate, side.up) if gated else (side.up, side.down) for side in (one, two))
        match = gate_up_agreement(
            *(X[:, columns] for X in first if X is not None),
            *(X @ back for X in second if X is not None),
            draws=draws,
            seed=seed,
            up_signed=one.gate is None,
            null_rows=NULL_ROWS,
            beyond=beyond,
        )
        results.append(HeldOut(pair, rows, match))
    return results


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

    The second stage is not entered where the first rejects at `log10_alpha`. `starts` are first guesses of the rotation, from
    shared tokens for example; `allowance` limits the bytes read, `allowed` the roles and layers.
    """
    before = a.bytes_read + b.bytes_read
    try:
        count = _affordable(a, b, allowance, allowed)
        table = grams.gram_table(a, b, seed=seed, count=count, allowed=allowed)
        found = _in_order(a, b, table, log10_alpha, None if allowance is None else allowance // 2, seed)
        if found.in_order:
            left = None if allowance is None else (allowance - (a.bytes_read + b.bytes_read - before))
            return _all_in_order(a, b, found, left, seed, allowed)
    except BudgetExceeded as error:
        return RotationEvidence(untested=labelled(ROTATED_BASIS, error.reason))
    except DegenerateInput as error:
        found = RotationEvidence((EvidenceTest(grams.GRAM, MLP_NEURONS, status=OFF, reason=error.reason),), share=0.0)
    left = None if allowance is None else allowance - (a.bytes_read + b.bytes_read - before)
    return _reordered(a, b, found, null, left, seed, starts, allowed)


def _in_order(
    a: Weights, b: Weights, table: grams.GramTable, log10_alpha: float, allowance: int | None, seed: int
) -> RotationEvidence:
    """Return what the first stage shows: a relation, or nothing yet."""
    first = grams.gram_test(table)
    share = float(table.counts.max()) / table.tested
    if (first.log10_p or 0.0) > log10_alpha:
        return RotationEvidence((first,), share=share)
    i, j = table.best()
    by_layer, layers = _nearest(table)
    found = sorted(layer for layer, p in by_layer.items() if p <= log10_alpha)
    pairs = [(layers[layer], layer) for layer in evenly_spaced(found, ORIGIN_LAYERS, at="ends")]
    origin = _origin(a, b, pairs or [(table.layers_a[i], table.layers_b[j])], seed, allowance)
    return RotationEvidence((first,), by_layer, origin, layers=layers, share=share, in_order=True)


def _nearest(table: grams.GramTable) -> tuple[dict[int, float], dict[int, int]]:
    """Return log10 p of every layer of B looked at, corrected for the search, and the layer of A that it is nearest to."""
    least, nearest = table.log10_p.min(axis=0).tolist(), table.log10_p.argmin(axis=0)
    by_layer = {layer: bonferroni(p, len(table.layers_a)) for layer, p in zip(table.layers_b, least, strict=True)}
    return by_layer, {layer: table.layers_a[i] for layer, i in zip(table.layers_b, nearest, strict=True)}


def _all_in_order(
    a: Weights, b: Weights, found: RotationEvidence, allowance: int | None, seed: int, allowed: Allowed
) -> RotationEvidence:
    """Look at all layers, or as many as the allowance lets, where some of them showed a relation."""
    try:
        count = _affordable(a, b, allowance, allowed, most=min(grams.MOST_LAYERS, max(a.layers, b.layers)))
        if count <= len(found.by_layer):
            return found
        table = grams.gram_table(a, b, seed=seed, count=count, allowed=allowed, checked=True)
    except (BudgetExceeded, DegenerateInput):
        return found
    by_layer, layers = _nearest(table)
    return replace(found, by_layer={**found.by_layer, **by_layer}, layers={**found.layers, **layers})


def _too_large(a: Weights, b: Weights, pair: Pair) -> Text | None:
    """Say if a layer is too large for what holds it in memory whole, or too wide for what takes the cube of its width."""
    limits = {"m": MAX_WIDTH, "v": MAX_ELEMENTS}
    for n, w in (neuron_sets(model)[layer].shape for model, layer in zip((a, b), pair, strict=True)):
        if w > MAX_WIDTH or n * w > MAX_ELEMENTS:
            return Text(
                "{n} neurons of width {w}: expected a width up to {m} and {v} values at most", n=n, w=w, **limits
            )
    return None


def _affordable(a: Weights, b: Weights, allowance: int | None, allowed: Allowed, *, most: int = GRAM_LAYERS) -> int:
    """Return how many layers of either side fit a third of the allowance."""
    if allowance is None:
        return most
    firsts = [next(iter(neuron_sets(model, allowed).values()), None) for model in (a, b)]
    if None in firsts:
        raise DegenerateInput(NO_MLP)
    cost = sum(where.cost((0, min(grams.GRAM_ROWS, where.shape[0]))) for where in firsts if where is not None)
    count = min(most, allowance // 3 // max(1, cost))
    if count < 2:  # with one there is no check that places of neurons mean nothing
        x, y = 2 * cost / 1e6, allowance / 3e6
        raise DegenerateInput("two layers take {x:.1f} MB and {y:.1f} MB may be read; see --budget", x=x, y=y)
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
        reason = next((reason for pair in pairs if (reason := _too_large(a, b, pair)) is not None), None)
        # those fitted are read for every start and to tell copies, those tested once more for what comes after
        reads = 2 + len(starts)
        cost = reads * sum(_cost(a, b, pair) for pair in pairs)
        if reason is None and allowance is not None and cost > allowance:
            n, x, y = len(pairs), cost / 1e6, allowance / 1e6
            reason = Text("{n} layers take {x:.0f} MB and {y:.0f} MB are left; see --budget", n=n, x=x, y=y)
        if reason is not None:
            return replace(first, untested=labelled(why, reason))
        # one layer of a wide model has rows enough to determine a rotation, and each more takes half a minute
        cut = 1 if a.hidden > WIDE else (len(pairs) + 1) // 2
        fits = [fit(a, b, pairs[:cut], seed=seed, start=start) for start in (None, *starts)]
        rotation, tries = max(fits, key=lambda found: found.agreement), len(fits)
        fitted, tested = pairs[:cut], pairs[cut : cut + HELD_OUT]
        room = (SEARCH_BYTES if allowance is None else allowance - cost) // max(1, 2 * _cost(a, b, pairs[0]))
        if a.layers != b.layers and room >= 2:
            most = SEARCHED if max(a.hidden, b.hidden) > WIDE else SEARCHED_NARROW
            searched, others, further, anchor = _search(a, b, allowed, min(most, room), seed=seed)
            if searched.agreement > rotation.agreement:
                rotation, fitted, tested = searched, [anchor], others
            tries += further
        tested = _not_fitted(a, b, fitted, tested)
        largest = null.largest(STATISTIC)
        results = held_out(a, b, tested, rotation.R, seed=seed, beyond=largest)
        strongest = max(results, key=lambda found: found.share)
        left = None if allowance is None else allowance - cost
        if strongest.share > largest and (left is None or (a.layers + b.layers) * _cost(a, b, pairs[0]) <= left):
            # where depths differ, a layer that did not match may have been held against the wrong one
            seen = [found.pair for found in results if a.layers == b.layers or found.share > largest]
            more = _others(a, b, [*fitted, *seen], rotation.R, allowed)
            results += held_out(a, b, more, rotation.R, seed=seed, draws=LEAST_DRAWS, beyond=largest)
            tries *= 1 if a.layers == b.layers else a.layers
        best = sorted(results, key=lambda found: -found.share)[:ORIGIN_LAYERS]
        origin = _origin_matched(a, b, [found for found in best if found.share > largest] or [strongest], rotation.R)
    except (DegenerateInput, BudgetExceeded) as error:
        off = EvidenceTest(MATCHED, MLP_NEURONS, status=OFF, reason=error.reason)
        return replace(first, tests=(*first.tests, off), untested=labelled(why, error.reason))
    assumption, tries = Text("the rotation was fitted on other layers"), tries * len(results)
    tests = []
    for found in results:
        test = EvidenceTest(MATCHED, MLP_NEURONS, found.pair[1])
        tests.append(agreement_test(test, found.match, null, largest, tries=tries, assumption=assumption))
    by_layer = {test.layer: test.log10_p for test in tests if test.layer is not None and test.log10_p is not None}
    layers = {layer_b: layer_a for layer_a, layer_b in (found.pair for found in results)}
    share = max(first.share or 0.0, strongest.share)
    return RotationEvidence((*first.tests, *tests), by_layer, origin, layers=layers, rotation=rotation, share=share)


def _others(a: Weights, b: Weights, seen: Sequence[Pair], R: Rows, allowed: Allowed) -> list[Pair]:
    """Return the layers of B not seen, each after the layer of A at its place, or after the nearest where depths differ."""
    sets = neuron_sets(a, allowed), neuron_sets(b, allowed)
    if max(max((where.shape[0] for where in side.values()), default=0) for side in sets) > MAX_ASSIGNED:
        return []
    rest = sorted(sets[1].keys() - {layer for _, layer in seen})
    if a.layers == b.layers:
        return [(layer, layer) for layer in rest if layer in sets[0]]
    blocks = {layer: where.read() for layer, where in sets[0].items()}
    few = {layer: one.take(np.arange(min(one.count, COPY_ROWS))) for layer, one in blocks.items()}
    pairs = []
    for layer in rest:
        two = sets[1][layer].read()
        pairs.append((max(few, key=lambda at: agreement(few[at], two, R)), layer))
    return pairs


def _unexamined(why: Text) -> Origin:
    """Return the reading that claims least: weights or initialisation."""
    return Origin(UNCLEAR, None, None, None, None, uniform=False, reasons=(Text("not examined: {why}", why=why),))


def _origin(a: Weights, b: Weights, pairs: Sequence[Pair], seed: int, allowance: int | None) -> Origin:
    """Compare neurons in their places, each half of a layer's in a basis fitted on the other half, in a few layers."""
    slices: Slices = {}
    for pair in pairs:
        try:
            one, two = _read_within(a, b, pair, allowance)
        except (DegenerateInput, BudgetExceeded) as error:
            if not slices:
                return _unexamined(error.reason)
            break
        allowance = None if allowance is None else allowance - _cost(a, b, pair)
        count = min(one.count, two.count)
        order = np.random.default_rng([seed, count]).permutation(count)
        halves = order[: count // 2], order[count // 2 :]
        made = [
            _paired(
                one.take(other[:SAMPLED]), two.take(other[:SAMPLED]), _in_places(one.take(fitted), two.take(fitted))
            )
            for fitted, other in (halves, halves[::-1])
        ]
        for name in made[0]:
            left, right = (np.concatenate([half[name][side] for half in made]) for side in (0, 1))
            slices.setdefault(name, []).append((left, right))
    return origin_of(slices, [])


def _read_within(a: Weights, b: Weights, pair: Pair, allowance: int | None) -> tuple[Neurons, Neurons]:
    """Read the neurons of a layer of either side. Raises DegenerateInput if they are too many, or too many bytes."""
    if (reason := _too_large(a, b, pair)) is not None:
        raise DegenerateInput(reason)
    if allowance is not None and (cost := _cost(a, b, pair)) > allowance:
        raise DegenerateInput("two layers take {x:.0f} MB; see --budget", x=cost / 1e6)
    return _read(a, b, pair)


def _in_places(one: Neurons, two: Neurons) -> Rows:
    """Return the rotation between neurons that stand at the same places."""
    left, right = one.directions(), two.directions()
    total = left.up.T @ right.up + left.down.T @ right.down
    if left.gate is not None and right.gate is not None:
        total = total + left.gate.T @ right.gate
    return nearest_rotation(total)


def layer_rotation(a: Weights, b: Weights, pair: Pair) -> Rows:
    """Return the rotation of one layer whose neurons kept their order. Raises DegenerateInput if it is too large."""
    one, two = _read_within(a, b, pair, None)
    count = min(one.count, two.count)
    return _in_places(one.take(np.arange(count)), two.take(np.arange(count)))


def _origin_matched(a: Weights, b: Weights, results: Sequence[HeldOut], R: Rows) -> Origin:
    """Compare the neurons that both kinds of rows paired alike."""
    slices: Slices = {}
    for found in results:
        one, two = _read(a, b, found.pair)
        agreed = (found.match.gate_index == found.match.up_index) & (found.match.gate_index >= 0)
        if np.count_nonzero(agreed) >= grams.LEAST_NEURONS:
            paired = _paired(one.take(found.rows[agreed]), two.take(found.match.gate_index[agreed]), R)
            for name, pair in paired.items():
                slices.setdefault(name, []).append(pair)
    return origin_of(slices, []) if slices else _unexamined(Text("too few neurons are paired alike"))


def _paired(one: Neurons, two: Neurons, R: Rows) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return paired neurons by kind of row in one basis; rows of B get the lengths of A's, since neurons may be rescaled."""
    slices: dict[str, tuple[FloatArray, FloatArray]] = {}
    for name in ("gate", "up", "down"):
        left, right = getattr(one, name), getattr(two, name)
        if left is None or right is None:
            continue
        rotated = right.astype(np.float64) @ R.T.astype(np.float64)
        values = left.astype(np.float64)
        scale = np.linalg.norm(values, axis=1) / np.maximum(np.linalg.norm(rotated, axis=1), 1e-30)
        if name != "gate" and one.gate is not None:
            scale = scale * np.where(np.einsum("ij,ij->i", values, rotated) < 0.0, -1.0, 1.0)
        slices[name] = (values, rotated * scale[:, None])
    return slices
