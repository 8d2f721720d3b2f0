"""Tails in log space: no underflow, and every bound above the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from kinprint.results.p_values import PMethod
from kinprint.stats import tails
from kinprint.stats.moments import FloatArray, Moments, centred_rows, dot_moments
from kinprint.stats.tails import (
    each_log10_p_chernoff,
    each_log10_p_dot,
    log10_p_moments,
    log10_p_monte_carlo,
    log10_p_normal,
    log_normal_tail,
    tail_correction,
    trusted_z,
)


def log10_p_chernoff(A, B, t):
    """Return the bound of one pair of stacks."""
    return float(each_log10_p_chernoff(A[None], B[None], np.array([t]))[0])


@pytest.mark.parametrize("z", [-3.0, 0.0, 1.5, 8.0])
def test_normal_tail_agrees_with_scipy(z: float) -> None:
    assert log10_p_normal(z) == pytest.approx(math.log10(scipy.stats.norm.sf(z)), abs=1e-12)


def test_normal_tail_does_not_underflow() -> None:
    # Mills' ratio: ln sf(z) = −z²/2 − ln(z√(2π)) + O(1/z²)
    expected = (-(1000.0**2) / 2 - math.log(1000.0 * math.sqrt(2 * math.pi))) / math.log(10)
    assert log10_p_normal(1000.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("z", [-40.0, -8.0, -1e-9, 0.0, 0.3, 7.9, 15.99, 16.01, 37.0, 1e3, 1e150])
def test_the_logarithm_of_the_normal_tail_is_that_of_scipy(z):
    assert log_normal_tail(z) == pytest.approx(float(scipy.special.log_ndtr(-z)), rel=1e-13, abs=1e-300)


def test_monte_carlo_counts_the_observation() -> None:
    assert log10_p_monte_carlo(0, 9_999) == pytest.approx(-4.0)
    assert log10_p_monte_carlo(99, 99) == 0.0
    with pytest.raises(ValueError, match="cannot exceed"):
        log10_p_monte_carlo(100, 99)


def _shape(skewness: float, kurtosis: float, fourth: float = 0.0, reach: float = 0.01) -> Moments:
    return Moments(0.0, 1.0, 4096, skewness, kurtosis, fourth, reach)


def test_trusted_z() -> None:
    assert trusted_z(Moments(0.0, 1.0, 4096)) == 0.0
    assert trusted_z(_shape(0.11, 0.0)) == 0.0
    assert trusted_z(_shape(0.0, 0.21)) == 0.0
    assert trusted_z(_shape(-0.05, -0.01)) > 1e4
    z = trusted_z(_shape(0.03, 0.01))
    assert 0.03 * z / 3 + 0.01 * z * z / 12 == pytest.approx(0.1)
    assert trusted_z(_shape(0.0, 0.0, 0.002, 0.2)) > trusted_z(_shape(0.0, 0.0, 0.002, 0.5)) > 5
    assert trusted_z(_shape(0.0, 0.0, 0.3, 5.0)) < 1.5  # what the moments hide, the largest term tells


def test_correction_is_continuous_where_its_two_forms_meet() -> None:
    moments = _shape(0.05, 0.1, 0.3, 0.5)
    below, above = tail_correction(2.0 - 1e-9, moments), tail_correction(2.0, moments)
    assert above == pytest.approx(below, rel=1e-5)
    assert tail_correction(-1.0, moments) == 0.0
    assert tail_correction(1e4, moments) == math.inf


@pytest.mark.parametrize("body", ["two levels", "uniform"])
def test_outliers_hidden_by_a_light_tailed_body_are_not_taken_for_proof(body: str) -> None:
    """One giant on one side, a few outliers on the other: skewness and kurtosis cancel, yet they meet once in d/2 draws."""
    rng = np.random.default_rng(3)
    d = 4096
    plain = np.repeat([-1.0, 1.0], d // 2) if body == "two levels" else np.linspace(-1.73, 1.73, d)
    b = min((_with_outliers(plain, size) for size in np.linspace(2, 12, 400)), key=lambda x: abs(_kurtosis(x)))
    a = rng.normal(size=d) * math.sqrt(0.1)
    a[int(np.argmax(b))] = math.sqrt(0.9 * d)
    A, B = centred_rows(a[None]), centred_rows(b[None])
    moments = dot_moments(A, B)
    assert abs(moments.excess_kurtosis or 9.0) < 0.2
    z = float(np.vdot(A, B)) / moments.sd
    assert z > 5
    assert log10_p_normal(z) < -7
    found = _tail(z, moments, A, B, floor=-3.3)
    assert found is None or found[0] > -4.2  # the meeting alone has probability 2/4096


def _tail(z: float, moments: Moments, A: FloatArray, B: FloatArray, floor: float) -> tuple[float, str] | None:
    return each_log10_p_dot([z], [moments], A[None], B[None], floor=floor)[0]


def _with_outliers(b: FloatArray, size: float) -> FloatArray:
    spiked = b.copy()
    spiked[:2], spiked[-2:] = -size, size
    return spiked


def _kurtosis(x: FloatArray) -> float:
    x = x - x.mean()
    return float(np.mean(x**4) / np.mean(x**2) ** 2 - 3.0)


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


@pytest.mark.parametrize(("m", "d"), [(1, 300), (8, 200), (32, 64), (40, 257)])
def test_bounds_of_many_pairs_are_those_of_each(m: int, d: int) -> None:
    rng = np.random.default_rng(m)
    A, B = (centred_rows(rng.lognormal(0, 0.8, (5, m, d))) for _ in range(2))
    A[1], B[2, 0] = 0.0, 0.0  # nothing to bound, and a row without weight
    t = np.array([0.8, 0.3, 0.8, -1.0, 0.9]) * np.linalg.norm(A, axis=(1, 2)) * np.linalg.norm(B, axis=(1, 2))
    found = each_log10_p_chernoff(A, B, t)
    np.testing.assert_allclose(
        found, [log10_p_chernoff(*one) for one in zip(A, B, t.tolist(), strict=True)], rtol=1e-12
    )
    assert found[1] == found[3] == 0.0
    assert max(found[0], found[4]) < -1.0
    assert (found[2] < -0.5) == (m > 1)


def test_few_knots_weaken_a_bound_and_never_strengthen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks of many rows have some twenty knots: their bound lies above that of all values, by little."""
    rng = np.random.default_rng(4)
    cases = []
    for spread in (0.1, 0.5, 1.0):
        A, B = (centred_rows(rng.lognormal(0, spread, (32, 128))) for _ in range(2))
        cases += [(A, B, share * float(np.linalg.norm(A) * np.linalg.norm(B))) for share in (0.2, 0.5, 0.9)]
    few = [log10_p_chernoff(*case) for case in cases]
    monkeypatch.setattr(tails, "_places", lambda size, _edge, _inner: np.arange(size))
    every = [log10_p_chernoff(*case) for case in cases]
    assert all(0.85 * one >= other >= one - 1e-9 for other, one in zip(few, every, strict=True))


