"""Every layer against every layer by matrix products, and all layers together in one test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint.errors import DegenerateInput
from kinprint.results import NullResult
from kinprint.stats.moments import FloatArray, Powers, as_rows, centred_rows, shape_from_powers
from kinprint.stats.nulls import Request, dot_null
from kinprint.stats.tails import MAX_CORRECTION, MAX_KURTOSIS, MAX_SKEWNESS


@dataclass(frozen=True)
class AllPairs:
    """L×M arrays, rows of A against rows of B.

    ``valid`` is False where a row is constant or has zero length; there, and only there, ``pearson``, ``z`` and
    ``log10_p`` are NaN (``cosine`` and its null only where a row has zero length). ``normal`` marks p-values from the
    normal tail; the others are upper bounds from exact moments, never draws: see `kinprint.stats.tails`.
    """

    cosine: FloatArray
    pearson: FloatArray
    cosine_null_mean: FloatArray
    cosine_null_sd: FloatArray
    z: FloatArray
    log10_p: FloatArray
    valid: NDArray[np.bool_]
    normal: NDArray[np.bool_]


def all_pairs(A: ArrayLike, B: ArrayLike) -> AllPairs:
    """Compare all rows of `A` (L×d) with all rows of `B` (M×d), each beside its permutation null (upper tail).

    The cosine and the Pearson correlation of a pair are linear in the same dot product, so they share z and p.
    """
    left, right = _checked_rows(A, B)
    d = left.shape[1]
    centred_a, centred_b = centred_rows(left), centred_rows(right)
    (norm_a, norm_b, spread_a, spread_b) = (np.linalg.norm(X, axis=1) for X in (left, right, centred_a, centred_b))
    with np.errstate(divide="ignore", invalid="ignore"):  # the mask below says where
        lengths, spreads = np.outer(norm_a, norm_b), np.outer(spread_a, spread_b)
        cosine = np.clip(left @ right.T / lengths, -1.0, 1.0)
        unit_a, unit_b = centred_a / spread_a[:, None], centred_b / spread_b[:, None]
        pearson = np.clip(unit_a @ unit_b.T, -1.0, 1.0)
        mean = np.outer(left.sum(axis=1), right.sum(axis=1)) / d / lengths
        sd = spreads / lengths / math.sqrt(d - 1)
    valid = spreads > 0.0
    z = pearson * math.sqrt(d - 1)
    log10_p, normal = _tails(z, unit_a, unit_b, valid)
    return AllPairs(cosine, pearson, mean, sd, z, log10_p, valid, normal)


def _checked_rows(A: ArrayLike, B: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = as_rows(A), as_rows(B)
    if left.shape[1] != right.shape[1] or left.shape[1] < 4:
        raise DegenerateInput(f"expected rows of equal length, at least 4; got {left.shape} and {right.shape}")
    for side, X in (("a", left), ("b", right)):
        bad = int(X.size - np.count_nonzero(np.isfinite(X)))
        if bad:
            raise DegenerateInput(f"{side} holds {bad} non-finite of {X.size} values: expected none")
    return left, right


def _third_and_fourth(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    square = X * X
    return np.einsum("ij,ij->i", square, X), np.einsum("ij,ij->i", square, square)


def _tails(
    z: FloatArray, A: FloatArray, B: FloatArray, valid: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return log10 p of every pair of unit rows, by the rules of `kinprint.stats.tails` without its draws."""
    from scipy.special import log_ndtr  # here, because it is slow to load

    d = A.shape[1]
    (a3, a4), (b3, b4) = (_third_and_fourth(X) for X in (A, B))
    powers = Powers(np.outer(a3, b3), np.outer(a4, b4), a4[:, None], b4[None, :], 1.0)
    skewness, kurtosis = (np.asarray(x) for x in shape_from_powers(powers, 1.0 / (d - 1), d))
    with np.errstate(divide="ignore", invalid="ignore"):
        linear, quadratic = np.maximum(skewness, 0.0) / 3.0, np.maximum(kurtosis, 0.0) / 12.0
        limit = 2.0 * MAX_CORRECTION / (linear + np.sqrt(linear**2 + 4.0 * quadratic * MAX_CORRECTION))
        limit[(np.abs(skewness) > MAX_SKEWNESS) | (np.abs(kurtosis) > MAX_KURTOSIS)] = 0.0
        believed = np.where(limit > 0.0, log_ndtr(-np.minimum(z, limit)), 0.0)
        moments = np.where(z > 0.0, np.minimum(-np.log1p(z * z), np.log(3.0 + kurtosis) - 4.0 * np.log(np.abs(z))), 0.0)
    normal = valid & (limit > 0.0) & (z <= limit)
    log_p = np.where(normal, believed, np.minimum(np.minimum(believed, moments), 0.0))
    return np.where(valid, log_p / math.log(10.0), np.nan), normal


def joint(A: ArrayLike, B: ArrayLike, *, rng_seed: int = 0, draws: int | None = None) -> NullResult:
    """Test all rows (layers) at once: T = mean over l of the correlation of row l of `A` with row l of `B`.

    ONE permutation serves all rows, because layers of one model resemble each other: with centred unit rows
    E T = 0 and Var T = Σ_lm (a_l·a_m)(b_l·b_m) / (L²(d−1)), exactly. Treating layers as independent would be wrong.
    The tails are judged by the exact skewness and kurtosis of T, which the d×d matrix AᵀB gives (`dot_moments`).
    """
    left, right = _checked_rows(A, B)
    if left.shape != right.shape:
        raise DegenerateInput(f"joint: shapes differ: got {left.shape} and {right.shape}")
    left, right = centred_rows(left), centred_rows(right)
    norms = [np.linalg.norm(X, axis=1) for X in (left, right)]
    for side, values in zip("ab", norms, strict=True):
        if not values.all():
            rows = ", ".join(map(str, np.flatnonzero(values == 0.0)))
            raise DegenerateInput(f"joint: rows of {side} are constant: {rows}", hint="leave these rows out")
    left, right = left / norms[0][:, None], right / norms[1][:, None] / left.shape[0]
    observed = float(np.vdot(left, right))
    request = Request("joint", observed, higher_is_closer=True, rng_seed=rng_seed, draws=draws)
    return dot_null(left, right, observed, request)
