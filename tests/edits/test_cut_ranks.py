"""A child of full rank is told from one whose rank was cut, without its spectrum."""

import numpy as np
import pytest

from kinprint.edits.truncation import truncation_of

RNG = np.random.default_rng(5)
PARENT = RNG.standard_normal((48, 96)).astype(np.float32).astype(np.float64)


def test_a_child_of_full_rank_needs_no_spectrum(monkeypatch):
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda gram: pytest.fail("a spectrum was taken"))
    for A in (PARENT, PARENT.T):
        assert truncation_of(A, A + 0.01 * RNG.standard_normal(A.shape), dtype_a="F32", dtype_b="F32") is None


@pytest.mark.parametrize("rank", [4, 24, 40])
def test_a_cut_rank_is_found(rank):
    U, s, Vt = np.linalg.svd(PARENT, full_matrices=False)
    child = ((U[:, :rank] * s[:rank]) @ Vt[:rank]).astype(np.float32).astype(np.float64)
    for A, B in ((PARENT, child), (PARENT.T, child.T)):
        found = truncation_of(A, B, dtype_a="F32", dtype_b="F32")
        assert found is not None
        assert (found.rank, found.side) == (rank, 48)
