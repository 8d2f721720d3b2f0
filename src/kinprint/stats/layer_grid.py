"""Compare every layer with every layer, by row slices of matrices with one permutation of units for all rows."""

import math
from typing import Self

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, each_dot, each_norm
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput


@dataclass(frozen=True)
class MatrixGrid:
    """L×M arrays. NaN where a slice is constant (pearson, z) or zero throughout (cosine, cosine_null)."""

    cosine: FloatArray
    cosine_null: FloatArray
    pearson: FloatArray
    z: FloatArray


def matrix_grid(A: FloatArray, B: FloatArray) -> MatrixGrid:
    """Compare all slices of `A` (L×m×d) with all of `B` (M×m×d); the null permutes the last axis of one side."""
    return centred_grid(CentredMatrices.of(A), CentredMatrices.of(B))


def centred_grid(a: "CentredMatrices", b: "CentredMatrices") -> MatrixGrid:
    """Compare slices as `matrix_grid` does, which are centred already."""
    # With T = Σ aᵢⱼ bᵢπ₍ⱼ₎ and rows centred to A', B', the exact mean is d Σᵢ āᵢ b̄ᵢ and the exact variance
    # ⟨A'A'ᵀ, B'B'ᵀ⟩ / (d − 1): a sum over the rows' Gram matrices, so that all pairs are one matrix product. Cosine and
    # Pearson are linear in T and share z. For m = 1 this is `row_grid`.
    of_a, of_b = a.centred.shape, b.centred.shape
    if len(of_a) != 3 or of_a[1:] != of_b[1:] or of_a[2] < 4:
        raise DegenerateInput(
            "expected slices of equal shape, at least 4 wide; got {a} and {b}", a=str(of_a), b=str(of_b)
        )
    units = of_a[2]
    count = of_a[1] * units
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = a.centred.reshape(of_a[0], -1) @ b.centred.reshape(of_b[0], -1).T
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
class CentredMatrices:
    """Slices of equal shape with each row centred, and what that took off."""

    centred: FloatArray  # each row less its mean
    means: FloatArray  # of the rows
    mean: FloatArray  # of the whole slice
    spread: FloatArray
    length: FloatArray
    varies: np.ndarray

    @classmethod
    def of(cls, X: FloatArray) -> Self:
        """Centre the rows of all slices."""
        if X.ndim != 3:
            raise DegenerateInput("expected slices, layers × rows × units; got {a}", a=str(X.shape))
        means = X.mean(axis=2)
        centred = X - means[:, :, None]
        mean = means.mean(axis=1)
        within = each_dot(centred, centred)
        length = each_norm(X)
        spread = np.sqrt(within + X.shape[2] * np.square(means - mean[:, None]).sum(axis=1))
        varies = np.sqrt(within) > NEAR_CONSTANT * length
        return cls(centred, means, mean, spread, length, varies)
