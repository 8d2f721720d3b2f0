"""The weakest relation a test finds, checked by planting relations of just that strength."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from kinprint._util.numeric import FloatArray
from kinprint.results.p_values import PMethod
from kinprint.stats.fixedpoints import combined_fixed_points, fixed_points, log10_p_total
from kinprint.stats.moments import Moments
from kinprint.stats.power import (
    least_correlation,
    least_norm_correlation,
    least_row_cosine,
    match_probability,
    normal_quantile,
)
from kinprint.stats.tails import analytic_tail, log10_p_normal


def test_normal_quantile() -> None:
    for alpha in (0.5, 0.05, 1e-10, 1e-300):
        assert normal_quantile(math.log10(alpha)) == pytest.approx(scipy.stats.norm.isf(alpha), abs=1e-9)
    for log10_alpha in (-400.0, -1e4, -1e6):
        assert log10_p_normal(normal_quantile(log10_alpha), "greater") == pytest.approx(log10_alpha, rel=1e-9)
    for bad in (0.0, 1.0, -math.inf, math.nan):
        with pytest.raises(ValueError, match="level between 0 and 1"):
            normal_quantile(bad)


def test_least_correlation_by_hand() -> None:
    sd = 1 / math.sqrt(4095)
    expected = (scipy.stats.norm.isf(1e-6) + scipy.stats.norm.isf(0.05)) * sd
    assert least_correlation(sd, -6.0) == pytest.approx(expected)
    assert least_correlation(sd, -6.0, power=0.5) == pytest.approx(scipy.stats.norm.isf(1e-6) * sd)
    assert least_norm_correlation([sd], -6.0) == least_correlation(sd, -6.0)
    assert least_norm_correlation([sd, 3 * sd], -6.0) == pytest.approx(2 * expected)
    assert least_correlation(0.1, -300.0) is None  # it would have to be 3.9


def test_a_copy_that_reaches_the_level_is_never_said_not_to() -> None:
    """A copy does not scatter: where only the margin for scatter is beyond 1, copies are found, and 1 is the answer."""
    assert least_correlation(0.1, -9.5, log10_p_of=lambda t: -10 * t) == 1.0
    assert least_correlation(0.1, -10.0, log10_p_of=lambda t: -10 * t) == 1.0
    assert least_correlation(0.1, -10.1, log10_p_of=lambda t: -10 * t) is None
    sd = 0.98 / normal_quantile(-9.0)
    assert least_correlation(sd, -9.0) == 1.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_deviation_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive standard deviation"):
        least_correlation(bad, -3.0)


def test_bad_power_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="probability"):
        least_correlation(0.1, -3.0, power=1.0)
    with pytest.raises(ValueError, match="no null"):
        least_norm_correlation([], -3.0)
    with pytest.raises(ValueError, match="expected a cosine"):
        match_probability(1.5, 10, 10)
    with pytest.raises(ValueError, match="positive sizes"):
        match_probability(0.5, 0, 10)
    with pytest.raises(ValueError, match="positive sizes"):
        least_row_cosine(10, 10, 0, -3.0)


def test_the_tests_own_tail_is_inverted() -> None:
    sd = 1 / math.sqrt(4095)

    def normal(statistic: float) -> float:
        return log10_p_normal(statistic / sd, "greater")

    plain = least_correlation(sd, -12.0)
    assert plain is not None
    assert least_correlation(sd, -12.0, log10_p_of=normal) == pytest.approx(plain, rel=1e-9)
    halved = least_correlation(sd, -12.0, log10_p_of=lambda t: 0.5 * normal(t))
    assert halved is not None
    assert halved > 1.2 * plain


def test_a_held_tail_finds_nothing_beyond_its_level() -> None:
    moments = Moments(0.0, 1 / 4095, 4096, 0.02, 0.01, 0.0005, 0.1)

    def own(statistic: float) -> float:
        return analytic_tail(statistic / moments.sd, moments)[0]

    assert analytic_tail(60.0, moments)[1] == PMethod.HELD
    held = own(1.0)
    assert -30.0 < held < -5.0
    plain, within = least_correlation(moments.sd, -5.0), least_correlation(moments.sd, -5.0, log10_p_of=own)
    assert plain is not None
    assert within is not None
    assert plain < within < 1.2 * plain  # the correction for its skewness
    assert least_correlation(moments.sd, held - 1.0, log10_p_of=own) is None
    assert least_correlation(moments.sd, held - 1.0) is not None


@pytest.mark.parametrize(("d", "log10_alpha"), [(1000, -3.0), (2000, -8.0)])
def test_planted_correlations_are_found_as_often_as_said(d: int, log10_alpha: float) -> None:
    sd = 1 / math.sqrt(d - 1)
    rho = least_correlation(sd, log10_alpha)
    assert rho is not None
    rng = np.random.default_rng(d)
    detected = []
    for _ in range(1500):
        a, noise = rng.standard_normal((2, d))
        b = rho * a + math.sqrt(1 - rho**2) * noise
        r = np.corrcoef(a, b)[0, 1]
        detected.append(log10_p_normal(r / sd, "greater") <= log10_alpha)
    assert 0.90 < np.mean(detected) < 0.99


BLOCK = 16  # small, so that BLAS does not start threads for it


# --- rows -------------------------------------------------------------------------------------------------------------


def test_match_probability_at_the_ends() -> None:
    for n in (1, 2, 100, 10_000, 10**6):
        assert match_probability(0.0, 512, n) == pytest.approx(1 / n, rel=1e-9)
    assert match_probability(1.0, 512, 10_000) == pytest.approx(1.0, abs=1e-12)
    assert match_probability(-0.5, 512, 100) == pytest.approx(0.0, abs=1e-12)
    # two rows: P(N(ρ√w, 1−ρ²) > N(0, 1)) = Φ(ρ√w/√(2−ρ²))
    expected = scipy.stats.norm.cdf(0.1 * math.sqrt(256) / math.sqrt(2 - 0.01))
    assert match_probability(0.1, 256, 2) == pytest.approx(expected, rel=1e-12)
    rising = [match_probability(rho, 256, 500) for rho in np.linspace(0, 1, 50)]
    assert np.all(np.diff(rising) >= -1e-12)


def _pair(rng: np.random.Generator, n: int, width: int, rho: float) -> tuple[FloatArray, FloatArray]:
    A = rng.standard_normal((n, width))
    A *= math.sqrt(width) / np.linalg.norm(A, axis=1, keepdims=True)
    return A, rho * A + math.sqrt(1 - rho**2) * rng.standard_normal((n, width))


@pytest.mark.parametrize(("n", "width", "rho"), [(150, 512, 0.1), (150, 512, 0.15), (100, 512, 0.08)])
def test_match_probability_by_simulation(n: int, width: int, rho: float) -> None:
    rng = np.random.default_rng(n)
    found = np.mean([fixed_points(*_pair(rng, n, width, rho), block=BLOCK).count / n for _ in range(20)])
    assert found == pytest.approx(match_probability(rho, width, n), abs=0.03)


def _detection_rate(n: int, width: int, layers: int, log10_alpha: float, trials: int) -> float:
    rho = least_row_cosine(n, width, layers, log10_alpha)
    assert rho is not None
    rng = np.random.default_rng(width)
    found = 0
    for _ in range(trials):
        counts = [fixed_points(*_pair(rng, n, width, rho), block=BLOCK).count for _ in range(layers)]
        found += combined_fixed_points(counts, [n] * layers) <= log10_alpha
    return found / trials


def test_planted_rows_are_found_as_often_as_said() -> None:
    assert 0.90 < _detection_rate(64, 256, 2, -6.0, 200) < 0.99


@pytest.mark.parametrize(
    ("n", "width", "layers", "log10_alpha"),
    [
        pytest.param(128, 512, 1, -10.0, marks=pytest.mark.slow),
        pytest.param(128, 512, 4, -30.0, marks=pytest.mark.nightly),
        pytest.param(256, 512, 3, -100.0, marks=pytest.mark.nightly),
    ],
)
def test_planted_rows_are_found_as_often_as_said_in_larger_cases(
    n: int, width: int, layers: int, log10_alpha: float
) -> None:
    assert 0.90 < _detection_rate(n, width, layers, log10_alpha, 200) < 0.99


def test_least_row_cosine_knows_its_limits() -> None:
    assert least_row_cosine(10, 128, 1, -7.0) is None  # 1/10! is 10^-6.6
    assert least_row_cosine(10, 128, 2, -7.0) is not None
    assert least_row_cosine(1, 128, 50, -0.5) is None
    assert least_row_cosine(1000, 4, 1, -2500.0) == 1.0  # nearly all of 1,000 rows in 4 dimensions: copies only
    many = [least_row_cosine(1000, 1024, layers, -30.0) for layers in (1, 8, 64)]
    assert many == sorted(many, key=lambda rho: -(rho or 0.0))
    wide = least_row_cosine(1000, 4096, 1, -30.0)
    assert many[0] is not None
    assert wide == pytest.approx(many[0] / 2, rel=0.02)  # cosines scale as 1/√width


def test_needed_count_is_the_least() -> None:
    """With power near one half the share of matches is the needed count, just."""
    n, layers, alpha = 200, 3, -12.0
    rho = least_row_cosine(n, 4096, layers, alpha, power=0.5)
    assert rho is not None
    count = match_probability(rho, 4096, n) * n * layers
    needed = next(k for k in range(n * layers) if log10_p_total(k, [n] * layers) <= alpha)
    assert count == pytest.approx(needed, abs=0.5)
