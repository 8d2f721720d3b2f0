"""The median and the row means of the house are numpy's."""

import math

import numpy as np
import pytest

from kinprint._util.numeric import distinct, each_safely_scaled, median, medians, row_means


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 100, 101])
def test_the_median_is_that_of_numpy(size):
    values = np.random.default_rng(size).standard_normal(size)
    assert median(values) == np.median(values)
    assert median(list(range(size))) == np.median(range(size))


def test_nothing_has_no_median():
    assert math.isnan(median([]))


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 4), (6, 1)])
@pytest.mark.parametrize("axis", [0, 1])
def test_medians_along_an_axis_are_those_of_numpy(shape, axis):
    values = np.random.default_rng(3).standard_normal(shape)
    np.testing.assert_array_equal(medians(values, axis), np.median(values, axis=axis, keepdims=True))


@pytest.mark.parametrize("values", [[], [2.0], [3, 1, 3, 2, 1], [1.5, -0.0, 0.0, 1.5], [1 + 2j, 1 + 1j, 1 + 2j, 0j]])
def test_distinct_values_are_those_of_numpy(values):
    np.testing.assert_array_equal(distinct(np.array(values)), np.unique(np.array(values)))


def test_row_means_are_those_of_numpy():
    rows = np.random.default_rng(1).standard_normal((3, 4, 1000)) + 5.0
    np.testing.assert_array_equal(row_means(rows), rows.mean(axis=-1, keepdims=True))


@pytest.mark.parametrize("power", [0, 40, -40, 63, -63, 66, -66, 200, -200])
def test_values_are_scaled_only_where_their_powers_might_leave_float64(power):
    stack = np.ldexp(np.random.default_rng(2).uniform(-1.0, 1.0, (2, 50)), power)
    scaled = each_safely_scaled(stack)
    largest = np.abs(scaled).max()
    assert 2.0**-65 <= largest <= 2.0**65
    if abs(power) < 60:
        assert scaled is stack
    if abs(power) > 100:
        assert 0.25 <= largest <= 1.0


def test_a_stack_of_zeros_stays_as_it_is():
    zeros = np.zeros((2, 3))
    np.testing.assert_array_equal(each_safely_scaled(zeros), zeros)
