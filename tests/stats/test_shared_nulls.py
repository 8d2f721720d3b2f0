"""Nulls that share their costly part are the nulls one would get alone."""

import math

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.metrics.identity import on_grid, ordinals
from kinprint.stats.dot_products import DOT_KINDS
from kinprint.stats.nulls import KINDS, null_for
from kinprint.stats.shared import DOT_FAMILY, KERNEL_DRAWS, PermutationNulls

BY_KIND = {metric.null: metric for metric in METRICS.values()}


def sides(case):
    rng = np.random.default_rng(len(case))
    shape = (64,) if "vector" in case else (6, 40)
    a = rng.standard_normal(shape)
    if "heavy" in case:
        a = np.exp(1.5 * a)
    b = 0.7 * a + rng.standard_normal(shape) if "related" in case else rng.permutation(a.ravel()).reshape(shape)
    return (a + 1.0, b + 1.0) if "offset" in case else (a, b)


def stack(*arrays):
    return np.stack([np.atleast_2d(x) for x in arrays])


CASES = ["vector", "vector related", "vector heavy offset", "matrix", "matrix related offset", "matrix heavy"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_shared_equals_alone(case, kind):
    metric = BY_KIND[kind]
    a, b = sides(case)
    if kind == "invariant":
        a, b = a + 5, b + 5  # coefficients of variation need a mean
    if kind.startswith("cka"):
        if a.ndim == 1:
            a, b = a.reshape(8, 8), b.reshape(8, 8)
        given = a.T, b.T
    elif kind == "ulp":
        given = tuple(ordinals(on_grid(x, "F32"), "F32") for x in (a, b))
    else:
        given = a, b
    observed = metric(a, b, dtype="F32") if kind == "ulp" else metric(*given)
    nulls = PermutationNulls(stack(a), stack(b), seed=3)
    nulls.get("pearson", a, b, observed=BY_KIND["pearson"](a, b), higher_is_closer=True)
    shared = nulls.get(kind, *given, observed=observed, higher_is_closer=metric.higher_is_closer)
    draws = KERNEL_DRAWS if kind.startswith("cka") else None
    alone = null_for(kind, *given, observed=observed, higher_is_closer=metric.higher_is_closer, rng_seed=3, draws=draws)
    assert shared.name == alone.name == kind
    assert (shared.tail, shared.n, shared.n_draws) == (alone.tail, alone.n, alone.n_draws)
    assert (shared.p_method, shared.assumptions) == (alone.p_method, alone.assumptions)
    for field in ("mean", "sd", "z", "log10_p", "skewness", "excess_kurtosis"):
        left, right = getattr(shared, field), getattr(alone, field)
        assert left == right if left is None or right is None else left == pytest.approx(right, rel=1e-6, abs=1e-9), (
            field
        )


@pytest.mark.parametrize("kind", sorted(DOT_KINDS))
@pytest.mark.parametrize("shape", ["vector", "matrix"])
def test_many_pairs_at_once_are_each_by_itself(kind, shape):
    metric = BY_KIND[kind]
    pairs = [sides(case) for case in CASES if shape in case]
    observed = [metric(a, b) for a, b in pairs]
    left, right = (stack(*side) for side in zip(*pairs, strict=True))
    together = PermutationNulls(left, right, seed=3).each(
        kind, observed=observed, higher_is_closer=metric.higher_is_closer
    )
    for (a, b), value, found in zip(pairs, observed, together, strict=True):
        alone = PermutationNulls(stack(a), stack(b), seed=3).get(
            kind, a, b, observed=value, higher_is_closer=metric.higher_is_closer
        )
        assert (found.p_method, found.assumptions, found.n_draws) == (alone.p_method, alone.assumptions, alone.n_draws)
        for field in ("mean", "sd", "z", "log10_p"):
            assert getattr(found, field) == pytest.approx(getattr(alone, field), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("kind", sorted(DOT_FAMILY))
def test_one_constant_side_leaves_many_pairs_to_be_taken_alone(kind):
    a, b = sides("vector")
    nulls = PermutationNulls(stack(a, a), stack(b, np.full(64, 2.0)), seed=3)
    with pytest.raises(DegenerateInput, match="constant"):
        nulls.each(kind, observed=[0.1, 0.1], higher_is_closer=BY_KIND[kind].higher_is_closer)


def test_every_kind_of_null_is_used_by_a_metric():
    assert set(BY_KIND) == set(KINDS) - {"drawn"}  # for metrics to come, of any form
    assert set(KINDS) > DOT_FAMILY


def test_cosine_takes_z_and_p_from_the_correlation():
    """Near one a cosine has few digits left: a z re-derived from it would be rounding."""
    rng = np.random.default_rng(8)
    a, b = 1e8 + rng.standard_normal(500), 1e8 + rng.standard_normal(500)
    nulls = PermutationNulls(stack(a), stack(b), seed=0)
    linked = nulls.get("pearson", a, b, observed=BY_KIND["pearson"](a, b), higher_is_closer=True)
    cosine = nulls.get("cosine", a, b, observed=BY_KIND["cosine"](a, b), higher_is_closer=True)
    assert (cosine.z, cosine.log10_p) == (linked.z, linked.log10_p)
    assert abs(cosine.z) < 4


@pytest.mark.parametrize("kind", ["cosine", "l2", "rel_l2", "rel_l2_a"])
@pytest.mark.parametrize("spread", [0.0, 1e-15, 1e-13])
def test_constant_and_nearly_constant_sides(kind, spread):
    rng = np.random.default_rng(1)
    a, b = 1 + spread * rng.standard_normal(50), 2 + spread * rng.standard_normal(50)
    observed = BY_KIND[kind](a, b)
    nulls = PermutationNulls(stack(a), stack(b), seed=0)
    for _ in range(2):  # the first call tries the shared null, the second finds it tried
        found = nulls.get(kind, a, b, observed=observed, higher_is_closer=BY_KIND[kind].higher_is_closer)
        assert (found.z, found.log10_p, found.sd) == (None, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["l2", "rel_l2", "rel_l2_a"])
@pytest.mark.parametrize("spread", [2e-16, 1e-15, 1e-14])
def test_rounding_of_a_constant_side_is_no_agreement(kind, spread):
    """The distance of unrelated vectors, one of them constant but for rounding, had p-values of 1e-302."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a, b = 1 + spread * rng.standard_normal(1000), 1 + rng.standard_normal(1000)
        found = PermutationNulls(stack(a), stack(b), seed=0).get(
            kind, a, b, observed=BY_KIND[kind](a, b), higher_is_closer=False
        )
        assert (found.z, found.log10_p, found.sd) == (None, 0.0, 0.0)


def test_deviations_that_are_all_minus_one_have_no_spread():
    rng = np.random.default_rng(0)
    a = 1e-18 * rng.standard_normal(1000)
    b = a + 1e-20 * rng.standard_normal(1000)
    found = PermutationNulls(stack(a), stack(b), seed=0).get(
        "deviation", a, b, observed=BY_KIND["deviation"](a, b), higher_is_closer=True
    )
    assert (found.sd, found.log10_p) == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["pearson", "cosine", "spearman", "l2", "abs_diff"])
def test_no_p_value_is_below_what_so_few_orders_can_give(kind):
    for d in (2, 3):
        for seed in range(10):
            a = np.random.default_rng(seed).standard_normal(d)
            b = a.copy()
            found = PermutationNulls(stack(a), stack(b), seed=0).get(
                kind, a, b, observed=BY_KIND[kind](a, b), higher_is_closer=BY_KIND[kind].higher_is_closer
            )
            assert found.log10_p >= -math.log10(math.factorial(d)) - 1e-12
