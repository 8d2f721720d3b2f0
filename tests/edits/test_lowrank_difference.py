"""The rank of a difference, against rounding."""

import numpy as np
import pytest

from kinprint.edits.lowrank import difference_rank
from kinprint.errors import DegenerateInput


@pytest.mark.parametrize("hidden", [False, True], ids=["stored parent", "unrounded parent"])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("family", ["gaussian", "heavy"])
@pytest.mark.parametrize("rank", [1, 4, 16])
def test_merged_adapters_show_their_rank(make, rank, family, dtype, hidden):
    rng = np.random.default_rng(rank)
    W = make.weights[family](rng, 128, 512)
    A = make.stored(W, dtype)
    B = make.stored(make.adapter(rng, W if hidden else A, rank, 0.02), dtype)
    found = difference_rank(A, B, dtype_a=dtype, dtype_b=dtype)
    assert (found.rank, found.side, found.is_low_rank) == (rank, 128, True)
    assert found.explained > 0.95
    assert found.limits == ()


def test_an_adapter_added_in_bf16_and_stored_in_f32(make):
    rng = np.random.default_rng(0)
    A = make.stored(make.weights["gaussian"](rng, 128, 512), "F32")
    delta = make.stored(make.adapter(rng, A, 8, 0.02) - A, "BF16")
    found = difference_rank(A, make.stored(A + delta, "F32"), dtype_a="F32", dtype_b="F32")
    assert (found.rank, found.is_low_rank) == (8, True)


def test_bf16_numbers_in_f32_tensors_have_the_noise_of_bf16(make):
    rng = np.random.default_rng(1)
    A = make.stored(make.weights["gaussian"](rng, 128, 512), "BF16")
    B = make.stored(make.adapter(rng, A, 4, 0.02), "BF16")
    assert difference_rank(A, B, dtype_a="F32", dtype_b="F32") == difference_rank(A, B, dtype_a="BF16", dtype_b="BF16")


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("exponent", [0.25, 0.5, 0.7])
def test_a_full_spectrum_is_not_low(make, exponent, dtype):
    rng = np.random.default_rng(2)
    A = make.stored(make.weights["gaussian"](rng, 128, 512), dtype)
    B = make.stored(make.trained(rng, A, exponent, 0.05), dtype)
    found = difference_rank(A, B, dtype_a=dtype, dtype_b=dtype)
    assert found.rank > 100
    assert found.is_low_rank is False


def test_a_spectrum_that_sinks_into_rounding_is_not_called_low(make):
    rng = np.random.default_rng(3)
    A = make.stored(make.weights["gaussian"](rng, 128, 512), "BF16")
    B = make.stored(make.trained(rng, A, 1.0, 0.01), "BF16")
    found = difference_rank(A, B, dtype_a="BF16", dtype_b="BF16")
    assert 0 < found.rank <= 32
    assert found.explained > 0.9
    assert found.is_low_rank is None
    assert "without a gap" in found.limits[-1]


@pytest.mark.parametrize("family", ["gaussian", "heavy"])
def test_rounding_alone_has_no_rank(make, family):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for shape in ((64, 256), (8, 4096), (32, 96)):
            W = make.weights[family](rng, *shape)
            A = make.stored(W, "BF16")
            # less than a step: what differs is whether a number was rounded up or down
            B = make.stored(W * (1.0 + 1e-3 * rng.standard_normal(shape)), "BF16")
            found = difference_rank(A, B, dtype_a="BF16", dtype_b="BF16")
            assert found.rank == 0
            assert found.is_low_rank is not True
            assert found.explained is None


def test_few_rows_say_what_they_cannot_show(make):
    rng = np.random.default_rng(4)
    A = make.stored(make.weights["gaussian"](rng, 8, 4096), "BF16")
    B = make.stored(make.adapter(rng, A, 16, 0.02), "BF16")
    found = difference_rank(A, B, dtype_a="BF16", dtype_b="BF16")
    assert (found.rank, found.is_low_rank) == (8, None)
    assert "no rank beyond 8 can be seen" in found.limits[0]


def test_unchanged_rows_are_no_evidence_of_an_adapter(make):
    rng = np.random.default_rng(5)
    A = make.stored(make.weights["gaussian"](rng, 256, 128), "BF16")
    B = A.copy()
    B[:3] = make.stored(make.weights["gaussian"](rng, 3, 128), "BF16")  # three embeddings replaced: rank three
    found = difference_rank(A, B, dtype_a="BF16", dtype_b="BF16")
    assert found.is_low_rank is None
    assert "only 3 of 256 rows" in found.limits[0]
    B[:40] = make.stored(make.weights["gaussian"](rng, 40, 128), "BF16")
    assert difference_rank(A, B, dtype_a="BF16", dtype_b="BF16").is_low_rank is not True


def test_a_large_matrix_is_sampled(make):
    rng = np.random.default_rng(6)
    A = make.weights["gaussian"](rng, 1100, 1030)
    B = make.adapter(rng, A, 2, 0.02)
    found = difference_rank(A, B, dtype_a="F64", dtype_b="F64")
    assert (found.rank, found.side, found.is_low_rank) == (2, 1024, True)
    assert found.limits == ("spectrum of 1024 evenly spaced rows or columns",)


def test_shapes_must_agree():
    with pytest.raises(DegenerateInput, match="expected two equal matrices"):
        difference_rank(np.ones((4, 4)), np.ones((4, 5)), dtype_a="F32", dtype_b="F32")
