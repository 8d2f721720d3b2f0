"""The identity behind the raw cosine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinprint.metrics.explain import cosine_identity, cosine_if_independent


def test_published_layer() -> None:
    """CVs of 0.174 and 0.094 (rounded) predict 0.98095, and r = 0.0092 lifts it by 0.00014 to 0.98109."""
    independent = cosine_if_independent(0.174, 0.094)
    assert independent == pytest.approx(0.98095, abs=1.0e-4)
    with_r = (1 + 0.0092 * 0.174 * 0.094) / math.sqrt((1 + 0.174**2) * (1 + 0.094**2))
    assert with_r - independent == pytest.approx(0.98109 - 0.98095, abs=1e-5)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_identity_is_exact_for_all_signs_of_the_means(signs: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(signs[0] * 0.5, 1.0, 500), rng.normal(signs[1] * 2.0, 0.3, 500)
    found = cosine_identity(a, b)
    assert found.predicted == pytest.approx(found.observed, abs=1e-13)
    assert found.if_independent is not None
    assert math.copysign(1, found.if_independent) == signs[0] * signs[1]
    assert found.reason is None


@given(hnp.arrays(np.float64, (2, 20), elements=st.floats(-10, 10)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_identity_holds_wherever_it_is_used(data: np.ndarray) -> None:
    assume(data[0].any() and data[1].any())
    found = cosine_identity(data[0], data[1])
    if found.predicted is None:
        assert "near zero" in str(found.reason)
    else:
        assert found.predicted == pytest.approx(found.observed, abs=1e-9)


def test_constant_side_needs_no_correlation() -> None:
    b = np.random.default_rng(1).lognormal(size=50)
    found = cosine_identity(np.full(50, 0.1), b)
    assert found.r is None
    assert found.cv_a == 0.0
    assert found.predicted == pytest.approx(found.observed, abs=1e-13)


def test_mean_near_zero_is_not_explained() -> None:
    rng = np.random.default_rng(2)
    found = cosine_identity(rng.normal(size=4096), 1 + rng.normal(size=4096))
    assert (found.cv_a, found.predicted) == (None, None)
    assert found.reason is not None
    assert "mean of a" in found.reason
