"""What a test could have found: the weakest relation that it detects at a level, with a given probability.

"Not significant" says little by itself. A test that would have found a correlation of 0.05 and did not is news; one that
needs 0.9 is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kinprint.stats.fixedpoints import log10_p_total

_LN10 = math.log(10.0)
_HALVINGS = 40  # of an interval of length one: twelve digits
_GRID = np.linspace(-12.0, 12.0, 2401)
"""Nodes of the trapezoidal rule against a normal density, whose error falls exponentially with the step."""


def normal_quantile(log10_alpha: float) -> float:
    """Return the z that a standard normal variable exceeds with probability 10**log10_alpha, however small."""
    from scipy.special import ndtri_exp  # here, because it is slow to load

    _check_level(log10_alpha)
    return -float(ndtri_exp(log10_alpha * _LN10))


def least_correlation(
    sd: float,
    log10_alpha: float,
    power: float = 0.95,
    *,
    log10_p_of: Callable[[float], float] | None = None,
    limit: float = 1.0,
    halvings: int = _HALVINGS,
) -> float | None:
    """Return the smallest true correlation that is found at the level alpha with probability `power`.

    Parameters
    ----------
    sd
        Standard deviation of the statistic's null, whose mean is 0. It is used for the statistic's scatter around a true
        correlation as well; that scatter is smaller for vectors with a true correlation, so the figure errs upwards.
    log10_alpha
        Level of the test, one-sided.
    log10_p_of
        The test's own log10 p as a function of the statistic, falling or level, where that is more cautious than the
        normal tail (a held tail, a Chernoff bound). Its critical value takes the place of the normal one.
    limit
        Largest value of the statistic.
    halvings
        Of the interval in which the critical value of `log10_p_of` is sought.

    Returns
    -------
    float | None
        (critical value) + z_power·sd, with z_alpha·sd as the critical value of the normal tail; at most `limit`, where only
        copies, which do not scatter, are sure to be found. None if the critical value is beyond `limit`: then nothing can
        be found at this level.
    """
    if not (sd > 0.0 and math.isfinite(sd)):
        raise ValueError(f"least_correlation: expected a positive standard deviation, got {sd}")
    _check_power(power)
    critical: float | None
    if log10_p_of is None:
        critical = normal_quantile(log10_alpha) * sd
    else:
        critical = _critical_value(log10_p_of, log10_alpha, limit, halvings)
    if critical is None or critical > limit:
        return None
    return min(critical - normal_quantile(math.log10(power)) * sd, limit)


def _critical_value(
    log10_p_of: Callable[[float], float], log10_alpha: float, limit: float, halvings: int
) -> float | None:
    """Return the smallest statistic in [0, limit] that reaches the level, by bisection; None if none does."""
    _check_level(log10_alpha)
    if log10_p_of(limit) > log10_alpha:
        return None
    return _first(lambda statistic: log10_p_of(statistic) <= log10_alpha, limit, halvings)


def _first(holds: Callable[[float], bool], limit: float, halvings: int = _HALVINGS) -> float:
    """Return the smallest value in [0, limit] for which `holds`, which does not become false again and is true at limit."""
    low, high = 0.0, limit
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_norm_correlation(sds: Sequence[float], log10_alpha: float, power: float = 0.95) -> float | None:
    """Return `least_correlation` for the mean of several layers' correlations, given the deviations of their nulls.

    Layers that share one permutation are not independent. Whatever their covariances, the deviation of a mean is at most
    the mean of the deviations, which is what is used; if the joint null is at hand, give its deviation alone.
    """
    if not sds:
        raise ValueError("least_norm_correlation: no null to go by")
    return least_correlation(math.fsum(sds) / len(sds), log10_alpha, power)


def match_probability(rho: float, width: int, candidates: int) -> float:
    """Return the probability that a row's partner, at the true cosine `rho`, is nearer than all other candidates.

    In `width` dimensions the cosines to unrelated rows are nearly N(0, 1/width), that to ρa + √(1−ρ²)·(noise) nearly
    N(ρ, (1−ρ²)/width). So the probability is E[Φ(X)^(candidates−1)], X ~ N(ρ√width, 1−ρ²); for ρ = 0 it is 1/candidates.
    Cosines have lighter tails than that: rows drawn with ρ = 0.2 among 500 in 256 dimensions matched in 0.575 of the cases
    for 0.564 by the formula, with ρ = 0.4 in 64 dimensions in 0.62 for 0.57. The formula errs towards caution.
    """
    from scipy.special import log_ndtr  # here, because it is slow to load

    if not -1.0 <= rho <= 1.0:
        raise ValueError(f"match_probability: expected a cosine, got {rho}")
    if width < 1 or candidates < 1:
        raise ValueError(f"match_probability: expected positive sizes, got width {width}, candidates {candidates}")
    x = rho * math.sqrt(width) + math.sqrt(1.0 - rho * rho) * _GRID
    weights = np.exp(-0.5 * _GRID**2)
    return float(weights @ np.exp((candidates - 1) * log_ndtr(x)) / weights.sum())


def least_row_cosine(n: int, width: int, layers: int, log10_alpha: float, power: float = 0.95) -> float | None:
    """Return the smallest true cosine of paired rows that the fixed points of layers × n rows reveal.

    The count needed is the least whose bound `log10_p_total` reaches the level; the matches needed for it follow from
    P(Binomial(layers·n, p) ≥ count) ≥ power, rows being taken as independent; the cosine follows from
    `match_probability`.

    Returns
    -------
    float | None
        At most 1, where only copies are sure to be found; None if even all rows together do not reach the level, 1/n! per
        layer being the smallest p-value there is.
    """
    from scipy.special import betaincinv  # here, because it is slow to load

    _check_level(log10_alpha)
    _check_power(power)
    if n < 1 or width < 1 or layers < 1:
        raise ValueError(f"least_row_cosine: expected positive sizes, got n {n}, width {width}, layers {layers}")
    needed = _count_needed([n] * layers, log10_alpha)
    if needed is None:
        return None
    # P(Binomial(N, p) ≥ k) is the regularised incomplete beta function I_p(k, N − k + 1)
    share = float(betaincinv(needed, n * layers - needed + 1, power))
    if match_probability(1.0, width, n) < share:
        return 1.0
    return _first(lambda rho: match_probability(rho, width, n) >= share, 1.0)


def _count_needed(sizes: Sequence[int], log10_alpha: float) -> int | None:
    """Return the smallest total of fixed points whose p-value is at most alpha; the bound falls with the total."""
    low, high = 0, sum(sizes)
    if log10_p_total(high, sizes) > log10_alpha:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if log10_p_total(middle, sizes) <= log10_alpha else (middle, high)
    return high


def _check_level(log10_alpha: float) -> None:
    if not -math.inf < log10_alpha < 0.0:
        raise ValueError(f"expected log10 of a level between 0 and 1, got {log10_alpha}")


def _check_power(power: float) -> None:
    if not 0.0 < power < 1.0:
        raise ValueError(f"expected a probability between 0 and 1, got {power}")
