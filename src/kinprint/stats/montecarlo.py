"""Drawn permutations, in blocks of bounded memory, from explicit generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kinprint.stats.moments import FloatArray, as_rows

_BLOCK = 1 << 20  # elements permuted at a time: 8 MiB
_MAX_TABLE = 1 << 24  # entries of AᵀB worth holding (128 MiB) so that a draw costs d, not m·d

Statistic = Callable[[FloatArray, FloatArray], float]


def dot_cost(m: int, d: int) -> int:
    """Return the number of elements that one draw of `draw_dots` touches."""
    return d if m == 1 or d * d <= _MAX_TABLE else m * d


def draw_dots(A: FloatArray, B: FloatArray, *, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return `draws` values of Σ_i a_i·(b_i∘π), one permutation of the last axis for all rows."""
    m, d = A.shape
    if m == 1:
        return draw_pairs(A[0], B[0], lambda a, b: b @ a, draws=draws, rng=rng)
    values = np.empty(draws)
    if d * d <= _MAX_TABLE:
        table, index = (A.T @ B).ravel(), np.arange(d) * d
        for i in range(draws):
            values[i] = table[index + rng.permutation(d)].sum()
        return values
    for i in range(draws):
        values[i] = np.vdot(A, B[:, rng.permutation(d)])
    return values


def draw_pairs(
    a: FloatArray,
    b: FloatArray,
    statistic: Callable[[FloatArray, FloatArray], FloatArray],
    *,
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return `draws` values of `statistic(a, block)`, where each row of the block is a permutation of b."""
    values = np.empty(draws)
    step = max(1, _BLOCK // b.size)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        block = rng.permuted(np.broadcast_to(b, (rows, b.size)), axis=1)
        values[start : start + rows] = statistic(a, block)
    return values


def draw_columns(
    A: FloatArray, B: FloatArray, statistics: Mapping[str, Statistic], *, draws: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Evaluate several statistics on each of `draws` shared permutations of the columns of B.

    The gather is the costly part with matrices; one serves all statistics. Feed the values to
    `kinprint.stats.nulls.null_from_draws`.
    """
    left, right = as_rows(A), as_rows(B)
    values = {name: np.empty(draws) for name in statistics}
    for i in range(draws):
        permuted = right[:, rng.permutation(right.shape[1])]
        for name, statistic in statistics.items():
            values[name][i] = statistic(left, permuted)
    return values


def draw_alignments(K: FloatArray, L: FloatArray, *, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return `draws` values of ⟨K, PLPᵀ⟩ for n×n matrices, rows and columns of L permuted alike."""
    values = np.empty(draws)
    for i in range(draws):
        order = rng.permutation(K.shape[0])
        values[i] = np.vdot(K, L[order][:, order])
    return values
