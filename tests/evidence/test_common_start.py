"""Training or start: drawn pairs whose relation is known by construction."""

from types import SimpleNamespace

import numpy as np
import pytest

from kinprint.evidence.common_start import INITIALISATION, TRAINING, UNCLEAR, learned_part, origin_of, origin_of_parts
from kinprint.evidence.norm_edits import FoldedPair

ROLES = ("q", "up", "down", "gate")


def drawn(seed, shape=(96, 96)):
    return np.random.default_rng(seed).standard_normal(shape)


def learned(seed, rank, strength=3.0, shape=(96, 96)):
    """Return a sum of rank-1 updates, each of a few times the length of the longest direction of a random start."""
    rng = np.random.default_rng([seed, 1])
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in shape)
    return strength * 2.0 * np.sqrt(shape[0]) * (left * rng.uniform(0.7, 1.3, rank)) @ right.T


def models(make):
    """Return slices of four roles in three layers, of both sides."""
    return {role: [make(100 * i + layer) for layer in range(3)] for i, role in enumerate(ROLES)}


def norms(r, spread, seed=0):
    x, y = np.random.default_rng(seed).standard_normal((2, 8, 96))
    return [(1.0 + spread * a, 1.0 + spread * (r * a + np.sqrt(1 - r * r) * b)) for a, b in zip(x, y, strict=True)]


def same_start(k):
    return drawn(k) + learned(k, 10), drawn(k) + learned(k + 50_000, 10)


def tuned(k):
    parent = drawn(k) + learned(k, 10)
    return parent, parent + 0.1 * drawn(k + 70_000) + learned(k + 80_000, 2, 1.0)


def averaged(k):
    one = drawn(k) + learned(k, 10)
    return one, 0.7 * one + 0.3 * (drawn(k + 60_000) + learned(k + 60_000, 10))


def short(k):
    """A few small updates along one gradient, and 1 % of noise: no more than siblings of a few steps have."""
    start, common = drawn(k), learned(k, 2, 1.0)
    return start + common + 0.01 * drawn(k + 1_000), start + common + 0.01 * drawn(k + 2_000)


@pytest.mark.parametrize(
    ("make", "r", "spread", "reading"),
    [
        (same_start, 0.2, 0.05, INITIALISATION),
        (same_start, 0.2, 0.01, INITIALISATION),
        (short, 0.7, 0.006, UNCLEAR),
        (short, 0.2, 0.01, UNCLEAR),
        (tuned, 0.98, 0.1, TRAINING),
        (tuned, 0.5, 0.1, TRAINING),  # norms trained anew
        (tuned, 0.7, 0.01, UNCLEAR),  # norms hardly moved: too short a training
        (averaged, 0.9, 0.1, TRAINING),
    ],
)
def test_reading_is_the_same_from_either_side(make, r, spread, reading):
    slices, scales = models(make), norms(r, spread)
    assert origin_of(slices, scales).reading == reading
    back = {role: [(b, a) for a, b in pairs] for role, pairs in slices.items()}
    assert origin_of(back, [(b, a) for a, b in scales]).reading == reading


@pytest.mark.parametrize("shape", [(96, 96), (32, 96), (256, 96), (24, 600)])
def test_a_random_start_has_no_learned_directions(shape):
    assert sum(len(learned_part(drawn(seed, shape))[1]) for seed in range(20)) <= 1


def test_what_was_learned_is_told_from_the_start_it_was_added_to():
    """The length is that of the planted part along the directions found, which noise has turned a little."""
    planted = learned(1, 6)
    U, s, Vt, length = learned_part(drawn(1) + planted)
    assert len(s) == 6
    assert np.all(length < s)
    assert length == pytest.approx(np.einsum("ik,ij,kj->k", U, planted, Vt), rel=0.05)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_common_factor_changes_nothing(factor):
    for make, reading in ((tuned, TRAINING), (same_start, INITIALISATION)):
        scaled = {role: [(a, factor * b) for a, b in pairs] for role, pairs in models(make).items()}
        assert origin_of(scaled, []).reading == reading


