"""All pairs of slices: against permutations counted out, and against the vectors' own."""

import itertools
import tracemalloc

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.stats.layer_grid import gram_products, matrix_grid
from kinprint.studies.row_grid import row_grid


def test_vectors_agree_with_the_layer_grid():
    rng = np.random.default_rng(0)
    A, B = 1 + 0.1 * rng.standard_normal((5, 64)), 1 + 0.2 * rng.standard_normal((7, 64))
    ours, theirs = matrix_grid(A[:, None], B[:, None]), row_grid(A, B)
    np.testing.assert_allclose(ours.cosine, theirs.cosine, rtol=1e-12)
    np.testing.assert_allclose(ours.cosine_null, theirs.cosine_null_mean, rtol=1e-12)
    np.testing.assert_allclose(ours.pearson, theirs.pearson, atol=1e-12)
    np.testing.assert_allclose(ours.z, theirs.z, atol=1e-10)


def test_moments_are_those_of_all_permutations():
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((1, 3, 5)) + 0.5, rng.standard_normal((1, 3, 5)) - 0.2
    every = [float((A[0] * B[0][:, list(order)]).sum()) for order in itertools.permutations(range(5))]
    observed = float((A * B).sum())
    found = matrix_grid(A, B)
    lengths = np.linalg.norm(A) * np.linalg.norm(B)
    assert found.z[0, 0] == pytest.approx((observed - np.mean(every)) / np.std(every), rel=1e-10)
    assert found.cosine_null[0, 0] == pytest.approx(np.mean(every) / lengths, rel=1e-10)
    assert found.pearson[0, 0] == pytest.approx(np.corrcoef(A.ravel(), B.ravel())[0, 1], rel=1e-10)


def test_a_copy_stands_out_and_strangers_do_not():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((4, 8, 256))
    B = np.concatenate([A[[2]] + 0.1 * rng.standard_normal((1, 8, 256)), rng.standard_normal((3, 8, 256))])
    z = matrix_grid(A, B).z
    assert z[2, 0] > 30
    assert np.abs(np.delete(z.ravel(), 2 * 4)).max() < 5


def test_constant_slices_have_no_figure():
    A = np.stack([np.ones((1, 16)), np.arange(16.0)[None]])
    found = matrix_grid(A, A)
    assert np.isnan(found.z[0]).all()
    assert np.isnan(found.pearson[:, 0]).all()
    assert found.z[1, 1] > 3
    assert found.cosine[0, 0] == pytest.approx(1.0)


def test_other_shapes_are_refused():
    with pytest.raises(DegenerateInput, match="equal shape"):
        matrix_grid(np.ones((2, 3, 8)), np.ones((2, 4, 8)))


def test_tall_slices_give_what_their_gram_matrices_would():
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((3, 12, 5)), rng.standard_normal((2, 12, 5))
    left, right = (X @ X.transpose(0, 2, 1) for X in (A, B))
    np.testing.assert_allclose(gram_products(A, B), np.einsum("aij,bij->ab", left, right), rtol=1e-12)
    turned = gram_products(A.transpose(0, 2, 1), B.transpose(0, 2, 1))
    left, right = (X.transpose(0, 2, 1) @ X for X in (A, B))
    np.testing.assert_allclose(turned, np.einsum("aij,bij->ab", left, right), rtol=1e-12)


def test_tall_slices_take_no_more_memory_than_a_few_copies():
    """Twelve thousand rows of eight units, 46 layers of them, once made Gram matrices of ten gigabytes."""
    A = np.random.default_rng(4).standard_normal((3, 6000, 8))
    tracemalloc.start()
    try:
        matrix_grid(A, A)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * A.nbytes
