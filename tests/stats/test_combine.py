"""Corrections and combinations of p-values in log space, held against scipy and exact values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from kinprint.stats.combine import bonferroni, fisher, holm, log_exp_series


def test_bonferroni() -> None:
    assert bonferroni(-10.0, 100) == pytest.approx(-8.0)
    assert bonferroni(-1.0, 100) == 0.0
    assert bonferroni(-5.0, 1) == -5.0
    with pytest.raises(ValueError, match="at least one try"):
        bonferroni(-1.0, 0)
    with pytest.raises(ValueError, match="log10 p-values"):
        bonferroni(0.1, 2)


def test_holm_by_hand() -> None:
    # 0.01·4, 0.02·3, 0.03·2 raised to the one before, 0.9
    found = [10**value for value in holm([math.log10(p) for p in (0.03, 0.01, 0.9, 0.02)])]
    assert found == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([]) == []
    assert holm([-7.0]) == [-7.0]
    assert holm([-1e6, -2e6, 0.0]) == pytest.approx([-1e6 + math.log10(2), -2e6 + math.log10(3), 0.0])


def test_holm_lies_between_the_value_and_bonferroni() -> None:
    values = -np.random.default_rng(0).exponential(3.0, size=50)
    adjusted = np.array(holm(values.tolist()))
    assert np.all(adjusted >= values)
    assert np.all(adjusted <= [bonferroni(value, 50) for value in values])
    assert np.all(np.diff(adjusted[np.argsort(values)]) >= 0.0)
    assert adjusted.min() == bonferroni(values.min(), 50)


def test_holm_keeps_the_familywise_error() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(min(holm(np.log10(rng.uniform(size=10)).tolist())) <= math.log10(0.1) for _ in range(2000))
    assert wrong / 2000 <= 0.1 + 3.5 * math.sqrt(0.09 / 2000)


@pytest.mark.parametrize("k", [1, 2, 7, 60])
def test_fisher_agrees_with_scipy(k: int) -> None:
    p = np.random.default_rng(k).uniform(1e-4, 1.0, size=k)
    assert fisher(np.log10(p).tolist()) == pytest.approx(
        math.log10(scipy.stats.combine_pvalues(p, method="fisher").pvalue), abs=1e-9
    )


def test_fisher_at_the_ends() -> None:
    assert fisher([-1e6]) == pytest.approx(-1e6, rel=1e-12)
    # two p-values with product q: q(1 − ln q)
    assert fisher([-1e6, -1e6]) == pytest.approx(-2e6 + math.log10(1 + 2e6 * math.log(10)), rel=1e-12)
    assert fisher([0.0, 0.0, 0.0]) == 0.0
    assert fisher([-math.inf, -1.0]) == -math.inf
    assert fisher([-0.01] * 5000) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="no p-value"):
        fisher([])
    for bad in ([math.nan], [-1.0, 0.5]):
        with pytest.raises(ValueError, match="log10 p-values"):
            fisher(bad)


def test_fisher_of_uniform_values_is_uniform() -> None:
    rng = np.random.default_rng(2)
    values = [10 ** fisher(np.log10(rng.uniform(size=8)).tolist()) for _ in range(1000)]
    assert scipy.stats.kstest(values, "uniform").pvalue > 0.001


def test_exponential_series() -> None:
    assert log_exp_series(3.0, 4) == pytest.approx(math.log(1 + 3 + 4.5 + 4.5 + 81 / 24))
    assert log_exp_series(5.0, 200) == pytest.approx(5.0)
    assert log_exp_series(0.0, 9) == 0.0
    assert log_exp_series(1e12, 10_000) == pytest.approx(1e4 * math.log(1e12) - math.lgamma(10_001), rel=1e-9)
    with pytest.raises(ValueError, match="degree ≥ 0"):
        log_exp_series(1.0, -1)
