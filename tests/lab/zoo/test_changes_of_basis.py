"""Changes of basis, proved to keep the function by a forward pass in float64, and to be no less than they claim."""

import numpy as np
import pytest

from kinprint.lab.zoo import derive, forward
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6])
# Inner width of attention (6 × 8) other than the hidden size, and three query heads to each of two key-value heads.
CONFIG = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "vocab_size": 11,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP = {"gate_proj", "up_proj", "down_proj"}
TABLES = {"embed_tokens", "lm_head"}
GAINS = {"input_layernorm", "post_attention_layernorm", "norm"}
CHANGES = {
    "flip_signs": ATTENTION | MLP | TABLES,
    "rotate_residual": ATTENTION | MLP | TABLES | GAINS,
    "rescale_neurons": {"up_proj", "down_proj"},
    "rescale_values": {"v_proj", "o_proj"},
    "mix_values": {"v_proj", "o_proj"},
    "turn_rotary": {"q_proj", "k_proj"},
    "permute_and_flip": ATTENTION | MLP | TABLES | GAINS,
    "all_symmetries": ATTENTION | MLP | TABLES | GAINS,
}


def llama(seed=0, dtype=np.float64, bias=True, tied=False):
    rng = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (11, 24), "model.norm.weight": (24,)}
    for layer in range(3):
        stem = f"model.layers.{layer}."
        for part, rows in (("q", 48), ("k", 16), ("v", 16)):
            shapes[f"{stem}self_attn.{part}_proj.weight"] = (rows, 24)
            if bias:
                shapes[f"{stem}self_attn.{part}_proj.bias"] = (rows,)
        shapes[f"{stem}self_attn.o_proj.weight"] = (24, 48)
        for part in ("gate", "up"):
            shapes[f"{stem}mlp.{part}_proj.weight"] = (20, 24)
            if bias:
                shapes[f"{stem}mlp.{part}_proj.bias"] = (20,)
        shapes[f"{stem}mlp.down_proj.weight"] = (24, 20)
        if bias:
            shapes[f"{stem}self_attn.o_proj.bias"] = shapes[f"{stem}mlp.down_proj.bias"] = (24,)
        shapes[f"{stem}input_layernorm.weight"] = shapes[f"{stem}post_attention_layernorm.weight"] = (24,)
    if not tied:
        shapes["lm_head.weight"] = (11, 24)
    state = {name: 0.3 * rng.standard_normal(shape) for name, shape in shapes.items()}
    return {name: (value + name.endswith("norm.weight")).astype(dtype) for name, value in state.items()}


def apply(name, state, config, seed=1):
    made = getattr(derive, name)(state, config, seed=seed)
    return made if isinstance(made, tuple) else (made, config)


def modules(before, after):
    return {name.split(".")[-2] for name in before if not np.array_equal(before[name], after[name])}


def difference(a, b, ids=IDS):
    return np.abs(forward.logits(*a, ids) - forward.logits(*b, ids)).max()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_the_function_is_kept_and_the_weights_are_not(name, bias):
    state = llama(bias=bias)
    other, config = apply(name, state, CONFIG)
    assert modules(state, other) == CHANGES[name]
    assert difference((state, CONFIG), (other, config)) < 1e-11


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_leaves_out_one_matrix_changes_the_function(name):
    """Else the test above could not fail."""
    state = llama()
    other, config = apply(name, state, CONFIG)
    for module in CHANGES[name] & (ATTENTION | MLP):
        half = {key: state[key] if f".{module}." in key else value for key, value in other.items()}
        assert difference((state, CONFIG), (half, config)) > 1e-3, module


@pytest.mark.parametrize("name", CHANGES)
def test_experts_keep_their_function_too(name):
    dense = llama(bias=False, dtype=np.float32)
    state, config = derive.upcycle(dense, CONFIG, experts=3, noise=0.5, seed=5)
    state = {key: value.astype(np.float64) for key, value in state.items()}
    assert difference((state, config), apply(name, state, config)) < 1e-11


@pytest.mark.parametrize("name", CHANGES)
def test_pure_seeded_and_blind_to_the_order_of_tensors(name):
    state = llama(dtype=np.float32)
    first = apply(name, state, CONFIG)[0]
    assert all(np.array_equal(state[key], value) for key, value in llama(dtype=np.float32).items())
    assert {value.dtype for value in first.values()} == {np.dtype(np.float32)}
    again = apply(name, dict(reversed(state.items())), CONFIG)[0]
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert modules(first, apply(name, state, CONFIG, seed=2)[0])


@pytest.mark.parametrize("name", CHANGES)
def test_a_trained_model_stored_after_the_change_computes_nearly_the_same(name):
    state, config, _ = derive.load_state(DEMO / "base")
    other, changed = apply(name, state, config)
    ids = np.random.default_rng(0).integers(0, 512, 48)
    expected = forward.logits(state, config, ids)
    rounded = forward.logits(derive.stored(other, "BF16"), changed, ids)
    # BF16 has 8 bits: rounding every weight anew moves logits of a spread of 3 by hundredths.
    assert np.sqrt(np.mean((rounded - expected) ** 2)) < 0.01 * expected.std()


def test_rotation_unties_the_head_and_folds_every_norm():
    state = llama(tied=True)
    other, config = derive.rotate_residual(state, CONFIG | {"tie_word_embeddings": True}, seed=1)
    assert config["tie_word_embeddings"] is False
    assert difference((state, CONFIG), (other, config)) < 1e-11
    assert all((value == 1).all() for name, value in other.items() if name.endswith("norm.weight"))
    correlation = np.corrcoef(state["model.embed_tokens.weight"].ravel(), other["model.embed_tokens.weight"].ravel())
    assert abs(correlation[0, 1]) < 0.3


def test_rotating_without_folding_would_change_the_function():
    state = llama()
    rotation = derive.random_rotation(24, np.random.default_rng(1))
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(24), atol=1e-12)
    unfolded, _ = derive.rotate_residual({k: v if v.ndim == 2 else v * 0 + 1 for k, v in state.items()}, CONFIG, seed=1)
    back = {name: state[name] if name.endswith("norm.weight") else value for name, value in unfolded.items()}
    assert difference((state, CONFIG), (back, CONFIG)) > 0.01


def test_scaling_gate_rows_would_change_the_function():
    state = llama()
    name = "model.layers.0.mlp.gate_proj.weight"
    down = "model.layers.0.mlp.down_proj.weight"
    scaled = state | {name: 2 * state[name], down: state[down] / 2}
    assert difference((state, CONFIG), (scaled, CONFIG)) > 1e-3


def test_rotary_turns_keep_the_pairs_apart():
    """Mixing dimensions of different frequencies would not commute with the rotary embedding."""
    state = llama(bias=False)
    name = "model.layers.0.self_attn.k_proj.weight"
    other = derive.turn_rotary(state, CONFIG, seed=1)[name].reshape(2, 2, 4, 24)
    before = state[name].reshape(2, 2, 4, 24)
    for head in range(2):
        for pair in range(4):
            spans = np.vstack([before[head, :, pair], other[head, :, pair]])
            assert np.linalg.matrix_rank(spans, tol=1e-9) == 2


def test_unknown_tensors_are_refused():
    state = llama() | {"model.layers.0.self_attn.q_norm.weight": np.ones(8)}
    for name in ("flip_signs", "rotate_residual"):
        with pytest.raises(ValueError, match=r"q_norm\.weight"):
            apply(name, state, CONFIG)
