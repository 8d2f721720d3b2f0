"""Align the kernels of two matrices (CKA) whose rows are the same examples; columns may differ in number."""

import math
from functools import partial

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, safely_scaled
from kinprint.errors import DegenerateInput
from kinprint.metrics.base import AFFINE, register

_alignment_metric = partial(register, higher_is_closer=True, invariant_to=(*AFFINE, "rotation"), kinds=("matrix",))


def _centred_columns(X: FloatArray, side: str, metric: str) -> FloatArray:
    scaled = safely_scaled(X)
    means = scaled.mean(axis=0)
    centred = scaled - means
    if float(np.linalg.norm(centred)) <= NEAR_CONSTANT * float(np.linalg.norm(means)):
        of = {"metric": metric, "side": side}
        raise DegenerateInput("{metric}: all rows of {side} are equal: expected rows that vary", **of)
    return safely_scaled(centred)


def _alignment(X: FloatArray, Y: FloatArray) -> float:
    """Return tr(XXᵀYYᵀ) = ‖XᵀY‖² by whichever product is smaller."""
    n, p, q = X.shape[0], X.shape[1], Y.shape[1]
    if p * q <= n * (p + q):
        return float(np.sum(np.square(X.T @ Y)))
    return float(np.sum((X @ X.T) * (Y @ Y.T)))


def _unbiased(X: FloatArray, Y: FloatArray) -> float:
    """Return n(n − 3) times the unbiased HSIC of column-centred X and Y."""
    # Song et al. (2012) give tr(K̃L̃) + 1ᵀK̃1·1ᵀL̃1/((n−1)(n−2)) − 2/(n−2)·1ᵀK̃L̃1 for Gram matrices with zeroed diagonals.
    # With centred columns K1 = 0, so K̃1 = −k, where k is the diagonal of K, and the whole reduces to
    # ‖XᵀY‖² − n/(n−2)·k·l + (Σk)(Σl)/((n−1)(n−2)).
    n = X.shape[0]
    k, m = np.sum(X * X, axis=1), np.sum(Y * Y, axis=1)
    product = float(k.sum()) * float(m.sum()) / ((n - 1) * (n - 2))
    return float(_alignment(X, Y) - n / (n - 2) * float(k @ m) + product)


@_alignment_metric(
    "cka",
    label="Linear CKA (biased)",
    bounds=(0.0, 1.0),
    reference="Kornblith et al. 2019; the RV coefficient of Escoufier 1973",
)
def cka(X: FloatArray, Y: FloatArray) -> float:
    """Alignment of the two Gram matrices; with more columns than rows even noise comes close to 1."""
    X, Y = _centred_columns(X, "a", "cka"), _centred_columns(Y, "b", "cka")
    value = _alignment(X, Y) / math.sqrt(_alignment(X, X) * _alignment(Y, Y))
    return min(1.0, max(0.0, value))


@_alignment_metric(
    "cka_unbiased",
    label="Linear CKA (unbiased)",
    bounds=(-1.0, 1.0),
    reference="Song et al. 2012; Székely & Rizzo 2014",
)
def cka_unbiased(X: FloatArray, Y: FloatArray) -> float:
    """CKA from the unbiased HSIC: its permutation mean is 0 whatever the number of columns; needs four rows."""
    if X.shape[0] < 4:
        raise DegenerateInput("cka_unbiased: {x} rows: expected at least 4", x=X.shape[0])
    X, Y = _centred_columns(X, "a", "cka_unbiased"), _centred_columns(Y, "b", "cka_unbiased")
    norms = []
    for side, Z in (("a", X), ("b", Y)):
        own = _unbiased(Z, Z)
        if own <= 1e-12 * _alignment(Z, Z):  # the three terms cancel: rows at equal distances, e.g. a simplex
            raise DegenerateInput(
                "cka_unbiased: the rows of {side} are equidistant, which leaves nothing to align", side=side
            )
        norms.append(own)
    return min(1.0, max(-1.0, _unbiased(X, Y) / math.sqrt(norms[0] * norms[1])))
