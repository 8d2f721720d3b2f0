"""Count rows of A whose nearest row of B stands at the same place (fixed points), and bound the p-value of the count.

Rows that are units of a hidden axis (neurons, heads) come in an order without meaning. If the two sides are unrelated,
the order of B's rows is uniformly random given everything else. Let g(i) be the place, in any reference order, of the row
of B with the largest cosine to row i of A: a function of the two *sets* of rows. After a permutation π of B's rows,
row i is a fixed point if π(i) = g(i). For a set S of k rows of m::

    P(π(i) = g(i) for all i in S) = (m−k)!/m!   if g is injective on S,   else 0

since π is injective. The expected number of such sets, E[C(F, k)], is thus at most C(m, k)(m−k)!/m! = 1/k!, and with Markov's
inequality P(F ≥ k) = P(C(F, k) ≥ 1) ≤ 1/k!, whatever the rows are: correlated, duplicated, or all drawn to one hub.
Rows without a unique nearest row have no g and only make F smaller.

Which side looks for its nearest rows must not matter. Let M be the mean of the two counts, from A's side and from B's. C(x, k),
continued by 0 below x = k − 1, is convex in x, so E[C(M, k)] is at most the mean of the two expectations: every bound that holds
for F holds for M, rounded down.

Reference null, for g a bijection: F has mean 1 and standard deviation 1. With q = (rows that have a unique nearest one)/m,
E F = q ≤ 1 and E F(F−1) ≤ q² for any other g, so that Var F ≤ q ≤ 1.
"""

import math
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray, check_finite
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput
from kinprint.stats.combine import log_exp_series
from kinprint.stats.moments import centred_rows
from kinprint.stats.tails import least_log10_p
from kinprint.text import Text

SINGLE_SCORES = 1 << 22
SINGLE_WIDTH = 1 << 14
"""From so many pairs of rows on, and up to this width, float32 makes the first pass. Measured on 10,000×4096, the answers being
the same: 0.64 of the time of float64 for unrelated rows, a tenth of which are done twice, and 0.55 for related ones.
Wider rows would nearly all be in doubt."""

_SAFE = (1e-100, 1e100)  # lengths whose squares are far from the ends of float64
_LN10 = math.log(10.0)


@dataclass(frozen=True)
class FixedPoints:
    """Count of rows whose nearest row is the one at their own place, seen from both sides, with a bound on its p-value."""

    count: int
    n: int  # rows
    log10_p: float


