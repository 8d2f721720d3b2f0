"""Test models whose residual basis may be rotated, by invariants of rotation, and by neurons of layers that no fit has seen.

Two stages. The first is exact and reads a few hundred rows of gate and up in some layers: the Gram profiles of neurons that kept
their order (`kinprint.evidence.neuron_gram`). The second is for neurons that were reordered as well: a rotation is fitted on some
layers, and the neurons of OTHER layers are matched under it, beside an empirical null, as in `kinprint.evidence.neuron_matching`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint._util.sizes import format_size
from kinprint.align.neuron_assignment import LEAST_DRAWS, MAX_ASSIGNED
from kinprint.align.rotation import Neurons, Rows, nearest_rotation
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence import neuron_gram as grams
from kinprint.evidence import rotated_layers as fits
from kinprint.evidence.common_start import UNCLEAR, Origin, origin_of
from kinprint.evidence.empirical_null import MARGIN, EmpiricalNull
from kinprint.evidence.layer_map import LAYER_ALPHA
from kinprint.evidence.neuron_gram import GRAM_LAYERS, MLP_NEURONS, NO_MLP, neuron_sets
from kinprint.evidence.neuron_matching import agreement_test
from kinprint.evidence.reading import EVERYTHING, Scope
from kinprint.evidence.rotated_layers import SAMPLED, Fitted, HeldOut, Pair, cost_of, read_pair
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.evidence.searched import ROTATED_BASIS, RotationEvidence
from kinprint.model.weights import Weights
from kinprint.results.findings import OFF, EvidenceTest
from kinprint.stats.combine import bonferroni
from kinprint.text import Text, labelled

SEARCH_BYTES = 1 << 30  # what a search for layers may read where no budget says
READS = 4  # of a layer that is searched: for its spectrum, for its nearest, to match its neurons, and for its origin
REORDERED_TOO = Text("rotated residual basis with reordered neurons")
OTHER_LAYERS = Text("the rotation was fitted on other layers")
OTHER_NEURONS = Text("the rotation of a layer was fitted on other neurons of it")
MAX_ELEMENTS = 1 << 26  # of one matrix: some 3 GB at the peak
MAX_WIDTH = 4096
STATISTIC, HALF_STATISTIC = "rotated_neuron_agreement", "half_rotated_neuron_agreement"
MATCHED = "neuron_match_rotated"

ORIGIN_LAYERS = 3  # layers in which it is asked whether training is shared
NEAR_BEST = 0.9
HINT = 0.25
"""Of the largest share of unrelated models: what leading dimensions must show for all of them to be looked at."""

Slices = dict[str, list[tuple[FloatArray, FloatArray]]]


def examine_rotation(
    a: Weights,
    b: Weights,
    *,
    null: EmpiricalNull,
    allowance: int | None = None,
    seed: int = 0,
    starts: Sequence[Rows] = (),
    scope: Scope = EVERYTHING,
) -> RotationEvidence:
    """Look for a relation that a rotation of the residual basis hides: neurons in order first, then in any order.

    The second stage is not entered where the first rejects and finds all layers. `starts` are first guesses of the
    rotation, from shared tokens for example; `allowance` limits the bytes read, `scope` the roles and layers.
    """
    before = a.bytes_read + b.bytes_read
    try:
        count = _affordable(a, b, allowance, scope)
        table = grams.hold_gram(*grams.gram_sides(a, b, seed=seed, count=count, scope=scope))
        found = _in_order(a, b, table, None if allowance is None else allowance // 2, seed)
        if found.in_order:
            found = _all_in_order(a, b, found, _left(a, b, allowance, before), seed, scope)
            if all(p <= LAYER_ALPHA for p in found.by_layer.values()):
                return found
            starts = [found.turn] if found.turn is not None else starts
    except BudgetExceeded as error:
        return RotationEvidence(untested=labelled(ROTATED_BASIS, error.reason))
    except DegenerateInput as error:
        found = RotationEvidence((EvidenceTest(grams.GRAM, MLP_NEURONS, status=OFF, reason=error.reason),), share=0.0)
    return _both(found, _reordered(a, b, found, null, _left(a, b, allowance, before), seed, starts, scope))


def _left(a: Weights, b: Weights, allowance: int | None, before: int) -> int | None:
    return None if allowance is None else allowance - (a.bytes_read + b.bytes_read - before)


def _both(first: RotationEvidence, second: RotationEvidence) -> RotationEvidence:
    """Return what both stages found, of each layer the better."""
    better = {at for at, p in second.by_layer.items() if p < min(first.by_layer.get(at, 0.0), LAYER_ALPHA)}
    if not first.in_order:
        return second
    if not better:
        return replace(first, tests=second.tests)
    return replace(
        second,
        by_layer={**first.by_layer, **{at: second.by_layer[at] for at in better}},
        layers={**first.layers, **{at: second.layers[at] for at in better}},
        rotations={**first.rotations, **{at: second.rotations[at] for at in better}},
        in_order=True,
    )


def _in_order(a: Weights, b: Weights, table: grams.GramTable, allowance: int | None, seed: int) -> RotationEvidence:
    """Return what the first stage shows: a relation, or nothing yet."""
    first = grams.gram_test(table)
    share = float(table.counts.max()) / table.tested
    if (first.log10_p or 0.0) > LOG10_ALPHA:
        return RotationEvidence((first,), share=share)
    i, j = table.best()
    by_layer, layers = _nearest(table)
    found = sorted(layer for layer, p in by_layer.items() if p <= LOG10_ALPHA)
    pairs = [(layers[layer], layer) for layer in evenly_spaced(found, ORIGIN_LAYERS, at="ends")]
    best = (table.layers_a[i], table.layers_b[j])
    origin, rotations = _origin(a, b, pairs or [best], seed, allowance)
    return RotationEvidence((first,), by_layer, origin, layers=layers, rotations=rotations, share=share, in_order=True)


def _nearest(table: grams.GramTable) -> tuple[dict[int, float], dict[int, int]]:
    """Return log10 p of every layer of B looked at, corrected for the search, and the layer of A that it is nearest to."""
    least, nearest = table.log10_p.min(axis=0).tolist(), table.log10_p.argmin(axis=0)
    by_layer = {layer: bonferroni(p, len(table.layers_a)) for layer, p in zip(table.layers_b, least, strict=True)}
    return by_layer, {layer: table.layers_a[i] for layer, i in zip(table.layers_b, nearest, strict=True)}


def _all_in_order(
    a: Weights, b: Weights, found: RotationEvidence, allowance: int | None, seed: int, scope: Scope
) -> RotationEvidence:
    """Look at all layers, or as many as the allowance lets, where some of them showed a relation."""
    try:
        count = _affordable(a, b, allowance, scope, most=min(grams.MOST_LAYERS, max(a.layers, b.layers)))
        if count <= len(found.by_layer):
            return found
        sides = grams.gram_sides(a, b, seed=seed, count=count, scope=scope)
        table = grams.hold_gram(*sides, checked=True)
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


def _affordable(a: Weights, b: Weights, allowance: int | None, scope: Scope, *, most: int = GRAM_LAYERS) -> int:
    """Return how many layers of either side fit a third of the allowance."""
    if allowance is None:
        return most
    firsts = [next(iter(neuron_sets(model, scope).values()), None) for model in (a, b)]
    if None in firsts:
        raise DegenerateInput(NO_MLP)
    cost = sum(where.cost((0, min(grams.GRAM_ROWS, where.first))) for where in firsts if where is not None)
    count = min(most, allowance // 3 // max(1, cost))
    if count < 2:  # with one there is no check that places of neurons mean nothing
        x, y = format_size(2 * cost), format_size(max(0, allowance) / 3)
        raise DegenerateInput("two layers take {x} and {y} may be read; see --budget", x=x, y=y)
    return count


def _reordered(
    a: Weights,
    b: Weights,
    first: RotationEvidence,
    null: EmpiricalNull,
    allowance: int | None,
    seed: int,
    starts: Sequence[Rows],
    scope: Scope,
) -> RotationEvidence:
    """Fit a rotation on some layers and match the neurons of others; where none fits all, one for each layer."""
    try:
        pairs = fits.choose_pairs(a, b, scope)
        reason = next((reason for pair in pairs if (reason := _too_large(a, b, pair)) is not None), None)
        # those fitted are read for every start and to tell copies, those tested once more for what comes after
        cost = (2 + len(starts)) * sum(cost_of(a, b, pair) for pair in pairs)
        if reason is None and allowance is not None and cost > allowance:
            n, x, y = len(pairs), format_size(cost), format_size(max(0, allowance))
            reason = Text("{n} layers take {x} and {y} is left; see --budget", n=n, x=x, y=y)
        if reason is not None:
            return replace(first, untested=labelled(REORDERED_TOO, reason))
        room = (SEARCH_BYTES if allowance is None else allowance - cost) // max(1, READS * cost_of(a, b, pairs[0]))
        layers = fits.searched_layers(a, b, scope, room)
        tried = fits.fit_all(a, b, pairs, layers, starts, seed)
        best = max(tried, key=lambda found: found.rotation.agreement)
        choices = len(tried) * max(1, len(layers[0]))
        results = _other_layers(a, b, best, pairs, layers, null, seed)
        tests = _tests(results, null, STATISTIC, choices, OTHER_LAYERS)
        found = [
            result.pair for test, result in zip(tests, results, strict=True) if (test.log10_p or 0.0) <= LAYER_ALPHA
        ]
        # layers that one rotation explains are taken: near-copies of them in either model would match as well
        left = [[at for at in side if all(at != pair[i] for pair in found)] for i, side in enumerate(layers)]
        if all(left) and not fits.is_wide(a, b):
            halves = _half_layers(a, b, tried, (left[0], left[1]), null, seed)
            tests += _tests(halves, null, HALF_STATISTIC, choices, OTHER_NEURONS)
            results += halves
    except (DegenerateInput, BudgetExceeded) as error:
        off = EvidenceTest(MATCHED, MLP_NEURONS, status=OFF, reason=error.reason)
        return replace(first, tests=(*first.tests, off), untested=labelled(REORDERED_TOO, error.reason))
    kept: dict[int, tuple[float, HeldOut]] = {}
    for test, result in zip(tests, results, strict=True):
        layer, p = result.pair[1], test.log10_p or 0.0
        if layer not in kept or p < kept[layer][0]:
            kept[layer] = p, result
    matched = [result for p, result in kept.values() if p <= LAYER_ALPHA]
    strongest = max(results, key=lambda result: result.share)
    return RotationEvidence(
        (*first.tests, *tests),
        {layer: p for layer, (p, _) in kept.items()},
        _origin_matched(a, b, matched or [strongest]),
        layers={layer: result.pair[0] for layer, (_, result) in kept.items()},
        fitted=best,
        rotations={layer: result.R for layer, (_, result) in kept.items()},
        share=max(first.share or 0.0, strongest.share),
    )


def _tests(
    results: Sequence[HeldOut], null: EmpiricalNull, statistic: str, choices: int, assumption: Text
) -> list[EvidenceTest]:
    """Return a test for each pair of layers, corrected for the fits, the layers chosen from and the layers tested."""
    tests = []
    for found in results:
        test = EvidenceTest(MATCHED, MLP_NEURONS, found.pair[1])
        largest = max(null.largest(statistic), MARGIN * found.own)
        tries = choices * len(results)
        tests.append(agreement_test(test, found.match, null, largest, tries=tries, assumption=assumption))
    return tests


def _other_layers(
    a: Weights, b: Weights, best: Fitted, pairs: Sequence[Pair], layers: fits.Layers, null: EmpiricalNull, seed: int
) -> list[HeldOut]:
    """Match the neurons of layers not fitted: of a few first; where they agree of all, those fitted after a fit on others."""
    R, largest = best.rotation.R, null.largest(STATISTIC)
    near = fits.nearest_pairs(a, b, layers, R) if layers[0] else [pair for pair in pairs if pair not in best.pairs]
    tested = fits.not_fitted(a, b, best.pairs, near, fits.HELD_OUT)
    results = fits.held_out(a, b, tested, R, seed=seed, beyond=largest)
    found = [item.pair for item in results if item.share > largest]
    if fits.is_wide(a, b) and any(item.share > HINT * largest for item in results):  # all dimensions decide
        R = fits.whole(a, b, best)
        results = fits.held_out(a, b, tested, R, seed=seed, beyond=largest)
        found = [item.pair for item in results if item.share > largest]
    if (
        not found
        or not layers[0]
        or max(neuron_sets(model)[at].shape[0] for model, at in zip((a, b), pairs[0], strict=True)) > MAX_ASSIGNED
    ):
        return results
    fitted = {layer for _, layer in best.pairs}
    rest = [pair for pair in near if pair not in tested]
    again = fits.whole(a, b, fits.fit(a, b, found, seed=seed, start=R))
    for turned, some in ((R, [p for p in rest if p[1] not in fitted]), (again, [p for p in rest if p[1] in fitted])):
        results += fits.held_out(a, b, some, turned, seed=seed, draws=LEAST_DRAWS, beyond=largest)
    return results


def _half_layers(
    a: Weights, b: Weights, tried: Sequence[Fitted], layers: fits.Layers, null: EmpiricalNull, seed: int
) -> list[HeldOut]:
    """Match half of the neurons of a layer under a rotation fitted on the other half: of a few; where they agree, of all."""
    largest = null.largest(HALF_STATISTIC)
    single = sorted((-found.rotation.agreement, *found.pairs) for found in tried if len(found.pairs) == 1)
    proposed = [(i, j) for _, (i, j) in single if i in layers[0] and j in layers[1]] or fits.propose_pairs(a, b, layers)
    results = fits.half_held_out(a, b, proposed[: fits.HELD_OUT], seed=seed, beyond=largest)
    if any(found.share > largest for found in results):
        good = [found.pair for found in results if found.share > largest]
        one, two = ([at for at in side if all(at != pair[i] for pair in good)] for i, side in enumerate(layers))
        rest = [pair for pair in fits.propose_pairs(a, b, (one, two)) if pair not in {x.pair for x in results}]
        results += fits.half_held_out(a, b, rest, seed=seed, draws=LEAST_DRAWS, beyond=largest)
    return results


def _unexamined(why: Text) -> Origin:
    """Return the reading that claims least: weights or initialisation."""
    return Origin(UNCLEAR, (Text("not examined: {why}", why=why),))


def _origin(
    a: Weights, b: Weights, pairs: Sequence[Pair], seed: int, allowance: int | None
) -> tuple[Origin, dict[int, Rows]]:
    """Compare neurons in their places, each half of a layer's in a basis fitted on the other half, in a few layers.

    Return the rotations of these layers of B, too.
    """
    slices: Slices = {}
    rotations: dict[int, Rows] = {}
    for pair in pairs:
        try:
            one, two = _read_within(a, b, pair, allowance)
        except (DegenerateInput, BudgetExceeded) as error:
            if not slices:
                return _unexamined(error.reason), {}
            break
        allowance = None if allowance is None else allowance - cost_of(a, b, pair)
        count = min(one.count, two.count)
        order = np.random.default_rng([seed, count]).permutation(count)
        halves = order[: count // 2], order[count // 2 :]
        turns = [_in_places(one.take(fitted), two.take(fitted)) for fitted in halves]
        made = [
            _paired(one.take(other[:SAMPLED]), two.take(other[:SAMPLED]), turn)
            for turn, other in zip(turns, halves[::-1], strict=True)
        ]
        for name in made[0]:
            left, right = (np.concatenate([half[name][side] for half in made]) for side in (0, 1))
            slices.setdefault(name, []).append((left, right))
        rotations[pair[1]] = turns[0]
    return origin_of(slices, []), rotations


def _read_within(a: Weights, b: Weights, pair: Pair, allowance: int | None) -> tuple[Neurons, Neurons]:
    """Read the neurons of a layer of either side. Raises DegenerateInput if they are too many, or too many bytes."""
    if (reason := _too_large(a, b, pair)) is not None:
        raise DegenerateInput(reason)
    if allowance is not None and (cost := cost_of(a, b, pair)) > allowance:
        raise DegenerateInput("two layers take {x}; see --budget", x=format_size(cost))
    return read_pair(a, b, pair)


def _in_places(one: Neurons, two: Neurons) -> Rows:
    """Return the rotation between neurons that stand at the same places; up and down rows may be negated together."""
    left, right = one.directions(), two.directions()
    if left.gate is None or right.gate is None:
        return nearest_rotation(left.up.T @ right.up + left.down.T @ right.down)
    total = left.gate.T @ right.gate
    loose = np.einsum("ij,ij->i", left.up @ nearest_rotation(total), right.up)
    sign = np.where(loose < 0.0, -1.0, 1.0).astype(np.float32)[:, None]
    return nearest_rotation(total + left.up.T @ (sign * right.up) + left.down.T @ (sign * right.down))


def layer_rotation(a: Weights, b: Weights, pair: Pair) -> Rows:
    """Return the rotation of one layer whose neurons kept their order. Raises DegenerateInput if it is too large."""
    one, two = _read_within(a, b, pair, None)
    count = min(one.count, two.count)
    return _in_places(one.take(np.arange(count)), two.take(np.arange(count)))


def _origin_matched(a: Weights, b: Weights, results: Sequence[HeldOut]) -> Origin:
    """Compare the neurons that both kinds of rows paired alike, in layers spread over those that match best."""
    slices: Slices = {}
    best = max(found.share for found in results)
    near = sorted((found for found in results if found.share >= NEAR_BEST * best), key=lambda found: found.pair)
    for found in evenly_spaced(near, ORIGIN_LAYERS, at="ends"):
        agreed = (found.match.gate_index == found.match.up_index) & (found.match.gate_index >= 0)
        if np.count_nonzero(agreed) >= grams.LEAST_NEURONS:
            try:
                one, two = read_pair(a, b, found.pair)
            except BudgetExceeded as error:  # what was found stands, and layers read before tell
                if not slices:
                    return _unexamined(error.reason)
                break
            partners = found.others[found.match.gate_index[agreed]]
            paired = _paired(one.take(found.rows[agreed]), two.take(partners), found.R)
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
