"""The residual basis from embeddings: permutation with signs, and rotation."""

from __future__ import annotations

import numpy as np
import pytest

from kinprint.align.neuron_assignment import match_rows
from kinprint.align.residual_basis import embedding_rotation, match_columns
from kinprint.errors import DegenerateInput

TOKENS, WIDTH = 300, 80


def embeddings(seed, width=WIDTH):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((TOKENS, width)) * rng.lognormal(0, 0.5, width)


def rebased(E, seed):
    """Return E in a basis with permuted and negated axes, the place of each column there, and its sign."""
    rng = np.random.default_rng(seed)
    place, sign = rng.permutation(E.shape[1]), rng.choice([-1, 1], E.shape[1])
    moved = np.empty_like(E)
    moved[:, place] = E * sign
    return moved, place, sign


def noise(E, seed, size):
    return E + size * E.std(axis=0) * np.random.default_rng(seed).standard_normal(E.shape)


@pytest.mark.parametrize("size", [0.0, 0.3, 1.5])
def test_permutation_and_signs_are_recovered(size):
    E = embeddings(0)
    moved, place, sign = rebased(E, 1)
    found = match_columns(E, noise(moved, 2, size))
    np.testing.assert_array_equal(found.index, place)
    np.testing.assert_array_equal(found.sign, sign)
    assert found.share == 1.0


def test_columns_of_a_pruned_basis_are_recovered_both_ways():
    E = embeddings(3)
    moved, place, sign = rebased(E, 4)
    kept = np.flatnonzero(place < 50)  # the columns of A that still exist
    found = match_columns(E, noise(moved[:, :50], 5, 0.2))
    np.testing.assert_array_equal(np.flatnonzero(found.index >= 0), kept)
    np.testing.assert_array_equal(found.index[kept], place[kept])
    np.testing.assert_array_equal(found.sign, np.where(place < 50, sign, 0))
    assert found.share == 1.0
    back = match_columns(moved[:, :50], E)
    np.testing.assert_array_equal(place[back.index], np.arange(50))


def test_without_signs_a_negated_column_is_not_found():
    E = embeddings(6)
    flipped = E * np.where(np.arange(WIDTH) < 40, -1.0, 1.0)
    found = match_columns(E, flipped, signs=False)
    np.testing.assert_array_equal(found.index[40:], np.arange(40, WIDTH))
    assert not np.any(found.index[:40] == np.arange(40))
    assert set(found.sign) == {1}
    assert found.share == pytest.approx(0.5, abs=0.05)


def test_margins_of_independent_embeddings_are_those_of_the_null():
    for seed in range(5):
        assert match_columns(embeddings(10 + seed), embeddings(20 + seed), seed=seed).share <= 0.05


def test_other_matrices_can_be_tested_after_alignment():
    # embeddings give the basis; rows of another matrix, whose order was never looked at, then match their own
    rng = np.random.default_rng(30)
    E, up = embeddings(31), rng.standard_normal((64, WIDTH))
    moved, *_ = rebased(np.vstack([E, up]), 32)
    embedding_b, up_b = noise(moved[:TOKENS], 33, 0.3), moved[TOKENS:] + 0.3 * rng.standard_normal(up.shape)
    assert np.count_nonzero(match_rows(up, up_b) == np.arange(64)) < 8
    aligned, kept = match_columns(E, embedding_b).columns_of_a(up_b)
    np.testing.assert_array_equal(kept, np.arange(WIDTH))
    np.testing.assert_array_equal(match_rows(up[:, kept], aligned), np.arange(64))


def test_columns_of_zeros_have_no_partner():
    E = embeddings(34)
    other = E.copy()
    E[:, 2] = other[:, 2] = 0.0
    found = match_columns(E, other)
    np.testing.assert_array_equal(np.flatnonzero(found.index < 0), [2])
    assert found.sign[2] == 0
    with pytest.raises(DegenerateInput, match="every column is zero"):
        match_columns(np.zeros((4, 3)), np.ones((4, 3)))


def test_a_single_column_can_show_nothing():
    E = embeddings(35, width=1)
    found = match_columns(E, -E)
    assert (found.index[0], found.sign[0], found.share) == (0, -1, 0.0)


@pytest.mark.nightly
def test_two_thousand_columns_are_recovered():
    rng = np.random.default_rng(36)
    E = rng.standard_normal((3000, 2048))
    moved, place, sign = rebased(E, 37)
    found = match_columns(E, moved + rng.standard_normal(E.shape))
    np.testing.assert_array_equal(found.index, place)
    np.testing.assert_array_equal(found.sign, sign)


# --- rotation ---------------------------------------------------------------------------------------------------------


def orthogonal(seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)))[0]


def residual(A, R, B):
    """Return what the best common factor leaves of A·R beside B, as a share."""
    one, two = A @ R / np.linalg.norm(A), B / np.linalg.norm(B)
    return np.linalg.norm(one - np.vdot(one, two) * two)


def test_a_rotation_is_recovered_whatever_the_scale():
    E, Q = embeddings(40), orthogonal(41)
    np.testing.assert_allclose(embedding_rotation(E, 3.0 * E @ Q), Q, atol=1e-10)


def test_noise_leaves_a_rotation():
    E, Q = embeddings(42), orthogonal(43)
    size = 0.2 * np.linalg.norm(E) / np.sqrt(E.size)
    other = E @ Q + size * np.random.default_rng(44).standard_normal(E.shape)
    R = embedding_rotation(E, other)
    np.testing.assert_allclose(R @ R.T, np.eye(WIDTH), atol=1e-12)
    assert residual(E, R, other) == pytest.approx(0.2, abs=0.03)


def test_independent_embeddings_fit_no_better_than_shuffled_tokens():
    A, B = embeddings(45), embeddings(46)
    shuffled = B[np.random.default_rng(0).permutation(TOKENS)]
    found, chance = (residual(A, embedding_rotation(A, other), other) for other in (B, shuffled))
    assert found == pytest.approx(chance, abs=0.02)
    assert found < 0.95  # a rotation has thousands of free numbers: the residual alone means little


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones((5, 3)), np.ones((6, 3)), "a row per token"),
        (np.ones((5, 3)), np.full((5, 3), np.nan), "b holds 15 non-finite"),
        (np.ones((2, 4097)), np.ones((2, 4)), "at most 4096"),
    ],
)
def test_embeddings_that_cannot_be_aligned_are_refused(A, B, message):
    for align in (match_columns, embedding_rotation):
        with pytest.raises(DegenerateInput, match=message):
            align(A, B)


def test_a_rotation_needs_equal_widths_tokens_and_values():
    for A, B in ((np.ones((9, 3)), np.ones((9, 4))), (np.ones((2, 3)), np.ones((2, 3)))):
        with pytest.raises(DegenerateInput, match="as many tokens"):
            embedding_rotation(A, B)
    with pytest.raises(DegenerateInput, match="all zeros"):
        embedding_rotation(np.zeros((9, 3)), np.ones((9, 3)))
