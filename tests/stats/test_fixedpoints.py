"""Rows whose nearest row is at their own place: the count by construction, and p-values never too small."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from kinprint._util.numeric import FloatArray
from kinprint.errors import DegenerateInput
from kinprint.stats import fixedpoints
from kinprint.stats.fixedpoints import (
    fixed_points,
    log10_p_total,
)


def drawn(seed: int, *shape: int) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(shape)


def log10_one_over_factorial(k: int) -> float:
    return -math.lgamma(k + 1) / math.log(10)


# --- nearest rows -----------------------------------------------------------------------------------------------------


def nearest_rows(A, B, *, centre: bool = False):
    """Return the nearest row of B for each row of A, by definition; −1 where there is none, or a second is as near."""
    A, B = (X - X.mean(axis=1, keepdims=True) if centre else X for X in (A, B))
    lengths = [np.linalg.norm(X, axis=1) for X in (A, B)]
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = (A / lengths[0][:, None]) @ (B / lengths[1][:, None]).T
    cosines = np.where(np.isnan(cosines), -np.inf, cosines)
    ranked = np.sort(np.pad(cosines, ((0, 0), (1, 0)), constant_values=-np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        alone = ranked[:, -1] - ranked[:, -2] > (A.shape[1] + 16) * np.finfo(np.float64).eps
    return np.where(alone, cosines.argmax(axis=1), -1)


def count(A, B, **options) -> int:
    forth, back = nearest_rows(A, B, **options), nearest_rows(B, A, **options)
    return sum(int(np.count_nonzero(found == np.arange(len(A)))) for found in (forth, back)) // 2


@pytest.mark.parametrize("block", [1, 7, 64, 1024])
@pytest.mark.parametrize("centre", [False, True])
def test_counted_as_defined(block: int, *, centre: bool) -> None:
    A, noise = drawn(1, 70, 12) + 1, drawn(2, 70, 12)
    found = [fixed_points(A, A + s * noise, block=block, centre=centre).count for s in (0.3, 1.0, 5.0)]
    assert found == [count(A, A + s * noise, centre=centre) for s in (0.3, 1.0, 5.0)]
    assert found[0] > found[1] > found[2]


def test_centring_matters() -> None:
    A = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    B = A + 100.0
    assert fixed_points(A, B, centre=True).count == 2
    assert fixed_points(A, -B, centre=True).count == 0


@pytest.mark.parametrize("block", [2, 1024])
def test_ties_and_zero_rows_have_no_nearest(block: int) -> None:
    B = drawn(3, 9, 20)
    A = B.copy()
    B[7] = 3.7 * B[2]  # equal up to rounding, and in another block
    A[4] = 0.0
    B[5] = 0.0
    # from A's side 0, 1, 3, 6, 8; from B's also 2, which row 7 of A is not near to
    assert fixed_points(A, B, block=block).count == count(A, B) == 5
    assert fixed_points(A, np.zeros((9, 20)), block=block).count == 0
    assert fixed_points(A[:1], B[:1], block=block).count == 1


def test_constant_rows_have_no_nearest_if_centred() -> None:
    A = drawn(4, 4, 10)
    B = A.copy()
    A[1] = B[2] = 0.1
    assert fixed_points(A, B, centre=True).count == 2


def test_rows_of_any_magnitude() -> None:
    A = drawn(6, 5, 30)
    scales = np.array([1e300, 1e-300, 1.0, 1e-150, 5e-310])[:, None]
    assert fixed_points(A * scales, A * scales[::-1]).count == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("centre", [False, True])
def test_single_precision_changes_no_answer(monkeypatch: pytest.MonkeyPatch, dtype: type, *, centre: bool) -> None:
    rng = np.random.default_rng(7)
    A, B = drawn(8, 300, 64).astype(dtype), drawn(9, 300, 64).astype(dtype)
    B[:50] = A[:50]
    B[50:100] = A[:50] + 1e-5 * rng.standard_normal((50, 64))  # cosines differ by 1e-10: beyond float32
    expected = fixed_points(A, B, centre=centre)
    assert 50 <= expected.count == count(A.astype(np.float64), B.astype(np.float64), centre=centre)
    again = []
    margin_of = fixedpoints._margin_of
    monkeypatch.setattr(fixedpoints, "_margin_of", lambda *given: again.append(len(given[0])) or margin_of(*given))
    monkeypatch.setattr(fixedpoints, "SINGLE_SCORES", 1)
    assert fixed_points(A, B, centre=centre) == expected
    assert 50 <= again[0] < 150  # only the rows in doubt are done twice


def test_bad_input_is_refused() -> None:
    with pytest.raises(DegenerateInput, match="b holds 1 non-finite of 4"):
        fixed_points(np.ones((2, 2)), np.array([[1.0, np.inf], [1.0, 2.0]]))
    with pytest.raises(DegenerateInput, match="non-empty matrix for a"):
        fixed_points(np.ones(3), np.ones((1, 3)))
    with pytest.raises(ValueError, match="at least one row"):
        fixed_points(np.ones((2, 2)), np.ones((2, 2)), block=0)
    with pytest.raises(DegenerateInput, match="equal shapes"):
        fixed_points(np.ones((2, 3)), np.ones((4, 3)))


@pytest.mark.parametrize("seed", range(4))
def test_both_sides_count_alike(seed: int) -> None:
    """Hubs of B draw rows of A to them: the counts of the two sides differ, and what is reported does not."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((60, 12))
    B = 0.6 * A + rng.standard_normal((60, 12))
    B[:6] += 2.0 * A[0]
    forth = np.count_nonzero(nearest_rows(A, B) == np.arange(60))
    back = np.count_nonzero(nearest_rows(B, A) == np.arange(60))
    assert forth != back or seed
    assert fixed_points(A, B) == fixed_points(B, A)
    assert fixed_points(A, B).count == (forth + back) // 2


