"""`null_for`, kind by kind: in the metric's units, consistent with the metric, honest about tails."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.metrics.identity import ordinals
from kinprint.results.p_values import PMethod
from kinprint.stats.dot_products import NullRequest
from kinprint.stats.montecarlo import draw_columns
from kinprint.stats.nulls import KINDS, null_for, null_from_draws

ORDERS = np.array(list(itertools.permutations(range(6))))
NAMES = list(METRICS)
EXACT = [name for name in NAMES if METRICS[name].null in ("cosine", "pearson", "spearman", "deviation")]
DELTA = [name for name in NAMES if METRICS[name].null in ("l2", "rel_l2_a", "rel_l2")]


def _null(name: str, a: np.ndarray, b: np.ndarray, **kwargs: object):
    metric = METRICS[name]
    observed = metric(a, b)
    if metric.null == "ulp":
        a, b = ordinals(a, "F32"), ordinals(b, "F32")
    return null_for(
        metric.null,
        a,
        b,
        observed=observed,
        higher_is_closer=metric.higher_is_closer,
        rng_seed=7,
        statistic=metric,
        **kwargs,
    )


def _data(d: int = 6, m: int | None = None, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (d,) if m is None else (m, d)
    a, b = (rng.lognormal(0.1, 0.4, shape).astype(np.float32).astype(np.float64) for _ in range(2))
    return a, b


def test_every_metric_has_a_null() -> None:
    assert {METRICS[name].null for name in NAMES} <= set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_null_is_that_of_its_metric(name: str) -> None:
    """The mean that a null declares is the mean of its metric over permutations: the null of another metric fails."""
    metric = METRICS[name]
    a, b = _data(40)
    if metric.kinds == ("matrix",):
        a, b = a.reshape(8, 5), b.reshape(8, 5)
    rng = np.random.default_rng(2)
    values = np.array([metric(a, b[rng.permutation(len(b))]) for _ in range(400)])
    margin = 5 * values.std() / 20 + 1e-9 + 0.01 * abs(values.mean()) * (name in DELTA)
    assert _null(name, a, b).mean == pytest.approx(values.mean(), abs=margin)


@pytest.mark.parametrize("m", [None, 3])
def test_a_drawn_null_holds_for_any_statistic(m: int | None) -> None:
    def largest(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.abs(x - y).max())

    a, b = _data(m=m)
    values = np.array([largest(a, b[..., order]) for order in ORDERS])
    for partner in (b, a + 1e-3):
        values = np.array([largest(a, partner[..., order]) for order in ORDERS])
        observed = largest(a, partner)
        result = null_for("drawn", a, partner, observed=observed, higher_is_closer=False, statistic=largest)
        assert result.log10_p is not None
        assert 10**result.log10_p == pytest.approx(np.mean(values <= observed + 1e-12), abs=0.06)
        assert result.mean == pytest.approx(values.mean(), abs=5 * values.std() / math.sqrt(999))
    with pytest.raises(ValueError, match="statistic"):
        null_for("drawn", a, b, observed=1.0, higher_is_closer=False)


@pytest.mark.parametrize("m", [None, 3])
@pytest.mark.parametrize("name", [n for n in EXACT if n != "shuffled_cosine"])
def test_linear_nulls_equal_the_metric_over_all_permutations(name: str, m: int | None) -> None:
    a, b = _data(m=m)
    values = np.array([METRICS[name](a, b[..., order]) for order in ORDERS])
    result = _null(name, a, b, draws=99)
    assert_allclose((result.mean, result.sd), (values.mean(), values.std()), atol=1e-12)
    assert result.z == pytest.approx((METRICS[name](a, b) - values.mean()) / values.std(), abs=1e-9)


@pytest.mark.parametrize("name", ["mean_abs_diff", "changed_ratio", "ulp_distance"])
def test_cost_nulls_equal_the_metric_over_all_permutations(name: str) -> None:
    a, b = _data()
    b[:3] = a[[1, 1, 2]]
    values = np.array([METRICS[name](a, b[order]) for order in ORDERS])
    result = _null(name, a, b)
    assert_allclose((result.mean, result.sd), (values.mean(), values.std()), rtol=1e-9)
    truth = np.mean(values <= METRICS[name](a, b) * (1 + 1e-9))
    assert result.log10_p is not None
    assert 10**result.log10_p == pytest.approx(truth, abs=0.06)


@pytest.mark.parametrize("name", DELTA)
@pytest.mark.parametrize("m", [None, 4])
def test_distance_nulls_to_second_order(name: str, m: int | None) -> None:
    a, b = _data(300, m)
    rng = np.random.default_rng(1)
    values = np.array([METRICS[name](a, b[..., rng.permutation(300)]) for _ in range(3000)])
    result = _null(name, a, b)
    assert result.mean == pytest.approx(values.mean(), abs=5 * values.std() / math.sqrt(3000))
    assert result.sd == pytest.approx(values.std(), rel=0.08)
    assert any("delta method" in text for text in result.assumptions)
    linear = null_for("cosine", a, b, observed=METRICS["cosine"](a, b), higher_is_closer=True, rng_seed=7)
    assert linear.z is not None
    assert result.z == pytest.approx(-linear.z, abs=1e-6)
    assert result.log10_p == pytest.approx(linear.log10_p, abs=1e-6)
    assert (result.tail, linear.tail) == ("less", "greater")


@pytest.mark.parametrize("name", ["cka", "cka_unbiased"])
def test_cka_nulls_equal_the_metric_over_all_permutations(name: str) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.lognormal(size=(6, 3)), rng.lognormal(size=(6, 5))
    values = np.array([METRICS[name](X, Y[order]) for order in ORDERS])
    result = _null(name, X, Y)
    assert_allclose((result.mean, result.sd), (values.mean(), values.std()), atol=1e-11)
    assert result.log10_p is not None
    assert 10**result.log10_p == pytest.approx(np.mean(values >= METRICS[name](X, Y) - 1e-12), abs=0.06)


def test_noise_cka_of_095_is_nothing_beside_its_null() -> None:
    X, Y = np.random.default_rng(4).normal(size=(2, 100, 2048))
    for name in ("cka", "cka_unbiased"):
        result = _null(name, X, Y, draws=99)
        assert result.z is not None
        assert abs(result.z) < 4
    assert METRICS["cka"](X, Y) > 0.9


def test_copies_are_found_and_independent_pairs_are_not() -> None:
    rng = np.random.default_rng(5)
    a = rng.lognormal(0.0, 0.1, 2048)
    copy, stranger = a + 0.001 * rng.normal(size=2048), rng.lognormal(0.0, 0.1, 2048)
    for name in ("cosine", "pearson", "spearman", "l2", "rel_l2"):
        near, far = _null(name, a, copy), _null(name, a, stranger)
        assert near.log10_p is not None
        assert far.log10_p is not None
        assert near.log10_p < -20
        assert near.p_method in (PMethod.NORMAL, PMethod.HELD)
        assert far.log10_p > -3
    assert METRICS["cosine"](a, stranger) > 0.98


def test_two_coinciding_giants_are_a_coincidence_of_one_in_d() -> None:
    d = 4096
    a, b = np.random.default_rng(6).normal(size=(2, d))
    a[100] = b[100] = 1000.0
    result = _null("pearson", a, b)
    assert result.z is not None
    assert result.z > 60
    assert result.p_method in (PMethod.MONTE_CARLO, PMethod.MOMENT_BOUND)
    assert result.log10_p is not None
    assert 10**result.log10_p >= 0.9 / d
    ranks = _null("spearman", a, b)
    assert ranks.log10_p is not None
    assert ranks.log10_p > -3


def test_a_giant_shared_by_all_rows_of_a_stack_is_no_proof_either() -> None:
    rng = np.random.default_rng(7)
    A, B = rng.normal(size=(2, 8, 512))
    A[:, 3] = B[:, 3] = 500.0
    result = _null("cosine", A, B)
    assert result.z is not None
    assert result.z > 20
    assert result.log10_p is not None
    assert 10**result.log10_p >= 0.3 / 512


def test_matrix_costs_are_drawn_with_shared_permutations() -> None:
    a, b = _data(40, 5)
    result = _null("mean_abs_diff", a, b)
    assert result.n_draws == 99
    drawn = draw_columns(
        a,
        b,
        {"abs": lambda x, y: METRICS["mean_abs_diff"](x, y), "l2": lambda x, y: METRICS["l2"](x, y)},
        draws=99,
        seed=7,
    )
    again = null_from_draws(NullRequest("abs_diff", (METRICS["mean_abs_diff"](a, b),), False), drawn["abs"], 40)
    assert again.mean == pytest.approx(result.mean, rel=1e-12)
    assert again.log10_p == result.log10_p
    assert drawn["l2"].shape == (99,)
    assert _null("ulp_distance", a, b).n_draws == _null("changed_ratio", a, a[:, ::-1]).n_draws == 99


def test_a_copy_gets_a_bound_below_what_draws_could_show() -> None:
    a, _ = _data(4096)
    result = _null("mean_abs_diff", a, a.copy())
    assert result.z is not None
    assert result.z < -32
    assert (result.p_method, result.n_draws) == (PMethod.MOMENT_BOUND, None)
    assert result.log10_p == pytest.approx(-math.log10(1 + result.z**2))
    X = np.random.default_rng(0).normal(size=(60, 5))
    assert _null("cka_unbiased", X, X).p_method == PMethod.MOMENT_BOUND


def test_identity_is_exact() -> None:
    a = np.random.default_rng(8).normal(size=4096)
    copy = _null("byte_identity", a, a.copy())
    assert copy.log10_p == pytest.approx(-math.lgamma(4097) / math.log(10))
    assert copy.z is None
    assert _null("byte_identity", a, a + 1).log10_p == 0.0
    assert _null("byte_identity", np.ones(5), np.ones(5)).log10_p == 0.0


@pytest.mark.parametrize("name", ["p99_abs_diff", "cv_diff"])
def test_metrics_blind_to_order_get_no_p(name: str) -> None:
    result = _null(name, *_data())
    assert (result.z, result.log10_p, result.p_method) == (None, None, PMethod.BLIND)


def test_point_nulls_have_no_z_and_p_of_one() -> None:
    a, _ = _data(12)
    cases = [
        _null("cosine", np.ones(12), a),
        _null("l2", np.ones(12), a),
        _null("mean_abs_diff", a, a + 100.0),
        _null("changed_ratio", a, a + 100.0),
        _null("cka", np.eye(6), np.eye(6)),
        _null("changed_ratio", np.stack([a, a]), np.stack([a, a]) + 100.0),
    ]
    for result in cases:
        assert (result.z, result.log10_p, result.p_method, result.sd) == (None, 0.0, PMethod.POINT, 0.0)


def test_results_depend_on_the_seed_alone() -> None:
    a, b = np.random.default_rng(9).standard_t(1.5, (2, 256))
    assert _null("pearson", a, b) == _null("pearson", a, b)
    assert _null("pearson", a, b).p_method == PMethod.MONTE_CARLO


def test_large_numbers_do_not_overflow() -> None:
    a, b = _data(64)
    for name in ("cosine", "pearson", "rel_l2"):
        plain, large = _null(name, a, b), _null(name, a * 2.0**900, b * 2.0**900)
        assert plain == large


def test_wrong_calls_are_refused() -> None:
    a, b = _data()
    with pytest.raises(ValueError, match="unknown kind of null 'cosin'"):
        null_for("cosin", a, b, observed=0.0, higher_is_closer=True)
    with pytest.raises(ValueError, match="ordinals"):
        null_for("ulp", a, b, observed=0.0, higher_is_closer=False)
    with pytest.raises(DegenerateInput, match="shapes differ"):
        null_for("cosine", a, b[:3], observed=0.0, higher_is_closer=True)
    with pytest.raises(DegenerateInput, match="b holds 1 non-finite of 6"):
        null_for("cosine", a, np.where(a == a.max(), np.nan, b), observed=0.0, higher_is_closer=True)
    with pytest.raises(DegenerateInput, match="non-empty"):
        null_for("cosine", a[:0], b[:0], observed=0.0, higher_is_closer=True)
    with pytest.raises(DegenerateInput, match="zero length"):
        null_for("cosine", a * 0, b, observed=0.0, higher_is_closer=True)
    with pytest.raises(DegenerateInput, match="denominator"):
        null_for("rel_l2_a", a * 0, b, observed=0.0, higher_is_closer=False)
    with pytest.raises(DegenerateInput, match="equal row counts"):
        null_for("cka", np.ones((4, 2)), np.ones((5, 2)), observed=0.0, higher_is_closer=True)
