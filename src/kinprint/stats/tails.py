"""Turn a statistic into a p-value in log space, by the most precise method that can be trusted.

A normal tail at z = 60 reads 10⁻⁷⁸⁶, and is nonsense if two outliers happened to coincide. The choice for a permuted dot
product therefore rests on its exact skewness γ and excess kurtosis κ (`kinprint.stats.moments`):

1. **Normal tail**, if |γ| ≤ 0.1 and |κ| ≤ 0.2 and z is not beyond `trusted_z`, where `tail_correction`, which knows the
   largest single term too, reaches a tenth of z²/2. The correction is added to ln p, so the figure errs towards caution; at
   moderate z it is not visible in a Kolmogorov-Smirnov test of thousands of independent pairs (the tests repeat that).
2. **Beyond that**, p is held at its value at `trusted_z` (p can only fall with z), or a theorem gives something
   smaller: Cantelli's 1/(1+z²), Markov's E z⁴/z⁴ where the fourth moment is exact, or the Chernoff bound below.
3. No p-value is below 1/n! for n permuted units: the identity is one of the permutations.
4. **Monte-Carlo** with the +1 correction otherwise. Its floor 1/(draws+1) is honest.

For spherical (Gaussian) vectors the exact null of r is a Beta distribution with density ∝ (1−r²)^((d−4)/2). Since
ln(1−r²) ≤ −r², its far tail lies below the normal one: the normal tail is conservative there.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, each_dot
from kinprint.results.p_values import PMethod
from kinprint.stats.moments import Moments

MAX_SKEWNESS = 0.1
MAX_KURTOSIS = 0.2
MAX_CORRECTION = 0.1
MAX_CHERNOFF = 1 << 19
MAX_CHERNOFF_ROWS = 512
"""Largest stack for which the Chernoff bound is computed: some 500 exponentials per element, and a loop over rows."""

DECISIVE = -30.0  # a cheaper bound below this log10 p is not improved upon: nothing depends on a smaller number
_LN10, _ROOT2 = math.log(10.0), math.sqrt(2.0)


def log_normal_tail(z: float) -> float:
    """Return ln P(Z ≥ z), as a logarithm throughout: right to 1e-13, as the tests hold against scipy's ``log_ndtr``."""
    # Written out because loading ``scipy.special`` takes 0.17 s, a quarter of a comparison of small models. Beyond z = 16 by the
    # asymptotic series of Mills' ratio, whose first term left out is below 1e-13 there.
    if z <= 16.0:
        return math.log(0.5 * math.erfc(z / _ROOT2)) if z > 0.0 else math.log1p(-0.5 * math.erfc(-z / _ROOT2))
    if math.isinf(z):
        return -math.inf
    square, term, series = z * z, 1.0, 1.0
    for k in range(1, 21, 2):
        term *= -k / square
        series += term
    return -0.5 * square - math.log(z * math.sqrt(2.0 * math.pi)) + math.log(series)


def log10_p_normal(z: float) -> float:
    """Return log10 of the upper normal tail beyond `z`: z = 1000 gives −217151."""
    return log_normal_tail(z) / _LN10


def log10_p_monte_carlo(exceed: int, draws: int) -> float:
    """Return log10 of (exceed + 1)/(draws + 1), a valid p-value: the observed order counts as one of the draws."""
    if not 0 <= exceed <= draws:
        raise ValueError(f"{exceed} of {draws} draws cannot exceed")
    return math.log10((exceed + 1) / (draws + 1))


def least_log10_p(units: int) -> float:
    """Return log10 of 1/n!: the identity is one of the n! permutations and always reaches the observation."""
    return -math.lgamma(units + 1) / _LN10


