"""Compute exact permutation moments of a dot product, and the chance of exact identity.

Notation: A and B have the shape (m, d); one permutation π of the last axis of B serves all m rows, and
T = Σ_i Σ_j A_ij B_iπ(j) = Σ_j C_jπ(j) with C = AᵀB.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, each_dot, largest_magnitude, row_means
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput

MAX_FLOPS = 2e11  # work allowed for the exact third and fourth moments of a stack, about ten seconds on two cores
EXACT_UNITS = 1024
SAMPLED_UNITS = 64
_COLUMNS = 8  # summed at a time, in half of the time that 32 take: what fits the nearer cache
"""Up to so many permuted units the shape of a stack's null is exact; beyond, twice `SAMPLED_UNITS` columns are summed."""


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
    """Sums over doubly centred matrices C on which their third and fourth moments depend: a number for each matrix."""

    cubes: FloatArray  # Σ C³
    fourths: FloatArray  # Σ C⁴
    rows: FloatArray  # Σ_j (Σ_k C²)²
    columns: FloatArray  # Σ_k (Σ_j C²)²
    cycles: FloatArray  # tr((CCᵀ)²)
    largest: FloatArray  # max |C|, or a bound on it


SAFE_MAGNITUDES = (1e-60, 1e60)
"""Largest magnitudes of an array whose fourth powers still fit float64. No weight comes near; a hostile file may."""


def check_range(X: ArrayLike, side: str) -> None:
    """Refuse values whose powers would leave the range of float64."""
    check_magnitude(largest_magnitude(np.asarray(X)), side)


def check_magnitude(largest: float, side: str) -> None:
    """Refuse a largest magnitude whose powers would leave the range of float64."""
    low, high = SAFE_MAGNITUDES
    if largest and not low <= largest <= high:
        raise DegenerateInput(
            "the largest value of {side} is {largest:.3g}: expected between {low:g} and {high:g}",
            side=side,
            largest=largest,
            low=low,
            high=high,
        )


def as_rows(values: ArrayLike) -> FloatArray:
    """Return `values` as float64 of shape (m, d); a vector is one row."""
    array = np.asarray(values, dtype=np.float64)
    return array[None, :] if array.ndim == 1 else array


def centred_rows(A: FloatArray) -> FloatArray:
    """Return A minus its row means; a row that is constant up to rounding becomes exactly zero. Rows lie along the last axis."""
    means = row_means(A)
    centred: FloatArray = A - means
    constant = np.sqrt(np.vecdot(centred, centred)) <= NEAR_CONSTANT * np.abs(means[..., 0])
    if constant.any():
        centred[constant] = 0.0
    return centred


