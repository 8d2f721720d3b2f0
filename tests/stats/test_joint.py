"""Joint nulls and the moments of tall stacks, held against all permutations of small cases."""

from itertools import permutations, product
from math import log10

import numpy as np
import pytest
from scipy import stats

from kinprint.errors import DegenerateInput
from kinprint.stats import moments
from kinprint.stats.joint import block_nulls, joint_blocks, joint_independent
from kinprint.stats.moments import dot_moments
from kinprint.stats.nulls import null_for
from kinprint.stats.tails import MAX_SKEWNESS


def drawn(seed, *shape, heavy=False):
    values = np.random.default_rng(seed).standard_normal(shape)
    return np.exp(values) if heavy else values


def correlation(a, b):
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def mean_correlation(blocks, order):
    return np.mean([correlation(a, b[:, order]) for a, b in blocks])


def shape_of(values):
    centred = values - values.mean()
    sd = values.std()
    return values.mean(), sd, (centred**3).mean() / sd**3, (centred**4).mean() / sd**4 - 3


@pytest.mark.parametrize("d", [5, 6])
@pytest.mark.parametrize("rows", [(1, 1), (1, 1, 1), (2, 3), (1, 4), (3, 3, 3)])
def test_joint_blocks_by_enumeration(d, rows):
    blocks = [(drawn(10 + i, m, d) + 1, drawn(20 + i, m, d, heavy=True)) for i, m in enumerate(rows)]
    values = np.array([mean_correlation(blocks, list(order)) for order in permutations(range(d))])
    null = joint_blocks(blocks)
    mean, sd, skewness, kurtosis = shape_of(values)
    assert (null.mean, null.sd) == pytest.approx((mean, sd), abs=1e-10)
    assert (null.skewness, null.excess_kurtosis) == pytest.approx((skewness, kurtosis), abs=1e-8)
    assert null.z == pytest.approx((mean_correlation(blocks, list(range(d))) - mean) / sd)
    assert null.n == d


def test_joint_variance_holds_the_covariances_of_alike_layers():
    """Two layers that are the same twice are one piece of news, not two."""
    a, b = drawn(1, 1, 50), drawn(2, 1, 50)
    once, twice = joint_blocks([(a, b)]), joint_blocks([(a, b), (2 * a, b + 3)])
    assert twice.z == pytest.approx(once.z)
    assert twice.sd == pytest.approx(once.sd)
    apart = joint_blocks([(a, b), (drawn(3, 1, 50), drawn(4, 1, 50))])
    assert apart.sd == pytest.approx(once.sd / np.sqrt(2), rel=0.1)


def test_joint_p_is_an_upper_bound_on_the_share_of_permutations():
    blocks = [(drawn(i, 1, 6), drawn(i, 1, 6) + 0.2 * drawn(50 + i, 1, 6)) for i in range(3)]
    values = np.array([mean_correlation(blocks, list(order)) for order in permutations(range(6))])
    observed = mean_correlation(blocks, list(range(6)))
    exact = (values >= observed - 1e-12).mean()
    assert 10 ** joint_blocks(blocks).log10_p >= exact / 2  # a normal tail or drawn: same order, never far below
    assert exact < 0.01


def test_joint_independent_by_enumeration():
    pairs = [(drawn(i, 4), drawn(9 + i, 4, heavy=True)) for i in range(2)]
    nulls = [null_for("pearson", a, b, observed=correlation(a, b), higher_is_closer=True) for a, b in pairs]
    joint = joint_independent([correlation(a, b) for a, b in pairs], nulls)
    orders = [list(order) for order in permutations(range(4))]
    values = np.array(
        [
            np.mean([correlation(a, b[order]) for (a, b), order in zip(pairs, chosen, strict=True)])
            for chosen in product(orders, orders)
        ]
    )
    mean, sd, skewness, kurtosis = shape_of(values)
    assert (joint.mean, joint.sd) == pytest.approx((mean, sd), abs=1e-12)
    assert (joint.skewness, joint.excess_kurtosis) == pytest.approx((skewness, kurtosis), abs=1e-9)
    observed = np.mean([correlation(a, b) for a, b in pairs])
    assert joint.z == pytest.approx((observed - mean) / sd)
    assert joint.log10_p >= log10((values >= observed - 1e-12).mean()) - 0.5


