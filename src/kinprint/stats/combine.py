"""Correct log10 p-values for many tries, and combine independent ones.

A p-value here may be an upper bound on the true one. Each rule below rises with every p-value it is given, so a result
made from bounds is a bound as well.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kinprint._util.numeric import FloatArray

_LN10 = math.log(10.0)


def bonferroni(log10_p: float, tries: int) -> float:
    """Return log10 of min(1, tries·p): the least of `tries` p-values, however they depend on each other."""
    if tries < 1:
        raise ValueError(f"bonferroni: expected at least one try, got {tries}")
    return min(0.0, float(_checked([log10_p])[0]) + math.log10(tries))


def holm(log10_ps: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted log10 p-values, in the order given; valid under any dependence."""
    # The i-th smallest of m is multiplied by m − i + 1, and none is adjusted to less than a smaller one is.
    values = _checked(log10_ps)
    order = np.argsort(values, kind="stable")
    factors = np.log10(np.arange(values.size, 0, -1, dtype=np.float64))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] + factors), 0.0)
    found: list[float] = adjusted.tolist()
    return found


def fisher(log10_ps: Sequence[float]) -> float:
    """Return log10 p of Fisher's (1932) combination of INDEPENDENT p-values."""
    # −2 Σ ln p is χ² with 2k degrees of freedom if each p is uniform. For even degrees of freedom the tail is a finite
    # sum, P(χ² ≥ 2h) = e⁻ʰ Σ_{j<k} hʲ/j!, and its logarithm is taken term by term: nothing underflows.
    values = _checked(log10_ps)
    if values.size == 0:
        raise ValueError("fisher: no p-value to combine")
    half = -_LN10 * math.fsum(values)
    if math.isinf(half):
        return -math.inf
    return min(0.0, (log_exp_series(half, values.size - 1) - half) / _LN10)


def log_exp_series(x: float, degree: int) -> float:
    """Return ln Σ_{j ≤ degree} xʲ/j!, the exponential series cut off, for x ≥ 0 of any size."""
    if x < 0.0 or degree < 0:
        raise ValueError(f"log_exp_series: expected x ≥ 0 and degree ≥ 0, got {x} and {degree}")
    if x == 0.0:
        return 0.0
    terms = np.arange(degree + 1) * math.log(x) - _log_factorials(1 << degree.bit_length())[: degree + 1]
    peak = float(terms.max())
    return peak + math.log(float(np.sum(np.exp(terms - peak))))


@lru_cache(maxsize=8)
def _log_factorials(count: int) -> FloatArray:
    """Return ln 0!, ln 1!, …; not by scipy, which takes 0.17 s to load."""
    return np.array([math.lgamma(j + 1) for j in range(count)])


def _checked(log10_ps: Sequence[float]) -> FloatArray:
    """Return the values as an array, having refused what is no log10 of a probability."""
    values = np.asarray(log10_ps, dtype=np.float64)
    if values.ndim != 1 or not bool(np.all(values <= 0.0)):  # false for NaN as well
        raise ValueError("expected log10 p-values: a list of numbers of at most 0")
    return values