def tail_correction(z: float, moments: Moments) -> float:
    """Return how much heavier than normal, in ln p, the upper tail may be at z: Cramér's series with a bound on its rest."""
    # γz³/6 + κz⁴/24 are its first terms, taken only where they are positive. Of the rest, the n-th term is about
    # (1/d)·Σ_jk (z·C_jk/sd)ⁿ/n! ≤ F·zⁿMⁿ⁻⁴/n! with F = `Moments.fourth` and M = `Moments.reach`, so that all terms from the
    # fifth on sum to at most F/M⁴ · (eˣ − 1 − x − … − x⁴/24), x = zM. Neither F nor M can be small because of a
    # cancellation: a light-tailed body and a few outliers may have κ = 0, yet M gives the outliers away.
    assert moments.skewness is not None
    assert moments.excess_kurtosis is not None
    assert moments.fourth is not None
    assert moments.reach is not None
    if z <= 0.0:
        return 0.0
    known = max(moments.skewness, 0.0) * z**3 / 6.0 + max(moments.excess_kurtosis, 0.0) * z**4 / 24.0
    x = z * moments.reach
    if x > 500.0:
        return math.inf
    if x < 1.0:  # the series itself: the difference below would cancel
        rest = x / 120.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0 * (1.0 + x / 8.0 * (1.0 + x / 9.0 * (1.0 + x / 10.0)))))
    else:
        rest = (math.exp(x) - 1.0 - x - x**2 / 2.0 - x**3 / 6.0 - x**4 / 24.0) / x**4
    return known + moments.fourth * z**4 * rest


def is_trusted(z: float, moments: Moments) -> bool:
    """Whether the normal tail is believed at z: the correction is at most a tenth of z²/2, and the shape is known."""
    skewness, kurtosis = moments.skewness, moments.excess_kurtosis
    if skewness is None or kurtosis is None or abs(skewness) > MAX_SKEWNESS or abs(kurtosis) > MAX_KURTOSIS:
        return False
    return tail_correction(z, moments) <= MAX_CORRECTION * z * z / 2.0


def trusted_z(moments: Moments) -> float:
    """Return the largest z ≥ 0 in the upper tail at which the normal tail is trusted; 0 if it is not at all."""
    low, high = 0.0, 1.0
    while is_trusted(high, moments) and high < 1e6:
        low, high = high, 2.0 * high
    for _ in range(24):  # correction/z² rises with z, so there is one crossing
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_trusted(middle, moments) else (low, middle)
    return low if low > 1e-6 else 0.0


def log10_p_moments(z: float, excess_kurtosis: float | None) -> float:
    """Return log10 of a rigorous bound on P(Z ≥ z): Cantelli's, or Markov's on the fourth power if smaller."""
    if z <= 0.0:
        return 0.0
    bound = -math.log1p(z * z) / _LN10
    if excess_kurtosis is not None:
        bound = min(bound, math.log10(max(3.0 + excess_kurtosis, 1.0)) - 4.0 * math.log10(z))
    return min(0.0, bound)


def analytic_tail(z: float, moments: Moments, *, least: float | None = None) -> tuple[float, PMethod]:
    """Return (log10 p, method) without drawing: the normal tail if trusted at z, else a bound; no p is below `least` (1/n!)."""
    least = least_log10_p(moments.n) if least is None else least
    if is_trusted(z, moments):
        return max(_corrected(z, moments), least), PMethod.NORMAL
    limit = trusted_z(moments)
    # Markov's inequality needs the fourth moment itself, not an estimate of it
    options = [(log10_p_moments(z, None if moments.sampled else moments.excess_kurtosis), PMethod.MOMENT_BOUND)]
    if limit > 0.0:
        options.append((max(_corrected(limit, moments), least), PMethod.HELD))
    return min(options)


def _corrected(z: float, moments: Moments) -> float:
    return min(0.0, log10_p_normal(z) + tail_correction(z, moments) / _LN10)


