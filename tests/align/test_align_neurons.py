"""Neuron maps from gate and up rows, and the chance that they agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kinprint.align import neuron_assignment as neurons
from kinprint.align.neuron_assignment import gate_up_agreement, match_rows, mutual_nearest, recovered_map
from kinprint.errors import DegenerateInput
from kinprint.results.p_values import PMethod


def pair(n, seed, d=64):
    return np.random.default_rng(seed).standard_normal((2, n, d))


def with_noise(rows, seed, size=0.7):
    return rows + size * np.random.default_rng(seed).standard_normal(rows.shape)


# --- assignments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutual", [False, True], ids=["assignment", "mutual nearest"])
@pytest.mark.parametrize("kept", [60, 35])
def test_rows_are_found_again(monkeypatch, mutual, kept):
    if mutual:
        monkeypatch.setattr(neurons, "MAX_ASSIGNED", 10)
        monkeypatch.setattr(neurons, "_BLOCK", 300)  # several blocks
    A = pair(60, 0)[0]
    order = np.random.default_rng(1).permutation(60)[:kept]
    index = match_rows(A, with_noise(A[order], 2))
    np.testing.assert_array_equal(order[index[index >= 0]], np.flatnonzero(index >= 0))
    assert np.count_nonzero(index >= 0) == kept
    back = match_rows(with_noise(A[order], 2), A)
    np.testing.assert_array_equal(back, order)


def test_rows_of_zeros_have_no_partner():
    A = pair(5, 3)[0]
    B = A.copy()
    A[1] = B[1] = 0.0
    np.testing.assert_array_equal(match_rows(A, B), [0, -1, 2, 3, 4])
    np.testing.assert_array_equal(match_rows(A[[0, 1]], B[[1, 0]]), [1, -1])


def test_a_negated_row_is_found_only_if_signs_do_not_count():
    A = pair(40, 4)[0]
    np.testing.assert_array_equal(match_rows(A, -A, signed=False), np.arange(40))
    assert np.count_nonzero(match_rows(A, -A) == np.arange(40)) == 0


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones(3), np.ones((2, 3)), "a has shape"),
        (np.ones((2, 3)), np.ones((2, 4)), "expected equal widths"),
        (np.ones((2, 3)), np.full((2, 3), np.inf), "b holds 6 non-finite"),
    ],
)
def test_rows_that_cannot_be_matched_are_refused(A, B, message):
    with pytest.raises(DegenerateInput, match=message):
        match_rows(A, B)


# --- the test ---------------------------------------------------------------------------------------------------------


def test_a_permutation_with_fine_tuning_is_found():
    gate, up = pair(120, 5)
    order = np.random.default_rng(6).permutation(120)
    found = gate_up_agreement(gate, up, with_noise(gate[order], 7), with_noise(up[order], 8))
    assert found.agreement == found.n == 120
    np.testing.assert_array_equal(found.gate_index, found.up_index)
    assert found.log10_p < -80
    assert found.log10_p_monte_carlo == -2.0
    assert found.z is not None
    assert found.z > 50
    kind, index = recovered_map(found)
    assert kind == "permuted"
    np.testing.assert_array_equal(order[index], np.arange(120))


def test_width_pruning_with_reordering_is_found():
    gate, up = pair(344, 9)
    kept = np.random.default_rng(10).permutation(344)[:200]
    found = gate_up_agreement(gate, up, gate[kept], up[kept], draws=19)
    assert found.agreement == found.n == 200
    kind, index = recovered_map(found)
    assert kind == "subset (width-pruned)"
    np.testing.assert_array_equal(np.flatnonzero(index >= 0), np.sort(kept))
    np.testing.assert_array_equal(kept[index[kept]], kept)
    in_order = np.sort(kept)
    _, ordered = recovered_map(gate_up_agreement(gate, up, gate[in_order], up[in_order], draws=19))
    np.testing.assert_array_equal(ordered[in_order], np.arange(200))
    # and from the smaller to the larger
    back = gate_up_agreement(gate[kept], up[kept], gate, up, draws=19)
    np.testing.assert_array_equal(recovered_map(back)[1], kept)


def test_a_model_against_itself_is_the_identity():
    gate, up = pair(50, 11)
    assert recovered_map(gate_up_agreement(gate, up, gate, up, draws=19))[0] == "identity"


def test_negated_up_rows_are_found_on_request():
    gate, up = pair(50, 12)
    sign = np.random.default_rng(13).choice([-1.0, 1.0], (50, 1))
    assert gate_up_agreement(gate, up, gate, up * sign, draws=19, up_signed=False).agreement == 50
    assert gate_up_agreement(gate, up, gate, up * sign, draws=19).agreement < 45


def test_the_tails_are_silent_on_unrelated_models():
    # small models, so that many pairs can be tried: neither p-value may be small more often than it says
    exact, poisson = [], []
    for seed in range(60):
        found = gate_up_agreement(*pair(24, seed, d=16), *pair(24, 1000 + seed, d=16), draws=19, seed=seed)
        exact.append(found.log10_p_monte_carlo)
        poisson.append(found.log10_p)
        assert recovered_map(found)[0] == "none"
    assert np.mean(10.0 ** np.array(exact) <= 0.1) <= 0.2  # 6 of 60 expected, 12 is two and a half sd
    assert np.mean(10.0 ** np.array(poisson) <= 0.1) <= 0.2
    assert np.mean(10.0 ** np.array(exact)) > 0.3


def test_one_permutation_serves_gate_and_up():
    # up equal to gate: whatever gate says, up says too, in every draw; independent permutations would call that evidence
    gate, _ = pair(40, 14)
    other, _ = pair(40, 15)
    found = gate_up_agreement(gate, gate, other, other, draws=19)
    assert found.agreement == found.null_mean == 40
    assert (found.z, found.log10_p_monte_carlo) == (None, 0.0)
    assert found.log10_p > -0.5
    assert recovered_map(found)[0] == "none"


def test_a_sample_stands_for_all_neurons_and_says_so():
    gate, up = pair(150, 16)
    order = np.random.default_rng(17).permutation(150)
    whole = gate_up_agreement(gate, up, gate[order], up[order], draws=199)
    part = gate_up_agreement(gate, up, gate[order], up[order], draws=199, null_rows=50)
    assert (part.null_rows, part.agreement) == (50, 150)
    assert part.z == pytest.approx((50 - part.null_mean) / part.null_sd)
    assert part.null_mean * 3 == pytest.approx(whole.null_mean, abs=0.5)
    assert part.rate >= part.null_mean * 3
    assert part.p_detail.endswith("rate scaled up from 50 of 150 rows")
    assert "scaled" not in whole.p_detail


def test_clumped_draws_leave_only_the_monte_carlo_p(monkeypatch):
    # half the draws agree on everything: no Poisson distribution does that
    gate, up = pair(30, 18)
    answers = iter([30, *[0, 30] * 20])
    monkeypatch.setattr(neurons, "_agreement", lambda first, second: next(answers, 30))
    found = gate_up_agreement(gate, up, gate, up, draws=40)
    assert found.p_method == PMethod.MONTE_CARLO
    assert found.log10_p == found.log10_p_monte_carlo == pytest.approx(math.log10(21 / 41))


def test_few_draws_say_nothing_about_spread():
    gate, up = pair(30, 19)
    found = gate_up_agreement(gate, up, gate, up, draws=9)
    assert (found.log10_p, found.p_method) == (-1.0, PMethod.MONTE_CARLO)
    with pytest.raises(ValueError, match="0 draws"):
        gate_up_agreement(gate, up, gate, up, draws=0)


def test_the_same_seed_gives_the_same_figures():
    a, b = pair(60, 20), pair(60, 21)
    first, second, other = (gate_up_agreement(*a, *b, draws=39, seed=seed) for seed in (1, 1, 2))
    assert (first.null_mean, first.log10_p) == (second.null_mean, second.log10_p)
    assert first.null_mean != other.null_mean


def test_sides_that_do_not_fit_are_refused():
    gate, up = pair(10, 22)
    with pytest.raises(DegenerateInput, match="gate and up of b"):
        gate_up_agreement(gate, up, gate, up[:5])
    with pytest.raises(DegenerateInput, match="widths 64 and 60"):
        gate_up_agreement(gate, up, gate[:, :60], up[:, :60])


@pytest.mark.parametrize(("count", "rate"), [(1, 1.0), (3, 1.5), (2, 7.0), (12, 4.0), (150, 3.0)])
def test_the_poisson_tail_is_the_sum_of_its_terms(count, rate):
    terms = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(count, count + 120)]
    assert neurons.log10_p_poisson(count, rate) == pytest.approx(math.log10(math.fsum(terms)), rel=1e-10)


def test_the_poisson_tail_does_not_underflow():
    assert neurons.log10_p_poisson(0, 1.0) == 0.0
    assert -40_000 < neurons.log10_p_poisson(11_008, 1.0) < -39_000


def test_mutual_nearest_is_the_same_in_blocks(monkeypatch):
    """Rows and columns that are nearest to each other, by brute force; of rows that are equally near the first."""
    rng = np.random.default_rng(5)
    scores = rng.standard_normal((50, 30))
    scores[7] = scores[33]
    expected = np.full(50, -1)
    for row, column in enumerate(scores.argmax(axis=1)):
        if scores[:, column].argmax() == row:
            expected[row] = column
    assert (expected >= 0).sum() > 5
    for block in (1, 64, 1 << 20):
        monkeypatch.setattr("kinprint.align.neuron_assignment._BLOCK", block)
        np.testing.assert_array_equal(mutual_nearest(lambda some: scores[some], 50, 30), expected)
