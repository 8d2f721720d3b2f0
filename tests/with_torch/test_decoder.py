"""The decoder in numpy computes what transformers computes, for every family that it does not refuse.

Mixtral, whose names transformers changes on loading, is held against torch in test_zoo_training.
"""

import numpy as np
import pytest

from kinprint.arch import name_tensors
from kinprint.errors import DegenerateInput
from kinprint.model.decoder import Decoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 10, "rope_theta": 500.0, "tie_word_embeddings": False,
}  # fmt: skip
FAMILIES = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": None},
    "qwen2": {"head_dim": None, "rms_norm_eps": 1e-4},
    "qwen3": {"tie_word_embeddings": True},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
}


def held(family, **entries):
    """Return a model of transformers with random parameters, its config as it would be stored, and its tensors by role."""
    given = {name: value for name, value in (SIZES | FAMILIES[family] | entries).items() if value is not None}
    config = transformers.AutoConfig.for_model(family, **given)
    torch.manual_seed(1)
    module = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    stored = {"model_type": family, "rms_norm_eps": config.rms_norm_eps, **given}
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    return module, stored, state


@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_are_those_of_transformers(family):
    module, config, state = held(family)
    naming = name_tensors(config, {name: value.shape for name, value in state.items()})
    ids = np.random.default_rng(2).integers(0, 61, (3, 12))
    offsets = {part.key: part.offset for part in naming.tensors}
    tensors = {part.key: _part(state, part) + offsets[part.key] for part in naming.tensors}
    with torch.no_grad():
        expected = module(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(
        Decoder(naming, config).logits(tensors.get, ids), expected, rtol=0, atol=1e-4
    )  # transformers norms in float32


def _part(state, part):
    name, _, number = part.name.partition("[")
    values = state[name][int(number[:-1])] if number else state[name]
    return values if part.rows is None else np.concatenate([values[start:stop] for start, stop in part.rows])


@pytest.mark.parametrize(
    "entries",
    [
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"hidden_act": "relu"},
        {"attention_multiplier": 0.5},
        {"model_type": "smollm3"},
        {"rms_norm_eps": None},
    ],
)
def test_a_config_that_may_mean_something_else_is_refused(entries):
    _, config, state = held("llama")
    naming = name_tensors(config, {name: value.shape for name, value in state.items()})
    Decoder(naming, config)
    with pytest.raises(DegenerateInput):
        Decoder(naming, config | entries)
