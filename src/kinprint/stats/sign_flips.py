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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray

COPIES_R = 0.8
"""Cosine of two units, in both models, beyond which they are taken for copies of one unit.

Correlated units that are no copies have coins of their own, and trained ones reach 0.7. Copies that training drove further
apart than this in both models are counted apart: with two of each, T then scatters by a quarter more than is said.
"""

_SKETCH = 64  # entries of a unit that are looked at for copies
_BLOCK = 128  # units held against all others at a time: what fits the cache


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
    """Return r with the entries of units (columns of A and B) that are copies of each other in both models added up.

    A copy may be negated: it flips together with its original all the same, so the sum of both is what one coin decides.
    """
    units = _directions(A), _directions(B)
    suspects = np.intersect1d(_near_copies(units[0]), _near_copies(units[1]))
    merged = r.copy()
    if not suspects.size:
        return merged
    copies = np.zeros((r.size, r.size), dtype=np.bool_)
    one, two = (X[:, suspects] for X in units)
    copies[np.ix_(suspects, suspects)] = (np.abs(one.T @ one) > COPIES_R) & (np.abs(two.T @ two) > COPIES_R)
    np.fill_diagonal(copies, False)
    todo = set(np.flatnonzero(copies.any(axis=1)).tolist())
    while todo:
        group, fresh = set(), {min(todo)}
        while fresh:
            group |= fresh
            fresh = set(np.flatnonzero(copies[sorted(fresh)].any(axis=0)).tolist()) - group
        members = sorted(group)
        merged[members] = 0.0
        merged[members[0]] = r[members].sum()
        todo -= group
    return merged


def _directions(X: FloatArray) -> FloatArray:
    """Return some entries of each unit (column), at unit length."""
    rows = X[:: max(1, -(-len(X) // _SKETCH))]
    lengths = np.linalg.norm(rows, axis=0)
    found: FloatArray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0.0)
    return found


def _near_copies(units: FloatArray) -> NDArray[np.intp]:
    """Return the units that may have a copy: a first look in single precision, with room for its rounding, block by block."""
    X = units.astype(np.float32)
    found = np.zeros(X.shape[1], dtype=np.bool_)
    for start in range(0, X.shape[1], _BLOCK):
        cosines = X[:, start : start + _BLOCK].T @ X[:, start:]  # each pair once
        own = np.arange(len(cosines))
        cosines[own, own] = 0.0
        if max(float(cosines.max()), -float(cosines.min())) > COPIES_R - 1e-4:
            near = np.abs(cosines) > COPIES_R - 1e-4
            found[start : start + _BLOCK] |= near.any(axis=1)
            found[start:] |= near.any(axis=0)
    return np.flatnonzero(found)


def sign_flips(r: FloatArray) -> SignFlips:
    """Return the test of Σ r_i under independent random signs; towards agreement alone."""
    total, squares = math.fsum(r), math.fsum(r * r)
    if squares == 0.0:
        return SignFlips(0.0, 0.0, 0.0, 0.0, 0)
    z = total / math.sqrt(squares)
    log10_p = -z * z / 2.0 / math.log(10.0) if z > 0.0 else 0.0
    return SignFlips(total, math.sqrt(squares), z, log10_p, int(np.count_nonzero(r)))