def each_log10_p_chernoff(A: FloatArray, B: FloatArray, t: FloatArray) -> FloatArray:
    """Return log10 of a rigorous bound on P(T ≥ t), T = Σ_i a_i·(b_i∘π), for each pair of row-centred stacks, (pairs, m, d)."""
    # A permuted sequence is negatively associated (Joag-Dev & Proschan 1983): the expectation of a product of functions
    # of different elements, all rising or all falling, is at most the product of the expectations. For one row of unit
    # vectors, splitting the sum by the sign of a_j and applying Cauchy-Schwarz to the two halves gives for every θ ≥ 0:
    #
    #     ln E exp(θ a·(b∘π)) ≤ ½ Σ_j φ(2θa_j),   φ(u) = ln (1/d) Σ_k exp(u·b_k)
    #
    # φ is convex, and so is exp: chords between knots lie above, so a few knots replace all a_j and b_k and the bound still
    # holds. Rows combine by Jensen's inequality, exp of a weighted mean being at most the weighted mean of exps, with the
    # weights ‖a_i‖‖b_i‖. Then P(T ≥ t) ≤ exp(−θt)·E exp(θT); any θ is valid and the best of a grid is taken. For one row
    # of Gaussian values the exponent is half that of the normal tail. Either side may stand for a: that with the larger fourth
    # powers does, whichever was given first. Measured on log-normal rows: the smaller bound in 9 of 10, by a fifth of the exponent.
    pairs, m, d = A.shape
    norms_a, norms_b = np.linalg.norm(A, axis=2), np.linalg.norm(B, axis=2)
    weights = norms_a * norms_b
    totals = weights.sum(axis=1)
    found = np.zeros(pairs)
    used = np.flatnonzero((totals > 0.0) & (t > 0.0))
    if not used.size:
        return found
    one, two = _unit_rows(A[used], norms_a[used]), _unit_rows(B[used], norms_b[used])
    squares_a, squares_b = one * one, two * two
    heavier = (each_dot(squares_a, squares_a) >= each_dot(squares_b, squares_b))[:, None, None]
    (knots_a, shares_a), (knots_b, shares_b) = _knots(np.where(heavier, one, two)), _knots(np.where(heavier, two, one))
    with np.errstate(divide="ignore"):  # a row of zeros has no weight
        log_weights = np.log(weights[used] / totals[used, None])
    aims = t[used] / totals[used]
    # the optimum for Gaussian rows is at factor 1 and moves down as tails get heavier
    octaves = np.linspace(-6.0, 1.0, 15 if m == 1 else 8)

    def exponents(which: NDArray[np.intp], octave: int) -> FloatArray:
        thetas = 0.5 * (d - 1) * aims[which] * np.exp2(octaves[octave])
        logs = _log_mgf_bound(knots_a[which], shares_a[which], knots_b[which], shares_b[which] / d, thetas)
        bounds: FloatArray = np.logaddexp.reduce(logs + log_weights[which], axis=1) - thetas * aims[which]
        return bounds

    least = _least_of_convex(exponents, used.size, octaves.size, start=int(np.argmin(np.abs(octaves))))
    found[used] = np.minimum(0.0, least) / _LN10
    return found


def _unit_rows(X: FloatArray, norms: FloatArray) -> FloatArray:
    return np.divide(X, norms[:, :, None], out=np.zeros_like(X), where=norms[:, :, None] > 0.0)


def _least_of_convex(
    function: Callable[[NDArray[np.intp], int], FloatArray], count: int, size: int, *, start: int
) -> FloatArray:
    """Return the least values of convex functions on a grid of `size` places, going downhill from `start`."""
    standing = np.arange(count)
    least = function(standing, start)
    for step in (-1, 1):
        falling, index = standing, start + step
        while falling.size and 0 <= index < size:
            there = function(falling, index)
            lower = there < least[falling]
            if index == start + step:
                standing = falling[~lower]  # what falls on this side rises on the other
            falling = falling[lower]
            least[falling] = there[lower]
            index += step
    return least


