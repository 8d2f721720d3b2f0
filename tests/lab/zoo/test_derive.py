"""Derivations by construction: what each changes, what it leaves, and that the symmetries keep the function."""

import json

import numpy as np
import pytest

from kinprint.lab.zoo import derive, forward
from support.layouts import to_bf16, write_checkpoint
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
# Inner width of attention (6 × 8) other than the hidden size, and three query heads to each of two key-value heads.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "vocab_size": 11,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
UP0 = "model.layers.0.mlp.up_proj.weight"
DOWN0 = "model.layers.0.mlp.down_proj.weight"
IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def llama(seed=0, bias=True):
    rng = np.random.default_rng(seed)
    hidden, ffn, vocab = 24, 20, 11
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(3):
        stem = f"model.layers.{i}."
        for part, rows in (("q", 48), ("k", 16), ("v", 16)):
            shapes[f"{stem}self_attn.{part}_proj.weight"] = (rows, hidden)
            if bias:
                shapes[f"{stem}self_attn.{part}_proj.bias"] = (rows,)
        shapes[f"{stem}self_attn.o_proj.weight"] = (hidden, 48)
        shapes[f"{stem}mlp.gate_proj.weight"] = shapes[f"{stem}mlp.up_proj.weight"] = (ffn, hidden)
        shapes[f"{stem}mlp.down_proj.weight"] = (hidden, ffn)
        shapes[f"{stem}input_layernorm.weight"] = shapes[f"{stem}post_attention_layernorm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (vocab, hidden)
    state = {name: (0.3 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return {name: value + 1 if name.endswith("norm.weight") else value for name, value in state.items()}


def logits(state, config):
    return forward.logits(state, config, IDS)


def changed(before, after):
    """Names of tensors that are not equal any more."""
    assert before.keys() == after.keys()
    return {name for name in before if not np.array_equal(before[name], after[name])}


def modules(names):
    return {name.split(".")[-2] for name in names}


MLP = {"gate_proj", "up_proj", "down_proj"}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
NORMS = {"input_layernorm", "post_attention_layernorm", "norm"}
EVERYTHING = MLP | ATTENTION | NORMS | {"embed_tokens", "lm_head"}
SYMMETRIES = {
    "neurons": (lambda s, c: derive.permute_neurons(s, c, 1), MLP),
    "heads": (lambda s, c: derive.permute_heads(s, c, 2), ATTENTION),
    "residual": (lambda s, c: derive.permute_residual(s, c, 3), EVERYTHING),
    "all": (lambda s, c: derive.random_symmetry(s, c, 4), EVERYTHING),
    "scales": (lambda s, c: derive.rescale_pairs(s, 4.0), ATTENTION | {"up_proj", "down_proj"}),
}


@pytest.mark.parametrize("name", SYMMETRIES)
def test_symmetries_keep_the_function_and_change_the_weights(name):
    apply, touched = SYMMETRIES[name]
    state = llama()
    other = apply(state, CONFIG)
    assert modules(changed(state, other)) == touched
    np.testing.assert_allclose(logits(other, CONFIG), logits(state, CONFIG), rtol=0, atol=1e-11)


@pytest.mark.parametrize("module", sorted(MLP | ATTENTION))
def test_half_a_symmetry_changes_the_function(module):
    """Else the test above could not fail."""
    state = llama()
    whole = derive.permute_heads(derive.permute_neurons(state, CONFIG, 1), CONFIG, 2)
    half = {name: state[name] if f".{module}." in name else value for name, value in whole.items()}
    assert np.abs(logits(half, CONFIG) - logits(state, CONFIG)).max() > 0.01


@pytest.mark.parametrize("name", SYMMETRIES)
def test_symmetries_hold_for_experts_too(name):
    state, config = derive.upcycle(llama(bias=False), CONFIG, experts=3, noise=0.5, seed=5)
    other = SYMMETRIES[name][0](state, config)
    assert changed(state, other)
    np.testing.assert_allclose(logits(other, config), logits(state, config), rtol=0, atol=1e-11)


def test_the_forward_pass_agrees_that_the_demo_models_are_one_function():
    """Those were made and judged by another implementation: the conventions here are those of real checkpoints."""
    (base, config, _), (permuted, _, _) = (derive.load_state(DEMO / name) for name in ("base", "permuted"))
    np.testing.assert_allclose(logits(permuted, config), logits(base, config), rtol=0, atol=1e-11)
    shuffled = derive.random_symmetry(base, config, 7)
    np.testing.assert_allclose(logits(shuffled, config), logits(base, config), rtol=0, atol=1e-11)


def test_one_head_has_no_other_order():
    config = CONFIG | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    state = {
        f"model.layers.{i}.self_attn.{p}_proj.weight": np.ones((8, 8), np.float32) for i in range(3) for p in "qkvo"
    }
    assert changed(state, derive.permute_heads(state, config, 1)) == set()


def test_residual_order_refuses_tensors_it_does_not_know():
    state = llama() | {"model.layers.0.self_attn.q_norm.weight": np.ones(8, np.float32)}
    with pytest.raises(ValueError, match=r"q_norm\.weight"):
        derive.permute_residual(state, CONFIG, 1)


RANDOM = {
    "noise": lambda s, seed: derive.noise(s, 0.1, seed),
    "low_rank": lambda s, seed: derive.low_rank(s, 2, 0.1, seed),
    "replace_embeddings": lambda s, seed: derive.replace_embeddings(s, seed),
    "random_symmetry": lambda s, seed: derive.random_symmetry(s, CONFIG, seed),
    "prune_neurons": lambda s, seed: derive.prune_neurons(s, CONFIG, 12, seed)[0],
    "upcycle": lambda s, seed: derive.upcycle(s, CONFIG, 2, 0.1, seed)[0],
}
FIXED = {
    "prune": lambda s, _: derive.prune(s, 0.5),
    "quantise": lambda s, _: derive.quantise(s, 4),
    "scale": lambda s, _: derive.scale(s, 3.0),
    "merge": lambda s, _: derive.merge([s, s], [0.25, 0.5]),
    "stack": lambda s, _: derive.stack_layers(s, CONFIG, [0, 0, 1])[0],
    "replace_norms": lambda s, _: derive.replace_norms(s, llama(9)),
}


@pytest.mark.parametrize("name", RANDOM | FIXED)
def test_pure_seeded_and_blind_to_the_order_of_tensors(name):
    apply = (RANDOM | FIXED)[name]
    state = llama(bias=False)
    first = apply(state, 1)
    assert changed(llama(bias=False), state) == set()
    assert {value.dtype for value in first.values()} == {np.dtype(np.float32)}
    assert not any(np.shares_memory(first[k], state[k]) for k in first.keys() & state.keys())
    assert changed(first, apply(dict(reversed(state.items())), 1)) == set()
    assert (changed(first, apply(state, 2)) != set()) == (name in RANDOM)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_pruning_removes_the_smallest_of_each_matrix(share):
    state = llama()
    for name, values in derive.prune(state, share).items():
        kept, before = values != 0, np.abs(state[name])
        if values.ndim == 1:
            assert np.array_equal(values, state[name])
            continue
        assert (~kept).sum() == round(share * values.size)
        assert np.array_equal(values[kept], state[name][kept])
        assert before[~kept].max(initial=0) <= before[kept].min(initial=np.inf)
    assert not changed(state, derive.prune(state, 0.5, embeddings=False)) & {"lm_head.weight"}


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantising_leaves_few_levels_and_an_error_of_half_a_step(bits):
    values = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
    values[0, :16] = 0
    gain = np.ones(40, np.float32) * 0.123
    result = derive.quantise({"a.w.weight": values, "a.norm.weight": gain}, bits, group=16)
    assert np.array_equal(result["a.norm.weight"], gain)
    rounded = result["a.w.weight"]
    for row in range(5):
        for start in (0, 16, 32):  # the last group is half a one
            part, before = rounded[row, start : start + 16], values[row, start : start + 16]
            step = np.abs(before).max() / (2 ** (bits - 1) - 1)
            assert np.abs(part - before).max() <= step / 2 + 1e-6
            assert len(np.unique(np.abs(part))) <= 2 ** (bits - 1)
    assert (rounded[0, :16] == 0).all()


def test_one_bit_is_refused():
    with pytest.raises(ValueError, match="1 bits"):
        derive.quantise(llama(), 1)


def test_noise_is_relative_to_each_tensors_spread():
    values = np.random.default_rng(2).standard_normal((300, 300)).astype(np.float32) * 7 + 3
    result = derive.noise({"a.w.weight": values, "a.b.weight": values, "a.c.weight": values[0] * 0 + 1}, 0.1, 1)
    delta = result["a.w.weight"] - values
    assert delta.std() == pytest.approx(0.7, rel=0.02)
    assert abs(np.corrcoef(delta.ravel(), (result["a.b.weight"] - values).ravel())[0, 1]) < 0.02
    assert (result["a.c.weight"] == 1).all()


def test_merging_and_scaling_are_linear():
    a, b = llama(1), llama(2)
    merged = derive.merge([a, b], [0.25, 0.75])
    np.testing.assert_allclose(merged[UP0], 0.25 * a[UP0] + 0.75 * b[UP0], rtol=1e-6, atol=1e-7)
    assert changed(derive.merge([a], [2.0]), derive.scale(a, 2.0)) == set()
    with pytest.raises(ValueError, match="name or shape"):
        derive.merge([a, b | {UP0: b[UP0][:-1]}], [0.5, 0.5])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        derive.merge([a, b], [1.0])


def test_layers_are_dropped_and_stacked():
    state = llama()
    dropped, config = derive.drop_layers(state, CONFIG, [0, 2])
    assert config["num_hidden_layers"] == 2
    assert len(dropped) == 3 + 2 * (len(state) - 3) // 3
    assert np.array_equal(dropped["model.layers.1.mlp.up_proj.weight"], state["model.layers.2.mlp.up_proj.weight"])
    stacked, config = derive.stack_layers(state, CONFIG, [0, 1, 0, 1, 2])
    assert [np.array_equal(stacked[f"model.layers.{i}.mlp.up_proj.weight"], state[UP0]) for i in range(5)] == [
        *(True, False, True, False, False)
    ]
    assert logits(stacked, config).shape == (len(IDS), 11)
    assert derive.stack_layers(state, CONFIG, [0, 1, 2])[0].keys() == state.keys()
    with pytest.raises(ValueError, match=r"3 layers, numbers \[3\]"):
        derive.stack_layers(state, CONFIG, [0, 3])
    with pytest.raises(ValueError, match="increasing"):
        derive.drop_layers(state, CONFIG, [2, 0])


def test_a_subset_of_neurons_keeps_their_three_parts_together():
    state = llama()
    small, config = derive.prune_neurons(state, CONFIG, 8, 3)
    assert config["intermediate_size"] == 8
    gate0 = UP0.replace("up_proj", "gate_proj")
    origin = [int(np.flatnonzero((state[UP0] == row).all(axis=1))[0]) for row in small[UP0]]
    assert len(set(origin)) == 8
    assert origin != sorted(origin)
    assert np.array_equal(small[gate0], state[gate0][origin])
    assert np.array_equal(small[DOWN0], state[DOWN0][:, origin])
    whole, config = derive.prune_neurons(state, CONFIG, 20, 3)
    np.testing.assert_allclose(logits(whole, config), logits(state, CONFIG), rtol=0, atol=1e-11)
    with pytest.raises(ValueError, match="cannot keep 21 of 20"):
        derive.prune_neurons(state, CONFIG, 21, 3)


def test_upcycling_without_noise_is_the_same_function_and_with_it_another():
    state = llama()
    copied, config = derive.upcycle(state, CONFIG, experts=4, noise=0.0, seed=1)
    assert (config["model_type"], config["num_local_experts"], config["num_experts_per_tok"]) == ("mixtral", 4, 2)
    assert not any(".mlp." in name for name in copied)
    np.testing.assert_allclose(logits(copied, config), logits(state, CONFIG), rtol=0, atol=1e-11)
    noisy, _ = derive.upcycle(state, CONFIG, experts=4, noise=0.1, seed=1)
    ups = [noisy[f"model.layers.0.block_sparse_moe.experts.{e}.w3.weight"] for e in range(4)]
    correlations = np.corrcoef([state[UP0].ravel(), *(up.ravel() for up in ups)])
    assert ((correlations > 0.97) & (correlations < 1 - 1e-6))[np.triu_indices(5, 1)].all()
    with pytest.raises(ValueError, match=r"up_proj\.bias has no place"):
        derive.upcycle(state | {"model.layers.0.mlp.up_proj.bias": np.ones(20, np.float32)}, CONFIG, 4, 0.0, 1)


def test_a_low_rank_change_has_its_rank_and_size():
    state = llama()
    other = derive.low_rank(state, 3, 0.2, 1)
    assert modules(changed(state, other)) == {"q_proj", "v_proj", "up_proj", "down_proj"}
    delta = other[UP0].astype(np.float64) - state[UP0]
    singular = np.linalg.svd(delta, compute_uv=False)
    assert singular[2] > 0.01 > 1e-5 > singular[3]
    assert np.linalg.norm(delta) == pytest.approx(0.2 * np.linalg.norm(state[UP0]), rel=1e-4)
    assert modules(changed(state, derive.low_rank(state, 1, 0.2, 1, targets=("o_proj",)))) == {"o_proj"}


def test_embeddings_and_norms_are_replaced_and_nothing_else():
    state, other = llama(1), llama(2)
    drawn = derive.replace_embeddings(state, 1)
    assert modules(changed(state, drawn)) == {"embed_tokens", "lm_head"}
    assert drawn["lm_head.weight"].std() == pytest.approx(state["lm_head.weight"].std(), rel=0.15)
    mixed = derive.replace_norms(state, other)
    assert modules(changed(state, mixed)) == NORMS
    assert np.array_equal(mixed["model.norm.weight"], other["model.norm.weight"])
    with pytest.raises(ValueError, match=r"no model\.norm\.weight"):
        derive.replace_norms(state, {k: v for k, v in other.items() if k != "model.norm.weight"})


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_saving_casts_and_loading_gives_the_values_back(tmp_path, dtype):
    state, tokenizer = llama(), {"model": {"vocab": {"é": 0}}}
    derive.save_state(tmp_path, state, CONFIG, tokenizer, dtype)
    back, config, found = derive.load_state(tmp_path)
    assert config == CONFIG | {"torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[dtype]}
    assert found == tokenizer
    for name, value in state.items():
        if dtype == "BF16":
            assert np.array_equal(to_bf16(back[name]), to_bf16(value))
            np.testing.assert_allclose(back[name], value, rtol=2**-8)
        else:
            assert np.array_equal(back[name], value.astype({"F16": np.float16, "F32": np.float32}[dtype]))


def test_a_real_checkpoint_survives_byte_for_byte(tmp_path):
    derive.save_state(tmp_path, *derive.load_state(DEMO / "base"))
    assert (tmp_path / "model.safetensors").read_bytes() == (DEMO / "base" / "model.safetensors").read_bytes()
    for file in ("config.json", "tokenizer.json"):
        assert json.loads((tmp_path / file).read_text()) == json.loads((DEMO / "base" / file).read_text())


def test_loading_joins_shards_and_refuses_what_it_cannot_read(tmp_path):
    state = llama()
    write_checkpoint(tmp_path / "sharded", state, CONFIG, shards=3)
    back, _, tokenizer = derive.load_state(tmp_path / "sharded")
    assert tokenizer is None
    assert changed(state, back) == set()
    write_checkpoint(tmp_path / "whole", {"a.ids": np.arange(3)}, CONFIG)
    with pytest.raises(ValueError, match=r"a\.ids is I64"):
        derive.load_state(tmp_path / "whole")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no \.safetensors"):
        derive.load_state(tmp_path / "empty")
