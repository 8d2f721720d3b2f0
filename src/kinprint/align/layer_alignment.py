"""Map the layers of one model to those of another: evidence for every pair of layers, then the map.

Two numbers per pair, for two questions. z, from the exact moments of the permutation null, says whether there is anything at
all. The correlation says which of several related layers is the nearest. z does not, because its null differs from layer
to layer: a near-copy in which the loudest rows are damped can have a larger z than the layer itself.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray, check_finite, median
from kinprint._util.records import dataclass
from kinprint.align.assignment import assigned
from kinprint.errors import DegenerateInput
from kinprint.stats.layer_grid import gram_products
from kinprint.stats.moments import as_rows, centred_rows, check_range
from kinprint.text import Text

Pairs: TypeAlias = tuple[int | None, ...]  # for each layer of B the layer of A that it comes from, or None

THRESHOLD = 7.0
"""z below which a pair is no pair: 10⁻¹² in a normal tail, so 10⁻⁸ over a hundred layers squared."""

CROSSTALK = 5.0
"""A pair must stand out from the other pairs by so many of their own robust standard deviations."""

HAIR, FARTHER, ROUNDING = 0.01, 1.25, 1e-4
"""Two layers are equally near if their correlations with a third differ by 1 %, and 1 − r by a quarter and 10⁻⁴ at most."""

IDENTITY, SUBSEQUENCE, REPEATS = "identity", "subsequence", "monotone with repeats"
BLOCKS, SHUFFLED, NONE = "blocks", "shuffled", "none"

_BLOCK = 1 << 18  # values held of either side at a time: 2 MB, what fits the cache


@dataclass(frozen=True)
class LayerScores:
    """L×M arrays, layers of A against layers of B; NaN where a stack is constant."""

    z: FloatArray
    correlation: FloatArray


def pair_scores(stacks_a: Sequence[ArrayLike], stacks_b: Sequence[ArrayLike]) -> LayerScores:
    """Compare every layer of A with every layer of B; a stack is (rows, d), of equal shape everywhere.

    t = ⟨A_i, B_j⟩ of the row-centred stacks at unit length. Under a permutation of the d columns of one side E t = 0 and
    Var t = tr(G_i G_j)/(d−1), with the Gram matrices of the rows (`kinprint.stats.moments.dot_moments`). One
    permutation serves all rows, so they may be correlated.
    """
    left, right = [np.asarray(stack) for stack in stacks_a], [np.asarray(stack) for stack in stacks_b]
    rows, d = _common_shape(left, right)
    a, b = _Side.of(left, wide=rows <= d), _Side.of(right, wide=rows <= d)
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant stack has no direction: NaN
        scale = np.outer(a.norms, b.norms)
        correlation = np.where(scale > 0.0, _products(a, b, rows, d) / scale, np.nan)
        if rows <= d:
            spread = a.grams @ b.grams.T
        else:
            spread = gram_products(*(np.stack([centred_rows(as_rows(x)) for x in side]) for side in (left, right)))
        variance = spread / (scale * scale) / (d - 1)
        # as in dot_moments: far below the product of the traces only rounding is left
        z = np.where(variance > 1e-28 / (d - 1), correlation / np.sqrt(variance), np.nan)
    return LayerScores(z, np.clip(correlation, -1.0, 1.0))


@dataclass(frozen=True)
class _Side:
    """The stacks of one model and what all their pairs have in common."""

    stacks: Sequence[NDArray[Any]]
    means: FloatArray  # layers × rows
    varying: NDArray[np.bool_]  # layers × rows: False where a row is constant up to rounding
    norms: FloatArray  # of the centred stacks
    grams: FloatArray  # layers × rows², or empty where rows outnumber columns

    @classmethod
    def of(cls, stacks: Sequence[NDArray[Any]], *, wide: bool) -> Self:
        means, squares, grams = [], [], []
        for stack in stacks:
            values = as_rows(stack)
            centred = centred_rows(values)
            means.append(values.mean(axis=1))
            gram = centred @ centred.T if wide else np.empty((0, 0))
            squares.append(gram.diagonal() if wide else np.einsum("ij,ij->i", centred, centred))
            grams.append(gram.ravel())
        lengths = np.array(squares)
        return cls(stacks, np.array(means), lengths > 0.0, np.sqrt(lengths.sum(axis=1)), np.array(grams))

    def centred(self, start: int, stop: int) -> FloatArray:
        """Return some rows of all layers, centred: one line per layer."""
        rows = np.stack([stack[start:stop] for stack in self.stacks], dtype=np.float64)
        rows -= self.means[:, start:stop, None]
        rows *= self.varying[:, start:stop, None]
        return rows.reshape(len(self.stacks), -1)


def _common_shape(left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]) -> tuple[int, int]:
    if not left or not right:
        raise DegenerateInput(f"layers: got {len(left)} and {len(right)} stacks: expected at least one on either side")
    shape = left[0].shape
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        raise DegenerateInput(f"layers: the first stack has shape {shape}: expected (rows, d) with d of at least 2")
    for side, stacks in (("a", left), ("b", right)):
        for number, stack in enumerate(stacks):
            if stack.shape != shape:
                raise DegenerateInput(
                    f"layers: stack {number} of {side} has shape {stack.shape}: expected {shape}, as the first of a"
                )
            check_finite(stack, Text("layers"), f"stack {number} of {side}")
            check_range(stack, f"stack {number} of {side}")
    return shape[0], shape[1]


def _products(a: _Side, b: _Side, rows: int, d: int) -> FloatArray:
    """Return all ⟨A_i, B_j⟩, some rows of all layers at a time, so that memory stays bounded."""
    total = np.zeros((len(a.stacks), len(b.stacks)))
    step = max(1, _BLOCK // (max(total.shape) * d))
    for start in range(0, rows, step):
        total += a.centred(start, start + step) @ b.centred(start, start + step).T
    return total


# --- maps -------------------------------------------------------------------------------------------------------------


def gains(scores: LayerScores, threshold: float) -> FloatArray:
    """Return the correlation of every pair that counts, and zero elsewhere.

    Counting takes z above `threshold`, and above the cross-talk: layers of one model share outlier columns, so in wide
    models pairs that do not belong together can be significant too. Its level and spread are the median and the median
    deviation of the pairs that are less than half as similar as the best of their column.
    """
    z, r = (np.nan_to_num(x, nan=0.0) for x in (scores.z, scores.correlation))
    others = z[r < 0.5 * r.max(axis=0, keepdims=True)]
    floor = threshold
    if others.size:
        level = median(others)
        spread = 1.4826 * median(np.abs(others - level))
        floor = max(threshold, level + CROSSTALK * spread)
    return np.where((z > floor) & (r > 0.0), r, 0.0)


def _levelled(gain: FloatArray) -> FloatArray:
    """Raise what is within a hair of the best of its column to that best, so that order decides among equals."""
    best = gain.max(axis=0, keepdims=True)
    tied = (gain >= (1.0 - HAIR) * best) & (1.0 - gain <= FARTHER * (1.0 - best) + ROUNDING) & (best > 0.0)
    # a trace of the difference is kept: among maps of equal merit the nearer layers win
    return np.where(tied, best - 1e-9 * (best - gain), gain)


def best_map(scores: LayerScores, *, threshold: float = THRESHOLD) -> tuple[Pairs, Pairs]:
    """Return the nearest layer of A for each of B, without any constraint; among equals the one after the previous.

    Beside it, whether that is significant or not, the second nearest; None if A has no other.
    """
    gain = gains(scores, threshold)
    level = _levelled(gain)
    r = np.nan_to_num(scores.correlation, nan=-1.0)
    found: list[tuple[int | None, int | None]] = []
    previous = -1
    for j in range(gain.shape[1]):
        i = int(level[:, j].argmax())
        following = previous + 1
        if following < gain.shape[0] and level[following, j] >= level[i, j] * (1.0 - 1e-8):
            i = following
        matched = bool(level[i, j] > 0.0)
        first = i if matched else int(r[:, j].argmax())
        if matched:
            previous = i
        others = [k for k in range(gain.shape[0]) if k != first]
        second = others[int(r[others, j].argmax())] if others else None
        found.append((i if matched else None, second))
    best, runner_up = zip(*found, strict=True)
    return best, runner_up


def monotone_map(scores: LayerScores, *, threshold: float = THRESHOLD) -> Pairs:
    """Return the map that never goes back and has the largest sum of correlations, by dynamic programming in O(L·M).

    A layer of A may be repeated or left out, one of B left without counterpart; each costs only the gain it forgoes.
    Among maps of equal merit the one with the most steps from a layer to the next wins.
    """
    gain = _levelled(gains(scores, threshold))
    parents, children = gain.shape
    step_bonus = 1e-6 * float(gain.max())
    # state s: the last layer used is s − 1; state 0: none yet
    value = np.full(parents + 1, -math.inf)
    value[0] = 0.0
    came_from = np.zeros((children, parents + 1), dtype=np.intp)
    for j in range(children):
        highest, source = _running_maximum(value)
        onward = value[:-1] + step_bonus
        take_onward = onward >= highest[1:]
        matched = np.where(take_onward, onward, highest[1:]) + gain[:, j]
        origin = np.where(take_onward, np.arange(parents), source[1:])
        better = (gain[:, j] > 0.0) & (matched > value[1:])
        came_from[j] = -1  # no counterpart: the state stays
        came_from[j, 1:][better] = origin[better]
        value = np.concatenate([value[:1], np.where(better, matched, value[1:])])
    state = int(value.argmax())
    pairs: list[int | None] = []
    for j in reversed(range(children)):
        origin_state = int(came_from[j, state])
        pairs.append(None if origin_state < 0 else state - 1)
        state = state if origin_state < 0 else origin_state
    return tuple(reversed(pairs))


def _running_maximum(value: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    highest = np.maximum.accumulate(value)
    fresh = np.concatenate([[True], value[1:] > highest[:-1]])
    return highest, np.maximum.accumulate(np.where(fresh, np.arange(value.size), 0))


def assignment_map(scores: LayerScores, *, threshold: float = THRESHOLD) -> Pairs:
    """Return the one-to-one map with the largest sum of correlations, in any order."""
    gain = _levelled(gains(scores, threshold))
    pairs: list[int | None] = [None] * gain.shape[1]
    for i, j in enumerate(assigned(gain).tolist()):
        if j >= 0 and gain[i, j] > 0.0:
            pairs[j] = i
    return tuple(pairs)


def choose_map(scores: LayerScores, *, threshold: float = THRESHOLD) -> Pairs:
    """Return the simplest map under which every layer of B sits at its nearest layer of A, or at one equally near.

    Tried in turn: monotone, one-to-one, unconstrained. The first two fail as soon as one significant layer of B would have
    to do with a lesser counterpart: a sum over all layers would not notice one swapped pair among a hundred.
    """
    level = _levelled(gains(scores, threshold))
    wanted = level.max(axis=0) * (1.0 - 1e-8)

    def reaches_all(pairs: Pairs) -> bool:
        reached = [0.0 if i is None else level[i, j] for j, i in enumerate(pairs)]
        return bool(np.all(np.array(reached) >= wanted))

    pairs = monotone_map(scores, threshold=threshold)
    if not reaches_all(pairs):
        pairs = assignment_map(scores, threshold=threshold)
    if not reaches_all(pairs):
        pairs, _ = best_map(scores, threshold=threshold)
    return pairs


def kind_of_map(pairs: Pairs, parents: int) -> str:
    """Return what kind of map it is that gives each layer of B one of the `parents` layers of A, or None.

    "identity"; "subsequence": strictly rising (layers dropped or inserted); "monotone with repeats"; "blocks": runs of
    consecutive layers that go back and use some twice; "shuffled": any other order; "none".
    """
    used = [i for i in pairs if i is not None]
    if not used:
        return NONE
    if pairs == tuple(range(parents)):
        return IDENTITY
    steps = [b - a for a, b in pairwise(used)]
    if all(step > 0 for step in steps):
        return SUBSEQUENCE
    if all(step >= 0 for step in steps):
        return REPEATS
    # stacked copies use layers twice and consist of runs; a random order breaks nearly everywhere
    runs = 1 + sum(step not in (0, 1) for step in steps)
    return BLOCKS if len(set(used)) < len(used) and 2 * runs <= len(used) else SHUFFLED
