"""Exact permutation moments of a dot product, and the chance of exact identity.

Notation: A and B have the shape (m, d); one permutation π of the last axis of B serves all m rows, and
T = Σ_i Σ_j A_ij B_iπ(j) = Σ_j C_jπ(j) with C = AᵀB.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint.errors import DegenerateInput
from kinprint.numeric import NEAR_CONSTANT, FloatArray

Number: TypeAlias = float | FloatArray

MAX_FLOPS = 2e11
"""Work allowed for the exact third and fourth moments of a stack, about ten seconds on two cores."""

EXACT_UNITS = 1024
SAMPLED_UNITS = 128
"""Up to so many permuted units the shape of a stack's null is exact; beyond, twice `SAMPLED_UNITS` columns are summed."""

_BLOCK = 1 << 22  # entries of C held at a time: 32 MiB


@dataclass(frozen=True)
class Moments:
    """Mean, variance and, where known, shape of a statistic over all permutations of n units."""

    mean: float
    variance: float
    n: int
    skewness: float | None = None
    excess_kurtosis: float | None = None
    fourth: float | None = None  # ΣC⁴/(d·variance²): cannot be small by cancellation, as the kurtosis can
    reach: float | None = None  # max|C| in standard deviations: what one coincidence of outliers would add
    sampled: bool = False  # whether the shape was estimated from some columns

    @property
    def sd(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Powers:
    """Sums over a doubly centred matrix C on which the third and fourth moments depend, or arrays of such sums."""

    cubes: Number  # Σ C³
    fourths: Number  # Σ C⁴
    rows: Number  # Σ_j (Σ_k C²)²
    columns: Number  # Σ_k (Σ_j C²)²
    cycles: Number  # tr((CCᵀ)²)
    largest: Number  # max |C|, or a bound on it


SAFE_MAGNITUDES = (1e-60, 1e60)
"""Largest magnitudes of an array whose fourth powers still fit float64. No weight comes near; a hostile file may."""


def check_range(X: ArrayLike, side: str) -> None:
    """Refuse values whose powers would leave the range of float64."""
    largest = float(np.abs(np.asarray(X)).max(initial=0.0))
    if largest and not SAFE_MAGNITUDES[0] <= largest <= SAFE_MAGNITUDES[1]:
        low, high = SAFE_MAGNITUDES
        raise DegenerateInput(f"the largest value of {side} is {largest:.3g}: expected between {low:g} and {high:g}")


def as_rows(values: ArrayLike) -> FloatArray:
    """Return `values` as float64 of shape (m, d); a vector is one row."""
    array = np.asarray(values, dtype=np.float64)
    return array[None, :] if array.ndim == 1 else array


def centred_rows(A: FloatArray) -> FloatArray:
    """Return A minus its row means; a row that is constant up to rounding becomes exactly zero."""
    means = A.mean(axis=1, keepdims=True)
    centred: FloatArray = A - means
    constant = np.linalg.norm(centred, axis=1) <= NEAR_CONSTANT * np.abs(means[:, 0])
    centred[constant | (np.ptp(A, axis=1) == 0.0)] = 0.0
    return centred


def dot_moments(A: ArrayLike, B: ArrayLike, *, shape: bool = True, max_flops: float = MAX_FLOPS) -> Moments:
    """Return the exact moments of T = Σ_i a_i · (b_i∘π).

    Mean: each A_ij meets each B_ik with probability 1/d, so E T = Σ_i (Σ_j A_ij)(Σ_k B_ik)/d.
    Variance: centring the rows changes T by a constant. For centred rows Cov(B_iπ(j), B_lπ(j')) is
    (b_i·b_l)/d · (δ_jj' − 1/d)·d/(d−1); summed against A it gives Var T = ⟨G_A, G_B⟩/(d−1), with G the m×m Gram
    matrices of the centred rows. For one row that is Var r = 1/(d−1) (Pitman 1937).
    Shape: see `shape_from_powers`; skipped for stacks that would cost more than `max_flops`.
    """
    left, right = as_rows(A), as_rows(B)
    m, d = left.shape
    mean = float(left.sum(axis=1) @ right.sum(axis=1)) / d
    if d < 2:
        return Moments(mean, 0.0, d)
    left, right = centred_rows(left), centred_rows(right)
    if m > d:
        return _tall_moments(left, right, mean, shape=shape)
    gram_a, gram_b = left @ left.T, right @ right.T
    variance = float(np.sum(gram_a * gram_b)) / (d - 1)
    # no variance can exceed the product of the traces; far below it only rounding is left
    if variance <= 1e-28 * float(np.trace(gram_a)) * float(np.trace(gram_b)) / (d - 1):
        return Moments(mean, 0.0, d)
    if not shape or d < 4 or (m > 1 and 2.0 * m * d * min(d, EXACT_UNITS) > max_flops):
        return Moments(mean, variance, d)
    powers = _vector_powers(left[0], right[0]) if m == 1 else _stack_powers(left, right, gram_a, gram_b)
    return _shaped(mean, variance, d, powers, sampled=m > 1 and d > EXACT_UNITS)


def _shaped(mean: float, variance: float, d: int, powers: Powers, *, sampled: bool = False) -> Moments:
    skewness, kurtosis = (float(x) for x in shape_from_powers(powers, variance, d))
    if sampled:  # estimates need not be possible values; every distribution has kurtosis ≥ skewness² + 1
        kurtosis = max(kurtosis, skewness**2 - 2.0)
    fourth, reach = float(powers.fourths) / (d * variance**2), float(powers.largest) / math.sqrt(variance)
    return Moments(mean, variance, d, skewness, kurtosis, fourth, reach, sampled)


def _tall_moments(A: FloatArray, B: FloatArray, mean: float, *, shape: bool) -> Moments:
    """Return the same moments by way of C = AᵀB itself, which is the small matrix where rows outnumber units."""
    d = A.shape[1]
    C = A.T @ B
    square = C * C
    variance = float(square.sum()) / (d - 1)
    if variance <= 1e-28 * float(np.vdot(A, A)) * float(np.vdot(B, B)) / (d - 1):
        return Moments(mean, 0.0, d)
    if not shape or d < 4:
        return Moments(mean, variance, d)
    rows, columns, gram = square.sum(axis=1), square.sum(axis=0), C @ C.T
    powers = Powers(
        float(np.vdot(square, C)),
        float(np.vdot(square, square)),
        float(rows @ rows),
        float(columns @ columns),
        float(np.vdot(gram, gram)),
        float(np.abs(C).max()),
    )
    return _shaped(mean, variance, d, powers)


def shape_from_powers(powers: Powers, variance: float, d: int) -> tuple[Number, Number]:
    """Return skewness and excess kurtosis of Σ_j C_jπ(j) for a doubly centred d×d matrix C.

    Expand T³ and T⁴ over the patterns of coinciding rows. Distinct indices are summed by inclusion and exclusion over
    set partitions; every term with an index standing alone vanishes, because rows and columns of C sum to zero. With
    s3 = ΣC³, s4 = ΣC⁴, q = (ΣC²)², R = Σ_j(Σ_k C²)², K = Σ_k(Σ_j C²)², F = tr((CCᵀ)²) what remains is::

        E T³ = d·s3 / ((d−1)(d−2))
        E T⁴ = s4/d + [4·s4 + 3(q − R − K + s4)] / d(d−1) + 6(4·s4 + q − 2R − 2K) / d(d−1)(d−2)
               + (36·s4 − 18R − 18K + 3q + 6F) / d(d−1)(d−2)(d−3)

    For one row C_jk = a_j·b_k and the sums factorise into the skewness and kurtosis of a and of b, as in Pitman (1937):
    about γ_a·γ_b/√d and κ_a·κ_b/d.
    """
    s4, r, k, f = powers.fourths, powers.rows, powers.columns, powers.cycles
    q = (variance * (d - 1)) ** 2
    third = powers.cubes * d / ((d - 1) * (d - 2))
    fourth = (
        s4 / d
        + (4 * s4 + 3 * (q - r - k + s4)) / (d * (d - 1))
        + 6 * (4 * s4 + q - 2 * r - 2 * k) / (d * (d - 1) * (d - 2))
        + (36 * s4 - 18 * r - 18 * k + 3 * q + 6 * f) / (d * (d - 1) * (d - 2) * (d - 3))
    )
    return third / variance**1.5, fourth / variance**2 - 3.0


def _vector_powers(a: FloatArray, b: FloatArray) -> Powers:
    (a2, a3, a4), (b2, b3, b4) = ([float(np.sum(x**p)) for p in (2, 3, 4)] for x in (a, b))
    largest = float(np.abs(a).max()) * float(np.abs(b).max())
    return Powers(a3 * b3, a4 * b4, a4 * b2**2, a2**2 * b4, (a2 * b2) ** 2, largest)


def _stack_powers(A: FloatArray, B: FloatArray, gram_a: FloatArray, gram_b: FloatArray) -> Powers:
    """Sum powers of C = AᵀB; the second-order sums come from the small Gram matrices.

    The third and fourth powers need C itself. Up to `EXACT_UNITS` columns it is formed whole, in blocks. Beyond, its longest
    columns are taken, since outliers decide these sums, and the others are represented by an even sample in the order of
    their length; a column's length also bounds its largest entry.
    """
    rows = np.einsum("ij,ij->j", A, gram_b @ A)
    columns = np.einsum("ij,ij->j", B, gram_a @ B)
    mixed = gram_a @ gram_b
    cubes = fourths = largest = 0.0
    for chosen, weights in _columns_to_sum(columns):
        block = A.T @ B[:, chosen]
        square = block * block
        cubes += float(np.einsum("jk,jk,k->", square, block, weights))
        fourths += float(np.einsum("jk,jk,k->", square, square, weights))
        largest = max(largest, math.sqrt(float(square.max())))
    if columns.size > EXACT_UNITS:
        largest = max(largest, math.sqrt(float(np.partition(columns, -SAMPLED_UNITS - 1)[-SAMPLED_UNITS - 1])))
    return Powers(cubes, fourths, float(rows @ rows), float(columns @ columns), float(np.sum(mixed * mixed.T)), largest)


def _columns_to_sum(lengths: FloatArray) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
    """Yield blocks of columns of C, given their squared lengths, with the number of columns that each stands for."""
    d = lengths.size
    if d <= EXACT_UNITS:
        step = max(1, _BLOCK // d)
        for start in range(0, d, step):
            block = np.arange(start, min(d, start + step))
            yield block, np.ones(block.size)
        return
    by_length = np.argsort(-lengths, kind="stable")
    longest, others = by_length[:SAMPLED_UNITS], by_length[SAMPLED_UNITS:]
    bounds = np.linspace(0, others.size, SAMPLED_UNITS + 1).astype(int)
    yield longest, np.ones(SAMPLED_UNITS)
    yield others[(bounds[:-1] + bounds[1:] - 1) // 2], np.diff(bounds).astype(np.float64)


def identity_log_probability(A: ArrayLike, B: ArrayLike) -> float:
    """Return ln P(B∘π = A) over uniform permutations: Π_v m_v!/d! if the multisets agree, else minus infinity.

    m_v counts the units (columns of a stack) that hold the value v: permuting equal units among themselves is the
    only way to hit A again.
    """
    # adding zero turns −0 into +0, which compare equal but differ in their bytes
    left, right = (Counter(unit.tobytes() for unit in np.ascontiguousarray(as_rows(x).T) + 0.0) for x in (A, B))
    if left != right:
        return -math.inf
    return sum(math.lgamma(count + 1) for count in left.values()) - math.lgamma(left.total() + 1)