def test_without_norms_a_part_kept_evenly_is_no_training():
    """Siblings in a basis that was fitted to them keep the learned part and the rest alike, and about half of either."""
    for share, reading in ((0.3, UNCLEAR), (0.5, UNCLEAR), (0.65, UNCLEAR), (0.95, TRAINING)):

        def part(k, share=share):
            one = drawn(k) + learned(k, 10)
            return one, share * one + np.sqrt(1 - share**2) * (drawn(k + 60_000) + learned(k + 60_000, 10))

        assert origin_of(models(part), []).reading == reading


@pytest.mark.parametrize("seed", range(6))
def test_slices_that_are_mostly_zero_have_no_rest(seed):
    """Rows that are zero, as pruning leaves them, make every direction one beyond the edge: what is left is rounding."""

    def pruned(k):
        return tuple(np.where(np.arange(96)[:, None] < 36, x, 0.0) for x in tuned(1000 * seed + k))

    found = origin_of(models(pruned), norms(0.98, 0.2))
    assert found.reading == TRAINING
    assert 0.5 < found.learned_slope <= found.level < 1.1


def test_nothing_read_is_unclear():
    assert origin_of({}, []).reading == UNCLEAR


@pytest.mark.parametrize(("make", "reading"), [(tuned, TRAINING), (short, UNCLEAR)])
def test_norms_that_were_folded_are_read_off_the_matrices(make, reading):
    """With few learned directions norms decide, and after folding only matrices have them: all of those of a child."""
    scales = [1.0 + 0.1 * drawn(seed, 96) for seed in range(4)]
    made = [(a[:40], b[:40] * scales[0]) for a, b in (make(k) for k in range(4))]
    if make is short:  # not the norms of A
        made = [(a, b / scales[0] * s) for (a, b), s in zip(made, [1.0 + 0.1 * drawn(9, 96)] * 4, strict=True)]
    pairs = [SimpleNamespace(a=SimpleNamespace(values=a), b=SimpleNamespace(values=b)) for a, b in made]
    norms = [(scales[0], FoldedPair(pair, scales[0]).column_slopes) for pair in pairs]
    assert origin_of({"q": [(a * scales[0], b) for a, b in made]}, norms).reading == reading


def started(k):
    """Token rows of one random start, trained in models of their own: other directions, and rows that training moved."""
    return tuple(drawn(k, (256, 96)) + learned(seed, 10, 1.0, (256, 96)) for seed in (k, k + 1_000))


def taken_over(k):
    parent = drawn(k, (256, 96)) + learned(k, 10, 1.0, (256, 96))
    return parent, parent + 0.2 * drawn(k + 2_000, (256, 96))


def matched(k):
    """Rows trained towards another model's: frequent tokens agree in all they have, rare ones in nothing."""
    teacher = drawn(k, (256, 96)) + learned(k, 10, 1.0, (256, 96))
    student = drawn(k + 3_000, (256, 96))
    student[:160] = teacher[:160] + 0.3 * drawn(k + 4_000, (160, 96))
    return teacher, student


def untrained(k):
    return drawn(k, (256, 96)) + 0.01 * drawn(k + 5, (256, 96)), drawn(k, (256, 96)) + 0.01 * drawn(k + 6, (256, 96))


@pytest.mark.parametrize(
    ("make", "reading"),
    [(started, INITIALISATION), (taken_over, TRAINING), (matched, UNCLEAR), (untrained, UNCLEAR)],
)
def test_a_table_says_whether_its_start_or_its_training_is_shared(make, reading):
    for k in range(3):
        a, b = make(k)
        found = origin_of_parts({"embedding": (a, b)}, ())
        assert (found.reading, found.exact) == (reading, False)
        assert origin_of_parts({"embedding": (b, a)}, ()).reading == reading


def test_parts_of_several_origins_are_unclear_and_copies_are_exact():
    table = taken_over(1)[0]
    assert origin_of_parts({"embedding": (table, table.copy())}, ()).exact
    both = origin_of_parts({"embedding": started(1), "head": taken_over(1)}, ())
    assert (both.reading, len(both.reasons)) == (UNCLEAR, 2)
    assert origin_of_parts({"embedding": None}, ()).reading == UNCLEAR
    assert origin_of_parts({}, (), others=1).reading == UNCLEAR
    assert origin_of_parts({}, norms(0.9, 0.1)).reading == TRAINING
    assert origin_of_parts({}, norms(0.4, 0.1)).reading == UNCLEAR
