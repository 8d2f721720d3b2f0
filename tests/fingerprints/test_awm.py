"""AWM: what it is invariant to and what not, layers found where depths differ, its published negatives, bad input."""

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.awm import AWM, _centred, paired_dimensions
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = AWM()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def demo(name):
    return held(*derive.load_state(MODELS / name), label=name)


def noise(seed, *, width=256, layers=2, vocabulary=600, rows=None):
    """A model that was never trained."""
    rng = np.random.default_rng(seed)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": vocabulary,
    }
    rows = rows or width
    state = {"model.embed_tokens.weight": rng.standard_normal((vocabulary, width), dtype=np.float32)}
    for layer in range(layers):
        for name, size in (("q_proj", rows), ("k_proj", rows // 2)):
            values = rng.standard_normal((size, width), dtype=np.float32)
            state[f"model.layers.{layer}.self_attn.{name}.weight"] = values
    return state, config, {"model": {"vocab": {f"t{number}": number for number in range(vocabulary)}}}


def test_self_is_one(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == pytest.approx(1.0, abs=1e-9)
    assert dict(score.layers) == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    "change",
    [
        derive.permute_residual,
        derive.flip_signs,
        derive.permute_neurons,
        derive.permute_heads,
        derive.rescale_neurons,
        derive.rescale_values,
    ],
)
def test_what_it_is_invariant_to(base, change):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config, tokenizer))
    assert score.value == pytest.approx(1.0, abs=1e-5)
    assert score.chance.log10_p < -50
    assert not score.chance.exact


def test_the_pairing_is_the_permutation_and_its_signs(base):
    state, config, tokenizer = base
    rng = np.random.default_rng(2)
    order, sign = rng.permutation(96), rng.choice([-1.0, 1.0], 96).astype(np.float32)
    moved = {
        name: values[:, order] * sign if values.shape[-1:] == (96,) and values.ndim == 2 else values
        for name, values in state.items()
    }
    pairing = paired_dimensions(held(*base), held(moved, config, tokenizer))
    assert np.array_equal(order[pairing.second], pairing.first)
    assert np.array_equal(sign[pairing.second], pairing.sign)


def test_rotations_of_queries_and_keys_do_not_matter_but_of_the_stream_do(base):
    state, config, tokenizer = base
    rng = np.random.default_rng(7)
    turned = dict(state)
    for name, values in state.items():
        if "q_proj" in name or "k_proj" in name:
            Q = np.linalg.qr(rng.standard_normal((values.shape[0],) * 2))[0].astype(np.float32)
            turned[name] = Q @ values
    assert METHOD.score_models(held(*base), held(turned, config, tokenizer)).value == pytest.approx(1.0, abs=1e-5)
    rotated, rotated_config = derive.rotate_residual(state, config, 5)
    assert METHOD.score_models(held(*base), held(rotated, rotated_config, tokenizer)).value < 0.3


def test_demo_family():
    base = demo("base")
    values = {name: METHOD.score_models(base, demo(name)).value for name in ("finetune", "permuted", "unrelated")}
    assert values["finetune"] > 0.95
    assert values["permuted"] == pytest.approx(1.0, abs=1e-5)
    assert abs(values["unrelated"]) < 0.1


def test_layers_are_found_where_depths_differ():
    score = METHOD.score_models(demo("base"), demo("grown"))
    assert score.value > 0.99
    # copies of 0, 1, 2, 1, 2, 3: an assignment takes each layer once
    origin = (0, 1, 2, 1, 2, 3)
    assert len(score.layers) == 4
    assert all(origin[layer] == source for layer, source in score.layers.items())


def test_noise_is_near_zero_as_published_negatives_are():
    """The paper's 90 unrelated pairs have mean 0.0038 and sd 0.0028; the spread by chance is √(2/(n(n−3)))."""
    values = [
        METHOD.score_models(held(*noise(2 * seed)), held(*noise(2 * seed + 1, width=192))).value for seed in range(6)
    ]
    assert np.abs(values).max() < 4 * np.sqrt(2 / (192 * 189))
    assert abs(np.mean(values)) < 0.005


def test_float32_products_against_float64(base):
    for role in (Role.ATTN_Q, Role.ATTN_K):
        W = held(*base).matrix(role, 2)
        wide = W.astype(np.float64)
        assert np.abs(_centred(W) - _centred(wide)).max() < 1e-6


def test_unlike_vocabularies_and_missing_tokenizers(base):
    state, config, _ = base
    other = {"model": {"vocab": {f"other{number}": number for number in range(512)}}}
    with pytest.raises(DegenerateInput, match="0 tokens are shared"):
        METHOD.score_models(held(*base), held(state, config, other))
    with pytest.raises(DegenerateInput, match="0 tokens are shared"):
        METHOD.score_models(held(*base), held(state, config, None))
    score = METHOD.score_models(held(state, config, None), held(state, config, None))
    assert score.value == pytest.approx(1.0)
    assert "by number" in score.notes[0]


def test_without_queries_and_keys():
    state, config, tokenizer = noise(1)
    bare = {name: values for name, values in state.items() if "k_proj" not in name}
    with pytest.raises(DegenerateInput, match="no layer with query and key"):
        METHOD.score_models(held(state, config, tokenizer), held(bare, config, tokenizer, label="bare"))


def test_too_narrow_and_all_zero():
    state, config, tokenizer = noise(1, width=8)
    with pytest.raises(DegenerateInput, match="8 residual dimensions"):
        METHOD.score_models(held(state, config, tokenizer), held(state, config, tokenizer))
    state, config, tokenizer = noise(1)
    state["model.embed_tokens.weight"] *= 0
    with pytest.raises(DegenerateInput, match="0 residual dimensions"):
        METHOD.score_models(held(state, config, tokenizer), held(state, config, tokenizer))