def test_the_mean_of_both_counts_keeps_the_bound() -> None:
    """P(M ≥ k) ≤ 1/k! over all 5040 orders of seven rows, some alike, some drawn to one hub."""
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((2, 7, 3))
    B[1] = B[2] + 0.01 * rng.standard_normal(3)
    forth, back = nearest_rows(A, B), nearest_rows(B, A)
    counts = []
    for order in itertools.permutations(range(7)):
        at = np.array(order)  # place of each row of B
        counts.append((sum(at[forth] == np.arange(7)) + sum(at == back)) // 2)
    for k in range(1, 8):
        assert np.mean(np.array(counts) >= k) <= 1.0 / math.factorial(k) + 1e-12


# --- fixed points by construction -------------------------------------------------------------------------------------


def test_a_copy() -> None:
    A = drawn(10, 300, 48)
    found = fixed_points(A, A)
    assert (found.count, found.n) == (300, 300)
    assert found.log10_p == log10_one_over_factorial(300)


def test_noise_at_cosine_one_half() -> None:
    A, noise = drawn(11, 300, 128), drawn(12, 300, 128)
    found = fixed_points(A, 0.5 * A + math.sqrt(0.75) * noise)
    assert found.count > 290
    assert found.log10_p == log10_one_over_factorial(found.count)


def test_a_permuted_copy_has_the_fixed_points_of_the_permutation() -> None:
    A = drawn(13, 300, 48)
    order = np.arange(300)
    moved = np.delete(order, [5, 60])
    order[moved] = np.roll(moved, 1)
    found = fixed_points(A, A[order])
    assert found.count == 2
    assert found.log10_p == pytest.approx(math.log10(0.5))


def test_ties_do_not_count() -> None:
    A = drawn(15, 20, 16)
    A[3] = A[11]
    A[7] = 0.0
    found = fixed_points(A, A)
    assert (found.count, found.n) == (17, 20)
    same = fixed_points(np.ones((20, 16)), np.ones((20, 16)))
    assert (same.count, same.log10_p) == (0, 0.0)


def test_no_evidence_in_none_or_one() -> None:
    A = np.eye(3)
    assert fixed_points(A, A[[1, 2, 0]]).log10_p == 0.0
    one = fixed_points(A, A[[0, 2, 1]])
    assert (one.count, one.log10_p) == (1, 0.0)


# --- the null ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "g", [(0, 1, 2, 3, 4), (1, 2, 3, 4, 0), (0, 0, 1, 1, 2), (3, 3, 3, 3, 3), (0, 1, 2, 2, -1), (4, -1, -1, 0, 1)]
)
def test_bound_holds_over_all_orders_for_any_nearest(g: tuple[int, ...]) -> None:
    units = np.eye(5)
    A = np.array([units[i] if i >= 0 else np.zeros(5) for i in g])
    counts = np.array([fixed_points(A, units[list(order)]).count for order in itertools.permutations(range(5))])
    for k in range(6):
        assert (counts >= k).mean() <= 10 ** log10_one_over_factorial(k) + 1e-12
    mean, sd = 1.0, 1.0
    assert counts.mean() <= mean + 1e-12
    assert counts.std() <= sd + 1e-12
    if sorted(g) == list(range(5)):
        assert (counts.mean(), counts.std()) == pytest.approx((mean, sd))


