"""Drawn permutations: uniform, the same for the same arguments, whether kept or drawn afresh."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from kinprint.stats import montecarlo
from kinprint.stats.montecarlo import orders


def table(d, draws, seed=0):
    return np.concatenate(list(orders(d, draws=draws, seed=seed)))


@pytest.fixture
def uncached(monkeypatch):
    def build(d, draws, seed=0):
        with monkeypatch.context() as patch:
            patch.setattr(montecarlo, "_MAX_KEPT", 0)
            return table(d, draws, seed)

    return build


def test_every_permutation_is_equally_likely():
    counts = Counter(map(tuple, table(4, 24_000)))
    assert set(counts) == set(permutations(range(4)))
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_every_unit_goes_everywhere():
    places = table(9, 9_000, seed=5)
    for column in places.T:
        assert stats.chisquare(np.bincount(column, minlength=9)).pvalue > 1e-4


def test_rows_are_permutations_of_all_units():
    found = table(100, 57)
    assert found.shape == (57, 100)
    assert (np.sort(found, axis=1) == np.arange(100)).all()
    assert len({row.tobytes() for row in found}) == 57


def test_same_arguments_same_draws():
    first = table(50, 99, seed=4)
    montecarlo._kept_orders.cache_clear()
    np.testing.assert_array_equal(table(50, 99, seed=4), first)
    assert (table(50, 99, seed=5) != first).any()


def test_kept_and_fresh_draws_are_the_same(uncached, monkeypatch):
    monkeypatch.setattr(montecarlo, "_BLOCK", 1000)
    for d, draws in ((10, 99), (37, 250), (1001, 7)):
        montecarlo._kept_orders.cache_clear()
        kept = table(d, draws, seed=2)
        assert montecarlo._kept_orders.cache_info().misses == 1
        np.testing.assert_array_equal(uncached(d, draws, seed=2), kept)


def test_blocks_are_bounded(monkeypatch):
    monkeypatch.setattr(montecarlo, "_BLOCK", 1000)
    assert {block.size <= 1000 for block in orders(30, draws=500, seed=0)} == {True}
    assert [len(block) for block in orders(2000, draws=3, seed=0)] == [1, 1, 1]


def test_users_of_the_draws_leave_the_kept_table_alone():
    rng = np.random.default_rng(0)
    before = table(20, 99).copy()
    montecarlo.draw_dots(rng.standard_normal((3, 20)), rng.standard_normal((3, 20)), draws=99, seed=0)
    montecarlo.draw_alignments(np.eye(20), np.eye(20), draws=99, seed=0)
    np.testing.assert_array_equal(table(20, 99), before)


def test_stacks_drawn_by_table_and_by_gathering_agree(monkeypatch):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((3, 20)), rng.standard_normal((3, 20))
    by_table = montecarlo.draw_dots(A, B, draws=40, seed=1)
    monkeypatch.setattr(montecarlo, "_MAX_TABLE", 0)
    np.testing.assert_allclose(montecarlo.draw_dots(A, B, draws=40, seed=1), by_table)
    direct = [np.vdot(A, B[:, order]) for order in table(20, 40, seed=1)]
    np.testing.assert_allclose(by_table, direct)
