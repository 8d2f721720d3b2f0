"""Compute exact permutation moments of linear CKA when the rows of one side are permuted."""

import math

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.errors import DegenerateInput
from kinprint.stats.moments import Moments


def centred_gram(X: FloatArray) -> FloatArray:
    """Return the Gram matrix of the column-centred rows of X, scaled to unit Frobenius norm."""
    Z = X - X.mean(axis=0)
    scale = float(np.abs(Z).max())
    if scale <= 1e-12 * float(np.abs(X).max()):
        raise DegenerateInput("cka: all rows are equal: expected rows that vary")
    Z /= scale
    gram = Z @ Z.T
    normalised: FloatArray = gram / np.linalg.norm(gram)
    return normalised


def u_centred(K: FloatArray) -> FloatArray:
    """Return the U-centred K (Székely & Rizzo 2014), of unit norm: zero diagonal, rows and columns that sum to zero."""
    n = K.shape[0]
    if n < 4:
        raise DegenerateInput("cka_unbiased: {n} rows: expected at least 4", n=n)
    U: FloatArray = K - np.diag(np.diag(K))
    sums = U.sum(axis=1)
    U = U - (sums[:, None] + sums[None, :]) / (n - 2) + float(sums.sum()) / ((n - 1) * (n - 2))
    np.fill_diagonal(U, 0.0)
    norm = float(np.linalg.norm(U))
    if norm <= 1e-6 * float(np.linalg.norm(K)):
        raise DegenerateInput("cka_unbiased: the rows are equidistant, which leaves nothing to align")
    U /= norm
    return U


def cka_moments(K: FloatArray, L: FloatArray) -> Moments:
    """Return the moments of ⟨K, PLPᵀ⟩/(‖K‖‖L‖) for centred Gram matrices."""
    # These are the moments of the RV coefficient by Kazi-Aoual, Hitier, Sabatier & Lebreton (1995). With
    # β = (tr K)²/tr K² and
    # τ = (n−1)/((n−3)(n−1−β)) · [n(n+1) ΣK_ii²/tr K² − (n−1)(β+2)]:
    #
    #     E   = √(β_K β_L)/(n−1)
    #     Var = 2(n−1−β_K)(n−1−β_L)/((n+1)(n−1)²(n−2)) · [1 + (n−3)/(2n(n−1)) τ_K τ_L]
    #
    # The brackets are written out below so that β = n−1 (orthogonal rows, where the variance is zero) does not divide
    # by zero.
    n = K.shape[0]
    (beta_k, excess_k), (beta_l, excess_l) = (_beta_and_excess(G) for G in (K, L))
    mean = math.sqrt(beta_k * beta_l) / (n - 1)
    if n < 4:
        raise DegenerateInput("cka: {n} rows: expected at least 4 for the variance under permutation", n=n)
    plain = (n - 1 - beta_k) * (n - 1 - beta_l)
    shaped = (n - 1) * excess_k * excess_l / (2.0 * n * (n - 3))
    variance = 2.0 / ((n + 1) * (n - 1) ** 2 * (n - 2)) * (plain + shaped)
    return Moments(mean, max(0.0, variance), n)


def _beta_and_excess(K: FloatArray) -> tuple[float, float]:
    n = K.shape[0]
    squares = float(np.vdot(K, K))
    diagonal = np.diag(K)
    beta = float(diagonal.sum()) ** 2 / squares
    return beta, n * (n + 1) * float(diagonal @ diagonal) / squares - (n - 1) * (beta + 2.0)


def unbiased_cka_moments(n: int) -> Moments:
    """Return the moments of the unbiased CKA: mean 0 and variance 2/(n(n−3)), whatever the data."""
    # U-centred matrices are symmetric with zero diagonal and zero row sums. That space has n(n−3)/2 dimensions and is
    # the irreducible representation (n−2, 2) of the permutations; by Schur's lemma the mean over all permutations of
    # (PUPᵀ)⊗(PUPᵀ) is then the identity times ‖U‖²/dimension. So two unit vectors have mean square 2/(n(n−3)).
    return Moments(0.0, 2.0 / (n * (n - 3)), n)
