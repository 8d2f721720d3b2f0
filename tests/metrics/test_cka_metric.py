"""Linear CKA against direct definitions and its known bias on noise."""

from __future__ import annotations

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS


def _direct(X: np.ndarray, Y: np.ndarray, *, unbiased: bool) -> float:
    n = X.shape[0]

    def gram(Z: np.ndarray) -> np.ndarray:
        K = Z @ Z.T
        if not unbiased:
            H = np.eye(n) - 1.0 / n
            return H @ K @ H
        return K - np.diag(np.diag(K))

    def hsic(K: np.ndarray, L: np.ndarray) -> float:
        if not unbiased:
            return float(np.trace(K @ L))
        one = np.ones(n)
        cross = (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
        return float(np.trace(K @ L) + cross - 2.0 / (n - 2) * (one @ K @ L @ one))

    K, L = gram(X), gram(Y)
    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


@pytest.mark.parametrize("shapes", [(9, 3, 4), (6, 40, 2), (30, 7, 90)])
def test_agrees_with_the_textbook_form(shapes: tuple[int, int, int]) -> None:
    n, p, q = shapes
    rng = np.random.default_rng(n)
    X, Y = rng.lognormal(size=(n, p)), rng.normal(size=(n, q)) + 2.0
    assert METRICS["cka"](X, Y) == pytest.approx(_direct(X, Y, unbiased=False), abs=1e-12)
    assert METRICS["cka_unbiased"](X, Y) == pytest.approx(_direct(X, Y, unbiased=True), abs=1e-11)


def test_noise_fools_the_biased_form_only() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 200, 4096))
    assert METRICS["cka"](X, Y) == pytest.approx(0.953, abs=0.002)
    assert abs(METRICS["cka_unbiased"](X, Y)) < 5 * np.sqrt(2.0 / (200 * 197))


def test_too_few_rows_vectors_and_a_simplex_are_refused() -> None:
    with pytest.raises(DegenerateInput, match="3 rows: expected at least 4"):
        METRICS["cka_unbiased"](np.eye(3), np.eye(3))
    with pytest.raises(DegenerateInput, match="expected two matrices"):
        METRICS["cka"](np.arange(4.0), np.arange(4.0))
    with pytest.raises(DegenerateInput, match="equidistant"):
        METRICS["cka_unbiased"](np.eye(6), np.arange(12.0).reshape(6, 2))
