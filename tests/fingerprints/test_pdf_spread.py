"""PDF: what leaves the spread of attention weights alone, what does not, and why a high value is no evidence."""

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.pdf import IntrinsicSpread
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = IntrinsicSpread()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def drawn(layers, seed, *, outputs=lambda layer: 1.0):
    """A model of pure noise whose output matrices are scaled by layer, as initialisation schemes do."""
    rng = np.random.default_rng(seed)
    width, state = 32, {}
    for layer in range(layers):
        for name in ("q", "k", "v", "o"):
            scale = outputs(layer) if name == "o" else 1.0 + 0.3 * layer / layers
            values = 0.02 * scale * rng.standard_normal((width, width))
            state[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = values.astype(np.float32)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width}
    return held(state, {**config, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4})


def test_self_is_one(base):
    assert METHOD.score_models(held(*base), held(*base)).value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    "change", [derive.permute_residual, derive.flip_signs, derive.permute_neurons, derive.permute_heads]
)
def test_what_it_is_invariant_to(base, change):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config, tokenizer))
    # signs turn the mean of a matrix, which is near zero, but not quite
    assert score.value == pytest.approx(1.0, abs=1e-4 if change is derive.flip_signs else 1e-6)


def test_one_common_factor_changes_nothing(base):
    state, config, _ = base
    assert METHOD.score_models(held(*base), held(derive.scale(state, 3.0), config)).value == pytest.approx(
        1.0, abs=1e-9
    )


def test_rotation_it_does_not_survive(base):
    """Folding the norms alone changes the profile; the rotation after it changes nothing more."""
    state, config, _ = base
    turned, turned_config = derive.rotate_residual(state, config, 5)
    folded, folded_config = derive.fold_norms(state, config)
    assert METHOD.score_models(held(*base), held(turned, turned_config)).value < 0.5
    assert METHOD.score_models(held(folded, folded_config), held(turned, turned_config)).value > 0.99


def test_values_against_outputs_it_does_not_survive(base):
    """A factor by layer from V to O keeps the function and rewrites the fingerprint."""
    state, config, _ = base
    other = dict(state)
    for layer, factor in enumerate((4.0, 0.25, 3.0, 0.5)):
        stem = f"model.layers.{layer}.self_attn."
        other[f"{stem}v_proj.weight"] = state[f"{stem}v_proj.weight"] * np.float32(factor)
        other[f"{stem}o_proj.weight"] = state[f"{stem}o_proj.weight"] / np.float32(factor)
    score = METHOD.score_models(held(*base), held(other, config))
    assert score.details["q"] == pytest.approx(1.0, abs=1e-9)
    assert min(score.details["v"], score.details["o"]) < 0.5


def test_independent_noise_with_one_recipe_reads_as_related():
    """Published: independent models reach 0.91. Here two unrelated draws with the same scaling by depth do more than that."""
    recipe = {"outputs": lambda layer: 1.0 / np.sqrt(1.0 + layer)}
    score = METHOD.score_models(drawn(24, 1, **recipe), drawn(24, 2, **recipe))
    assert score.value > 0.9
    assert score.chance is None
    assert any("no evidence" in note for note in score.notes)


def test_demo_family():
    models = {name: held(*derive.load_state(MODELS / name)) for name in ("base", "finetune", "unrelated")}
    related, unrelated = (METHOD.score_models(models["base"], models[name]).value for name in ("finetune", "unrelated"))
    assert related > 0.98
    assert related > unrelated


def test_depths_are_interpolated_first_to_first_and_last_to_last():
    """The same smooth profile sampled at 12 and at 24 layers."""

    def rising(count):
        return lambda layer: 1.0 + 4.0 * layer / (count - 1)

    score = METHOD.score_models(drawn(12, 1, outputs=rising(12)), drawn(24, 2, outputs=rising(24)))
    assert score.details["o"] > 0.99
    assert any("interpolated" in note for note in score.notes)


def test_the_fingerprint_is_tiny_and_exact(base):
    state = base[0]
    features = METHOD.extract(held(*base))
    assert sum(array.nbytes for array in features.arrays.values()) == 4 * 4 * 8
    expected = [state[f"model.layers.{i}.self_attn.o_proj.weight"].astype(np.float64).std() for i in range(4)]
    np.testing.assert_allclose(features.arrays["o"], expected, rtol=1e-12)


def test_degenerate_inputs():
    with pytest.raises(DegenerateInput, match="2 layers"):
        METHOD.extract(drawn(2, 1))
    model = drawn(4, 1)
    flat = {name: np.full_like(value, 0.5) if ".q_proj" in name else value for name, value in model.state.items()}
    with pytest.raises(DegenerateInput, match="the spread of q is the same in all layers"):
        METHOD.score_models(model, held(flat, model.config))
    no_values = {name: value for name, value in model.state.items() if "v_proj" not in name}
    with pytest.raises(DegenerateInput, match="0 layers with query"):
        METHOD.extract(held(no_values, model.config))
