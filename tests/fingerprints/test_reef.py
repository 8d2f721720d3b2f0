"""REEF without a model: Gram matrices as they are stored, why the unbiased estimator, layers by depth, bad input."""

import sys

import numpy as np
import pytest

from kinprint.errors import DegenerateInput, NeedsExtra
from kinprint.fingerprints.base import CHANGES, Features
from kinprint.fingerprints.forward import Prompt, common_places, prompts, prompts_digest
from kinprint.fingerprints.methods.match_activations import MatchActivations
from kinprint.fingerprints.methods.reef import REEF, packed, unpacked
from kinprint.lab.zoo.held import HeldWeights
from kinprint.metrics.kernel import cka, cka_unbiased

METHOD = REEF()
N = 200


def features(layers, depth=None, numbers=None, digest=None):
    numbers = list(range(len(layers))) if numbers is None else numbers
    arrays = {
        "grams": np.array([packed(X.astype(np.float32)) for X in layers]),
        "layers": np.array(numbers, dtype=np.int32),
    }
    return Features("reef", 1, arrays, {"depth": depth or len(layers), "prompts": digest or prompts_digest()})


def outputs(seed, *, layers=4, width=300, rank=12):
    """Layers' outputs that have something in common from layer to layer, and some noise."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((N, rank))
    return [shared @ rng.standard_normal((rank, width)) + 0.5 * rng.standard_normal((N, width)) for _ in range(layers)]


def test_there_are_200_different_prompts_of_plain_text():
    assert len(prompts()) == len(set(prompts())) == N
    for text in prompts():
        assert text.isascii()
        assert 10 < len(text) < 80
        assert text.endswith(".")


def test_self_is_one():
    model = features(outputs(1))
    score = METHOD.score(model, model)
    assert score.value == pytest.approx(1.0, abs=1e-12)
    assert score.details["biased"] == pytest.approx(1.0, abs=1e-12)
    assert dict(score.layers) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_noise_reads_as_published_by_the_biased_estimator_and_zero_by_the_unbiased():
    """n = 200, d = 4096: 0.953 against 0."""
    rng = np.random.default_rng(3)
    a, b = (features([rng.standard_normal((N, 4096), dtype=np.float32) for _ in range(3)]) for _ in range(2))
    score = METHOD.score(a, b)
    assert score.details["biased"] == pytest.approx(0.953, abs=0.002)
    assert abs(score.value) < 0.02
    assert score.chance.sd == pytest.approx(np.sqrt(2 / (200 * 197)))
    assert score.chance.log10_p > -3


def test_invariant_to_rotation_order_signs_and_scale_of_the_stream():
    layers = outputs(4)
    rng = np.random.default_rng(5)
    Q = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    order, sign = rng.permutation(300), rng.choice([-1.0, 1.0], 300)
    for changed in ([X @ Q for X in layers], [7.0 * X[:, order] * sign + 3.0 for X in layers]):
        assert METHOD.score(features(layers), features(changed)).value == pytest.approx(1.0, abs=1e-5)
    assert METHOD.invariant_to == MatchActivations.invariant_to == CHANGES


def test_not_invariant_to_stretching_some_directions():
    layers = outputs(4)
    stretch = np.geomspace(0.01, 100.0, 300)
    assert METHOD.score(features(layers), features([X * stretch for X in layers])).value < 0.95


def test_half_precision_against_the_estimators_in_float64():
    a, b = outputs(6), [X + 0.8 * Y for X, Y in zip(outputs(6), outputs(7), strict=True)]
    score = METHOD.score(features(a), features(b))
    exact = np.mean([cka_unbiased(X, Y) for X, Y in zip(a, b, strict=True)])
    assert 0.3 < exact < 0.95
    assert score.value == pytest.approx(exact, abs=2e-4)
    assert score.details["biased"] == pytest.approx(np.mean([cka(X, Y) for X, Y in zip(a, b, strict=True)]), abs=2e-4)
    assert features(a).arrays["grams"].nbytes < 4 * 41_000


def test_unpacked_is_centred_and_of_unit_norm():
    K = unpacked(packed(outputs(8)[0].astype(np.float32)), N)
    assert np.abs(K.sum(axis=0)).max() < 1e-12
    assert np.linalg.norm(K) == pytest.approx(1.0)
    assert np.array_equal(K, K.T)


def test_layers_are_paired_by_relative_depth_and_the_best_pair_is_found():
    rng = np.random.default_rng(9)
    layers = [rng.standard_normal((N, 64)) for _ in range(8)]
    half = [layers[1], layers[3], layers[5], layers[7]]
    score = METHOD.score(features(layers), features(half))
    assert score.value == pytest.approx(1.0, abs=1e-6)
    assert METHOD.score(features(half), features(layers)).value == pytest.approx(1.0, abs=1e-6)
    moved = METHOD.score(features(layers), features([layers[2], *[rng.standard_normal((N, 64)) for _ in range(3)]]))
    assert moved.value < 0.3
    assert moved.details["best_pair"] == pytest.approx(1.0, abs=1e-6)
    assert (moved.details["best_layer_a"], moved.details["best_layer_b"]) == (2.0, 0.0)
    assert moved.layers[0] == 2


def test_other_prompts_and_broken_features():
    good = features(outputs(1))
    with pytest.raises(DegenerateInput, match="other prompts"):
        METHOD.score(good, features(outputs(1), digest="0" * 16))
    short = Features("reef", 1, {**good.arrays, "grams": good.arrays["grams"][:, :-1]}, good.facts)
    with pytest.raises(DegenerateInput, match="Gram matrices of shape"):
        METHOD.score(short, good)
    empty = Features("reef", 1, {**good.arrays, "grams": good.arrays["grams"] * np.float16(0)}, good.facts)
    with pytest.raises(DegenerateInput, match="zero or not finite"):
        METHOD.score(good, empty)
    with pytest.raises(DegenerateInput, match="all rows are equal"):
        packed(np.ones((N, 8), np.float32))


@pytest.mark.parametrize("absent", ["torch", "tokenizers"])
@pytest.mark.parametrize("method", [REEF(), MatchActivations()], ids=["reef", "match_activations"])
def test_without_torch_the_extra_is_named(monkeypatch, absent, method):
    monkeypatch.setitem(sys.modules, absent, None)
    state = {"model.embed_tokens.weight": np.ones((4, 4), np.float32)}
    model = HeldWeights("model", state, {"model_type": "llama"}, {"model": {"vocab": {"a": 0}}})
    with pytest.raises(NeedsExtra, match="extra 'torch'") as caught:
        method.score_models(model, model)
    assert caught.value.hint.count("'torch==") == 1


def test_places_are_where_tokens_of_both_end():
    a = [Prompt((0, 5, 6, 7), (0, 3, 5, 9)), Prompt((5,), (2,))]
    b = [Prompt((1, 2), (5, 9)), Prompt((3, 4), (1, 3))]
    assert common_places(a, b) == [((0, 2), (0, 0)), ((0, 3), (0, 1))]
