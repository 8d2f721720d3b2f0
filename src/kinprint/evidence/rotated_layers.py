"""Fit a rotation on some layers, or on half of a layer's neurons, and match the neurons that no fit has seen.

Which layers belong together is not known where layers were dropped, inserted or put in another order. The singular values of a
layer's rows depend on no basis and no order of neurons: they propose pairs of layers to fit on. A rotation found on one pair says
of all others which belong together. Every such choice is paid for in the p-value.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from kinprint._util.cores import cores, on_all_cores
from kinprint._util.numeric import evenly_spaced
from kinprint.align.neuron_assignment import NeuronMatch, gate_up_agreement
from kinprint.align.rotation import (
    WIDE,
    FoundRotation,
    Index,
    Neurons,
    Rows,
    agreement,
    directions,
    find_rotation,
    leading_part,
    match_rotated,
    spectrum,
    whole_rotation,
)
from kinprint.errors import DegenerateInput
from kinprint.evidence.neuron_gram import LEAST_NEURONS, NO_MLP, NeuronSet, neuron_sets
from kinprint.evidence.neuron_matching import DRAWS, NULL_ROWS
from kinprint.evidence.reading import EVERYTHING, Scope
from kinprint.model.weights import Weights

FIT_LAYERS, HELD_OUT = 2, 2
SEARCHED, SEARCHED_NARROW = 8, 64  # layers of either model searched: of wide models, and of others
PROPOSED = 6  # pairs of layers that spectra propose and that are fitted on
CLEAR_FIT = 0.8  # share of neurons fitted that agree beyond which no other layers are tried
SAMPLED = 1024  # neurons of A matched in a layer
COLUMNS = 512  # residual dimensions that are enough to tell neurons apart once the basis is aligned
FEW_ROWS, COPIED_SHARE = 128, 0.2  # neurons looked at, and share found beyond which layers of one model are copies

Pair = tuple[int, int]  # a layer of A and one of B
Layers = tuple[list[int], list[int]]  # layers of A and of B
Side = tuple[Neurons, Rows | None]  # neurons, and the basis that they are given in, if it is not the model's own
Sides = tuple[Side, Side]


@dataclass(frozen=True)
class Fitted:
    """A rotation, and the pairs of layers that it was fitted on."""

    rotation: FoundRotation
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class HeldOut:
    """Neurons of one pair of layers that the rotation was not fitted on: how many of them two kinds of rows pair alike."""

    pair: Pair
    rows: Index  # of A, that were matched
    others: Index  # of B, that they were matched with
    match: NeuronMatch
    R: Rows
    own: float = 0.0  # share that either model's own neurons, fitted and not, give away of each other

    @property
    def share(self) -> float:
        """Share of neurons on which both agree."""
        return self.match.agreement / self.match.n


def choose_pairs(a: Weights, b: Weights, scope: Scope = EVERYTHING) -> list[Pair]:
    """Return pairs of layers at the same relative depth, spread over the models: first those to fit on, then those to test."""
    sets = sorted(neuron_sets(a, scope)), sorted(neuron_sets(b, scope))
    if not sets[0] or not sets[1]:
        raise DegenerateInput(NO_MLP)
    picked = evenly_spaced(sets[1], FIT_LAYERS + HELD_OUT, at="middles")
    if len(picked) < 2:
        raise DegenerateInput("a single layer: there is none left to test on")
    count_a, count_b = len(sets[0]), len(sets[1])
    pairs = [(sets[0][min(count_a - 1, round(sets[1].index(layer) * count_a / count_b))], layer) for layer in picked]
    return [*pairs[::2], *pairs[1::2]]


def read_pair(a: Weights, b: Weights, pair: Pair) -> tuple[Neurons, Neurons]:
    """Read the neurons of a layer of A and of one of B."""
    return neuron_sets(a)[pair[0]].read(), neuron_sets(b)[pair[1]].read()


def cost_of(a: Weights, b: Weights, pair: Pair) -> int:
    """Return the bytes that a layer of A and one of B take."""
    return neuron_sets(a)[pair[0]].cost() + neuron_sets(b)[pair[1]].cost()


def searched_layers(a: Weights, b: Weights, scope: Scope, room: int) -> Layers:
    """Return the layers of both sides that are searched, as many as there is room for; none where that is a single one."""
    most = min(room, SEARCHED if is_wide(a, b) else SEARCHED_NARROW)
    one, two = (
        evenly_spaced(sorted(neuron_sets(model, scope)), most, at="middles") if most >= 2 else [] for model in (a, b)
    )
    return one, two


def is_wide(a: Weights, b: Weights) -> bool:
    """Whether a layer of either side is too large to be fitted in all dimensions."""
    return max(a.hidden, b.hidden) > WIDE


def fit(a: Weights, b: Weights, pairs: Sequence[Pair], *, seed: int, start: Rows | None = None) -> Fitted:
    """Fit a rotation on these pairs of layers; of wide models on the first, whose rows are enough."""
    used = pairs[:1] if is_wide(a, b) else pairs
    return _fitted(used, [_sides(a, b, pair) for pair in used], start, seed)


def _fitted(pairs: Sequence[Pair], sides: Sequence[Sides], start: Rows | None, seed: int) -> Fitted:
    neurons, (V, W) = [(one, two) for (one, _), (two, _) in sides], (basis for _, basis in sides[0])
    if V is None or W is None:
        return Fitted(find_rotation(neurons, seed=seed, start=start), tuple(pairs))
    first = None if start is None else np.asarray(V.T @ start @ W, dtype=np.float32)
    found = find_rotation(neurons, seed=seed, start=first, most=len(V))
    return Fitted(replace(found, R=np.asarray(V @ found.R @ W.T, dtype=np.float32)), tuple(pairs))


def _sides(a: Weights, b: Weights, pair: Pair) -> Sides:
    """Read the neurons of a layer of A and of one of B to be fitted on: of wide models their leading part."""
    if not is_wide(a, b):
        one, two = read_pair(a, b, pair)
        return (one, None), (two, None)
    found: list[Side] = on_all_cores(lambda layer: leading_part(layer.kinds()), _layers(a, b, pair))
    return found[0], found[1]


def _read_few(a: Weights, b: Weights, pairs: Sequence[Pair]) -> Iterator[list[tuple[Pair, Sides]]]:
    """Read pairs of layers, as many at a time as there are cores; those of wide models one by one, since they fill the memory."""
    step = 1 if is_wide(a, b) else cores()
    for at in range(0, len(pairs), step):
        yield [(pair, _sides(a, b, pair)) for pair in pairs[at : at + step]]


def whole(a: Weights, b: Weights, fitted: Fitted) -> Rows:
    """Return the rotation of all dimensions: of wide models by the neurons that the fit in leading ones has paired."""
    if not is_wide(a, b):
        return fitted.rotation.R
    one, two = _layers(a, b, fitted.pairs[0])
    return whole_rotation(one.kinds(), two.kinds(), fitted.rotation.pairs)


def _layers(a: Weights, b: Weights, pair: Pair) -> tuple[NeuronSet, NeuronSet]:
    return neuron_sets(a)[pair[0]], neuron_sets(b)[pair[1]]


def propose_pairs(a: Weights, b: Weights, layers: Layers) -> list[Pair]:
    """Pair layers by the singular values of their rows, the most alike first, none of them twice."""
    width = min(a.hidden, b.hidden)
    one, two = (
        [spectrum(sets[layer].read(), width) for layer in side]
        for sets, side in zip((neuron_sets(a), neuron_sets(b)), layers, strict=True)
    )
    gaps = {
        (layers[0][i], layers[1][j]): float(np.mean((x - y) ** 2))
        for i, x in enumerate(one)
        for j, y in enumerate(two)
        if x.shape == y.shape
    }
    pairs: list[Pair] = []
    for pair in sorted(gaps, key=lambda pair: gaps[pair]):
        if all(pair[0] != i and pair[1] != j for i, j in pairs):
            pairs.append(pair)
    return pairs


def nearest_pairs(a: Weights, b: Weights, layers: Layers, R: Rows) -> list[Pair]:
    """Return for each layer of B the layer of A whose neurons are most alike under a rotation, the most alike pairs first."""
    sets = neuron_sets(a), neuron_sets(b)
    columns = np.sort(np.random.default_rng(R.shape[1]).permutation(R.shape[1])[:COLUMNS])

    def turned(layer: int) -> list[Rows | None]:
        rows = (0, min(FEW_ROWS, sets[0][layer].first))
        return [None if X is None else directions(X @ R[:, columns]) for X in sets[0][layer].kinds(rows)]

    few = {layer: turned(layer) for layer in layers[0]}
    best: dict[Pair, float] = {}
    for layer in layers[1]:
        two = [None if X is None else directions(X[:, columns]) for X in islice(sets[1][layer].kinds(), 2)]
        likeness = {at: _likeness(one, two) for at, one in few.items()}
        near = max(likeness, key=lambda at: likeness[at])
        best[near, layer] = likeness[near]
    return sorted(best, key=lambda pair: -best[pair])


def _likeness(one: Sequence[Rows | None], two: Sequence[Rows | None]) -> float:
    """Return how near the rows of A come to any of B, on average; signs of up rows are free where there is a gate."""
    cosines = [x @ y.T for x, y in zip(one, two, strict=True) if x is not None and y is not None]
    total = cosines[0] + np.abs(cosines[1]) if len(cosines) > 1 else cosines[0]
    return float(total.max(axis=1).mean())


def fit_all(
    a: Weights, b: Weights, pairs: Sequence[Pair], layers: Layers, starts: Sequence[Rows], seed: int
) -> list[Fitted]:
    """Fit on layers at the same depth, from all starts; then on those that spectra propose, until neurons agree clearly."""
    first = pairs[: 1 if is_wide(a, b) else (len(pairs) + 1) // 2]  # a wide layer has rows enough
    sides = [_sides(a, b, pair) for pair in first]
    fits = on_all_cores(lambda start: _fitted(first, sides, start, seed), (None, *starts))
    if any(found.rotation.agreement > CLEAR_FIT for found in fits):
        return fits
    for few in _read_few(a, b, propose_pairs(a, b, layers)[:PROPOSED]):
        for found in on_all_cores(lambda item: _fitted([item[0]], [item[1]], None, seed), few):
            fits.append(found)
            if found.rotation.agreement > CLEAR_FIT:
                return fits
    return fits


def _copies(layers: Iterable[NeuronSet], fitted: NeuronSet) -> list[bool]:
    """Say of layers of one model whether they are copies of one of it, in whatever order: then what fits one fits the other."""
    gated, wide = fitted.gate is not None, fitted.model.hidden > WIDE
    there = list(map(partial(_some, unit=True), islice(_kinds(fitted), 2 if wide and gated else 3)))

    def is_copy(layer: NeuronSet) -> bool:
        if layer == fitted or (layer.gate is not None) != gated:
            return layer == fitted
        few = layer.kinds((0, min(FEW_ROWS, layer.first))) if wide and gated else _kinds(layer)
        return agreement(map(partial(_some, rows=slice(FEW_ROWS), unit=True), few), there) > COPIED_SHARE

    return list(map(is_copy, layers))


def _kinds(layer: NeuronSet) -> Iterator[Any]:
    """Read gate, up and down rows: of a wide model one after the other, since they fill the memory."""
    return layer.kinds() if layer.model.hidden > WIDE else iter(layer.read().kinds)


def _some(X: Rows | None, rows: Index | slice = slice(None), *, unit: bool = False) -> Rows | None:
    """Return some rows, at unit length or not, of a kind that may be missing; as what maps over kinds, it holds none of them."""
    return None if X is None else directions(X[rows]) if unit else X[rows]


def not_fitted(a: Weights, b: Weights, fitted: Sequence[Pair], tested: Sequence[Pair], count: int) -> list[Pair]:
    """Return the first pairs whose layers are no copies, on either side, of those that the rotation was fitted on."""
    kept: list[Pair] = []
    for at in range(0, len(tested), count):
        some = tested[at : at + count]

        def copied(side: int, some: Sequence[Pair] = some) -> list[bool]:
            sets = neuron_sets((a, b)[side])
            here = [sets[pair[side]] for pair in some]
            return [any(found) for found in zip(*(_copies(here, sets[pair[side]]) for pair in fitted), strict=True)]

        kept += [pair for pair, *known in zip(some, *on_all_cores(copied, (0, 1)), strict=True) if not any(known)]
        if len(kept) >= count:
            break
    if not kept:
        raise DegenerateInput("the layers left to test on are those that were fitted, or copies of them")
    return kept[:count]


def held_out(
    a: Weights, b: Weights, pairs: Sequence[Pair], R: Rows, *, seed: int, draws: int = DRAWS, beyond: float = 0.0
) -> list[HeldOut]:
    """Match the neurons of layers that the rotation was not fitted on."""

    def matched(pair: Pair) -> HeldOut:
        one, two = _layers(a, b, pair)
        rng = np.random.default_rng([seed, *pair])
        rows = np.sort(rng.permutation(one.shape[0])[:SAMPLED])
        some = map(partial(_some, rows=rows), _kinds(one))
        gated = one.gate is not None and two.gate is not None
        match = _matched(some, _kinds(two), R, rng, gated=gated, seed=seed, draws=draws, beyond=beyond)
        return HeldOut(pair, rows, np.arange(two.shape[0]), match, R)

    return on_all_cores(matched, pairs)


def half_held_out(
    a: Weights, b: Weights, pairs: Sequence[Pair], *, seed: int, draws: int = DRAWS, beyond: float = 0.0
) -> list[HeldOut]:
    """Match half of a layer's neurons under a rotation of its own, fitted on the other half and what those are paired with."""

    def matched(item: tuple[Pair, Sides]) -> HeldOut | None:
        pair, ((one, _), (two, _)) = item
        rng = np.random.default_rng([seed, *pair])
        order, half = rng.permutation(one.count), min(one.count, two.count) // 2
        fitted, rows = np.sort(order[:half]), np.sort(order[half:][:SAMPLED])
        R = find_rotation([(one, two)], seed=seed, among=fitted).R
        partners = np.unique(match_rotated(one.take(fitted).directions(), two.directions(), R)[0])
        others = np.setdiff1d(np.arange(two.count), partners)
        if min(len(rows), len(others)) < LEAST_NEURONS:
            return None
        kinds, gated = (one.take(rows).kinds, two.take(others).kinds), one.gate is not None and two.gate is not None
        match = _matched(*kinds, R, rng, gated=gated, seed=seed, draws=draws, beyond=beyond)
        own = max(_recognised(one, rows, fitted), _recognised(two, others, partners[partners >= 0]))
        return HeldOut(pair, rows, others, match, R, own)

    return [found for few in _read_few(a, b, pairs) for found in on_all_cores(matched, few) if found is not None]


