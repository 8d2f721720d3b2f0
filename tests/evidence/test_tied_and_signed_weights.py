"""Recipes that tie weights together, or give them signs: then places and signs prove less than they would, or nothing."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence import sign_tests
from kinprint.evidence.exact_tests import matrix_block, matrix_test, row_test
from kinprint.evidence.exchangeability import _median_beyond, fair_signs, tied_alike
from kinprint.evidence.probe import Probe, SamplePair
from kinprint.evidence.sign_tests import sign_test
from kinprint.model.reader import Sample

ROWS, WIDTH, LAYERS = 64, 96, 6
PROBE = Probe("in memory", LAYERS)


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


def projected(rank=4):
    """Let all rows of a layer lie in a few public directions, which are others in each layer."""
    calls = count()  # the two models take turns

    def make(rng):
        return rng.standard_normal((ROWS, rank)) @ np.random.default_rng(next(calls) // 2).standard_normal(
            (rank, WIDTH)
        )

    return make


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


def one_sided(rng):
    """All weights are positive."""
    return np.abs(plain(rng))


def by_number(rng):
    """A column's number says whether it excites or inhibits."""
    return one_sided(rng) * np.where(np.arange(WIDTH) % 5 == 4, -1.0, 1.0)


def positive_under_a_mask(rng):
    return one_sided(rng) * (np.random.default_rng(0).random((ROWS, WIDTH)) < 0.5)


@pytest.mark.parametrize("make", [one_sided, by_number, positive_under_a_mask])
def test_signs_that_a_recipe_gives_prove_nothing(make):
    found = []
    for seed in range(10):
        group = [replace(pair, role=Role.MLP_UP) for pair in pairs(make, seed)]
        found += [sign_test(Role.MLP_UP, axis, group, (PROBE, PROBE)).log10_p for axis in (0, 1)]
        found.append(matrix_test(Role.MLP_UP, group, {}, 0).log10_p if make is not positive_under_a_mask else 0.0)
    assert min(found) > -3.5


@pytest.mark.parametrize("make", [plain, one_sided, by_number, positive_under_a_mask])
def test_means_are_taken_off_both_sides_or_neither(make):
    rng = np.random.default_rng(3)
    one, other = make(rng), plain(rng)
    left, right = fair_signs(one, other)
    changed = make is not plain
    assert (left is not one, right is not other) == (changed, changed)
    assert np.all((left == 0.0) == (one == 0.0))
    flips = rng.choice([-1.0, 1.0], WIDTH)
    order = rng.permutation(WIDTH)
    np.testing.assert_allclose(fair_signs(one[:, order], other)[0], left[:, order], atol=1e-12)
    if make is plain:
        np.testing.assert_array_equal(fair_signs(one * flips, other)[0], left * flips)


@pytest.mark.parametrize(
    "values", [[1.0], [1.0, 3.0], [1.0, 2.0, 3.0], [0.0, 1.9, 2.2, 9.0], [0.0, 1.0, 2.5, 9.0], [2.0, 2.0]]
)
def test_counting_tells_whether_the_median_is_beyond_a_limit(values):
    for limit in (0.5, 1.0, 1.5, 2.0, 2.05, 3.0):
        assert _median_beyond(np.array(values), limit) == (np.median(values) > limit)


def test_a_copy_with_signs_by_recipe_is_found():
    group = [replace(pair, role=Role.MLP_UP) for pair in pairs(by_number, change=lambda one, two: one + 0.3 * two)]
    assert sign_test(Role.MLP_UP, 1, group, (PROBE, PROBE)).log10_p < -15
    assert row_test(Role.MLP_UP, group).log10_p < -100


def test_each_slice_is_read_once_for_signs_along_and_across_the_residual_stream(monkeypatch):
    group, read = pairs(plain, 0), []
    monkeypatch.setattr(sign_tests, "matrix_block", lambda *asked: read.append(asked) or matrix_block(*asked))
    sign_test(Role.MLP_UP, 1, group, (PROBE, PROBE))
    assert len(read) == len(group)


def test_rows_in_one_public_subspace_share_no_signs():
    """Residual dimensions are not drawn one by one there: their coins alone gave strangers 10⁻⁵."""
    found = [sign_test(Role.MLP_UP, 1, pairs(projected(), seed), (PROBE, PROBE)).log10_p for seed in range(20)]
    assert min(found) > -3.0
    copies = pairs(projected(16), change=lambda one, two: one + 0.5 * two)
    assert sign_test(Role.MLP_UP, 1, copies, (PROBE, PROBE)).log10_p < -15