def test_joint_independent_of_one_is_that_one():
    a, b = drawn(1, 300), drawn(2, 300)
    null = null_for("pearson", a, b, observed=correlation(a, b), higher_is_closer=True)
    joint = joint_independent([correlation(a, b)], [null])
    assert (joint.z, joint.log10_p) == pytest.approx((null.z, null.log10_p))


def test_joint_independent_draws_no_normal_tail_from_heavy_blocks():
    a = np.zeros(64)
    a[0] = 1.0
    null = null_for("pearson", a, a, observed=1.0, higher_is_closer=True)
    joint = joint_independent([1.0, 1.0], [null, null])
    assert null.skewness > MAX_SKEWNESS
    assert joint.p_method.bound
    assert joint.log10_p >= log10(1 / 64**2)  # both coincide by chance once in 4096


def test_nothing_to_test():
    with pytest.raises(DegenerateInput, match="no block"):
        joint_blocks([])
    with pytest.raises(DegenerateInput, match="nothing"):
        joint_independent([], [])
    with pytest.raises(DegenerateInput, match="block 1 is constant"):
        joint_blocks([(drawn(1, 1, 5), drawn(2, 1, 5)), (np.ones((1, 5)), drawn(3, 1, 5))])
    with pytest.raises(DegenerateInput, match="expected equal widths"):
        joint_blocks([(drawn(1, 1, 5), drawn(2, 1, 5)), (drawn(1, 1, 6), drawn(2, 1, 6))])


def test_blocks_of_any_magnitude():
    blocks = [(drawn(1, 2, 40), drawn(2, 2, 40)), (drawn(3, 2, 40), drawn(4, 2, 40))]
    plain = joint_blocks(blocks)
    scaled = joint_blocks([(1e200 * a, 1e-200 * b) for a, b in blocks])
    assert (scaled.z, scaled.sd, scaled.log10_p) == pytest.approx((plain.z, plain.sd, plain.log10_p))


# ---- moments of stacks ----


@pytest.mark.parametrize(("m", "d"), [(7, 5), (12, 6), (6, 5)])
def test_tall_stacks_by_enumeration(m, d):
    A, B = drawn(m, m, d, heavy=True), drawn(m + 1, m, d) + 2
    values = np.array([np.vdot(A, B[:, list(order)]) for order in permutations(range(d))])
    mean, sd, skewness, kurtosis = shape_of(values)
    found = dot_moments(A, B)
    assert (found.mean, found.sd) == pytest.approx((mean, sd))
    assert (found.skewness, found.excess_kurtosis) == pytest.approx((skewness, kurtosis), abs=1e-8)
    assert dot_moments(A, B, shape=False).skewness is None


def test_tall_and_flat_forms_agree():
    A, B = drawn(1, 9, 10, heavy=True), drawn(2, 9, 10)
    flat = dot_moments(A, B)
    tall = dot_moments(*(np.concatenate([X, np.zeros((3, 10))]) for X in (A, B)))  # rows of zeros change nothing
    assert (tall.mean, tall.variance, tall.skewness, tall.excess_kurtosis) == pytest.approx(
        (flat.mean, flat.variance, flat.skewness, flat.excess_kurtosis)
    )
    assert (tall.fourth, tall.reach) == pytest.approx((flat.fourth, flat.reach))


@pytest.mark.parametrize(("m", "d"), [(1, 30), (5, 30), (30, 9), (3, 1), (4, 3), (2, moments.EXACT_UNITS + 9)])
def test_moments_of_many_pairs_are_those_of_each(m, d):
    A, B = (np.stack([drawn([side, k], m, d) for k in range(4)]) for side in (1, 2))
    A[1] = 3.0  # every permutation gives the same
    together = moments.each_dot_moments(A, B)
    for one, a, b in zip(together, A, B, strict=True):
        alone = dot_moments(a, b)
        assert (one.mean, one.variance) == pytest.approx((alone.mean, alone.variance))
        assert (one.n, one.sampled) == (d, alone.sampled)
        for field in ("skewness", "excess_kurtosis", "fourth", "reach"):
            assert getattr(one, field) == (None if (x := getattr(alone, field)) is None else pytest.approx(x))
    assert together[1].variance == 0.0