def _recognised(neurons: Neurons, rows: Index, fitted: Index) -> float:
    """Return the share of neurons whose two kinds of rows are both nearest to the same neuron of those fitted.

    Copies, and groups of neurons that have something in common, follow those fitted to their like in an unrelated model that has
    such groups too, about as often as they find each other here. Layers of trained models have 0.05 of these, and up to 0.14.
    """
    new, seen = neurons.take(rows).directions(), neurons.take(fitted).directions()
    first, second = (new.down, seen.down) if new.gate is None or seen.gate is None else (new.gate, seen.gate)
    nearest = np.abs(new.up @ seen.up.T).argmax(axis=1)
    return float(np.mean(nearest == np.abs(first @ second.T).argmax(axis=1)))


def _matched(
    one: Iterable[Any],
    two: Iterable[Any],
    R: Rows,
    rng: np.random.Generator,
    *,
    gated: bool,
    seed: int,
    draws: int,
    beyond: float,
) -> NeuronMatch:
    """Pair neurons by gate and by up rows (by up and by down rows where there is no gate), under a rotation."""
    columns = np.sort(rng.permutation(R.shape[0])[:COLUMNS])
    back, kinds = R.T[:, columns], (0, 2) if gated else (1, 3)
    left, right = [X[:, columns] for X in islice(one, *kinds)], [X @ back for X in islice(two, *kinds)]
    return gate_up_agreement(
        *left, *right, draws=draws, seed=seed, up_signed=not gated, null_rows=NULL_ROWS, beyond=beyond
    )
