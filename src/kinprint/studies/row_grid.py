"""Compare all rows of one table with all rows of another, each pair beside its exact permutation null."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint.errors import DegenerateInput
from kinprint.stats.moments import Moments, Powers, as_rows, check_range, shape_from_powers
from kinprint.stats.tails import MAX_CORRECTION, MAX_KURTOSIS, MAX_SKEWNESS, analytic_tail, least_log10_p


@dataclass(frozen=True)
class RowGrid:
    """L×M arrays, rows of A against rows of B."""

    # ``valid`` is False where a row is constant or has zero length; there, and only there, ``pearson``, ``z`` and ``log10_p``
    # are NaN (``cosine`` and its null only where a row has zero length). ``normal`` marks p-values from the normal tail; the
    # others are upper bounds from exact moments, never draws: see `kinprint.stats.tails`.
    cosine: FloatArray
    pearson: FloatArray
    cosine_null_mean: FloatArray
    cosine_null_sd: FloatArray
    z: FloatArray
    log10_p: FloatArray
    valid: NDArray[np.bool_]
    normal: NDArray[np.bool_]


def row_grid(A: ArrayLike, B: ArrayLike) -> RowGrid:
    """Compare all rows of `A` (L×d) with all rows of `B` (M×d), each beside its permutation null (upper tail)."""
    # The cosine and the Pearson correlation of a pair are linear in the same dot product, so they share z and p.
    left, right = _checked_rows(A, B)
    d = left.shape[1]
    a, b = _RowSums.of(left), _RowSums.of(right)
    with np.errstate(divide="ignore", invalid="ignore"):  # the mask below says where
        lengths, spreads = np.outer(a.length, b.length), np.outer(a.spread, b.spread)
        products = a.centred @ b.centred.T
        means = d * np.outer(a.mean, b.mean)
        pearson = np.clip(products / spreads, -1.0, 1.0)
        cosine = np.clip((products + means) / lengths, -1.0, 1.0)
        null_mean, null_sd = means / lengths, spreads / lengths / math.sqrt(d - 1)
    valid = spreads > 0.0
    z = pearson * math.sqrt(d - 1)
    log10_p, normal = _tails(z, a, b, valid)
    return RowGrid(cosine, pearson, null_mean, null_sd, z, log10_p, valid, normal)


@dataclass(frozen=True)
class _RowSums:
    """Sums over each row, shared by all its pairs: for these only one matrix product is left to do."""

    centred: FloatArray
    mean: FloatArray
    spread: FloatArray  # norm of the centred row; zero if the row is constant up to rounding
    length: FloatArray  # norm of the row itself
    third: FloatArray  # sums of powers of the centred row over its spread
    fourth: FloatArray
    largest: FloatArray  # largest magnitude of the centred row over its spread

    @classmethod
    def of(cls, X: FloatArray) -> _RowSums:
        mean = X.mean(axis=1)
        centred = X - mean[:, None]
        square = centred * centred
        second = square.sum(axis=1)
        spread = np.sqrt(second)
        spread[spread <= NEAR_CONSTANT * np.abs(mean)] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            third = np.einsum("ij,ij->i", square, centred) / spread**3
            fourth = np.einsum("ij,ij->i", square, square) / spread**4
            largest = np.maximum(centred.max(axis=1), -centred.min(axis=1)) / spread
        return cls(centred, mean, spread, np.sqrt(second + X.shape[1] * mean * mean), third, fourth, largest)


def _checked_rows(A: ArrayLike, B: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = as_rows(A), as_rows(B)
    if left.shape[1] != right.shape[1] or left.shape[1] < 4:
        raise DegenerateInput(f"expected rows of equal length, at least 4; got {left.shape} and {right.shape}")
    for side, X in (("a", left), ("b", right)):
        bad = int(X.size - np.count_nonzero(np.isfinite(X)))
        if bad:
            raise DegenerateInput(f"{side} holds {bad} non-finite of {X.size} values: expected none")
        check_range(X, side)
    return left, right


def _tails(z: FloatArray, a: _RowSums, b: _RowSums, valid: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return log10 p of every pair of rows, by the rules of `kinprint.stats.tails` without its draws."""
    from scipy.special import log_ndtr  # here, because it is slow to load

    d = a.centred.shape[1]
    thirds, fourths = np.outer(a.third, b.third), np.outer(a.fourth, b.fourth)
    largest = np.outer(a.largest, b.largest)
    powers = Powers(thirds, fourths, a.fourth[:, None], b.fourth[None, :], np.ones(1), largest)
    variance = 1.0 / (d - 1)
    skewness, kurtosis = shape_from_powers(powers, variance, d)
    fourth, reach = fourths / (d * variance**2), largest / math.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        up, x = np.maximum(z, 0.0), np.maximum(z, 0.0) * reach
        known = np.maximum(skewness, 0.0) * up**3 / 6.0 + np.maximum(kurtosis, 0.0) * up**4 / 24.0
        series = x / 120.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0 * (1.0 + x / 8.0 * (1.0 + x / 9.0 * (1.0 + x / 10.0)))))
        rest = np.where(x < 1.0, series, (np.exp(x) - 1.0 - x - x**2 / 2.0 - x**3 / 6.0 - x**4 / 24.0) / x**4)
        correction = known + fourth * up**4 * rest
        normal = valid & (np.abs(skewness) <= MAX_SKEWNESS) & (np.abs(kurtosis) <= MAX_KURTOSIS)
        normal &= correction <= MAX_CORRECTION * up**2 / 2.0
        log10_p = np.minimum((log_ndtr(-z) + correction) / math.log(10.0), 0.0)
    log10_p = np.where(valid, np.maximum(log10_p, least_log10_p(d)), np.nan)
    for i, k in np.argwhere(valid & ~normal):  # the few pairs beyond the normal tail
        shape = (float(y[i, k]) for y in (skewness, kurtosis, fourth, reach))
        moments = Moments(0.0, variance, d, *shape)  # type: ignore[arg-type]  # four floats, in the order of the fields
        log10_p[i, k] = analytic_tail(float(z[i, k]), moments)[0]
    return log10_p, normal
