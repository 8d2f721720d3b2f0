"""Coefficients of merges, with their errors."""

import math

import numpy as np
import pytest

from kinprint.edits.merging import MixtureSums
from kinprint.errors import DegenerateInput


def mixture(parents, child):
    sums = MixtureSums(len(parents))
    sums.add(parents, child)
    return sums.solve()


@pytest.mark.parametrize("family", ["gaussian", "heavy"])
@pytest.mark.parametrize("weights", [(0.7, 0.3), (0.5, 0.5), (0.2, 0.3, 0.5)])
def test_a_merge_of_independent_parents_is_found(make, weights, family):
    rng = np.random.default_rng(0)
    sums = MixtureSums(len(weights))
    for _ in range(10):
        parents = [make.stored(make.weights[family](rng, 16, 256), "BF16") for _ in weights]
        sums.add(parents, make.stored(sum(w * P for w, P in zip(weights, parents, strict=True)), "BF16"))
    found = sums.solve()
    assert found.coefficients == pytest.approx(weights, abs=0.001)
    assert max(found.standard_errors) < 0.001
    assert found.r_squared > 0.9999
    assert sum(found.coefficients) == pytest.approx(1.0, abs=0.001)
    assert (found.elements, found.notes) == (40960, ())


def test_a_base_and_its_fine_tune_are_called_related_and_err_more(make):
    rng = np.random.default_rng(1)
    base, other = (make.stored(make.weights["gaussian"](rng, 64, 256), "BF16") for _ in range(2))
    tuned = make.stored(make.trained(rng, base, 0.5, 0.05), "BF16")
    apart = mixture([base, other], make.stored(0.7 * base + 0.3 * other, "BF16"))
    close = mixture([base, tuned], make.stored(0.7 * base + 0.3 * tuned, "BF16"))
    assert not any("much alike" in note for note in apart.notes)
    assert "much alike" in close.notes[0]
    assert min(close.standard_errors) > 10 * max(apart.standard_errors)
    assert close.coefficients == pytest.approx((0.7, 0.3), abs=5 * max(close.standard_errors))


def test_slerp_coefficients_need_not_sum_to_one(make):
    rng = np.random.default_rng(2)
    A, B = (make.weights["gaussian"](rng, 64, 256) for _ in range(2))
    angle = math.acos(float(np.vdot(A, B)) / math.sqrt(float(np.vdot(A, A)) * float(np.vdot(B, B))))
    expected = [math.sin((1 - t) * angle) / math.sin(angle) for t in (0.3, 0.7)]
    found = mixture([A, B], make.stored(expected[0] * A + expected[1] * B, "BF16"))
    assert found.coefficients == pytest.approx(expected, abs=0.001)
    assert sum(found.coefficients) == pytest.approx(1.345, abs=0.01)


@pytest.mark.parametrize("slices", [1, 16])
def test_errors_cover_the_truth(make, slices):
    scores = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sums = MixtureSums(2)
        for _ in range(slices):
            A, B, noise = (make.weights["gaussian"](rng, 8, 64) for _ in range(3))
            sums.add([A, B], 0.6 * A + 0.2 * B + noise)
        found = sums.solve()
        pairs = zip(found.coefficients, (0.6, 0.2), found.standard_errors, strict=True)
        scores += [(c - truth) / error for c, truth, error in pairs]
    assert 0.7 < np.std(scores) < 1.3


def test_tensors_that_were_merged_differently_widen_the_error(make):
    rng = np.random.default_rng(3)
    even, uneven = MixtureSums(2), MixtureSums(2)
    for i in range(16):
        A, B = (make.weights["gaussian"](rng, 16, 128) for _ in range(2))
        share = 0.5 + 0.3 * (-1) ** i
        even.add([A, B], 0.5 * A + 0.5 * B + 0.1 * rng.standard_normal(A.shape) * A.std())
        uneven.add([A, B], share * A + (1 - share) * B)
    assert uneven.solve().standard_errors[0] == pytest.approx(0.3 / 4.0, rel=0.25)
    assert uneven.solve().standard_errors[0] > 20 * even.solve().standard_errors[0]


def test_real_parents(make, demo):
    sums = MixtureSums(2)
    for tensor, A in demo["base"].items():
        B = demo["unrelated"][tensor]
        sums.add([A, B], make.stored(0.7 * A.astype(np.float64) + 0.3 * B, "BF16"))
    assert sums.solve().coefficients == pytest.approx((0.7, 0.3), abs=0.001)


def test_what_has_no_solution_is_refused(make):
    A = make.weights["gaussian"](np.random.default_rng(4), 8, 64)
    with pytest.raises(DegenerateInput, match="collinear"):
        mixture([A, 2.0 * A], A)
    with pytest.raises(DegenerateInput, match="parent 1 is zero"):
        mixture([A, 0.0 * A], A)
    with pytest.raises(DegenerateInput, match="expected more"):
        mixture([A], 0.0 * A)
    with pytest.raises(DegenerateInput, match="expected one shape"):
        mixture([A], A[:4])
    with pytest.raises(DegenerateInput, match="expected finite weights"):
        mixture([A], A * np.inf)
    with pytest.raises(DegenerateInput, match="1 parents: expected 2"):
        MixtureSums(2).add([A], A)
