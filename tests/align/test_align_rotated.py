"""Rotated models: profiles that no rotation changes, and a rotation found from neurons in any order."""

import numpy as np
import pytest

from kinprint.align.rotation import (
    Neurons,
    agreement,
    band_profiles,
    find_rotation,
    gram_profiles,
    nearest_rotation,
    pair_by_bands,
)
from kinprint.errors import DegenerateInput


def agreed(one, two, R):
    return agreement(one.directions().kinds, two.directions().kinds, R)


def trained_like(seed, neurons=160, width=48, gate=True):
    """Return neurons with a decaying spectrum and rows of different lengths, as training leaves them; synthetic."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((width, width)))[0]
    decay = 1.0 / np.sqrt(1.0 + np.arange(width))

    def rows():
        lengths = np.exp(0.3 * rng.standard_normal(neurons))[:, None]
        return (lengths * (rng.standard_normal((neurons, width)) * decay) @ basis.T).astype(np.float32)

    return Neurons(rows() if gate else None, rows(), rows())


def changed(neurons, seed, *, noise=0.0, rescale=True):
    """Return the neurons turned, reordered, rescaled with random signs, and with noise; and the order."""
    rng = np.random.default_rng(seed)
    R = np.linalg.qr(rng.standard_normal((neurons.width, neurons.width)))[0]
    order = rng.permutation(neurons.count)
    factor = np.exp(0.5 * rng.standard_normal(neurons.count)) * rng.choice([-1.0, 1.0], neurons.count)
    if not rescale or neurons.gate is None:
        factor = np.ones(neurons.count)

    def turned(X, scale):
        dirty = X + noise * X.std() * rng.standard_normal(X.shape)
        return ((dirty * scale[:, None]) @ R)[order].astype(np.float32)

    gate = None if neurons.gate is None else turned(neurons.gate, np.ones(neurons.count))
    return Neurons(gate, turned(neurons.up, factor), turned(neurons.down, 1.0 / factor)), R, order


def test_gram_profiles_do_not_see_the_basis_nor_the_lengths_and_signs_of_up_rows():
    neurons = trained_like(1)
    rng = np.random.default_rng(2)
    R = np.linalg.qr(rng.standard_normal((48, 48)))[0]
    factor = rng.uniform(0.5, 2.0, neurons.count) * rng.choice([-1.0, 1.0], neurons.count)
    references, tested = np.arange(80), np.arange(80, 160)
    before = gram_profiles(neurons.gate, neurons.up, references, tested)
    after = gram_profiles(neurons.gate @ R, (neurons.up * factor[:, None]) @ R, references, tested)
    np.testing.assert_allclose(after, before, atol=2e-6)
    assert before.shape == (80, 240)
    assert gram_profiles(None, neurons.up, references, tested).shape == (80, 80)


def test_band_profiles_do_not_see_basis_order_or_scale():
    neurons = trained_like(3)
    other, _, order = changed(neurons, 4)
    before, after = band_profiles(neurons), band_profiles(other)
    # ranks of nearly equal labels may swap by rounding
    assert np.mean(np.abs(after - before[order]) < 0.05) > 0.999
    np.testing.assert_array_equal(pair_by_bands(before, after)[order], np.arange(neurons.count))


@pytest.mark.parametrize("gate", [True, False], ids=["gated", "two matrices"])
def test_a_rotation_is_found_and_holds_in_a_layer_that_was_not_fitted(gate):
    rng_layers = [trained_like(seed, gate=gate) for seed in (5, 6)]
    R = np.linalg.qr(np.random.default_rng(7).standard_normal((48, 48)))[0]

    def turned(neurons, seed):
        order = np.random.default_rng(seed).permutation(neurons.count)
        parts = [
            None if X is None else (X @ R)[order].astype(np.float32) for X in (neurons.gate, neurons.up, neurons.down)
        ]
        return Neurons(*parts)

    fitted, held = [(layer, turned(layer, 8 + i)) for i, layer in enumerate(rng_layers)]
    found = find_rotation([fitted])
    np.testing.assert_allclose(found.R, R, atol=1e-4)
    assert found.agreement == 1.0
    assert agreed(*held, found.R) == 1.0


def test_noise_is_borne():
    neurons = trained_like(11)
    other, R, _ = changed(neurons, 12, noise=0.3)
    found = find_rotation([(neurons, other)])
    assert found.agreement > 0.95
    assert np.linalg.norm(found.R - R) < 0.35 * np.linalg.norm(R)


def test_unrelated_neurons_agree_where_fitted_and_nowhere_else():
    fitted = trained_like(13), trained_like(14)
    held = trained_like(15), trained_like(16)
    found = find_rotation([fitted])
    assert agreed(*held, found.R) < 0.05
    assert agreed(*fitted, found.R) > agreed(*held, found.R)
    np.testing.assert_allclose(found.R @ found.R.T, np.eye(48), atol=1e-4)


def test_a_first_guess_is_used():
    neurons = trained_like(17)
    other, R, _ = changed(neurons, 18, noise=1.0)
    start = R.astype(np.float32)
    assert find_rotation([(neurons, other)], start=start).agreement > 0.9


def test_other_numbers_of_neurons_and_refusals():
    neurons = trained_like(19)
    other, _, order = changed(neurons, 20)
    fewer = other.take(np.arange(100))
    found = find_rotation([(neurons, fewer)])
    assert found.agreement > 0.9
    assert sorted(order[:100]) != list(range(100))
    padded = Neurons(*(np.pad(X, ((0, 0), (0, 16))) for X in (other.gate, other.up, other.down)))
    wider = find_rotation(
        [(neurons, changed(padded, 21)[0])]
    )  # residual dimensions that hold nothing, in another basis
    assert wider.agreement > 0.9
    assert wider.R.shape == (48, 64)
    assert find_rotation([(neurons, trained_like(21, width=32))]).agreement < 0.5
    with pytest.raises(DegenerateInput, match="only one side has gate"):
        find_rotation([(neurons, trained_like(22, gate=False))])


def test_the_quick_way_to_a_rotation_agrees_with_the_exact_one(monkeypatch):
    rng = np.random.default_rng(23)
    C = (rng.standard_normal((64, 64)) + 3.0 * np.linalg.qr(rng.standard_normal((64, 64)))[0]).astype(np.float32)
    exact = nearest_rotation(C)
    monkeypatch.setattr("kinprint.align.rotation.WIDE", 16)
    quick = nearest_rotation(C)
    np.testing.assert_allclose(quick, exact, atol=5e-3)
    neurons = trained_like(24)
    other, R, _ = changed(neurons, 25, noise=0.1)
    found = find_rotation([(neurons, other)])
    assert found.agreement == 1.0
    assert np.linalg.norm(found.R - R) < 0.2 * np.linalg.norm(R)
