"""Match neurons by their gate rows and by their up rows: in a copy the two assignments agree.

Zhu, Ahmed, Kuditipudi & Liang, "Independence Tests for Language Models", ICML 2025, arXiv:2502.12292, the statistic φ_MATCH. For
gated MLPs with rows g_i, u_i (neuron i), the best one-to-one assignment on the cosines of gate rows gives π_g, that of up rows
π_u. If one model came from the other, both find the same neuron wherever it has been moved to; if not, the two say nothing about
each other, and Spearman's ρ of the lists π_g(i), π_u(i) has mean 0 and variance 1/(n−1). One p-value a layer, combined over
layers by Fisher. It behaves like a p-value and is not one: nothing forbids that two independent models tie gate and up together in
the same way. A model whose residual stream was permuted or rotated is missed (see `match_activations`). The score is the mean ρ.

Layers of equal number are compared first. Where depths differ, or these show nothing, each layer is held against every layer of
the other model on a sample of neurons and columns. Other neurons than those are then tested, so that the search does not bias the
score, and Bonferroni counts it as a second try. Where this differs from the paper: norm scales are folded in, so that a model that
has them folded already is not missed; at most `NEURONS` neurons of the narrower model and `LAYERS` layers are tested.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import evenly_spaced, ranks
from kinprint.align.assignment import assigned
from kinprint.arch.roles import MLPS
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import Change, Method, Score, all_but, pair_null, register, unit_rows
from kinprint.model.weights import Matrix, Weights
from kinprint.results.findings import MethodNull
from kinprint.stats.combine import bonferroni, fisher
from kinprint.stats.tails import least_log10_p, log10_p_normal
from kinprint.text import Text

NEURONS, LAYERS, LEAST_NEURONS = 512, 8, 8
PROBE_NEURONS, PROBE_COLUMNS = 128, 256  # what the search over all pairs of layers looks at
SHOWS = -3.0  # log10 p above which layers of equal number show nothing, and others are searched
LOCATED = 0.1
"""Share of probed neurons on which gate and up must agree for a layer to count as found; unrelated trained layers reach 0.04."""


@dataclass(frozen=True)
class NeuronRows:
    """The neurons of one model, a row each: how many in each layer, how long the rows; `read` gives gate and up rows."""

    widths: Mapping[int, int]
    columns: int
    read: Callable[[int], tuple[Matrix, Matrix]]


@register
class Match(Method):
    """φ_MATCH on weights."""

    name = "match"
    title = Text("Neuron matching")
    invariant_to = all_but(Change.RESIDUAL_PERMUTATION, Change.SIGN_FLIPS, Change.ROTATION)
    summary = Text(
        "Spearman correlation of two assignments of MLP neurons, by gate rows and by up rows; finds which layer is which."
    )
    references = ("Zhu et al. 2025, Independence Tests for Language Models (ICML), arXiv:2502.12292",)

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Match gate rows and up rows of a few layers."""
        return score_neurons((neurons_of(a), neurons_of(b)), seed=seed)


def neurons_of(model: Weights) -> NeuronRows:
    """Return the gate and up rows of a model, norms folded in; of a mixture its shared expert's, or the first expert's."""
    places = {
        layer: (gate, up, expert)
        for layer in range(model.layers)
        for gate, up, _, expert in reversed(MLPS)  # the first that a layer has is kept
        if model.has(gate, layer, expert) and model.has(up, layer, expert)
    }
    if not places:
        raise DegenerateInput("{name} has no layer with gate and up matrices", name=model.label)
    widths = {layer: model.shape(place[0], layer, place[2])[0] for layer, place in places.items()}

    def read(layer: int) -> tuple[Matrix, Matrix]:
        gate, up, expert = places[layer]
        return model.folded(gate, layer, expert=expert), model.folded(up, layer, expert=expert)

    layer, (gate, _, expert) = next(iter(places.items()))
    return NeuronRows(widths, model.shape(gate, layer, expert)[1], read)


def score_neurons(sides: tuple[NeuronRows, NeuronRows], *, seed: int) -> Score:
    """Compare layers of equal number, or those that a search finds to belong together."""
    if sides[0].columns != sides[1].columns:
        raise DegenerateInput(
            "neurons read {a} and {b} values: expected one residual width", a=sides[0].columns, b=sides[1].columns
        )
    layers = sorted(sides[0].widths), sorted(sides[1].widths)
    tries, located = 0, None
    measured: list[_Layer] = []
    if len(layers[0]) == len(layers[1]):
        measured, tries = _measure(sides, list(zip(*layers, strict=True)), avoid=0, seed=seed), 1
    if not measured or fisher([layer.log10_p for layer in measured]) > SHOWS:
        located = locate(sides, layers, seed=seed)
        if located or not measured:
            least = min(map(len, layers))
            by_depth = zip(*(evenly_spaced(side, least, at="nearest") for side in layers), strict=True)
            pairs = [(first, second) for second, (first, _) in located.items()] or list(by_depth)
            measured = _measure(sides, pairs, avoid=PROBE_NEURONS, seed=seed)
        tries += 1
    rho = [layer.rho for layer in measured]
    value, fewest = float(np.mean(rho)), min(layer.n for layer in measured)
    log10_p = bonferroni(fisher([layer.log10_p for layer in measured]), tries)
    found = {second: first for second, (first, _) in (located or {}).items()}
    if located is None:
        found = {layer.pair[1]: layer.pair[0] for layer in measured}
    details = {
        "log10_p": log10_p,
        "agreement": float(np.mean([layer.agreement for layer in measured])),
        "best_layer": max(rho),
        "worst_layer": min(rho),
        "neurons": float(fewest),
        "layers": float(len(measured)),
    }
    if located is None:
        return Score(value, _chance(log10_p, fewest, len(measured)), details, found)
    said = Text("the whole layer grid was searched and no pair stands out; layers of like depth were tested")
    if located:
        n, m = len(located), len(layers[1])
        said = Text("the whole layer grid was searched: {n} of {m} layers of B have a counterpart in A", n=n, m=m)
    return Score(value, _chance(log10_p, fewest, len(measured)), details, found, (said,))


