"""All layers against all layers, and all layers at once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats.joint import joint_blocks
from kinprint.stats.moments import FloatArray
from kinprint.stats.nulls import null_for
from kinprint.studies.row_grid import row_grid
from support.counting import calls_of


def test_each_cell_equals_the_pairwise_result() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.lognormal(0, 0.3, (3, 500)), rng.lognormal(0, 0.2, (4, 500))
    B[2] = A[1] + 0.1 * rng.normal(size=500)
    found = row_grid(A, B)
    assert found.valid.all()
    for j, k in itertools.product(range(3), range(4)):
        null = null_for("cosine", A[j], B[k], observed=METRICS["cosine"](A[j], B[k]), higher_is_closer=True)
        assert found.cosine[j, k] == pytest.approx(METRICS["cosine"](A[j], B[k]), abs=1e-13)
        assert found.pearson[j, k] == pytest.approx(METRICS["pearson"](A[j], B[k]), abs=1e-13)
        assert_allclose((found.cosine_null_mean[j, k], found.cosine_null_sd[j, k]), (null.mean, null.sd), rtol=1e-9)
        assert found.z[j, k] == pytest.approx(null.z, abs=1e-8)
        assert found.normal[j, k] == (null.p_method == PMethod.NORMAL)
        if found.normal[j, k]:
            assert found.log10_p[j, k] == pytest.approx(null.log10_p, abs=1e-7)
    assert found.log10_p.argmin() == np.ravel_multi_index((1, 2), (3, 4))


def test_outliers_get_a_bound_and_not_a_normal_tail() -> None:
    A, B = np.random.default_rng(1).normal(size=(2, 2, 4096))
    A[0, 9] = B[0, 9] = 1000.0
    found = row_grid(A, B)
    assert found.z[0, 0] > 60
    assert not found.normal[0, 0]
    assert -3.8 < found.log10_p[0, 0] < -3.4  # Cantelli: 1/(1 + z²), about 1/d
    assert found.normal[1, 1]


def test_degenerate_rows_are_masked() -> None:
    A = np.random.default_rng(2).lognormal(size=(3, 20))
    B = A.copy()
    A[1], B[2] = 2.0, 0.0
    found = row_grid(A, B)
    np.testing.assert_array_equal(found.valid, [[True, True, False], [False] * 3, [True, True, False]])
    for values in (found.pearson, found.z, found.log10_p):
        np.testing.assert_array_equal(np.isnan(values), ~found.valid)
    np.testing.assert_array_equal(np.isnan(found.cosine), [[False, False, True]] * 3)
    assert not found.normal[~found.valid].any()


def joint(A: FloatArray, B: FloatArray) -> NullResult:
    return joint_blocks([(a[None], b[None]) for a, b in zip(A, B, strict=True)])


def test_bad_input_is_refused() -> None:
    with pytest.raises(DegenerateInput, match="equal length"):
        row_grid(np.ones((2, 5)), np.ones((2, 6)))
    with pytest.raises(DegenerateInput, match="b holds 1 non-finite of 10"):
        row_grid(np.ones((2, 5)), np.array([[1, 2, 3, 4, np.nan]] * 1 + [[1, 2, 3, 4, 5]]))
    with pytest.raises(DegenerateInput, match="block 0 has shapes"):
        joint_blocks([(np.ones((1, 5)), np.ones((1, 6)))])
    with pytest.raises(DegenerateInput, match="block 0 is constant"):
        joint(np.ones((2, 5)), np.arange(10.0).reshape(2, 5))


def test_forty_seven_layers_take_as_many_calls_as_two() -> None:
    A, B = np.random.default_rng(3).lognormal(0, 0.2, (2, 47, 4096))
    row_grid(A[:2], B[:2])  # loads scipy.special
    assert calls_of(lambda: row_grid(A, B)) == calls_of(lambda: row_grid(A[:2], B[:2]))
    assert row_grid(A, B).z.std() == pytest.approx(1.0, abs=0.1)


def test_joint_equals_all_permutations() -> None:
    A, B = np.random.default_rng(4).lognormal(size=(2, 3, 6))
    A[1] = A[0] + 0.1 * A[1]  # layers resemble each other

    def statistic(order: tuple[int, ...]) -> float:
        return float(np.mean([METRICS["pearson"](a, b[list(order)]) for a, b in zip(A, B, strict=True)]))

    values = np.array([statistic(order) for order in itertools.permutations(range(6))])
    result = joint(A, B)
    assert_allclose((result.mean, result.sd), (0.0, values.std()), atol=1e-12)
    assert result.z == pytest.approx(values[0] / values.std(), abs=1e-10)
    units = [(X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True) / np.sqrt(6) for X in (A, B)]
    closed = np.sum((units[0] @ units[0].T) * (units[1] @ units[1].T)) / (9 * 5)
    assert result.sd**2 == pytest.approx(closed, rel=1e-12)


def test_correlated_layers_do_not_count_as_evidence_one_by_one() -> None:
    """Forty copies of one layer carry the evidence of one."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 400))
    one, many = joint(a[None], b[None]), joint(np.tile(a, (40, 1)), np.tile(b, (40, 1)))
    assert many.z == pytest.approx(one.z, rel=1e-9)
    assert many.log10_p == pytest.approx(one.log10_p, rel=1e-6)


def test_joint_finds_a_relative() -> None:
    rng = np.random.default_rng(6)
    A = rng.lognormal(0, 0.3, (10, 512))
    result = joint(A, A + 0.3 * rng.normal(size=A.shape))
    assert result.log10_p is not None
    assert result.log10_p < -20
    assert joint(A, rng.lognormal(0, 0.3, (10, 512))).log10_p > -3
