"""Sameness, zeros, scale and residual, each against what was built in."""

import numpy as np
import pytest

from kinprint.edits.edit_names import explain_edit
from kinprint.edits.pair import describe
from kinprint.edits.rounding import steps, stored_bits, used_dtype
from kinprint.edits.sameness import identity_of
from kinprint.edits.sparsity import sparsity_of
from kinprint.errors import DegenerateInput
from kinprint.metrics.identity import GRIDS


def test_identity_counts_and_measures(make):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(0), 16, 64), "BF16")
    B = A.copy()
    B[0, :8] += steps(B[0, :8], "BF16") * np.sign(B[0, :8])
    found = identity_of(A, B, "BF16", "BF16")
    assert found.changed_share == 8 / 1024
    assert found.mean_ulps == 8 / 1024
    assert (found.byte_identical, found.cast) == (False, None)
    same = identity_of(A, A.copy(), "BF16", "BF16")
    assert (same.byte_identical, same.same_values, same.mean_ulps) == (True, True, 0.0)


def test_a_sign_of_zero_is_a_byte_but_not_a_value():
    found = identity_of(np.array([[0.0, 1.0]]), np.array([[-0.0, 1.0]]), "F32", "F32")
    assert (found.byte_identical, found.same_values) == (False, True)


def test_a_cast_may_go_either_way_and_one_wrong_number_refutes_it(make):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(1), 64, 512), "F32")
    B = make.stored(A, "BF16")
    assert identity_of(B, A, "BF16", "F32").cast == "BF16 to F32"  # the parent is the child's cast: it says so too
    B[40, 123] *= 2.0
    assert identity_of(A, B, "F32", "BF16").cast is None
    assert identity_of(A * 1e6, B, "F32", "F8_E4M3").mean_ulps is None  # out of range
    with pytest.raises(DegenerateInput, match="expected equal"):
        identity_of(A, B[:1], "F32", "BF16")


def test_halves_may_be_rounded_to_even_or_away_from_zero(make):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(7), 64, 512), "F32").copy()
    low = make.stored(A[:, :40], "F16")
    A[:, :40] = low + 0.5 * steps(low, "F16")  # halfway, in F32 exactly
    B = make.stored(A, "F16").copy()
    high = low + steps(low, "F16")
    assert not np.array_equal(B[:, :40], high)
    B[:, :40] = high
    assert identity_of(A, B, "F32", "F16").cast == "F32 to F16"
    B[3:4, 300] += 2.0 * steps(B[3:4, 300], "F16")
    assert identity_of(A, B, "F32", "F16").cast is None


@pytest.mark.parametrize("dtype", list(GRIDS))
def test_steps_are_the_distance_to_the_next_number(make, dtype):
    values = make.stored(np.array([0.0, 2.0**-9, 0.013, 1.0, 1.5, 3.9, -200.0]), dtype)
    step = steps(values, dtype)
    assert np.array_equal(make.stored(values + step, dtype), values + step)
    away = values + 0.4 * step * np.sign(values)
    assert np.array_equal(make.stored(away, dtype), values)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("int8 with scales", 8), ("Q4_K", 4), ("Q5_0", 5), ("IQ2_XXS", 2), ("GPTQ 3-bit", 3), ("MXFP4", 4), ("I8", 8)],
)
def test_the_name_of_a_code_tells_its_bits(dtype, bits):
    assert stored_bits(dtype) == bits


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16", "BOOL", "I64"])
def test_plain_numbers_are_no_codes(dtype):
    assert stored_bits(dtype) is None


def test_the_format_that_numbers_really_use(make):
    W = make.weights["gaussian"](np.random.default_rng(2), 16, 64)
    assert used_dtype(make.stored(W, "BF16"), "F32") == "BF16"
    assert used_dtype(make.stored(W, "F16"), "F32") == "F16"
    assert used_dtype(make.stored(W, "F32"), "F32") == "F32"
    assert used_dtype(make.stored(W, "F16") * 2.0**-20, "F32") == "F32"  # as few bits as F16, but out of its range
    assert used_dtype(make.stored(W, "F8_E4M3"), "F8_E4M3") == "F8_E4M3"


@pytest.mark.parametrize("family", ["gaussian", "heavy"])
def test_zeros_and_which_weights_went(make, family):
    rng = np.random.default_rng(3)
    A = make.weights[family](rng, 64, 512)
    by_size, at_random = sparsity_of(A, make.halved(A)), sparsity_of(A, A * (rng.random(A.shape) > 0.5))
    assert by_size.new_zeros == pytest.approx(0.5, abs=0.01)
    assert (by_size.small_first, by_size.survivors_equal, by_size.pattern) == (1.0, 1.0, None)
    assert at_random.small_first == pytest.approx(0.5, abs=0.03)
    assert at_random.pattern is None
    structured = sparsity_of(A, make.two_of_four(A))
    assert structured.pattern == "2:4"
    assert 0.6 < structured.small_first < 1.0
    moved = sparsity_of(A, make.two_of_four(A) * 1.01)
    assert (moved.pattern, moved.survivors_equal) == ("2:4", 0.0)


