"""Fixed points as a fingerprint: exact on unrelated models, layers from both ends, sizes."""

import math

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.fixed_points import NeuronFixedPoints
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = NeuronFixedPoints()
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4}


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def drawn(seed, *, layers=4, width=64, rows=48):
    """MLP rows alone, all drawn to one hub: nearest rows are then far from a bijection."""
    rng = np.random.default_rng(seed)
    hub = rng.standard_normal(width)
    state = {}
    for layer in range(layers):
        for name in ("gate", "up"):
            values = rng.standard_normal((rows, width)) + 2.0 * hub
            state[f"model.layers.{layer}.mlp.{name}_proj.weight"] = values.astype(np.float32)
    config = {**LLAMA, "hidden_size": width, "intermediate_size": rows, "num_hidden_layers": layers}
    return held(state, config)


def test_self_is_one(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == 1.0
    assert score.details["neurons"] == 4 * 32
    assert score.chance.exact
    assert score.chance.log10_p == pytest.approx(-4 * math.lgamma(33) / math.log(10))
    assert score.layers == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("change", [derive.permute_heads, derive.rescale_neurons, derive.rescale_values])
def test_what_it_is_invariant_to(base, change):
    state, config, _ = base
    assert METHOD.score_models(held(*base), held(change(state, config, 5), config)).value == 1.0


@pytest.mark.parametrize("change", [derive.permute_neurons, derive.permute_residual, derive.flip_signs])
def test_what_it_does_not_survive(base, change):
    state, config, _ = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config))
    assert score.value < 0.15
    assert score.chance.log10_p > -3.0


def test_unrelated_models_stay_within_the_bound():
    """P(F ≥ k) ≤ 1/k!, published for any rows at all: hubs do not inflate it, and the share is 1/32 by chance."""
    scores = [METHOD.score_models(drawn(2 * seed), drawn(2 * seed + 1)) for seed in range(40)]
    assert np.mean([score.value for score in scores]) == pytest.approx(scores[0].chance.mean, abs=0.02)
    p = 10.0 ** np.array([score.chance.log10_p for score in scores])
    assert np.mean(p < 0.05) <= 0.1
    assert p.min() > 1e-3


def test_demo_family():
    models = {name: held(*derive.load_state(MODELS / name)) for name in ("base", "finetune", "grown", "unrelated")}
    found = {name: METHOD.score_models(models["base"], models[name]) for name in ("finetune", "grown", "unrelated")}
    assert found["finetune"].value == 1.0
    assert found["grown"].value == 1.0
    assert found["unrelated"].value < 0.1
    assert found["unrelated"].chance.log10_p > -1.0


def test_layers_are_counted_from_both_ends():
    deep = drawn(1, layers=12)
    assert METHOD.score_models(deep, deep).layers == {i: i for i in (0, 1, 2, 3, 8, 9, 10, 11)}
    keep = (0, 1, 2, 3, 8, 9, 10, 11)
    state = {
        f"model.layers.{new}.mlp.{name}_proj.weight": deep.state[f"model.layers.{old}.mlp.{name}_proj.weight"]
        for new, old in enumerate(keep)
        for name in ("gate", "up")
    }
    score = METHOD.score_models(deep, held(state, {**deep.config, "num_hidden_layers": 8}))
    assert score.value == 1.0
    assert score.layers == dict(enumerate(keep))


def test_upcycled_experts_stand_in_for_the_mlp(base):
    state, config, _ = base
    upcycled, moe = derive.upcycle(state, config, 4, 0.1, 1)
    assert METHOD.score_models(held(*base), held(upcycled, moe)).value == 1.0


def test_copied_layers_count_once():
    """Two models deepened alike have one order between the copies."""
    one, two = drawn(1, layers=2), drawn(2, layers=2)

    def doubled(model):
        state = {
            f"model.layers.{new}.mlp.{name}_proj.weight": model.state[f"model.layers.{old}.mlp.{name}_proj.weight"]
            for new, old in enumerate((0, 0, 1, 1))
            for name in ("gate", "up")
        }
        return held(state, {**model.config, "num_hidden_layers": 4})

    assert METHOD.score_models(doubled(one), doubled(two)).details["layers"] == 2.0


@pytest.mark.parametrize("width", [64, 4096, 16384])
def test_size_is_bounded(width):
    features = METHOD.extract(drawn(1, layers=10, width=width, rows=40))
    assert sum(array.nbytes for array in features.arrays.values()) < 4_300_000
    assert len([key for key in features.arrays if key.endswith(".layer")]) == {64: 8, 4096: 7, 16384: 2}[width]


def test_degenerate_inputs(base):
    state, config, _ = base
    without = {name: value for name, value in state.items() if ".mlp." not in name}
    with pytest.raises(DegenerateInput, match="no MLP rows"):
        METHOD.extract(held(without, config))
    with pytest.raises(DegenerateInput, match="expected one residual width"):
        METHOD.score_models(drawn(1), drawn(2, width=32))
    only_gate = METHOD.extract(drawn(1))
    only_gate = type(only_gate)(
        only_gate.method, 1, {k: v for k, v in only_gate.arrays.items() if not k.endswith(".up")}, only_gate.facts
    )
    only_up = METHOD.extract(drawn(1))
    only_up = type(only_up)(
        only_up.method, 1, {k: v for k, v in only_up.arrays.items() if not k.endswith(".gate")}, only_up.facts
    )
    with pytest.raises(DegenerateInput, match="no layer has rows of the same matrices"):
        METHOD.score(only_gate, only_up)
