"""Compare every layer with every layer: vectors, and row slices of matrices with one permutation of units for all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, each_dot
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


@dataclass(frozen=True)
class MatrixGrid:
    """L×M arrays. NaN where a slice is constant (pearson, z) or zero throughout (cosine, cosine_null)."""

    cosine: FloatArray
    cosine_null: FloatArray
    pearson: FloatArray
    z: FloatArray


def matrix_grid(A: FloatArray, B: FloatArray) -> MatrixGrid:
    """Compare all slices of `A` (L×m×d) with all of `B` (M×m×d); the null permutes the last axis of one side."""
    # With T = Σ aᵢⱼ bᵢπ₍ⱼ₎ and rows centred to A', B', the exact mean is d Σᵢ āᵢ b̄ᵢ and the exact variance
    # ⟨A'A'ᵀ, B'B'ᵀ⟩ / (d − 1): a sum over the rows' Gram matrices, so that all pairs are one matrix product. Cosine and
    # Pearson are linear in T and share z. For m = 1 this is `row_grid`.
    if A.ndim != 3 or A.shape[1:] != B.shape[1:] or A.shape[2] < 4:
        raise DegenerateInput(
            "expected slices of equal shape, at least 4 wide; got {a} and {b}", a=str(A.shape), b=str(B.shape)
        )
    a, b = _CentredMatrices.of(A), _CentredMatrices.of(B)
    count, units = A.shape[1] * A.shape[2], A.shape[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = a.centred.reshape(len(A), -1) @ b.centred.reshape(len(B), -1).T
        expected = units * (a.means @ b.means.T)
        sd = np.sqrt(np.maximum(gram_products(a.centred, b.centred), 0.0) / (units - 1))
        lengths = np.outer(a.length, b.length)
        flat = beyond + expected - count * np.outer(a.mean, b.mean)
        pearson = np.clip(flat / np.outer(a.spread, b.spread), -1.0, 1.0)
        cosine, cosine_null = (np.clip(dots / lengths, -1.0, 1.0) for dots in (beyond + expected, expected))
        z = beyond / sd
    pearson[(constant := ~np.outer(a.varies, b.varies))] = math.nan
    z[constant] = math.nan
    return MatrixGrid(cosine, cosine_null, pearson, z)


def gram_products(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return ⟨G_i, G_j⟩ for the m×m Gram matrices of all slices of `A` (L×m×d) and `B` (M×m×d), whose rows are centred."""
    # Where rows outnumber units that is ‖A_iᵀB_j‖², and the Gram matrices, which would be larger than the slices, are not made.
    m, d = A.shape[1:]
    if m <= d:
        left, right = (X @ X.transpose(0, 2, 1) for X in (A, B))
        return left.reshape(len(A), -1) @ right.reshape(len(B), -1).T
    beside = B.transpose(1, 0, 2).reshape(m, -1)
    lines = [np.square(one.T @ beside).sum(axis=0).reshape(len(B), d).sum(axis=1) for one in A]
    return np.array(lines)


@dataclass(frozen=True)
class _CentredMatrices:
    centred: FloatArray  # each row less its mean
    means: FloatArray  # of the rows
    mean: FloatArray  # of the whole slice
    spread: FloatArray
    length: FloatArray
    varies: np.ndarray

    @classmethod
    def of(cls, X: FloatArray) -> _CentredMatrices:
        means = X.mean(axis=2)
        centred = X - means[:, :, None]
        mean = means.mean(axis=1)
        within = each_dot(centred, centred)
        length = np.sqrt(np.square(X).sum(axis=(1, 2)))
        spread = np.sqrt(within + X.shape[2] * np.square(means - mean[:, None]).sum(axis=1))
        varies = np.sqrt(within) > NEAR_CONSTANT * length
        return cls(centred, means, mean, spread, length, varies)
