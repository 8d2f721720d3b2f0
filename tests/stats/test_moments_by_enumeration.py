"""Every closed form against all d! permutations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kinprint.errors import DegenerateInput
from kinprint.stats import kernels
from kinprint.stats.costs import abs_cost_moments, unequal_cost_moments
from kinprint.stats.moments import dot_moments, identity_log_probability

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def _orders(d: int) -> np.ndarray:
    return np.array(list(itertools.permutations(range(d))))


def _shape(values: np.ndarray) -> tuple[float, float]:
    c = values - values.mean()
    return float((c**3).mean() / c.var() ** 1.5), float((c**4).mean() / c.var() ** 2 - 3.0)


@pytest.mark.parametrize("d", [5, 6, 7])
@pytest.mark.parametrize("m", [1, 2, 3, 9])
def test_dot_product(d: int, m: int) -> None:
    rng = np.random.default_rng(10 * d + m)
    A, B = rng.lognormal(size=(m, d)), rng.normal(size=(m, d)) ** 3 + 1.0
    values = np.array([np.vdot(A, B[:, order]) for order in _orders(d)])
    moments = dot_moments(A, B)
    assert_allclose((moments.mean, moments.variance), (values.mean(), values.var()), **EXACT)
    assert_allclose((moments.skewness, moments.excess_kurtosis), _shape(values), rtol=1e-10, atol=1e-12)


def test_pitman_variance_of_a_correlation() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 6))
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    moments = dot_moments(a / 6, b)
    assert_allclose((moments.mean, moments.variance), (0.0, 1 / 5), **EXACT)


def test_shape_is_skipped_where_it_would_cost_too_much_and_constant_rows_have_no_variance(monkeypatch) -> None:
    A, B = np.random.default_rng(1).normal(size=(2, 3, 8))
    with monkeypatch.context() as poor:
        poor.setattr("kinprint.stats.moments.MAX_FLOPS", 10.0)
        assert dot_moments(A, B).skewness is None
    assert dot_moments(A, B).skewness is not None
    assert dot_moments(A, B, shape=False).variance == dot_moments(A, B).variance
    assert dot_moments(np.full((3, 8), 0.1), B).variance == 0.0
    assert dot_moments([2.0], [3.0]).mean == 6.0


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("d", [5, 6])
def test_absolute_differences(d: int, ties: bool) -> None:
    rng = np.random.default_rng(d)
    a, b = rng.normal(3.0, 1.0, (2, d))
    if ties:
        a, b = np.round(a), np.round(b)
    values = np.abs(a - b[_orders(d)]).sum(axis=1)
    moments = abs_cost_moments(a, b)
    assert_allclose((moments.mean, moments.variance), (values.mean(), values.var()), **EXACT)


def test_absolute_differences_of_separated_sides_do_not_vary() -> None:
    moments = abs_cost_moments(np.arange(6.0), 100.0 + np.arange(6.0))
    assert moments.variance == 0.0
    assert moments.mean == pytest.approx(600.0)


def test_absolute_differences_at_length_against_the_full_table() -> None:
    a, b = np.random.default_rng(3).lognormal(size=(2, 300))
    c = np.abs(a[:, None] - b[None, :])
    centred = c - c.mean(0) - c.mean(1)[:, None] + c.mean()
    moments = abs_cost_moments(a, b)
    assert_allclose((moments.mean, moments.variance), (c.sum() / 300, (centred**2).sum() / 299), rtol=1e-10)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1, 1, 2, 3, 3, 3], [3, 1, 1, 5, 2, 2]), ([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]), ([0, 0, 0, 1, 1, 1],) * 2],
)
def test_unequal_pairs(a: list[int], b: list[int]) -> None:
    values = (np.array(a) != np.array(b)[_orders(6)]).sum(axis=1)
    moments = unequal_cost_moments(a, b)
    assert_allclose((moments.mean, moments.variance), (values.mean(), values.var()), **EXACT)


def test_unequal_pairs_without_a_common_value() -> None:
    moments = unequal_cost_moments([1.0, 2.0, 2.0], [3.0, 4.0, 5.0])
    assert (moments.mean, moments.variance) == (3.0, 0.0)


@pytest.mark.parametrize("n", [4, 5, 6])
@pytest.mark.parametrize("widths", [(1, 1), (3, 2), (20, 30)])
def test_cka_biased_and_unbiased(n: int, widths: tuple[int, int]) -> None:
    rng = np.random.default_rng(100 * n + widths[0])
    K, L = (kernels.centred_gram(rng.lognormal(size=(n, p))) for p in widths)

    def enumerate_all(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.array([np.vdot(left, right[np.ix_(order, order)]) for order in _orders(n)])

    values, moments = enumerate_all(K, L), kernels.cka_moments(K, L)
    assert_allclose((moments.mean, moments.variance), (values.mean(), values.var()), **EXACT)
    values, moments = enumerate_all(kernels.u_centred(K), kernels.u_centred(L)), kernels.unbiased_cka_moments(n)
    assert_allclose((moments.mean, moments.variance), (values.mean(), values.var()), **EXACT)


def test_cka_of_orthogonal_rows_has_no_variance() -> None:
    K = kernels.centred_gram(np.eye(6))
    assert kernels.cka_moments(K, K).variance == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(DegenerateInput, match="equidistant"):
        kernels.u_centred(K)
    with pytest.raises(DegenerateInput, match="at least 4"):
        kernels.u_centred(np.eye(3))
    with pytest.raises(DegenerateInput, match="at least 4"):
        kernels.cka_moments(np.eye(3), np.eye(3))
    with pytest.raises(DegenerateInput, match="all rows are equal"):
        kernels.centred_gram(np.ones((5, 2)))


@pytest.mark.parametrize("rows", [[[1, 1, 2, 3, 3, 3]], [[1, 1, 2, 3, 3, 3], [0, 0, 1, -0.0, 0, 5]]])
def test_identity(rows: list[list[float]]) -> None:
    A = np.array(rows, dtype=float)
    B = A[:, [5, 4, 3, 2, 1, 0]]
    share = np.mean([np.array_equal(A, B[:, order]) for order in _orders(6)])
    assert math.exp(identity_log_probability(A, B)) == pytest.approx(share, rel=1e-12)
    assert identity_log_probability(A, A + 1.0) == -math.inf
