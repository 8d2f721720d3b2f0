"""Weights that one recipe ties together in both models: fewer free numbers than elements, so places and signs prove little."""

from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import matrix_test, row_test
from kinprint.evidence.exchangeability import tied_alike
from kinprint.evidence.probe import SamplePair
from kinprint.model.reader import Sample

ROWS, WIDTH, LAYERS = 64, 96, 6


def bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def plain(rng):
    return rng.standard_normal((ROWS, WIDTH))


def shifted(rng):
    """Each row is the one before it, shifted by one."""
    rows, columns = np.indices((ROWS, WIDTH))
    return rng.standard_normal(WIDTH)[(columns - rows) % WIDTH]


def hashed(rng, weights=ROWS * WIDTH // 8):
    """A public hash says which weight stands where, and its sign."""
    public = np.random.default_rng(0)
    signs = public.choice([-1.0, 1.0], (ROWS, WIDTH))
    return signs * rng.standard_normal(weights)[public.integers(weights, size=(ROWS, WIDTH))]


def four_bits(rng):
    return np.round(plain(rng) * 2).clip(-8, 7) / 2


def pairs(make, seed=1, change=lambda _, two: two):
    rngs = [np.random.default_rng([seed, side]) for side in (0, 1)]
    found = []
    for layer in range(LAYERS):
        one, two = (bfloat16(make(rng)) for rng in rngs)
        two = bfloat16(change(one, two))
        samples = (Sample(values, "BF16", values.shape) for values in (one, two))
        found.append(SamplePair(Role.MLP_GATE, layer, None, *samples))
    return found


@pytest.mark.parametrize("make", [shifted, hashed])
def test_weights_that_one_recipe_ties_are_found_to_be_tied(make):
    assert "tied alike" in str(tied_alike(pairs(make)))


def _as_it_is(one, two):
    return two


def _mixed(one, two):
    return 0.1 * one + 0.9 * two


def _partly_copied(one, two):
    return np.where(np.arange(ROWS)[:, None] < 20, one, two)


@pytest.mark.parametrize(
    ("make", "change"),
    [(plain, _as_it_is), (four_bits, _as_it_is), (plain, _mixed), (plain, _partly_copied), (four_bits, _partly_copied)],
)
def test_other_weights_are_not(make, change):
    assert tied_alike(pairs(make, change=change)) is None


@pytest.mark.parametrize("make", [shifted, hashed])
def test_a_copy_of_tied_weights_counts(make):
    group = pairs(make, change=lambda one, two: one + 0.3 * two)
    assert row_test(Role.MLP_GATE, group).log10_p < -20


def test_rows_that_are_shifts_of_one_row_are_not_tested_by_their_places():
    """They all find their places, or none does: one draw in `WIDTH`, which the bound for free rows would call impossible."""
    least = 0.0
    for seed in range(40):
        group = pairs(shifted, seed)
        for test in (partial(row_test, Role.MLP_GATE, group), partial(matrix_test, Role.MLP_GATE, group, {}, 0)):
            with suppress(DegenerateInput):
                least = min(least, test().log10_p)
    assert least > -4.5
