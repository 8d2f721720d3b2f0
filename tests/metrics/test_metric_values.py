"""Metrics by construction: pairs whose relation is known, and independent implementations as oracles."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinprint._util.numeric import ranks
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS

D = 4096


@pytest.fixture
def scales() -> np.ndarray:
    return np.random.default_rng(1).lognormal(0.0, 0.3, D)


@pytest.mark.parametrize(
    "name", ["cosine", "pearson", "spearman", "deviation_cosine", "l2", "rel_l2_a", "rel_l2", "mean_abs_diff"]
)
def test_more_noise_is_never_closer(name: str, scales: np.ndarray) -> None:
    noise = np.random.default_rng(2).normal(size=D)
    values = [METRICS[name](scales, scales + sigma * noise) for sigma in (0.0, 0.01, 0.1, 0.5, 2.0)]
    if METRICS[name].higher_is_closer:
        values = [-value for value in values]
    assert all(x < y for x, y in itertools.pairwise(values))


def test_permutation_keeps_the_raw_cosine_and_destroys_pearson(scales: np.ndarray) -> None:
    other = np.random.default_rng(3).permutation(scales)
    assert METRICS["cosine"](scales, other) > 0.9
    assert abs(METRICS["pearson"](scales, other)) < 0.05
    assert METRICS["p99_abs_diff"](scales, other) == 0.0
    assert METRICS["cv_diff"](scales, other) == pytest.approx(0.0, abs=1e-12)


def test_sign_flip(scales: np.ndarray) -> None:
    for name in ("cosine", "pearson", "spearman"):
        assert METRICS[name](scales, -scales) == pytest.approx(-1.0, abs=1e-12)
    assert METRICS["rel_l2"](scales, -scales) == pytest.approx(2.0, abs=1e-12)


def test_rotation_is_seen_by_cosine_and_not_by_cka() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 16))
    Y = X @ np.linalg.qr(rng.normal(size=(16, 16)))[0]
    assert METRICS["cka"](X, Y) == pytest.approx(1.0, abs=1e-12)
    assert METRICS["cka_unbiased"](X, Y) == pytest.approx(1.0, abs=1e-12)
    assert abs(METRICS["cosine"](X, Y)) < 0.5


def test_random_scales_near_one_have_a_cosine_near_one() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(1.0, 0.01, (400, 2, D))
    cosines = np.array([METRICS["cosine"](a, b) for a, b in vectors])
    pearsons = np.array([METRICS["pearson"](a, b) for a, b in vectors])
    assert cosines.mean() == pytest.approx(0.99990, abs=5e-7)
    assert cosines.std() == pytest.approx(2.2e-6, rel=0.15)
    assert pearsons.std() == pytest.approx(1 / math.sqrt(D - 1), rel=0.1)
    assert abs(pearsons.mean()) < 4 / math.sqrt(D - 1) / math.sqrt(400)


def test_oracles(scales: np.ndarray) -> None:
    other = scales + np.random.default_rng(6).normal(size=D)
    rounded = np.round(other, 1)
    assert METRICS["pearson"](scales, other) == pytest.approx(scipy.stats.pearsonr(scales, other).statistic, abs=1e-13)
    for b in (other, rounded):
        expected = scipy.stats.spearmanr(scales, b).statistic
        assert METRICS["spearman"](scales, b) == pytest.approx(expected, abs=1e-13)
    assert METRICS["rel_rmse"](scales, other) == pytest.approx(METRICS["rel_l2_a"](scales, other), rel=1e-14)
    norms = np.linalg.norm(scales), np.linalg.norm(other)
    assert METRICS["rel_l2"](scales, other) == pytest.approx(
        np.linalg.norm(scales - other) / math.sqrt((norms[0] ** 2 + norms[1] ** 2) / 2), rel=1e-14
    )
    assert METRICS["p99_abs_diff"](scales, other) == pytest.approx(
        abs(np.percentile(np.abs(scales), 99) - np.percentile(np.abs(other), 99)), rel=1e-14
    )
    assert METRICS["cv_diff"](scales, 3 + other) == pytest.approx(
        abs(scipy.stats.variation(scales) - scipy.stats.variation(3 + other)), rel=1e-12
    )


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.5, 7.0])))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_ranks_agree_with_scipy(values: np.ndarray) -> None:
    np.testing.assert_array_equal(ranks(values), scipy.stats.rankdata(values))


def test_relative_distance_names_its_denominator() -> None:
    a, b = np.full(10, 1.0), np.full(10, 3.0)
    assert METRICS["rel_l2_a"](a, b) == pytest.approx(2.0)
    assert METRICS["rel_l2_a"](b, a) == pytest.approx(2.0 / 3.0)
    assert METRICS["rel_l2"](a, b) == pytest.approx(2.0 / math.sqrt(5.0))


def test_cv_of_a_mean_near_zero_is_refused() -> None:
    a = np.random.default_rng(7).normal(0.0, 1.0, D)
    with pytest.raises(DegenerateInput, match="the mean of b is near zero"):
        METRICS["cv_diff"](a + 1.0, a)
    assert METRICS["cv_diff"](a + 0.2, a + 0.3) > 0.0


def test_shuffled_cosine_is_a_fixed_draw_from_the_null(scales: np.ndarray) -> None:
    other = scales + 0.01
    value = METRICS["shuffled_cosine"](scales, other)
    assert value == METRICS["shuffled_cosine"](scales, other)
    independent = scales.mean() * other.mean() / math.sqrt(np.mean(scales**2) * np.mean(other**2))
    assert value == pytest.approx(independent, abs=0.01)
    assert METRICS["cosine"](scales, other) > value + 0.02


def test_values_beyond_the_square_root_of_the_range() -> None:
    a, b = np.array([1e300, 2e300, -1e300]), np.array([2e300, 1e300, -1e300])
    assert METRICS["cosine"](a, b) == pytest.approx(METRICS["cosine"](a / 1e300, b / 1e300))
    assert METRICS["l2"](a, b) == pytest.approx(math.sqrt(2) * 1e300)
    assert METRICS["pearson"](a * 1e-310, b) == pytest.approx(METRICS["pearson"](a, b), rel=1e-9)
    with pytest.raises(DegenerateInput, match="too large"):
        METRICS["l2"](np.full(4, 1.7e308), np.full(4, -1.7e308))