def _plain(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    A, B = rng.standard_normal((2, 12, 8))
    return A, B


def _flat(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    A, B = rng.standard_normal((2, 12, 2))
    return A, B


def _duplicates(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    A, B = rng.standard_normal((2, 12, 8))
    B[6:9] = B[:3]
    A[4:8] = A[:4]
    return A, B


def _zeros(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    A, B = rng.standard_normal((2, 12, 8))
    A[:3] = B[5:9] = 0.0
    return A, B


def _hub(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    A, B = rng.standard_normal((2, 12, 8))
    A[:, 0] += 5.0
    B[0] = np.eye(8)[0]
    return A, B


def _same_rows(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return related rows, of which only the order is random: the nearest row is a bijection."""
    A = rng.standard_normal((12, 32))
    return A, A + 0.1 * rng.standard_normal((12, 32))


@pytest.mark.parametrize("family", [_plain, _flat, _duplicates, _zeros, _hub, _same_rows])
def test_p_is_never_too_small_by_simulation(family: Callable[..., tuple[FloatArray, FloatArray]]) -> None:
    rng = np.random.default_rng(20)
    trials = 2500
    found = []
    for _ in range(trials):
        A, B = family(rng)
        found.append(fixed_points(A, rng.permutation(B)))
    counts = np.array([result.count for result in found])
    for k in range(2, 7):
        bound = 1 / math.factorial(k)
        assert np.mean(counts >= k) <= bound + 3.5 * math.sqrt(bound / trials)
    p = 10 ** np.array([result.log10_p for result in found])
    for alpha in (0.5, 0.17, 0.05, 0.01):
        assert np.mean(p <= alpha) <= alpha + 3.5 * math.sqrt(alpha / trials)
    assert counts.mean() <= 1 + 3.5 / math.sqrt(trials)
    if family is _same_rows:
        assert (counts.mean(), counts.std()) == pytest.approx((1.0, 1.0), abs=0.07)


# --- layers together --------------------------------------------------------------------------------------------------


def exact_tail(sizes: list[int]) -> list[float]:
    """P(ΣF ≥ k) for independent uniform permutations: derangements counted, distributions convolved."""
    total = np.ones(1)
    for m in sizes:
        deranged = [sum((-1) ** i / math.factorial(i) for i in range(m - k + 1)) for k in range(m + 1)]
        total = np.convolve(total, [share / math.factorial(k) for k, share in enumerate(deranged)])
    return [float(total[k:].sum()) for k in range(total.size)]


def combined(counts: list[int], sizes: list[int]) -> float:
    return log10_p_total(sum(counts), tuple(sizes))


@pytest.mark.parametrize("sizes", [[1], [2], [6], [2, 2, 2], [1, 3, 5], [4] * 6, [8] * 3, [30, 40], [3] * 12])
def test_combined_bound_lies_above_the_exact_tail_and_not_far(sizes: list[int]) -> None:
    for k, exact in enumerate(exact_tail(sizes)):
        bound = log10_p_total(k, tuple(sizes))
        # the sums of `exact_tail` round at 1e-16 of the largest term
        assert 10**bound >= exact * (1 - 1e-9) - 1e-14
        if exact > 1e-12:
            assert bound <= math.log10(exact) + 0.5 * math.log10(2 * math.pi * max(k, 1)) + 0.8
    everything = combined(sizes, sizes)
    assert everything == pytest.approx(sum(log10_one_over_factorial(m) for m in sizes), abs=1e-12)


def test_one_layer_is_the_plain_bound() -> None:
    for k in range(30):
        assert combined([k], [40]) == pytest.approx(min(0.0, log10_one_over_factorial(k)), abs=1e-9)


def test_only_the_total_counts_and_empty_layers_do_not() -> None:
    assert combined([5, 0, 1], [9, 9, 9]) == combined([2, 2, 2], [9, 9, 9])
    assert combined([5, 0], [9, 0]) == combined([5], [9])
    assert combined([], []) == combined([0, 0], [3, 3]) == 0.0
    assert combined([1] * 20, [100] * 20) == 0.0  # as many as expected


def test_combined_never_rises_with_the_count() -> None:
    for sizes in ([7] * 5, [2, 30, 400], [1000] * 10):
        most = sum(sizes)
        values = [log10_p_total(k, tuple(sizes)) for k in sorted({*range(0, most, max(1, most // 20)), most - 1, most})]
        assert np.all(np.diff(values) <= 1e-9)
        assert values[-1] == pytest.approx(sum(log10_one_over_factorial(m) for m in sizes), rel=1e-12)


def test_a_hundred_layers_of_ten_thousand() -> None:
    sizes = [10_000] * 100
    everything = combined(sizes, sizes)
    assert everything == pytest.approx(100 * log10_one_over_factorial(10_000), rel=1e-12)
    nearly = combined([9_999, *sizes[1:]], sizes)
    assert everything <= nearly < everything + 10
    half = combined([5_000] * 100, sizes)
    assert everything < half < 0.4 * everything
    # the Poisson tail of mean 100 at 200 is 10^-17.8
    assert -18.0 < combined([2] * 100, sizes) < -16.5


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="13 of 12 rows"):
        log10_p_total(13, (9, 3))
    with pytest.raises(ValueError, match="-1 of 12 rows"):
        log10_p_total(-1, (9, 3))


def test_rows_without_a_direction_are_not_fixed_and_make_no_noise():
    cosines = np.full((3, 3), -np.inf)
    cosines[2, 2] = 0.5
    assert fixedpoints.fixed_by_scores(cosines, 8) == 1
