"""Signs of units: exact on independent models whatever their places mean, strong on shared weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from kinprint.stats.sign_flips import one_coin, sign_flips, unit_products


def _units(seed: int, rows: int = 48, units: int = 96) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, units))


def _log10_p(A: np.ndarray, B: np.ndarray) -> float:
    return sign_flips(one_coin(A, B, unit_products(A, B))).log10_p


def _masked(X: np.ndarray) -> np.ndarray:
    return X * (np.random.default_rng(99).random(X.shape) < 0.5)  # the same public mask for all


def _interleaved(X: np.ndarray) -> np.ndarray:
    return X * (np.arange(X.shape[0])[:, None] % 8 == np.arange(X.shape[1]) % 8)


def _copied(X: np.ndarray) -> np.ndarray:
    return X[:, np.arange(X.shape[1]) // 8]  # each unit eight times


def _copied_negated(X: np.ndarray) -> np.ndarray:
    return _copied(X) * np.where(np.arange(X.shape[1]) % 3 == 0, -1.0, 1.0)


def _sorted(X: np.ndarray) -> np.ndarray:
    return X[:, np.argsort(np.linalg.norm(X, axis=0))]


def _every_fourth_pruned(X: np.ndarray) -> np.ndarray:
    return X * (np.arange(X.shape[1]) % 4 > 0)


def _grown(X: np.ndarray) -> np.ndarray:
    return X * (1.0 + np.arange(X.shape[1]) ** 2)


RECIPES = (_masked, _interleaved, _copied, _copied_negated, _sorted, _every_fourth_pruned, _grown, lambda X: X)
FEW_COINS = (_interleaved, _copied, _copied_negated)


@pytest.mark.parametrize("recipe", RECIPES)
def test_p_values_of_independent_models_are_conservative_whatever_places_mean(recipe):
    found = np.array([_log10_p(recipe(_units(2 * seed)), recipe(_units(2 * seed + 1))) for seed in range(400)])
    for level in (-0.5, -1.0, -2.0):
        share = float(np.mean(found <= level))
        assert share <= 10**level + 3 * math.sqrt(10**level / found.size)
    assert found.min() > -5.0
    assert found.min() < -1.0  # and the test is not idle


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe is not _sorted])
def test_shared_weights_are_seen_whatever_places_mean(recipe):
    A = _units(1)
    related = A + 0.5 * _units(2)
    assert _log10_p(recipe(A), recipe(related)) < (-2.0 if recipe in FEW_COINS else -12.0)


def test_a_third_model_averaged_in_at_a_tenth_is_seen():
    A, B = _units(3, rows=512, units=1024), _units(4, rows=512, units=1024)
    assert _log10_p(A, 0.9 * B + 0.1 * A) < -50.0


def test_the_bound_holds_over_all_signs():
    rng = np.random.default_rng(5)
    r = np.abs(rng.standard_t(2, size=12))
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=12)))
    sums = signs @ r
    for t in np.quantile(sums, (0.6, 0.9, 0.99, 1.0)):
        exact = float(np.mean(sums >= t - 1e-12))
        shifted = sign_flips(signs[np.argmin(np.abs(sums - t))] * r)
        assert 10**shifted.log10_p >= exact


def test_flipped_units_hide_nothing_but_themselves():
    A = _units(6)
    flips = np.random.default_rng(7).choice([-1.0, 1.0], size=A.shape[1])
    assert _log10_p(A, A * flips) > -4.0
    assert sign_flips(np.zeros(4)).n == 0


def test_a_chain_of_copies_has_one_coin():
    turns = np.arange(12) * 0.5  # neighbours have a cosine of 0.88, units two places apart one of 0.54
    A = np.array([np.cos(turns), np.sin(turns)])[:, np.random.default_rng(5).permutation(12)]
    apart = np.eye(3)[:, [0, 1, 2]]
    both = np.block([[A, np.zeros((2, 3))], [np.zeros((3, 12)), apart]])
    merged = one_coin(both, both, np.arange(1.0, 16.0))
    assert merged.tolist() == [78.0, *[0.0] * 11, 13.0, 14.0, 15.0]