@dataclass(frozen=True)
class _Layer:
    pair: tuple[int, int]
    rho: float
    log10_p: float
    agreement: float
    n: int


def _measure(
    sides: tuple[NeuronRows, NeuronRows], pairs: Sequence[tuple[int, int]], *, avoid: int, seed: int
) -> list[_Layer]:
    """Match neurons in some pairs of layers; the first `avoid` of the shuffled ones served a search and are left out."""
    measured = []
    for pair in evenly_spaced(pairs, LAYERS, at="nearest"):
        rows = [side.widths[layer] for side, layer in zip(sides, pair, strict=True)]
        order = np.random.default_rng(seed).permutation(min(rows))
        if order.size - avoid >= LEAST_NEURONS:
            order = order[avoid:]
        if order.size < LEAST_NEURONS:
            raise DegenerateInput("{n} neurons: expected at least {m}", n=order.size, m=LEAST_NEURONS)
        gates, ups = zip(*(side.read(layer) for side, layer in zip(sides, pair, strict=True)), strict=True)
        narrow = 0 if rows[0] <= rows[1] else 1
        chosen = np.sort(order[:NEURONS])
        by_gate, by_up = (_assigned(rows[narrow][chosen], rows[1 - narrow]) for rows in (gates, ups))
        measured.append(_judged(pair, by_gate, by_up))
    return measured


def _assigned(left: Matrix, right: Matrix) -> NDArray[np.intp]:
    left, right = unit_rows(left), unit_rows(right)
    index = assigned((left @ right.T).astype(np.float64))
    index[~np.asarray(left.any(axis=1))] = -1
    index[(index >= 0) & ~np.asarray(right.any(axis=1))[index]] = -1
    return index


def _judged(pair: tuple[int, int], by_gate: NDArray[np.intp], by_up: NDArray[np.intp]) -> _Layer:
    both = (by_gate >= 0) & (by_up >= 0)
    n = int(np.count_nonzero(both))
    if n < LEAST_NEURONS:
        raise DegenerateInput("{n} neurons were matched by gate and up: expected at least {m}", n=n, m=LEAST_NEURONS)
    rho = float(np.corrcoef(ranks(by_gate[both]), ranks(by_up[both]))[0, 1])
    # the normal tail is the larger one far out: ln(1−ρ²) ≤ −ρ²
    log10_p = max(log10_p_normal(rho * math.sqrt(n - 1)), least_log10_p(n))
    return _Layer(pair, rho, log10_p, float(np.mean(by_gate[both] == by_up[both])), n)


def _chance(log10_p: float, n: int, layers: int) -> MethodNull:
    name, sd = Text("Spearman's test of the two assignments, Fisher over layers"), 1.0 / math.sqrt(layers * (n - 1))
    apart = Text("in independent models gate rows and up rows match neurons independently of each other")
    return pair_null(name, 0.0, sd, log10_p, n * layers, apart, Text("layers are independent"), exact=False)


def locate(
    sides: tuple[NeuronRows, NeuronRows], layers: tuple[Sequence[int], Sequence[int]], *, seed: int
) -> dict[int, tuple[int, float]]:
    """Return for each layer of B its best layer of A, and the share of probed neurons that agree, where it reaches `LOCATED`."""
    narrow = 0 if min(sides[0].widths.values()) <= min(sides[1].widths.values()) else 1
    columns = np.sort(np.random.default_rng(seed).permutation(sides[0].columns)[:PROBE_COLUMNS])
    probes = {layer: _probe(sides[narrow], layer, columns, seed) for layer in layers[narrow]}
    share = np.zeros((len(layers[narrow]), len(layers[1 - narrow])))
    for place, layer in enumerate(layers[1 - narrow]):
        gate, up = (unit_rows(np.ascontiguousarray(rows[:, columns])) for rows in sides[1 - narrow].read(layer))
        for number, probe in enumerate(probes.values()):
            agree = (probe[0] @ gate.T).argmax(axis=1) == (probe[1] @ up.T).argmax(axis=1)
            share[number, place] = agree.mean()
    by_b = share if narrow == 0 else share.T
    best = by_b.argmax(axis=0)
    return {
        layer: (layers[0][int(best[place])], float(by_b[best[place], place]))
        for place, layer in enumerate(layers[1])
        if by_b[best[place], place] >= LOCATED
    }


def _probe(side: NeuronRows, layer: int, columns: NDArray[np.intp], seed: int) -> tuple[Matrix, Matrix]:
    chosen = np.random.default_rng(seed).permutation(side.widths[layer])[:PROBE_NEURONS]
    gate, up = side.read(layer)
    return unit_rows(gate[chosen][:, columns]), unit_rows(up[chosen][:, columns])