def dot_means(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return E T = Σ_i (Σ_j A_ij)(Σ_k B_ik)/d of every stack; (…, m, d)."""
    means: FloatArray = np.vecdot(A.sum(axis=-1), B.sum(axis=-1)) / A.shape[-1]
    return means


def dot_moments(A: ArrayLike, B: ArrayLike, *, shape: bool = True) -> Moments:
    """Return the exact moments of T = Σ_i a_i · (b_i∘π); see `each_dot_moments`."""
    left, right = as_rows(A), as_rows(B)
    return each_dot_moments(left[None], right[None], shape=shape)[0]


def pairs_at_once(rows: int, units: int, entries: int) -> int:
    """Return how many pairs of such stacks to hand to `each_dot_moments`, which holds tables of rows² or units² entries."""
    tables = rows * rows, units * units if units <= EXACT_UNITS or rows > units else 0
    return max(1, entries // max(1, rows * units, *(tables if min(rows, units) > 1 else ())))


def each_dot_moments(A: FloatArray, B: FloatArray, *, shape: bool = True) -> list[Moments]:
    """Return the exact moments of T = Σ_i a_i · (b_i∘π) for each of several pairs of stacks, (pairs, m, d)."""
    # Mean: each A_ij meets each B_ik with probability 1/d, so E T = Σ_i (Σ_j A_ij)(Σ_k B_ik)/d.
    # Variance: centring the rows changes T by a constant. For centred rows Cov(B_iπ(j), B_lπ(j')) is
    # (b_i·b_l)/d · (δ_jj' − 1/d)·d/(d−1); summed against A it gives Var T = ⟨G_A, G_B⟩/(d−1), with G the m×m Gram
    # matrices of the centred rows. For one row that is Var r = 1/(d−1) (Pitman 1937).
    # Shape: see `shape_from_powers`; skipped for stacks that would cost more than `MAX_FLOPS`.
    return centred_dot_moments(centred_rows(A), centred_rows(B), dot_means(A, B), shape=shape)


def centred_dot_moments(left: FloatArray, right: FloatArray, means: FloatArray, *, shape: bool = True) -> list[Moments]:
    """Return the moments of `each_dot_moments`, given the centred rows of both sides and the means."""
    _, m, d = left.shape
    if d < 2:
        return [Moments(float(mean), 0.0, d) for mean in means]
    tall = m > d
    if tall:  # C = AᵀB itself is the small matrix where rows outnumber units
        products = left.swapaxes(1, 2) @ right
        squares = each_dot(products, products)
    else:
        gram_a, gram_b = left @ left.swapaxes(1, 2), right @ right.swapaxes(1, 2)
        squares = each_dot(gram_a, gram_b)
    variances = squares / (d - 1)
    # no variance can exceed the product of the traces; far below it only rounding is left
    traces = each_dot(left, left) * each_dot(right, right)
    variances[variances <= 1e-28 * traces / (d - 1)] = 0.0
    if not shape or d < 4 or (1 < m <= d and 2.0 * m * d * min(d, EXACT_UNITS) > MAX_FLOPS):
        return [Moments(float(mean), float(variance), d) for mean, variance in zip(means, variances, strict=True)]
    if tall:
        gram = products @ products.swapaxes(1, 2)
        powers = _table_powers(products, each_dot(gram, gram))
    elif m == 1:
        powers = _vector_powers(left[:, 0], right[:, 0])
    elif d <= EXACT_UNITS:
        powers = _table_powers(left.swapaxes(1, 2) @ right, _cycles(gram_a, gram_b))
    else:
        powers = _sampled_powers(left, right, gram_a, gram_b)
    return _shaped(means, variances, d, powers, sampled=1 < m <= d and d > EXACT_UNITS)


def _shaped(means: FloatArray, variances: FloatArray, d: int, powers: Powers, *, sampled: bool) -> list[Moments]:
    with np.errstate(divide="ignore", invalid="ignore"):  # a variance of zero leaves no shape
        skewness, kurtosis = shape_from_powers(powers, variances, d)
        fourth, reach = powers.fourths / (d * variances**2), powers.largest / np.sqrt(variances)
    if sampled:  # estimates need not be possible values; every distribution has kurtosis ≥ skewness² + 1
        kurtosis = np.maximum(kurtosis, skewness**2 - 2.0)
    columns = (means, variances, skewness, kurtosis, fourth, reach)
    return [
        Moments(mean, variance, d, skew, kurt, term, most, sampled) if variance else Moments(mean, 0.0, d)
        for mean, variance, skew, kurt, term, most in np.stack(columns, axis=1).tolist()
    ]


def shape_from_powers(powers: Powers, variance: FloatArray | float, d: int) -> tuple[FloatArray, FloatArray]:
    """Return skewness and excess kurtosis of Σ_j C_jπ(j) for a doubly centred d×d matrix C."""
    # Expand T³ and T⁴ over the patterns of coinciding rows. Distinct indices are summed by inclusion and exclusion over
    # set partitions; every term with an index standing alone vanishes, because rows and columns of C sum to zero. With
    # s3 = ΣC³, s4 = ΣC⁴, q = (ΣC²)², R = Σ_j(Σ_k C²)², K = Σ_k(Σ_j C²)², F = tr((CCᵀ)²) what remains is:
    #
    #     E T³ = d·s3 / ((d−1)(d−2))
    #     E T⁴ = s4/d + [4·s4 + 3(q − R − K + s4)] / d(d−1) + 6(4·s4 + q − 2R − 2K) / d(d−1)(d−2)
    #            + (36·s4 − 18R − 18K + 3q + 6F) / d(d−1)(d−2)(d−3)
    #
    # For one row C_jk = a_j·b_k and the sums factorise into the skewness and kurtosis of a and of b, as in Pitman (1937):
    # about γ_a·γ_b/√d and κ_a·κ_b/d.
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
    """Return the sums over C = abᵀ for each row of `a` and `b`."""
    (a2, a3, a4), (b2, b3, b4) = map(_power_sums, (a, b))
    largest = np.abs(a).max(axis=1) * np.abs(b).max(axis=1)
    return Powers(a3 * b3, a4 * b4, a4 * b2**2, a2**2 * b4, (a2 * b2) ** 2, largest)


def _power_sums(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    squares = x * x  # numpy's powers take ten times as long
    return each_dot(x, x), each_dot(squares, x), each_dot(squares, squares)


def _cycles(gram_a: FloatArray, gram_b: FloatArray) -> FloatArray:
    """Return tr((CCᵀ)²) for C = AᵀB, from the Gram matrices of the rows of A and B."""
    mixed = gram_a @ gram_b
    cycles: FloatArray = np.einsum("lij,lji->l", mixed, mixed)
    return cycles


def _table_powers(C: FloatArray, cycles: FloatArray) -> Powers:
    """Return the sums over each of several C, (pairs, d, d)."""
    square = C * C
    rows, columns = square.sum(axis=2), square.sum(axis=1)
    return Powers(
        each_dot(square, C),
        each_dot(square, square),
        each_dot(rows, rows),
        each_dot(columns, columns),
        cycles,
        np.sqrt(square.max(axis=(1, 2))),
    )


def _sampled_powers(A: FloatArray, B: FloatArray, gram_a: FloatArray, gram_b: FloatArray) -> Powers:
    """Estimate the sums over C = AᵀB of many columns; those of second order come from the small Gram matrices, exactly."""
    # The third and fourth powers need C itself. Its longest columns are taken, since outliers decide these sums, and the others
    # are represented by an even sample in the order of their length; a column's length also bounds its largest entry. These
    # sums are in float32, a third of the time: each is right to 1e-5 of the sum of magnitudes, far below what the sample leaves
    # open.
    peaks = [np.maximum(X.max(axis=(1, 2)), -X.min(axis=(1, 2))) for X in (A, B)]
    peaks = [np.where(peak > 0.0, peak, 1.0)[:, None, None] for peak in peaks]  # so that all fits float32
    left, right = ((X / peak).astype(np.float32) for X, peak in zip((A, B), peaks, strict=True))
    scale = ((peaks[0] * peaks[1]) ** 2)[:, 0]
    rows, columns = (
        np.einsum("lij,lij->lj", X, (gram / peak**2).astype(np.float32) @ X).astype(np.float64) * scale
        for X, gram, peak in ((left, gram_b, peaks[1]), (right, gram_a, peaks[0]))
    )
    sums = np.array([_column_sums(*each) for each in zip(left, right, columns / scale, strict=True)])
    sums *= np.sqrt(scale) ** (3.0, 4.0, 1.0)
    return Powers(
        sums[:, 0], sums[:, 1], each_dot(rows, rows), each_dot(columns, columns), _cycles(gram_a, gram_b), sums[:, 2]
    )


def _column_sums(A: NDArray[np.float32], B: NDArray[np.float32], lengths: FloatArray) -> tuple[float, float, float]:
    """Return the estimated ΣC³ and ΣC⁴ of one C = AᵀB and a bound on max|C|, given its columns' squared lengths."""
    chosen, weights = _columns_to_sum(lengths)
    longest = math.sqrt(float(lengths.max())) or 1.0
    right = B[:, chosen].T / np.float32(longest)
    cubes = fourths = largest = 0.0
    for start in range(0, chosen.size, _COLUMNS):
        part = slice(start, start + _COLUMNS)
        block = right[part] @ A
        square = block * block
        cubes += float(np.vecdot(square, block).astype(np.float64) @ weights[part])
        fourths += float(np.vecdot(square, square).astype(np.float64) @ weights[part])
        largest = max(largest, float(square.max()))
    unseen = float(np.partition(lengths, -SAMPLED_UNITS - 1)[-SAMPLED_UNITS - 1])  # bounds those not looked at
    return cubes * longest**3, fourths * longest**4, math.sqrt(max(largest * longest**2, unseen * (1.0 + 1e-5)))


def _columns_to_sum(lengths: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the columns of C to look at, given their squared lengths, and the number of columns that each stands for."""
    by_length = np.argsort(-lengths)  # five times as fast as in a fixed order, which matters only among equal lengths
    ranked = lengths[by_length]
    if (ranked[1:] == ranked[:-1]).any():
        by_length = np.argsort(-lengths, kind="stable")
    longest, others = by_length[:SAMPLED_UNITS], by_length[SAMPLED_UNITS:]
    bounds = np.linspace(0, others.size, SAMPLED_UNITS + 1).astype(int)
    sampled = others[(bounds[:-1] + bounds[1:] - 1) // 2]
    return np.concatenate([longest, sampled]), np.concatenate([np.ones(SAMPLED_UNITS), np.diff(bounds)])


def identity_log_probability(A: ArrayLike, B: ArrayLike) -> float:
    """Return ln P(B∘π = A) over uniform permutations: Π_v m_v!/d! if the multisets agree, else minus infinity."""
    # m_v counts the units (columns of a stack) that hold the value v: permuting equal units among themselves is the
    # only way to hit A again.
    # adding zero turns −0 into +0, which compare equal but differ in their bytes
    left, right = (Counter(unit.tobytes() for unit in np.ascontiguousarray(as_rows(x).T) + 0.0) for x in (A, B))
    if left != right:
        return -math.inf
    return sum(math.lgamma(count + 1) for count in left.values()) - math.lgamma(left.total() + 1)
