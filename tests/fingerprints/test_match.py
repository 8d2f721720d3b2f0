"""Neuron matching: what it is invariant to and what not, layers found, pruned widths, uniform p-values of noise, bad input."""

import numpy as np
import pytest
from scipy import stats

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods import match as matching
from kinprint.fingerprints.methods.match import Match, NeuronRows, locate, neurons_of, score_neurons, unit_rows
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS, FAMILY_MODELS

MODELS = DEMO_MODELS
METHOD = Match()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def demo(name):
    return held(*derive.load_state(MODELS / name), label=name)


def side(layers):
    """Neurons from pairs of arrays."""
    by_layer = dict(enumerate(layers))
    widths = {layer: gate.shape[0] for layer, (gate, _) in by_layer.items()}
    return NeuronRows(widths, layers[0][0].shape[1], by_layer.__getitem__)


def noise(rng, layers, neurons, width=48):
    return [tuple(rng.standard_normal((2, neurons, width), dtype=np.float32)) for _ in range(layers)]


def test_self_is_one(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == pytest.approx(1.0)
    assert score.details["agreement"] == 1.0
    assert score.chance.log10_p == score.details["log10_p"] < -100
    assert not score.chance.exact


@pytest.mark.parametrize(
    "change", [derive.permute_neurons, derive.permute_heads, derive.rescale_neurons, derive.rescale_values]
)
def test_what_it_is_invariant_to(base, change):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config, tokenizer))
    assert score.value == pytest.approx(1.0)
    assert score.details["agreement"] == 1.0


def test_norms_folded_away_do_not_hide_it(base):
    state, config, tokenizer = base
    folded = dict(state)
    for layer in range(4):
        gamma = state[f"model.layers.{layer}.post_attention_layernorm.weight"]
        folded[f"model.layers.{layer}.post_attention_layernorm.weight"] = np.ones_like(gamma)
        for name in ("gate_proj", "up_proj"):
            key = f"model.layers.{layer}.mlp.{name}.weight"
            folded[key] = state[key] * gamma
    assert METHOD.score_models(held(*base), held(folded, config, tokenizer)).value == pytest.approx(1.0)


def test_a_permuted_or_rotated_residual_stream_is_missed(base):
    state, config, tokenizer = base
    rotated, rotated_config = derive.rotate_residual(state, config, 5)
    permuted = derive.permute_residual(state, config, 5)
    for other in (held(rotated, rotated_config, tokenizer), held(permuted, config, tokenizer)):
        score = METHOD.score_models(held(*base), other)
        assert abs(score.value) < 0.2
        assert score.chance.log10_p > -3


def test_demo_family():
    base = demo("base")
    scores = {name: METHOD.score_models(base, demo(name)) for name in ("finetune", "unrelated")}
    assert scores["finetune"].value > 0.99
    assert abs(scores["unrelated"].value) < 0.15
    assert scores["unrelated"].chance.log10_p > -2
    assert scores["unrelated"].details["agreement"] < 0.03
    assert "no pair stands out" in scores["unrelated"].notes[0]


def test_layers_of_a_grown_model_are_found():
    base, grown = demo("base"), demo("grown")
    score = METHOD.score_models(base, grown)
    assert dict(score.layers) == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 3}
    assert score.value > 0.99
    back = METHOD.score_models(grown, base)
    assert [score.layers[layer] for layer in back.layers.values()] == [0, 1, 2, 3]


def test_shuffled_layers_of_equal_number_are_searched_for():
    rng = np.random.default_rng(1)
    layers = noise(rng, 4, 200)
    score = score_neurons((side(layers), side([layers[2], layers[3], layers[0], layers[1]])), seed=0)
    assert dict(score.layers) == {0: 2, 1: 3, 2: 0, 3: 1}
    assert score.value == pytest.approx(1.0)


def test_neurons_that_the_search_saw_are_not_tested(monkeypatch):
    """Else the best of many pairs of layers would show what it was chosen for."""
    rng = np.random.default_rng(2)
    layers, others = noise(rng, 2, 200), noise(rng, 2, 200)
    probed = np.random.default_rng(0).permutation(200)[: matching.PROBE_NEURONS]
    for (gate, up), (gate_b, up_b) in zip(layers, others, strict=True):
        gate_b[probed], up_b[probed] = gate[probed], up[probed]
    sides = side(layers), side(others[::-1])
    assert {layer: source for layer, (source, _) in locate(sides, ([0, 1], [0, 1]), seed=0).items()} == {0: 1, 1: 0}
    score = score_neurons(sides, seed=0)
    assert score.details["neurons"] == 200 - matching.PROBE_NEURONS
    assert score.chance.log10_p > -3


@pytest.mark.parametrize("turned", [False, True], ids=["pruned is B", "pruned is A"])
def test_a_narrowed_and_reordered_model_is_found(turned):
    rng = np.random.default_rng(3)
    layers = noise(rng, 3, 180)
    kept = [rng.permutation(180)[:120] for _ in layers]
    pruned = [(gate[some] * 2, up[some]) for (gate, up), some in zip(layers, kept, strict=True)]
    sides = (side(pruned), side(layers)) if turned else (side(layers), side(pruned))
    score = score_neurons(sides, seed=0)
    assert score.value == pytest.approx(1.0)
    assert score.details["neurons"] == 120


def test_p_values_of_noise_are_uniform():
    """As published: on independent models it behaves like a p-value."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(60):
        a, b = noise(rng, 1, 80), noise(rng, 1, 80)
        found.append(10 ** matching._measure((side(a), side(b)), [(0, 0)], avoid=0, seed=0)[0].log10_p)
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_only_some_neurons_are_tested_of_many(monkeypatch):
    monkeypatch.setattr(matching, "NEURONS", 50)
    monkeypatch.setattr(matching, "LAYERS", 2)
    layers = noise(np.random.default_rng(5), 5, 150)
    score = score_neurons((side(layers), side(layers)), seed=0)
    assert score.details["neurons"] == 50
    assert dict(score.layers) == {0: 0, 4: 4}


def test_a_mixture_is_compared_by_its_first_expert():
    dense = demo("base")
    family = FAMILY_MODELS
    upcycled = held(*derive.load_state(family / "upcycled"), label="upcycled")
    assert METHOD.score_models(dense, upcycled).value > 0.99


def test_unit_rows_against_float64():
    X = np.random.default_rng(6).standard_normal((40, 300), dtype=np.float32)
    X[3] = 0
    wide = X.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    expected = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    assert np.abs(unit_rows(X) - expected).max() < 1e-7


def test_bad_input(base):
    state, config, tokenizer = base
    ungated = {name: values for name, values in state.items() if "gate_proj" not in name}
    with pytest.raises(DegenerateInput, match="no layer with gate and up"):
        neurons_of(held(ungated, config, tokenizer))
    rng = np.random.default_rng(7)
    with pytest.raises(DegenerateInput, match="one residual width"):
        score_neurons((side(noise(rng, 1, 20)), side(noise(rng, 1, 20, width=40))), seed=0)
    with pytest.raises(DegenerateInput, match="4 neurons"):
        score_neurons((side(noise(rng, 1, 4)), side(noise(rng, 1, 20))), seed=0)
    zero = [(np.zeros((20, 48), np.float32), np.ones((20, 48), np.float32))]
    with pytest.raises(DegenerateInput, match="0 neurons were matched"):
        score_neurons((side(zero), side(noise(rng, 1, 20))), seed=0)