def fixed_points(A: ArrayLike, B: ArrayLike, *, block: int = 1024, centre: bool = False) -> FixedPoints:
    """Count the rows whose nearest row of the other side is at the same place; log10 p = log10 1/count! (see the module)."""
    # A and B are (m, d); `block` rows of either side are multiplied at a time; `centre` takes correlations in place of cosines. The
    # count is the mean of those from A's side and from B's, rounded down; for counts of 0 and 1 p is 1. A row of length zero (or
    # constant, if centred) has no nearest row and is nobody's. Two cosines closer than the largest rounding error that products of
    # this width can have, d·eps, count as equal: the answer must not depend on the order in which a processor adds. Large problems
    # are done in float32 and again in float64 for the rows that leaves in doubt.
    left, right = _checked(A, "a"), _checked(B, "b")
    if left.shape != right.shape:
        raise DegenerateInput(f"fixed points: expected equal shapes, got {left.shape} and {right.shape}")
    if block < 1:
        raise ValueError(f"fixed points: expected a block of at least one row, got {block}")
    m, width = left.shape
    single = m * m >= SINGLE_SCORES and width <= SINGLE_WIDTH
    one, two = (_directions(X, centre=centre) for X in (left, right))
    dtype = np.float32 if single else np.float64
    margins = _margins(one.astype(dtype, copy=False), two.astype(dtype, copy=False), block)
    fixed = 0
    for margin, here, there in zip(margins, (one, two), (two, one), strict=True):
        fixed += int(np.count_nonzero(margin > _rounding(width, dtype)))
        if single and (todo := np.flatnonzero(np.abs(margin) <= _rounding(width, dtype))).size:
            again = [_margin_of(here[part], there, part) for part in np.array_split(todo, -(-todo.size // block))]
            doubtful = np.concatenate(again) > _rounding(width, np.float64)
            fixed += int(doubtful.sum()) - int(np.count_nonzero(margin[todo] > _rounding(width, dtype)))
    return FixedPoints(fixed // 2, m, min(0.0, least_log10_p(fixed // 2)))


def _rounding(width: int, dtype: type[np.floating[Any]]) -> float:
    return (width + 16) * float(np.finfo(dtype).eps)


def _checked(X: ArrayLike, side: str) -> NDArray[Any]:
    values = np.asarray(X)
    if values.ndim != 2 or values.size == 0:
        raise DegenerateInput(f"fixed points: expected a non-empty matrix for {side}, got the shape {values.shape}")
    check_finite(values, Text("fixed points"), side)
    return values


def _directions(X: NDArray[Any], *, centre: bool) -> FloatArray:
    """Return the rows at unit length; those that have no direction are NaN."""
    rows = X.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.sqrt(np.vecdot(rows, rows))
    if not (_SAFE[0] < float(lengths.min()) and float(lengths.max()) < _SAFE[1]):
        peaks = np.abs(rows).max(axis=1)
        rows /= np.where(peaks > 0.0, peaks, 1.0)[:, None]  # so that no square overflows or vanishes
        lengths = np.linalg.norm(rows, axis=1)
    if centre:
        rows = centred_rows(rows)
        lengths = np.linalg.norm(rows, axis=1)
    rows /= np.where(lengths > 0.0, lengths, math.nan)[:, None]
    return rows


def fixed_by_scores(cosines: FloatArray, width: int) -> int:
    """Return the count of `fixed_points` from the cosines of all rows (A's × B's), of some width; overwrites the diagonal."""
    own = cosines.diagonal().copy()
    np.fill_diagonal(cosines, -np.inf)
    with np.errstate(invalid="ignore"):  # rows without a direction have minus infinity, and are not fixed
        fixed = [own - cosines.max(axis=axis, initial=-np.inf) > _rounding(width, np.float64) for axis in (0, 1)]
    return int(np.count_nonzero(fixed)) // 2


def _margins(one: NDArray[Any], two: NDArray[Any], block: int) -> tuple[FloatArray, FloatArray]:
    """Return by how much the cosine of rows at one place exceeds those with all other rows: from A's side, and from B's."""
    # Minus infinity for rows without a direction.
    m = len(one)
    own, forth, back = np.full(m, -np.inf), np.full(m, -np.inf), np.full(m, -np.inf)
    for column in range(0, m, block):
        there = slice(column, column + block)
        for start in range(0, m, block):
            here = slice(start, start + block)
            scores = one[here] @ two[there].T
            if start == column:
                own[here] = scores.diagonal()
                np.fill_diagonal(scores, -np.inf)
            forth[here] = np.fmax(forth[here], np.fmax.reduce(scores, axis=1))  # NaN is nobody's nearest
            back[there] = np.fmax(back[there], np.fmax.reduce(scores, axis=0))
    return _over(own, forth), _over(own, back)


def _margin_of(here: FloatArray, there: FloatArray, places: NDArray[np.intp]) -> FloatArray:
    """Return the same in float64 for the rows at some places."""
    scores = here @ there.T
    each = np.arange(places.size)
    own = scores[each, places]
    scores[each, places] = -np.inf
    return _over(own, np.fmax.reduce(scores, axis=1))


def _over(own: FloatArray, others: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        margin: FloatArray = own - others
    return np.where(np.isnan(own), -np.inf, np.where(np.isnan(others), np.inf, margin))


@lru_cache(maxsize=1024)  # controls, power and tests ask for the same
def log10_p_total(total: int, sizes: tuple[int, ...]) -> float:
    """Return log10 of a bound on P(F ≥ k), F = Σ F_l over L layers of m_l rows, each permuted by itself, k = `total`."""
    # The permutations being independent, E[C(F, j)] = Σ Π E[C(F_l, j_l)] over all j_1 + … + j_L = j, by Vandermonde's identity.
    # The smallest of these bounds is taken:
    # 1. E[C(F, j)] ≤ Lʲ/j!, so by Markov's inequality P(F ≥ k) ≤ E[C(F, j)]/C(k, j) ≤ Lʲ(k−j)!/k! for any j ≤ k. The best
    #    is j = k − L; for one layer it is 1/k!. No Chernoff bound e^{Lx}/(1+x)^k is smaller: it is an average of these.
    # 2. E[(1+x)^F] = Π_l E Σ_j xʲ C(F_l, j) ≤ Π_l T_l(x), T_l(x) = Σ_{j ≤ m_l} xʲ/j!, because no more than m_l rows can be
    #    fixed. So P(F ≥ k) ≤ Π T_l(x)/(1+x)^k for any x > 0, smaller than the first once most rows are fixed.
    # 3. All rows fixed: Π 1/m_l!, the limit of the second. No p-value is below it.
    layers = Counter(size for size in sizes if size > 0)
    most = sum(size * times for size, times in layers.items())
    if not 0 <= total <= most:
        raise ValueError(f"fixed points: {total} of {most} rows is not possible")
    if total == 0:
        return 0.0
    least = sum(times * least_log10_p(size) for size, times in layers.items())
    if total == most:
        return min(0.0, least)
    count = layers.total()
    j = max(0, total - count)
    moment = (j * math.log(count) + math.lgamma(total - j + 1) - math.lgamma(total + 1)) / _LN10
    return min(0.0, max(least, min(moment, _chernoff(total, layers))))


def _chernoff(total: int, layers: Counter[int]) -> float:
    """Return log10 of the least Π T_l(x)/(1+x)^k over x."""
    # The tilted mean of F, (1+x) Σ T_l′(x)/T_l(x), rises with x; the least is where it equals k. Any x gives a valid bound.
    low, high = math.log(1e-6), math.log(1e16)
    for _ in range(30):  # to 1e-7 in ln x: the bound is flat there, and differs by 1e-14
        middle = 0.5 * (low + high)
        x = math.exp(middle)
        # T′ is the series cut off one term earlier
        mean = (1.0 + x) * sum(
            times * math.exp(log_exp_series(x, size - 1) - log_exp_series(x, size)) for size, times in layers.items()
        )
        low, high = (middle, high) if mean < total else (low, middle)
    x = math.exp(low)
    series = math.fsum(times * log_exp_series(x, size) for size, times in layers.items())
    return min(0.0, series - total * math.log1p(x)) / _LN10


def count_needed(sizes: tuple[int, ...], log10_alpha: float) -> int | None:
    """Return the smallest total of fixed points whose p-value is at most alpha; None if all rows together do not reach it."""
    most = sum(sizes)
    if log10_p_total(most, sizes) > log10_alpha:
        return None
    return 1 + bisect_left(range(1, most), -log10_alpha, key=lambda total: -log10_p_total(total, sizes))
