"""Compute exact permutation moments of sums of pairwise costs, after Hoeffding (1951).

For T = Σ_j c(a_j, b_π(j)) over uniform permutations of d units::

    E T   = (1/d) Σ_jk c_jk
    Var T = (1/(d−1)) Σ_jk (c_jk − c_j. − c_.k + c..)²
          = (1/(d−1)) [Σ c² − d Σ_j c_j.² − d Σ_k c_.k² + d² c..²]

where a dot stands for a mean over that index. The d×d table is never formed: sorting gives the row and column means.
"""

import numpy as np
from numpy.typing import ArrayLike

from kinprint._util.numeric import FloatArray
from kinprint.stats.moments import Moments


def abs_cost_moments(a: ArrayLike, b: ArrayLike) -> Moments:
    """Return the moments of Σ|a_j − b_π(j)| in O(d log d)."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    origin = 0.5 * (float(x.mean()) + float(y.mean()))  # a far origin would drown the differences in rounding
    x, y = x - origin, y - origin
    n = x.size
    squares = n * (float(x @ x) + float(y @ y)) - 2.0 * float(x.sum()) * float(y.sum())
    rows, columns = _mean_distance(x, y), _mean_distance(y, x)
    grand = float(rows.mean())
    # deviations from the grand mean keep the cancellation small
    spread = float(np.sum((rows - grand) ** 2)) + float(np.sum((columns - grand) ** 2))
    variance = (squares - n * n * grand * grand - n * spread) / (n - 1) if n > 1 else 0.0
    if variance <= 1e-13 * squares / max(n - 1, 1):  # rounding: no permutation changes the sum
        variance = 0.0
    return Moments(n * grand, variance, n)


def _mean_distance(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return mean_k |x_j − y_k| for every j: with i values of y at most x, Σ_k = (2i − d)x + Σy − 2·(sum of those i)."""
    ordered = np.sort(y)
    prefix = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, x, side="right")
    distances: FloatArray = ((2.0 * below - y.size) * x + prefix[-1] - 2.0 * prefix[below]) / y.size
    return distances


def unequal_cost_moments(a: ArrayLike, b: ArrayLike) -> Moments:
    """Return the moments of the number of unequal pairs #{j : a_j ≠ b_π(j)}."""
    # With p_v and q_v the counts of the value v on either side, the equal pairs have Σe = Σe² = Σ_v p_v q_v, row sums
    # q_v and column sums p_v; the variance of unequal and of equal pairs is the same.
    x, y = np.asarray(a).ravel(), np.asarray(b).ravel()
    n = x.size
    values, counts_a = np.unique(x, return_counts=True)
    values_b, counts_b = np.unique(y, return_counts=True)
    _, in_a, in_b = np.intersect1d(values, values_b, assume_unique=True, return_indices=True)
    p, q = counts_a[in_a].astype(np.float64), counts_b[in_b].astype(np.float64)
    equal = float(p @ q)
    inner = equal - float(np.sum(p * q * (p + q))) / n + equal**2 / n**2
    variance = max(0.0, inner / (n - 1)) if n > 1 else 0.0
    return Moments(n - equal / n, 0.0 if variance < 1e-14 * n else variance, n)
