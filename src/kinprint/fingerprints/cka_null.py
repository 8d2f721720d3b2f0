"""The permutation null of an unbiased CKA, for methods whose samples are not exchangeable: shown, and never called exact."""

from __future__ import annotations

import math

from kinprint.fingerprints.base import Chance
from kinprint.stats.kernels import unbiased_cka_moments
from kinprint.stats.tails import least_log10_p, log10_p_normal
from kinprint.text import Text


def cka_chance(value: float, n: int, name: Text, *assumptions: Text) -> Chance:
    """Return the null of one unbiased CKA over `n` samples: mean 0, exact variance, normal tail, not below 1/n!."""
    sd = math.sqrt(unbiased_cka_moments(n).variance)
    log10_p = max(log10_p_normal(value / sd, "greater"), least_log10_p(n))
    return Chance(name, 0.0, sd, log10_p, n, exact=False, assumptions=assumptions)