def test_a_constant_stack_has_no_spread():
    tall = dot_moments(np.ones((9, 5)), drawn(1, 9, 5))
    assert (tall.variance, tall.skewness) == (0.0, None)
    nearly = dot_moments(1 + 1e-14 * drawn(1, 9, 5), drawn(2, 9, 5))
    assert nearly.variance == 0.0


def exact_shape(A, B, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(moments, "EXACT_UNITS", 1 << 20)
        return dot_moments(A, B)


def test_sampled_shape_of_gaussian_stacks(monkeypatch):
    d = moments.EXACT_UNITS + 76
    for seed in range(3):
        A, B = drawn(seed, 12, d), drawn(90 + seed, 12, d)
        sampled, exact = dot_moments(A, B), exact_shape(A, B, monkeypatch)
        assert sampled.variance == pytest.approx(exact.variance)
        assert sampled.skewness == pytest.approx(exact.skewness, abs=0.01)
        assert sampled.excess_kurtosis == pytest.approx(exact.excess_kurtosis, abs=0.02)


@pytest.mark.parametrize("giants", [1, 5, 60])
def test_sampled_shape_sees_a_few_giant_columns(monkeypatch, giants):
    d = moments.EXACT_UNITS + 76
    A, B = drawn(1, 12, d), drawn(2, 12, d)
    where = np.random.default_rng(3).choice(d, giants, replace=False)
    A[:, where] *= 200
    B[:, where] *= 200
    sampled, exact = dot_moments(A, B), exact_shape(A, B, monkeypatch)
    assert sampled.excess_kurtosis == pytest.approx(exact.excess_kurtosis, rel=0.02, abs=0.02)
    assert sampled.skewness == pytest.approx(exact.skewness, rel=0.02, abs=0.02)
    null = joint_blocks([(A, B)])
    assert not null.p_method.startswith("normal"), exact


@pytest.mark.slow
def test_giants_on_one_side_only_accuse_nobody():
    """The columns to sum are chosen by the length of B's, so A's giants make the sampled shape rough: p must bear it."""
    d = moments.EXACT_UNITS + 76
    nulls = []
    for seed in range(40):
        A, B = drawn([seed, 1], 4, d), drawn([seed, 2], 4, d)
        A[:, 17] *= 1000
        nulls.append(joint_blocks([(A, B)], seed=seed))
    p = 10.0 ** np.array([null.log10_p for null in nulls])
    assert stats.kstest(p, "uniform", alternative="greater").pvalue > 0.001
    assert p.min() > 1e-4


def test_sampled_columns_stand_for_all():
    lengths = np.random.default_rng(1).random(moments.EXACT_UNITS + 500)
    chosen, weights = moments._columns_to_sum(lengths)
    assert weights.sum() == lengths.size
    assert chosen.size == np.unique(chosen).size == 2 * moments.SAMPLED_UNITS
    assert set(np.argsort(-lengths)[: moments.SAMPLED_UNITS]) <= set(chosen)


def test_nulls_of_blocks_without_p_values_are_those_with():
    pairs = [(drawn([1, k], m, 30), drawn([2, k], m, 30, heavy=k == 1)) for k, m in enumerate((4, 4, 7, 4))]
    observed, nulls = block_nulls(pairs)
    for value, null, (a, b) in zip(observed, nulls, pairs, strict=True):
        full = null_for("pearson", a, b, observed=value, higher_is_closer=True)
        assert value == pytest.approx(correlation(a, b))
        for field in ("mean", "sd", "skewness", "excess_kurtosis", "fourth", "reach"):
            assert getattr(null, field) == pytest.approx(getattr(full, field), abs=1e-12)
        assert (null.n, null.assumptions) == (full.n, full.assumptions)
    assert joint_independent(observed, nulls).log10_p is not None


@pytest.mark.parametrize(("rows", "units"), [(1, 4096), (2, 1024), (32, 64), (1024, 2), (32, 14336), (3000, 3000)])
def test_pairs_at_once_hold_no_more_than_was_allowed(rows, units):
    """Two rows of a thousand units are small, but their table of units × units is not: 400 layers once took six gigabytes."""
    found = moments.pairs_at_once(rows, units, 1 << 16)
    tables = max(rows, units) ** 2 if min(rows, units) > 1 else 0
    assert found == 1 or found * max(rows * units, tables) <= 1 << 16