def test_chernoff_is_within_a_factor_of_two_of_the_gaussian_exponent() -> None:
    a, b = centred_rows(np.random.default_rng(0).normal(size=(2, 2048)))
    z = 25.0
    t = z * float(np.linalg.norm(a) * np.linalg.norm(b)) / math.sqrt(2047)
    normal = log10_p_normal(z)
    assert normal < log10_p_chernoff(a[None], b[None], t) < 0.45 * normal
    assert log10_p_chernoff(a[None], b[None], -1.0) == 0.0
    assert log10_p_chernoff(np.zeros((1, 4)), np.ones((1, 4)), 1.0) == 0.0


def test_p_never_rises_with_z_and_methods_follow_the_rules() -> None:
    rng = np.random.default_rng(2)
    A, B = (centred_rows(rng.lognormal(0, 0.5, (1, 2000))) for _ in range(2))
    moments = dot_moments(A, B)
    found = [_tail(z, moments, A, B, floor=-4.0) for z in (-1.0, 0.0, 2.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0)]
    values = [item[0] for item in found if item is not None]
    assert found[0] is not None
    assert found[-1] is not None
    assert all(x >= y for x, y in itertools.pairwise(values))
    methods = [item[1] for item in found if item is not None]
    assert methods[0] == PMethod.NORMAL
    assert methods[-1] == PMethod.CHERNOFF
    gauss_a, gauss_b = (centred_rows(rng.normal(size=(1, 4096))) for _ in range(2))
    held = _tail(40.0, dot_moments(gauss_a, gauss_b), gauss_a, gauss_b, floor=-4.0)
    assert held is not None
    assert held[1] == PMethod.HELD
    assert log10_p_normal(40.0) < held[0] < -30


def test_far_tail_of_the_beta_null_lies_below_the_normal() -> None:
    """For spherical vectors r² is Beta(1/2, (d−2)/2) exactly: the normal tail is conservative from z = 2 on."""
    d = 400
    for z in (2.0, 4.0, 8.0, 15.0):
        r = z / math.sqrt(d - 1)
        exact = scipy.stats.beta.logsf(r * r, 0.5, (d - 2) / 2) / math.log(10) - math.log10(2)
        assert exact < log10_p_normal(z)
