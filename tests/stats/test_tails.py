"""Tails in log space: no underflow, and every bound above the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from kinprint.stats.moments import centred_rows, dot_moments
from kinprint.stats.tails import (
    HELD,
    NORMAL,
    log10_p_chernoff,
    log10_p_dot,
    log10_p_moments,
    log10_p_monte_carlo,
    log10_p_normal,
    trusted_z,
)


@pytest.mark.parametrize("z", [-3.0, 0.0, 1.5, 8.0])
def test_normal_tail_agrees_with_scipy(z: float) -> None:
    assert log10_p_normal(z, "greater") == pytest.approx(math.log10(scipy.stats.norm.sf(z)), abs=1e-12)
    assert log10_p_normal(z, "less") == pytest.approx(math.log10(scipy.stats.norm.cdf(z)), abs=1e-12)
    both = min(1.0, 2 * scipy.stats.norm.sf(abs(z)))
    assert log10_p_normal(z, "two-sided") == pytest.approx(math.log10(both), abs=1e-12)


def test_normal_tail_does_not_underflow() -> None:
    # Mills' ratio: ln sf(z) = −z²/2 − ln(z√(2π)) + O(1/z²)
    expected = (-(1000.0**2) / 2 - math.log(1000.0 * math.sqrt(2 * math.pi))) / math.log(10)
    assert log10_p_normal(1000.0, "greater") == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="unknown tail"):
        log10_p_normal(0.0, "upper")


def test_monte_carlo_counts_the_observation() -> None:
    assert log10_p_monte_carlo(0, 9_999) == pytest.approx(-4.0)
    assert log10_p_monte_carlo(99, 99) == 0.0
    with pytest.raises(ValueError, match="cannot exceed"):
        log10_p_monte_carlo(100, 99)


def test_trusted_z() -> None:
    assert trusted_z(None, 0.0) == 0.0
    assert trusted_z(0.11, 0.0) == 0.0
    assert trusted_z(0.0, 0.21) == 0.0
    assert trusted_z(-0.05, -0.01) == math.inf
    z = trusted_z(0.03, 0.01)
    assert 0.03 * z / 3 + 0.01 * z * z / 12 == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("m", [1, 3])
def test_bounds_hold_against_all_permutations(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = centred_rows(rng.lognormal(0, 1.5, (m, 7))), centred_rows(rng.normal(size=(m, 7)))
    values = np.sort([np.vdot(A, B[:, order]) for order in itertools.permutations(range(7))])
    moments = dot_moments(A, B)
    for share in (0.5, 0.9, 0.99, 0.999, 1.0):
        t = float(values[int(share * (values.size - 1))])
        truth = math.log10(np.mean(values >= t - 1e-12))
        assert log10_p_chernoff(A, B, t) >= truth
        assert log10_p_moments(t / moments.sd, moments.excess_kurtosis) >= truth - 1e-12
        assert log10_p_moments(t / moments.sd, None) >= truth - 1e-12


def test_chernoff_is_within_a_factor_of_two_of_the_gaussian_exponent() -> None:
    a, b = centred_rows(np.random.default_rng(0).normal(size=(2, 2048)))
    z = 25.0
    t = z * float(np.linalg.norm(a) * np.linalg.norm(b)) / math.sqrt(2047)
    normal = log10_p_normal(z, "greater")
    assert normal < log10_p_chernoff(a[None], b[None], t) < 0.45 * normal
    assert log10_p_chernoff(a[None], b[None], -1.0) == 0.0
    assert log10_p_chernoff(np.zeros((1, 4)), np.ones((1, 4)), 1.0) == 0.0


def test_p_never_rises_with_z_and_methods_follow_the_rules() -> None:
    rng = np.random.default_rng(2)
    A, B = (centred_rows(rng.lognormal(0, 0.5, (1, 2000))) for _ in range(2))
    moments = dot_moments(A, B)
    found = [log10_p_dot(z, moments, A, B, floor=-4.0) for z in (-1.0, 0.0, 2.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0)]
    values = [item[0] for item in found if item is not None]
    assert len(values) == len(found)
    assert all(x >= y for x, y in itertools.pairwise(values))
    methods = [item[1] for item in found if item is not None]
    assert methods[0] == NORMAL
    assert HELD in methods
    assert "Chernoff" in methods[-1]


def test_far_tail_of_the_beta_null_lies_below_the_normal() -> None:
    """For spherical vectors r² is Beta(1/2, (d−2)/2) exactly: the normal tail is conservative from z = 2 on."""
    d = 400
    for z in (2.0, 4.0, 8.0, 15.0):
        r = z / math.sqrt(d - 1)
        exact = scipy.stats.beta.logsf(r * r, 0.5, (d - 2) / 2) / math.log(10) - math.log10(2)
        assert exact < log10_p_normal(z, "greater")
