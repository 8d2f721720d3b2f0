"""Test whether units of two models agree in sign, which no order and no recipe of places can bring about.

Some units of a network may change their sign without changing what it computes: a neuron of a gated MLP (its row of up and its
column of down together), a value channel of attention (row of v, columns of o), a residual dimension under RMSNorm. Random
starts and gradient steps treat both signs alike, so in a model trained independently the sign of each unit is a fair coin, given
everything else: which entries are zero, which units are copies of each other's places, how units are sorted. With r_i the
product of unit i with the unit at the same place of the other model, in any scale that does not depend on signs::

    T = Σ r_i,     P(T ≥ t) ≤ exp(−t² / (2 Σ r_i²))     (Hoeffding 1963, given |r_1|, …, |r_n|)

Units that are copies of one another in BOTH models share one coin: their r_i are added before they are squared.

References: Hoeffding, Probability inequalities for sums of bounded random variables, JASA 58 (1963).
"""

import math

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass

COPIES_R = 0.8
"""Cosine of two units, in both models, beyond which they are taken for copies of one unit.

Correlated units that are no copies have coins of their own, and trained ones reach 0.7. Copies that training drove further
apart than this in both models are counted apart: with two of each, T then scatters by a quarter more than is said.
"""

_SKETCH = 64  # entries of a unit that are looked at for copies
_BLOCK = 128  # units held against all others at a time: what fits the cache
_LOWER = np.tri(_BLOCK, dtype=np.bool_)


@dataclass(frozen=True)
class SignFlips:
    """Sum of products of units, what it scatters by under random signs, and a bound on its p-value."""

    statistic: float
    sd: float
    z: float
    log10_p: float
    n: int


def unit_products(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the cosine of each column of A with that of B; zero where one of them has no direction."""
    lengths = np.sqrt(np.einsum("ij,ij->j", A, A) * np.einsum("ij,ij->j", B, B))
    products = np.einsum("ij,ij->j", A, B)
    found: FloatArray = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0.0)
    return found


def one_coin(A: FloatArray, B: FloatArray, r: FloatArray) -> FloatArray:
    """Return r with the entries of units (columns of A and B) that are copies of each other in both models added up."""
    # A copy may be negated: it flips together with its original all the same, so the sum of both is what one coin decides.
    i, j = _copies(*(X[:: max(1, -(-len(X) // _SKETCH))] for X in (A, B)))
    if not i.size:
        return r
    first = np.arange(r.size)  # a copy of each unit that stands before it, or itself: in the end the first of all
    while (apart := first[i] != first[j]).any():
        i, j = i[apart], j[apart]
        np.minimum.at(first, np.maximum(first[i], first[j]), np.minimum(first[i], first[j]))
        while not np.array_equal(first, first[first]):
            first = first[first]
    merged = np.zeros_like(r)
    np.add.at(merged, first, r)
    return merged


def _copies(A: FloatArray, B: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs of units, i < j, that are copies in both models; the first look is in float32, with room for its rounding."""
    pairs = [np.empty((2, 0), dtype=np.intp)]
    lengths = np.sqrt(np.einsum("ij,ij->j", A, A))
    X = (A / np.where(lengths > 0.0, lengths, 1.0)).astype(np.float32)
    for start in range(0, X.shape[1], _BLOCK):
        cosines = X[:, start : start + _BLOCK].T @ X[:, start:]
        np.abs(cosines, out=cosines)
        count = len(cosines)
        cosines[:, :count][_LOWER[:count, :count]] = 0.0  # each pair once
        if cosines.max() <= COPIES_R - 1e-4:
            continue
        found = np.flatnonzero(cosines > COPIES_R - 1e-4)
        i, j = found // cosines.shape[1] + start, found % cosines.shape[1] + start
        for side in (A, B):
            near = np.abs(unit_products(side[:, i], side[:, j])) > COPIES_R
            i, j = i[near], j[near]
        pairs.append(np.array((i, j)))
    one, two = np.concatenate(pairs, axis=1)
    return one, two


def sign_flips(r: FloatArray) -> SignFlips:
    """Return the test of Σ r_i under independent random signs; towards agreement alone."""
    total, squares = math.fsum(r), math.fsum(r * r)
    if squares == 0.0:
        return SignFlips(0.0, 0.0, 0.0, 0.0, 0)
    z = total / math.sqrt(squares)
    log10_p = -z * z / 2.0 / math.log(10.0) if z > 0.0 else 0.0
    return SignFlips(total, math.sqrt(squares), z, log10_p, int(np.count_nonzero(r)))