def test_a_pattern_that_the_parent_had_is_not_new(make):
    rng = np.random.default_rng(4)
    A = make.two_of_four(make.weights["gaussian"](rng, 64, 512))
    found = sparsity_of(A, A * (rng.random(A.shape) > 0.05))
    assert found.parent_zeros == 0.5
    assert found.pattern is None
    none = sparsity_of(A + 1.0, A + 2.0)
    assert (none.new_zeros, none.small_first, none.survivors_equal) == (0.0, None, None)


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.004, 1.7, -1.0])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_a_common_scale_is_exact_up_to_rounding(make, dtype, factor):
    A = make.stored(make.weights["heavy"](np.random.default_rng(5), 32, 96), dtype)
    B = make.stored(factor * A, dtype)
    found = describe(A, B, dtype_a=dtype, dtype_b=dtype).common_scale
    assert found == pytest.approx(factor, rel=2.0 ** -GRIDS[dtype].precision)
    B[0, 0] += 3.0 * steps(B[:1, :1], dtype)[0, 0]
    assert describe(A, B, dtype_a=dtype, dtype_b=dtype).common_scale is None


def test_white_noise_is_told_from_what_only_looks_like_it(make):
    rng = np.random.default_rng(6)
    A = make.weights["gaussian"](rng, 64, 512)
    sd, noise = A.std(), rng.standard_normal(A.shape)

    def residual(change):
        return describe(A, A + change, dtype_a="F64", dtype_b="F64", spectrum=False).residual

    white = residual(0.1 * sd * noise)
    assert white.white is True
    assert white.level == pytest.approx(0.1 * sd, rel=0.02)
    assert white.kurtosis == pytest.approx(3.0, abs=0.15)
    assert residual(0.1 * sd * rng.uniform(-1, 1, A.shape)).white is True
    assert residual(0.1 * sd * rng.standard_t(5, A.shape)).kurtosis > 4.0
    assert residual(make.trained(rng, A, 0.3, 0.1) - A).row_z > 10.0
    by_rows, by_columns = (noise * np.linspace(0.5, 1.5, n).reshape(shape) for n, shape in ((64, (-1, 1)), (512, -1)))
    for change in (0.1 * A * noise, 0.1 * sd * by_rows, 0.1 * sd * by_columns, make.trained(rng, A, 0.3, 0.1) - A):
        assert residual(change).white is False


def test_noise_of_the_size_of_rounding_is_not_judged(make):
    rng = np.random.default_rng(7)
    A = make.stored(make.weights["gaussian"](rng, 64, 512), "BF16")
    B = make.stored(A + 0.003 * A.std() * rng.standard_normal(A.shape), "BF16")
    assert describe(A, B, dtype_a="BF16", dtype_b="BF16", spectrum=False).residual.white is None


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_pruning_is_seen_through_a_cast(make, dtype):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(9), 64, 256), "F32")
    B = make.stored(np.where(np.abs(A) < np.median(np.abs(A)), 0.0, A), dtype)
    edit = describe(A, B, dtype_a="F32", dtype_b=dtype)
    assert edit.sparsity.survivors_equal == 1.0
    assert edit.sparsity.new_zeros == pytest.approx(0.5, abs=0.01)
    assert explain_edit(edit).name == "pruned"
    moved = describe(A, make.stored(B * 1.02, dtype), dtype_a="F32", dtype_b=dtype)
    assert moved.sparsity.survivors_equal < 0.5


def rounded_in_blocks(values, bits, block=32):
    """Return values on a grid of so many bits for each block, as Q8_0 and Q4_0 have."""
    grouped = values.reshape(-1, block)
    scale = np.abs(grouped).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    return (np.round(grouped / scale) * scale).reshape(values.shape)


def test_two_quantised_copies_of_one_model():
    original = np.random.default_rng(4).standard_normal((32, 256))
    eight, four = rounded_in_blocks(original, 8), rounded_in_blocks(original, 4)
    found = explain_edit(describe(eight, four, dtype_a="Q8_0", dtype_b="Q4_0"))
    assert found.name == "quantised"
    assert "rounding to 4 bits" in found.reasons[1]


def test_quantised_copies_that_are_further_apart_were_changed():
    rng = np.random.default_rng(5)
    original = rng.standard_normal((32, 256))
    trained = original + 0.3 * rng.standard_normal(original.shape)
    found = describe(rounded_in_blocks(original, 8), rounded_in_blocks(trained, 4), dtype_a="Q8_0", dtype_b="Q4_0")
    assert explain_edit(found).name != "quantised"
    alike = describe(rounded_in_blocks(original, 4), rounded_in_blocks(trained, 4), dtype_a="Q4_0", dtype_b="Q4_0")
    assert explain_edit(alike).name != "quantised"  # one format: equal originals would have equal codes
