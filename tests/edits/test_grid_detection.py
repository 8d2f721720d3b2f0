"""Grids of dequantised weights are found with group and bits; formats' own steps are not mistaken for them."""

import numpy as np
import pytest

from kinprint.edits.quantisation_grids import find_grid
from kinprint.errors import DegenerateInput
from kinprint.metrics.identity import GRIDS, on_grid

# the steps of BF16 hide eight bits with a free zero: see the test below
VISIBLE = [
    (bits, zero, dtype)
    for bits in (8, 4, 3, 2)
    for zero in ("none", "whole", "free")
    for dtype in ("BF16", "F16", "F32")
    if (bits, zero, dtype) != (8, "free", "BF16")
]


@pytest.mark.parametrize("group", [None, 128, 64, 32])
@pytest.mark.parametrize(("bits", "zero", "dtype"), VISIBLE)
def test_grids_are_found_with_group_and_bits(make, bits, group, zero, dtype):
    for family, weights in make.weights.items():
        if family == "heavy" and bits == 2 and group is None:
            continue  # one outlier sets the step and nearly all of a row is zero: nothing is left to see
        A = make.stored(weights(np.random.default_rng(bits), 16, 1024), dtype)
        B = make.stored(make.quantised(A, bits, group, zero=zero), dtype)
        found = find_grid(A, B, dtype_a=dtype, dtype_b=dtype)
        assert found.is_quantised is True
        assert (found.bits, found.group, found.row_wise) == (bits, group or 1024, group is None)
        assert found.free_zero is (zero == "free")
        assert found.rounded_share > 0.95


@pytest.mark.parametrize("group", [1024, 128, 32])
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2"])
def test_numbers_of_eight_bits_that_were_written_out_again_are_a_grid(make, kind, dtype, group):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(1), 16, 1024), dtype)
    scale = np.repeat(np.abs(A.reshape(16, -1, group)).max(axis=2), group, axis=1) / GRIDS[kind].largest
    B = make.stored(on_grid(A / scale, kind) * scale, dtype)
    found = find_grid(A, B, dtype_a=dtype, dtype_b=dtype)
    assert found.is_quantised is True
    assert found.bits == 8
    assert found.group == group or kind == "F8_E5M2"  # of which two groups have no more mantissas than one of E4M3
    assert found.rounded_share > 0.97
    trained = find_grid(
        A + 0.1 * make.weights["gaussian"](np.random.default_rng(2), 16, 1024), B, dtype_a=dtype, dtype_b=dtype
    )
    assert trained.is_quantised is True
    assert trained.rounded_share < 0.97
    assert find_grid(B, make.stored(B * 1.01, dtype), dtype_a=dtype, dtype_b=dtype).is_quantised is not True


def test_eight_bits_with_a_free_zero_are_not_claimed_in_bf16(make):
    A = make.stored(make.weights["gaussian"](np.random.default_rng(0), 16, 1024), "BF16")
    B = make.stored(make.quantised(A, 8, zero="free"), "BF16")
    assert find_grid(A, B, dtype_a="BF16", dtype_b="BF16").is_quantised is not True


@pytest.mark.parametrize("shape", [(64, 512), (8, 4096), (32, 96)], ids=str)
@pytest.mark.parametrize("family", ["gaussian", "heavy"])
def test_plain_weights_are_on_no_grid(make, family, shape):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        W, change = (make.weights[family](rng, *shape) for _ in range(2))
        for dtype in ("BF16", "F16", "F32"):
            A = make.stored(W, dtype)
            for child in (W + 0.05 * change, change, np.abs(W), 1e-3 * W, np.where(np.abs(W) < 0.01, 0.0, W)):
                found = find_grid(A, make.stored(child, dtype), dtype_a=dtype, dtype_b=dtype)
                assert found.is_quantised is False


def test_numbers_near_one_and_subnormals_lie_on_the_steps_of_their_format_only(make):
    for seed in range(3):
        W = make.weights["gaussian"](np.random.default_rng(seed), 32, 128)
        A = make.stored(W, "BF16")
        gains = make.stored(1.0 + 5.0 * W, "BF16")  # at most 256 steps of BF16 apart: a grid, but the format's
        tiny = make.stored(W * 2.0**-14, "F16")  # all multiples of 2**-24
        assert find_grid(A, gains, dtype_a="BF16", dtype_b="BF16").is_quantised is not True
        assert find_grid(A, gains, dtype_a="F32", dtype_b="F32").is_quantised is not True
        assert find_grid(A, tiny, dtype_a="BF16", dtype_b="F16").is_quantised is not True
        for dtype in ("F8_E4M3", "F8_E5M2"):
            assert find_grid(A, make.stored(A, dtype), dtype_a="BF16", dtype_b=dtype).is_quantised is not True


def test_a_parent_on_the_same_grid_is_no_origin_of_it(make):
    W = make.weights["gaussian"](np.random.default_rng(1), 32, 128)
    A = make.stored(make.quantised(W, 4, 32), "F16")
    found = find_grid(A, -A, dtype_a="F16", dtype_b="F16")
    assert found.is_quantised is False
    assert found.limits == ("the parent lies on such grids too",)


def test_a_grid_of_other_weights_does_not_round_the_parent(make):
    rng = np.random.default_rng(2)
    A, other = (make.stored(make.weights["gaussian"](rng, 32, 128), "BF16") for _ in range(2))
    found = find_grid(A, make.stored(make.quantised(other, 4, 32), "BF16"), dtype_a="BF16", dtype_b="BF16")
    assert found.is_quantised is True
    assert found.rounded_share < 0.3


def test_what_cannot_be_judged_says_so(make):
    A = make.weights["gaussian"](np.random.default_rng(3), 32, 8)
    assert find_grid(A, A, dtype_a="F32", dtype_b="F32").limits == ("rows of 8 elements: expected 16 or more",)
    assert find_grid(A, A, dtype_a="F32", dtype_b="I8").limits == ("stored as I8: the format itself is the grid",)
    flat = np.ones((32, 64))
    assert find_grid(flat, flat, dtype_a="F32", dtype_b="F32").limits == ("no group has two different values",)
    with pytest.raises(DegenerateInput, match="expected two equal matrices"):
        find_grid(A, flat, dtype_a="F32", dtype_b="F32")