def _log_mgf_bound(
    knots_a: FloatArray, shares_a: FloatArray, knots_b: FloatArray, shares_b: FloatArray, thetas: FloatArray
) -> FloatArray:
    """Return ½ Σ_j φ(2θa_j) for each row of each stack, with φ and its exponentials replaced by their chords between knots."""
    slopes = (2.0 * thetas[:, None, None]) * knots_a
    # the largest exponent of each sum, taken out of it, so that nothing overflows
    largest = slopes * np.where(slopes > 0.0, knots_b[:, :, -1:], knots_b[:, :, :1])
    sums = np.empty_like(slopes)
    for stack, (one, two, top) in enumerate(zip(slopes, knots_b, largest, strict=True)):  # one at a time fits the cache
        exponents = one[:, :, None] * two[:, None, :]
        exponents -= top[:, :, None]
        np.exp(exponents, out=exponents)
        sums[stack] = np.matmul(exponents, shares_b[stack, :, :, None])[:, :, 0]
    bounds: FloatArray = 0.5 * (shares_a * (largest + np.log(sums))).sum(axis=2)
    return bounds


@lru_cache(maxsize=64)
def _places(size: int, edge: int, inner: int) -> NDArray[np.intp]:
    edge = min(edge, size)
    chosen = {*range(edge), *range(size - edge, size), *range(0, size, max(1, size // inner))}
    return np.array(sorted(chosen), dtype=np.intp)  # np.unique loads numpy.ma, in 35 ms


def _knots(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return some values of each row (…, rows, d), and weights that carry all values' shares to these."""
    # For a convex function f, Σ weight·f(knot) is at least Σ f(value): a chord lies above its arc. The extremes, where f bends
    # most, are all among the knots. Cost goes with rows times the square of knots, so stacks of many rows have few: that takes 2 %
    # off the exponent in the median and 10 % at most (1,200 comparisons of layers).
    values = np.sort(values, axis=-1)
    rows, size = values.shape[-2:]
    edge, inner = (12, 64) if rows == 1 else (12, 32) if rows <= 8 else (4, 12)
    index = _places(size, edge, inner)
    knots = values[..., index]
    if index.size == 1:
        return knots, np.full(knots.shape, float(size))
    # what lies between two knots, the right one included: a count, and a sum less that of the left knot
    counts = np.diff(index).astype(np.float64)
    beyond = np.add.reduceat(values, index[:-1] + 1, axis=-1) - counts * knots[..., :-1]
    width = np.diff(knots, axis=-1)
    right = np.clip(np.divide(beyond, width, out=np.zeros_like(width), where=width > 0.0), 0.0, counts)
    weights = np.zeros_like(knots)
    weights[..., 1:] += right
    weights[..., :-1] += counts - right
    weights[..., 0] += 1.0  # the first value, which is a knot
    return knots, weights


def each_log10_p_dot(
    z: Sequence[float], moments: Sequence[Moments], A: FloatArray, B: FloatArray, *, floor: float, bound: bool = True
) -> list[tuple[float, PMethod] | None]:
    """Return (log10 p, method) for the upper tails of permuted dot products, or None where only drawing helps."""
    # `z` are standardised observations; `moments` and the row-centred stacks A and B, (pairs, m, d), are those of this orientation.
    # `floor` is log10 of the least p-value that drawing could give: a bound that does not fall below it is not worth having.
    # `bound` says whether to compute the Chernoff bound where the normal tail is not trusted.
    found = [analytic_tail(*pair) for pair in zip(z, moments, strict=True)]
    weak = [k for k, (log10_p, method) in enumerate(found) if method != PMethod.NORMAL and log10_p > DECISIVE]
    if bound and weak and A[0].size <= MAX_CHERNOFF and A.shape[1] <= MAX_CHERNOFF_ROWS:
        bounds = each_log10_p_chernoff(A[weak], B[weak], np.array([z[k] * moments[k].sd for k in weak]))
        for k, log10_p in zip(weak, bounds.tolist(), strict=True):
            found[k] = min(found[k], (log10_p, PMethod.CHERNOFF))
    return [one if one[1] == PMethod.NORMAL or one[0] < floor else None for one in found]
