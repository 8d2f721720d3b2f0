"""Units in the last place, checked against the bit patterns of the formats themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinprint.errors import DegenerateInput, UnsupportedDtype
from kinprint.metrics import METRICS
from kinprint.metrics.identity import GRIDS, mean_steps, on_grid, ordinals


def _all_nonnegative(dtype: str) -> np.ndarray:
    """Return every finite nonnegative number of a format of at most 16 bits, in the order of its bit patterns."""
    if dtype == "F16":
        return np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    if dtype == "BF16":
        return (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "F8_E5M2":
        return (np.arange(0x7C, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)
    codes = np.arange(0x7F)  # F8_E4M3: 0x7F is its only NaN
    exponents, mantissas = codes >> 3, codes & 7
    normal = np.ldexp(8.0 + mantissas, exponents - 10)
    return np.where(exponents == 0, np.ldexp(mantissas.astype(float), -9), normal)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F8_E5M2", "F8_E4M3"])
def test_every_number_of_a_small_format_has_its_bit_pattern_as_ordinal(dtype: str) -> None:
    values = _all_nonnegative(dtype)
    np.testing.assert_array_equal(ordinals(values, dtype), np.arange(values.size))
    np.testing.assert_array_equal(ordinals(-values, dtype), -np.arange(values.size))
    large = 1 << (
        GRIDS[dtype].precision - 1
    )  # the least normal number; without smaller ones digits are counted at once
    np.testing.assert_array_equal(ordinals(values[large:], dtype), np.arange(large, values.size))
    np.testing.assert_array_equal(ordinals(np.append(values[large:], [0.0, -0.0]), dtype)[-2:], [0, 0])
    np.testing.assert_array_equal(on_grid(values, dtype), values)
    assert values[-1] == GRIDS[dtype].largest


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_f32_ordinals_are_bit_patterns(value: float) -> None:
    bits = int(np.float32(abs(value)).view(np.int32))
    assert ordinals([value], "F32")[0] == (-bits if value < 0 else bits)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_f64_ordinals_are_bit_patterns_and_neighbours_differ_by_one(value: float) -> None:
    bits = int(np.float64(abs(value)).view(np.int64))
    assert ordinals([value], "F64")[0] == (-bits if value < 0 else bits)
    if value < GRIDS["F64"].largest:
        assert ordinals([np.nextafter(value, np.inf)], "F64")[0] - ordinals([value], "F64")[0] == 1


@given(st.floats(-60000, 60000))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_rounding_to_f16_is_that_of_numpy(value: float) -> None:
    assert on_grid([value], "F16")[0] == np.float64(np.float16(value))


def test_both_zeros_are_zero() -> None:
    for dtype in GRIDS:
        np.testing.assert_array_equal(ordinals([0.0, -0.0], dtype), [0, 0])


def test_values_off_the_grid_are_refused() -> None:
    with pytest.raises(DegenerateInput, match="1 of 2 values are not exactly representable in BF16"):
        ordinals([1.0, 1.001], "BF16")
    with pytest.raises(DegenerateInput, match="beyond the range of F8_E4M3"):
        on_grid([500.0], "F8_E4M3")
    with pytest.raises(UnsupportedDtype, match="I8"):
        ordinals([1.0], "I8")


def test_one_step_of_one_element() -> None:
    a = np.ones(4096)
    b = a.copy()
    b[17] = 1.0 + 2.0**-7
    assert METRICS["ulp_distance"](a, b, dtype="BF16") == 1 / 4096
    assert METRICS["ulp_distance"](a, b, dtype="F32") == 2**16 / 4096
    assert METRICS["changed_ratio"](a, b) == 1 / 4096
    assert METRICS["byte_identity"](a, b) == 0.0
    assert METRICS["byte_identity"](a, a.copy()) == 1.0


def test_a_cast_to_the_coarser_format_is_at_distance_zero() -> None:
    a = np.random.default_rng(0).normal(size=500).astype(np.float32).astype(np.float64)
    assert METRICS["ulp_distance"](a, on_grid(a, "BF16"), dtype="BF16") == 0.0
    assert METRICS["changed_ratio"](a, on_grid(a, "BF16")) > 0.9


def test_the_widest_distance_does_not_overflow() -> None:
    largest = GRIDS["F64"].largest
    far = ordinals([largest, 1.0], "F64"), ordinals([-largest, 1.0], "F64")
    assert mean_steps(*far) == pytest.approx(float(2 * int(far[0][0])) / 2)
