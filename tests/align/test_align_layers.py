"""Layer maps: evidence for every pair, and the orders that must be recovered."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kinprint.align.layer_alignment import (
    LayerScores,
    assignment_map,
    best_map,
    choose_map,
    kind_of_map,
    monotone_map,
    pair_scores,
)
from kinprint.errors import DegenerateInput
from kinprint.stats.moments import centred_rows, dot_moments
from support.counting import calls_of


def layers(count, seed, *, rows=12, d=192):
    return list(np.random.default_rng(seed).standard_normal((count, rows, d)))


def tuned(stacks, seed=99, noise=0.5):
    rng = np.random.default_rng(seed)
    return [stack + noise * rng.standard_normal(stack.shape) for stack in stacks]


def mapped(parents, children):
    return described(pair_scores(parents, children))


def described(scores, **options):
    pairs = choose_map(scores, **options)
    return Found(pairs, kind_of_map(pairs, len(scores.z)))


class Found(NamedTuple):
    pairs: tuple[int | None, ...]
    kind: str


# --- evidence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (60, 40)], ids=["vector", "wide", "tall"])
def test_each_pair_equals_the_moments_of_the_project(shape):
    rng = np.random.default_rng(3)
    A, B = list(rng.lognormal(size=(3, *shape))), list(rng.lognormal(size=(4, *shape)))
    B[2] = A[1] + 0.5 * rng.standard_normal(shape)
    scores = pair_scores(A, B)
    for i, j in itertools.product(range(3), range(4)):
        a, b = centred_rows(A[i]), centred_rows(B[j])
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        assert scores.correlation[i, j] == pytest.approx(np.vdot(a, b), abs=1e-12)
        assert scores.z[i, j] == pytest.approx(np.vdot(a, b) / dot_moments(a, b).sd, rel=1e-9, abs=1e-9)


def test_z_is_standardised_by_what_permutations_do():
    rng = np.random.default_rng(4)
    A, B = (rng.standard_normal((3, 5)) @ rng.standard_normal((5, 64)) for _ in range(2))  # correlated rows
    drawn = [pair_scores([A], [B[:, rng.permutation(64)]]).z[0, 0] for _ in range(1500)]
    assert abs(np.mean(drawn)) < 0.1
    assert np.std(drawn) == pytest.approx(1.0, abs=0.07)


def test_row_blocks_do_not_change_the_result(monkeypatch):
    A, B = layers(3, 5), tuned(layers(3, 5))
    whole = pair_scores(A, B)
    monkeypatch.setattr("kinprint.align.layer_alignment._BLOCK", 1)
    assert_allclose(pair_scores(A, B).z, whole.z, rtol=1e-12)


def test_a_constant_stack_has_no_score_and_no_counterpart():
    A = layers(3, 6)
    B = [A[0], np.repeat(np.arange(12.0)[:, None] + 0.1, 192, axis=1), A[2]]
    scores = pair_scores(A, B)
    np.testing.assert_array_equal(np.isnan(scores.z), [[False, True, False]] * 3)
    assert choose_map(scores) == (0, None, 2)


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        ([], [np.ones((2, 3))], "at least one"),
        ([np.ones(3)], [np.ones(3)], "expected \\(rows, d\\)"),
        ([np.eye(3)], [np.eye(4)], "stack 0 of b has shape"),
        ([np.eye(3)], [np.full((3, 3), np.nan)], "9 non-finite"),
    ],
)
def test_stacks_that_cannot_be_compared_are_refused(A, B, message):
    with pytest.raises(DegenerateInput, match=message):
        pair_scores(A, B)


def test_the_work_for_all_pairs_grows_with_the_layers_not_with_their_square():
    def calls(count):
        A = list(np.random.default_rng(7).standard_normal((count, 16, 64), dtype=np.float32))
        B = [stack + 0.3 * stack[::-1] for stack in A]
        return calls_of(lambda: pair_scores(A, B))

    calls(2)  # what is loaded late
    few, many = calls(12), calls(48)
    assert many < 4.5 * few  # 1,209 and 4,593


# --- maps -------------------------------------------------------------------------------------------------------------

ORDERS = {
    "upscaled 6 to 10": (6, [0, 1, 2, 3, 4, 2, 3, 4, 5, 5], "blocks"),
    "each layer twice": (5, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "monotone with repeats"),
    "SOLAR": (32, [*range(24), *range(8, 32)], "blocks"),
    "dropped": (32, [*range(10), *range(14, 30)], "subsequence"),
    "one layer": (8, [5], "subsequence"),
    "shuffled": (12, [7, 2, 9, 0, 11, 4, 1, 10, 3, 8, 5, 6], "shuffled"),
    "two swapped": (32, [*range(10), 11, 10, *range(12, 32)], "shuffled"),
    "drawn with repeats": (12, [7, 2, 9, 2, 11, 4, 7, 10], "shuffled"),
    "same": (9, [*range(9)], "identity"),
}


@pytest.mark.parametrize(("count", "order", "kind"), ORDERS.values(), ids=ORDERS)
def test_orders_are_recovered(count, order, kind):
    parents = layers(count, 10)
    found = mapped(parents, tuned([parents[i] for i in order]))
    assert found.pairs == tuple(order)
    assert found.kind == kind


def test_a_merge_of_two_parents_shows_where_each_parent_is():
    first, second = layers(12, 11), layers(12, 12)
    children = tuned([*first[:5], *second[3:9], *first[8:]])
    found = mapped(first, children)
    assert found.pairs == (0, 1, 2, 3, 4, *[None] * 6, 8, 9, 10, 11)
    assert found.kind == "subsequence"
    assert mapped(second, children).pairs == (*[None] * 5, 3, 4, 5, 6, 7, 8, *[None] * 4)


def test_independent_models_have_no_map():
    found = mapped(layers(20, 13), layers(24, 14))
    assert (found.kind, found.pairs) == ("none", (None,) * 24)


def test_exact_copies_inside_a_model_do_not_break_its_identity():
    parents = [layers(4, 15)[i] for i in (0, 1, 2, 1, 2, 3)]
    for children in (parents, tuned(parents)):
        assert mapped(parents, children).kind == "identity"
    assert mapped([parents[0]] * 3, [parents[0]] * 3).kind == "identity"
    # reordered, the copies are still used once each
    found = mapped(parents, [parents[i] for i in (5, 3, 4, 1, 0, 2)])
    assert found.kind == "shuffled"
    assert sorted(found.pairs) == list(range(6))
    # against the model before it was grown either copy will do, in order
    found = mapped(parents, layers(4, 15))
    assert found.kind == "subsequence"
    assert found.pairs in {(0, 1, 2, 5), (0, 1, 4, 5), (0, 3, 4, 5)}


def test_near_copies_are_told_apart_when_the_layers_are_exact():
    # z alone would choose wrongly here: damping the loudest row narrows the null by more than it costs in correlation
    base = layers(4, 16)
    loud = np.where(np.arange(12) == 0, 4.0, 1.0)[:, None]
    base[1] = base[1] * loud
    parents = [*base, base[1] * np.where(loud > 1.0, 0.8, 1.0)]
    scores = pair_scores(parents, [base[1]])
    assert scores.z[4, 0] > scores.z[1, 0]
    assert choose_map(scores) == (1,)


def test_the_best_and_the_second_best_are_named():
    parents = layers(4, 18)
    children = [parents[2] + 0.5 * parents[0], layers(1, 19)[0]]
    best, runner_up = best_map(pair_scores(parents, children))
    assert best == (2, None)
    assert runner_up[0] == 0
    assert best_map(pair_scores(parents[:1], parents[:1])) == ((0,), (None,))


def test_pairs_within_the_cross_talk_do_not_count():
    # all layers share loud columns, so that any pair of them is significant in a wide model
    rng = np.random.default_rng(20)
    z = 15.0 * rng.standard_normal((16, 16))
    assert described(LayerScores(z, z / 500.0)).kind == "none"
    z[np.arange(8), np.arange(8)] = 400.0
    assert choose_map(LayerScores(z, z / 500.0)) == (*range(8), *[None] * 8)


def brute_force(gain):
    """Return the largest sum over all maps that never go back, by trying them all."""
    options = [None, *range(gain.shape[0])]
    best = 0.0
    for pairs in itertools.product(options, repeat=gain.shape[1]):
        used = [i for i in pairs if i is not None]
        if used == sorted(used):
            best = max(best, sum(gain[i, j] for j, i in enumerate(pairs) if i is not None))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_monotone_map_is_the_best_of_all_monotone_maps(seed):
    rng = np.random.default_rng(seed)
    counted = rng.random((4, 5)) < 0.6
    r = np.where(counted, rng.uniform(0.4, 0.79, (4, 5)), 0.0)
    scores = LayerScores(np.where(counted, 100.0, 0.0), r)
    pairs = monotone_map(scores)
    used = [i for i in pairs if i is not None]
    assert used == sorted(used)
    assert sum(r[i, j] for j, i in enumerate(pairs) if i is not None) == pytest.approx(brute_force(r), abs=0.02)


def test_the_assignment_uses_no_layer_twice():
    parents = layers(3, 21)
    scores = pair_scores(parents, tuned([parents[0], parents[0], parents[2]]))
    pairs = assignment_map(scores)
    assert sorted(pairs[:2], key=str) == [0, None]
    assert pairs[2] == 2


def test_a_threshold_that_nothing_reaches_leaves_nothing():
    parents = layers(3, 22)
    scores = pair_scores(parents, parents)
    assert described(scores, threshold=1e6).kind == "none"
    assert described(scores, threshold=3.0).kind == "identity"
