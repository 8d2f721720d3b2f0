"""Norm scales as a fingerprint: the null is exact on unrelated draws, storage loses nothing, and what breaks it."""

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.norms import Norms, pack, unpack
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = Norms()
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4}


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def drawn(seed, *, layers=6, width=128, shared=0.0):
    """Norms alone: a profile common to all layers of one model (so that layers are strongly correlated), and noise."""
    rng = np.random.default_rng(seed)
    profile = rng.standard_normal(width)
    common = np.random.default_rng(99).standard_normal(width)
    state = {}
    for layer in range(layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            values = 1.0 + 0.1 * (profile + 0.5 * rng.standard_normal(width)) + shared * common
            state[f"model.layers.{layer}.{name}.weight"] = values.astype(np.float32)
    return held(state, {**LLAMA, "hidden_size": width, "num_hidden_layers": layers})


def test_self_is_one(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == pytest.approx(1.0, abs=1e-12)
    assert score.chance.exact
    assert score.details["norms"] == 9.0  # two in each of four layers, and the last


@pytest.mark.parametrize(
    "change",
    [derive.flip_signs, derive.permute_neurons, derive.permute_heads, derive.rescale_neurons, derive.rescale_values],
)
def test_what_it_is_invariant_to(base, change):
    state, config, _ = base
    assert METHOD.score_models(held(*base), held(change(state, config, 5), config)).value == pytest.approx(1.0)


def test_residual_permutation_it_does_not_survive(base):
    state, config, _ = base
    score = METHOD.score_models(held(*base), held(derive.permute_residual(state, config, 5), config))
    assert abs(score.value) < 0.3
    assert score.chance.log10_p > -2.0


def test_a_rotated_model_has_no_norms_left(base):
    state, config, _ = base
    turned, turned_config = derive.rotate_residual(state, config, 5)
    with pytest.raises(DegenerateInput, match="constant on at least one side"):
        METHOD.score_models(held(*base), held(turned, turned_config))


def test_unrelated_models_follow_the_null():
    """Published (METHODS 1a): z within the null although raw cosines read 0.99; correlated layers do not inflate it."""
    scores = [METHOD.score_models(drawn(2 * seed), drawn(2 * seed + 1)) for seed in range(100, 140)]
    z = np.array([score.details["z"] for score in scores])
    assert abs(z.mean()) < 0.4
    assert 0.75 < z.std() < 1.3
    p = 10.0 ** np.array([score.chance.log10_p for score in scores])
    assert np.mean(p < 0.05) < 0.15


def test_a_common_part_is_seen():
    score = METHOD.score_models(drawn(1, shared=0.1), drawn(2, shared=0.1))
    assert score.value > 0.3
    assert score.chance.log10_p < -3.0


def test_demo_family():
    models = {name: held(*derive.load_state(MODELS / name)) for name in ("base", "finetune", "unrelated")}
    related, unrelated = (METHOD.score_models(models["base"], models[name]) for name in ("finetune", "unrelated"))
    assert related.value > 0.95
    assert related.chance.log10_p < -8.0
    assert abs(unrelated.value) < 0.1
    assert unrelated.chance.log10_p > -1.0


def test_other_depth_is_paired_by_number(base):
    score = METHOD.score_models(drawn(1, layers=6), drawn(1, layers=4))
    assert score.details["norms"] == 8.0
    assert any("depths differ" in note for note in score.notes)


def test_storage_loses_nothing(base):
    features = METHOD.extract(held(*base))
    assert features.arrays["input_norm"].dtype == np.uint16  # a BF16 model
    state = base[0]
    np.testing.assert_array_equal(
        unpack(features.arrays["input_norm"])[2], state["model.layers.2.input_layernorm.weight"]
    )
    fine = np.array([[1.0, 1.0 + 2.0**-20]], dtype=np.float32)
    assert pack(fine).dtype == np.float32
    np.testing.assert_array_equal(unpack(pack(fine)), fine)


def test_degenerate_inputs(base):
    with pytest.raises(DegenerateInput, match="widths differ"):
        METHOD.score_models(drawn(1), drawn(2, width=64))
    state, config, _ = base
    without = {name: value for name, value in state.items() if value.ndim == 2}
    with pytest.raises(DegenerateInput, match="no norm scales"):
        METHOD.extract(held(without, config))
    ones = {name: np.ones_like(value) if value.ndim == 1 else value for name, value in state.items()}
    with pytest.raises(DegenerateInput, match="constant"):
        METHOD.score_models(held(*base), held(ones, config))
    rising = drawn(1)
    for value in rising.state.values():
        value[:] = 1.0 + np.linspace(0.0, 1.0, value.size)
    with pytest.raises(DegenerateInput, match="follow their index"):
        METHOD.score_models(rising, rising)
