"""Draw permutations from explicit seeds, in blocks of bounded memory."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.stats.moments import as_rows

_BLOCK = 1 << 20  # elements permuted at a time: 8 MiB
_CACHED = 1 << 16  # elements worked on at a time where each is touched thrice: 512 KiB
_MAX_KEPT = 1 << 23  # entries of a table of permutations worth keeping (32 MiB)
_MAX_TABLE = 1 << 24  # entries of AᵀB worth holding (128 MiB) so that a draw costs d, not m·d

IntArray: TypeAlias = NDArray[np.int32]
Statistic = Callable[[FloatArray, FloatArray], float]


def dot_cost(m: int, d: int) -> int:
    """Return the number of elements that one draw of `draw_dots` touches."""
    return d if m == 1 or d * d <= _MAX_TABLE else m * d


def _fresh_orders(d: int, draws: int, rng: np.random.Generator) -> IntArray:
    return rng.permuted(np.broadcast_to(np.arange(d, dtype=np.int32), (draws, d)), axis=1)


_kept_orders = lru_cache(maxsize=2)(lambda d, draws, seed: _fresh_orders(d, draws, np.random.default_rng(seed)))


def orders(d: int, *, draws: int, seed: int) -> Iterator[IntArray]:
    """Yield blocks of random permutations of 0…d−1, `draws` in all, the same for the same arguments."""
    # The layers of a model have one width, so their draws are the same permutations: drawing them is the costly part, and
    # a table of moderate size is kept for the next layer. Each test by itself sees uniform permutations all the same.
    step, rng = max(1, _BLOCK // d), np.random.default_rng(seed)
    table = _kept_orders(d, draws, seed) if draws * d <= _MAX_KEPT else None
    for start in range(0, draws, step):
        yield _fresh_orders(d, min(step, draws - start), rng) if table is None else table[start : start + step]


def _lightness(side: FloatArray) -> tuple[float, float]:
    """Return minus the kurtosis of a side, about its mean, and where along the index its weight lies: sides of one multiset tie."""
    centred = side - side.mean(axis=-1, keepdims=True)
    centred /= math.sqrt(float(np.vdot(centred, centred)) / centred.size) or 1.0
    squares, places = centred * centred, np.arange(side.shape[-1]) / side.shape[-1]
    kurtosis, place = np.vdot(squares, squares) / centred.size, (centred @ places).sum() / centred.size
    return -round(float(kurtosis), 9), round(float(place), 9)


def draw_dots(A: FloatArray, B: FloatArray, *, draws: int, seed: int) -> FloatArray:
    """Return `draws` values of Σ_i a_i·(b_i∘π), one π for all rows; the side of lighter tails is permuted, whichever came first."""
    A, B = sorted((A, B), key=_lightness)
    m, d = A.shape
    if m == 1:
        return draw_pairs(A[0], B[0], lambda a, b: b @ a, draws=draws, seed=seed)
    blocks = orders(d, draws=draws, seed=seed)
    if d * d <= _MAX_TABLE:
        table, index = (A.T @ B).ravel(), np.arange(d) * d
        return np.concatenate([table[index + block].sum(axis=1) for block in blocks])
    return np.array([np.vdot(A, B[:, order]) for block in blocks for order in block])


def draw_pairs(
    a: FloatArray, b: FloatArray, statistic: Callable[[FloatArray, FloatArray], FloatArray], *, draws: int, seed: int
) -> FloatArray:
    """Return `draws` values of `statistic(a, block)`, where each row of the block is a permutation of b."""
    return np.concatenate([statistic(a, b[block]) for block in orders(b.size, draws=draws, seed=seed)])


def draw_columns(
    A: FloatArray, B: FloatArray, statistics: Mapping[str, Statistic], *, draws: int, seed: int
) -> dict[str, FloatArray]:
    """Evaluate several statistics on each of `draws` shared permutations of the columns of B."""
    # The gather is the costly part with matrices; one serves all statistics. Feed the values to
    # `kinprint.stats.nulls.null_from_draws`.
    left, right = as_rows(A), as_rows(B)
    values: dict[str, list[float]] = {name: [] for name in statistics}
    for block in orders(right.shape[1], draws=draws, seed=seed):
        for order in block:
            permuted = right.take(order, axis=1)
            for name, statistic in statistics.items():
                values[name].append(statistic(left, permuted))
    return {name: np.array(found) for name, found in values.items()}


def draw_costs(
    A: FloatArray, B: FloatArray, cost: Callable[[FloatArray, FloatArray], NDArray[Any]], *, draws: int, seed: int
) -> FloatArray:
    """Return `draws` mean values of `cost(a, b)`, element by element, b being B with its columns permuted."""
    # Columns are laid out as rows, which are fetched whole, as many draws at a time as fit the cache: with 32 × 4096 elements
    # this takes a tenth of the time of permuting columns in place. Of few columns all pairs cost less than the draws, which then
    # look them up. `cost` may write into its second argument.
    left, right = np.ascontiguousarray(as_rows(A).T), np.ascontiguousarray(as_rows(B).T)
    d, m = right.shape
    blocks = orders(d, draws=draws, seed=seed)
    if d <= draws and d * right.size <= _BLOCK:
        repeated = np.broadcast_to(right, (d, d, m)).copy()
        table = cost(left[:, None, :], repeated).sum(axis=2, dtype=np.float64).ravel()
        first = np.arange(d) * d
        return np.concatenate([table[first + block].sum(axis=1) for block in blocks]) / right.size
    step = max(1, _CACHED // right.size)
    buffer = np.empty((min(step, draws), d, m))
    values = []
    for block in blocks:
        for start in range(0, len(block), step):
            chosen = block[start : start + step]
            permuted = buffer[: len(chosen)]
            np.take(right, chosen, axis=0, out=permuted, mode="clip")  # "raise" would fetch into a buffer of its own
            totals = cost(left, permuted).reshape(len(chosen), -1).sum(axis=1, dtype=np.float64)
            values.append(totals / right.size)
    return np.concatenate(values)


def draw_alignments(K: FloatArray, L: FloatArray, *, draws: int, seed: int) -> FloatArray:
    """Return `draws` values of ⟨K, PLPᵀ⟩ for n×n matrices, rows and columns of L permuted alike."""
    blocks = orders(K.shape[0], draws=draws, seed=seed)
    return np.array([np.vdot(K, L[order[:, None], order]) for block in blocks for order in block])
