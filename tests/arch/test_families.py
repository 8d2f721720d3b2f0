"""Every architecture file on a full list of real tensor names, with two blocks.

A new family needs one data file and one entry in `support.families`, unless `support.surveyed` has its names.
"""

from __future__ import annotations

from random import Random

import pytest

from kinprint.arch import Role, name_tensors, residual_width
from kinprint.arch.configs import flattened
from kinprint.arch.draft import Draft
from kinprint.arch.loading import load
from kinprint.arch.templates import NameForms
from support.families import BY_ID, FAMILIES, Family, listing

B = "model.layers.1."
EXACT: list[tuple[str, str, tuple[object, ...]]] = [  # family, name, (role, layer, expert, shape, rows)
    ("llama", B + "post_attention_layernorm.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("qwen2", B + "self_attn.k_proj.bias", ("attn_k_bias", 1, None, (8,), None)),
    ("qwen2_moe", B + "mlp.shared_expert_gate.weight", ("shared_router", 1, None, (1, 16), None)),
    ("qwen3", B + "self_attn.q_norm.weight", ("q_norm", 1, None, (4,), None)),
    ("qwen3_moe", B + "mlp.experts.2.down_proj.weight", ("expert_down", 1, 2, (16, 6), None)),
    ("glm4_moe", B + "mlp.gate.e_score_correction_bias", ("router_bias", 1, None, (3,), None)),
    ("solar_open", B + "mlp.shared_experts.up_proj.weight", ("shared_up", 1, None, (6, 16), None)),
    ("phi3", B + "self_attn.qkv_proj.weight", ("attn_v", 1, None, (8, 16), ((24, 32),))),
    ("phi3", B + "mlp.gate_up_proj.weight", ("mlp_gate", 1, None, (24, 16), ((0, 24),))),
    ("mixtral", B + "block_sparse_moe.experts.1.w1.weight", ("expert_gate", 1, 1, (6, 16), None)),
    ("mixtral", B + "block_sparse_moe.experts.1.w2.weight", ("expert_down", 1, 1, (16, 6), None)),
    ("mixtral", B + "block_sparse_moe.experts.1.w3.weight", ("expert_up", 1, 1, (6, 16), None)),
    ("phimoe", "lm_head.bias", ("head_bias", None, None, (40,), None)),
    ("phimoe", B + "input_layernorm.bias", ("input_norm_bias", 1, None, (16,), None)),
    ("internlm2", B + "attention.wqkv.weight", ("attn_k", 1, None, (8, 16), ((8, 12), (24, 28)))),
    ("internlm2", B + "feed_forward.w3.weight", ("mlp_up", 1, None, (24, 16), None)),
    ("gemma2", B + "post_attention_layernorm.weight", ("attention_output_norm", 1, None, (16,), None)),
    ("gemma2", B + "pre_feedforward_layernorm.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("gemma3-multimodal", "language_model." + B + "self_attn.k_norm.weight", ("k_norm", 1, None, (4,), None)),
    ("olmo_native", "model.transformer.blocks.1.ff_proj.weight", ("mlp_gate", 1, None, (24, 16), ((24, 48),))),
    ("olmo2", B + "self_attn.q_norm.weight", ("q_norm", 1, None, (16,), None)),
    ("olmo2", B + "post_attention_layernorm.weight", ("attention_output_norm", 1, None, (16,), None)),
    ("deepseek_v2", B + "self_attn.kv_b_proj.weight", ("attn_kv_b", 1, None, (24, 5), None)),
    ("deepseek_v2-lite", B + "self_attn.q_proj.weight", ("attn_q", 1, None, (16, 16), None)),
    ("deepseek_v3", B + "self_attn.q_a_layernorm.weight", ("q_a_norm", 1, None, (5,), None)),
    ("gpt2", "h.1.attn.c_attn.weight", ("attn_k", 1, None, (16, 16), ((16, 32),))),
    ("gpt2", "h.1.attn.c_attn.bias", ("attn_v_bias", 1, None, (16,), ((32, 48),))),
    ("gpt2", "h.1.mlp.c_fc.weight", ("mlp_up", 1, None, (24, 16), None)),
    (
        "gpt_neox",
        "gpt_neox.layers.1.attention.query_key_value.bias",
        ("attn_k_bias", 1, None, (16,), ((4, 8), (16, 20), (28, 32), (40, 44))),
    ),
    ("falcon-7b", "transformer.h.1.self_attention.query_key_value.weight", ("attn_v", 1, None, (4, 16), ((20, 24),))),
    ("falcon-40b", "transformer.h.1.ln_mlp.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("bert", "cls.predictions.decoder.weight", ("head", None, None, (40, 16), None)),
    ("bert", "bert.encoder.layer.1.output.LayerNorm.weight", ("mlp_output_norm", 1, None, (16,), None)),
    ("bert-old-names", "bert.encoder.layer.0.output.LayerNorm.beta", ("mlp_output_norm_bias", 0, None, (16,), None)),
    ("roberta", "lm_head.layer_norm.bias", ("head_norm_bias", None, None, (16,), None)),
    ("gguf", "blk.1.ffn_norm.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("gguf-gemma3", "blk.1.post_attention_norm.weight", ("attention_output_norm", 1, None, (16,), None)),
    ("gguf-gemma3", "blk.1.ffn_norm.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("gguf-gemma3", "blk.1.post_ffw_norm.weight", ("mlp_output_norm", 1, None, (16,), None)),
    ("gguf-qkv", "blk.1.attn_qkv.weight", ("attn_k", 1, None, (8, 16), ((16, 24),))),
    ("gguf-experts", "blk.1.ffn_down_exps.2.weight", ("expert_down", 1, 2, (16, 6), None)),
    ("gguf-experts", "blk.1.exp_probs_b.bias", ("router_bias", 1, None, (3,), None)),
    ("gguf-old-experts", "blk.1.ffn_gate.2.weight", ("expert_gate", 1, 2, (6, 16), None)),
    ("gguf-fused-experts", "blk.1.ffn_gate_up_exps.2.weight", ("expert_up", 1, 2, (6, 16), ((6, 12),))),
    ("gguf-bert", "blk.1.layer_output_norm.bias", ("mlp_output_norm_bias", 1, None, (16,), None)),
    ("gguf_fused", "blk.1.ffn_up.weight", ("mlp_gate", 1, None, (24, 16), ((0, 24),))),
    ("gguf_before_mlp", "blk.1.post_attention_norm.weight", ("post_attention_norm", 1, None, (16,), None)),
    ("gguf_falcon", "blk.1.attn_norm_2.weight", ("input_norm", 1, None, (16,), None)),
    (
        "chatglm",
        "transformer.encoder.layers.1.self_attention.query_key_value.weight",
        ("attn_k", 1, None, (8, 16), ((16, 24),)),
    ),
    (
        "chatglm",
        "transformer.encoder.layers.1.mlp.dense_h_to_4h.weight",
        ("mlp_gate", 1, None, (24, 16), ((0, 24),)),
    ),
    (
        "chatglm-1",
        "transformer.layers.1.attention.query_key_value.weight",
        ("attn_k", 1, None, (16, 16), ((4, 8), (16, 20), (28, 32), (40, 44))),
    ),
    (
        "distilbert",
        "distilbert.transformer.layer.1.sa_layer_norm.weight",
        ("attention_output_norm", 1, None, (16,), None),
    ),
]


@pytest.mark.parametrize(("family", "name", "expected"), EXACT)
def test_exact(family: str, name: str, expected: tuple[object, ...]) -> None:
    naming = name_tensors(BY_ID[family].config, listing(BY_ID[family].names))
    assert expected in {(t.role.value, t.layer, t.expert, t.shape, t.rows) for t in naming.tensors if t.name == name}


@pytest.mark.parametrize("family", FAMILIES, ids=[family.id for family in FAMILIES])
def test_family_is_named_in_full(family: Family) -> None:
    shapes = listing(family.names)
    naming = name_tensors(family.config, shapes)
    assert (naming.architecture, naming.guessed) == (family.file, False)
    assert naming.unmapped == ()
    assert (len(naming.tensors), len(naming.excluded)) == (family.tensors, family.excluded), naming.excluded
    assert (naming.layers, naming.experts) == (2, family.experts)
    assert residual_width(naming, family.config) == 16
    names = {tensor.name.partition("[")[0] for tensor in naming.tensors} | {each.name for each in naming.excluded}
    assert names == set(shapes)
    problems = [note for note in naming.notes if "head is stored" not in note]
    assert problems == []


SHIFTED = ["gemma", "gemma2", "gemma3", "nemotron", "qwen3_next", "qwen3_5", "qwen3_5-multimodal", "qwen3_5_moe"]


@pytest.mark.parametrize("file", SHIFTED)
def test_norms_stored_minus_one_have_an_offset_and_nothing_else_has(file: str) -> None:
    naming = name_tensors(BY_ID[file].config, listing(BY_ID[file].names))
    assert {t.offset for t in naming.tensors if t.role.info.kind == "norm"} == {1.0}
    assert {t.offset for t in naming.tensors if t.role.info.kind != "norm"} == {0.0}


@pytest.mark.parametrize("family", [family.id for family in FAMILIES if family.file.startswith("gguf")])
def test_gguf_norms_have_no_offset(family: str) -> None:
    """The conversion adds Gemma's one."""
    naming = name_tensors(BY_ID[family].config, listing(BY_ID[family].names))
    assert {tensor.offset for tensor in naming.tensors} == {0.0}


@pytest.mark.parametrize("family", ["gemma3n", "gemma3n-4", "qwen3", "qwen3_moe"])
def test_relatives_that_store_their_norms_as_they_are(family: str) -> None:
    naming = name_tensors(BY_ID[family].config, listing(BY_ID[family].names))
    assert {tensor.offset for tensor in naming.tensors} == {0.0}


def test_linear_attention_is_not_taken_for_q_k_and_v() -> None:
    naming = name_tensors(BY_ID["gguf_hybrid"].config, listing(BY_ID["gguf_hybrid"].names))
    assert {t.layer for t in naming.tensors if t.role in (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V)} == {1}


def test_gpt2_weights_are_transposed_and_biases_and_embeddings_are_not() -> None:
    naming = name_tensors(BY_ID["gpt2"].config, listing(BY_ID["gpt2"].names))
    expected = {Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_O, Role.MLP_UP, Role.MLP_DOWN}
    assert {t.role for t in naming.tensors if t.transposed} == expected
    assert all(t.axis == (1 if t.transposed else 0) for t in naming.tensors)


def test_multi_token_prediction_layer_is_excluded_with_its_reason() -> None:
    naming = name_tensors(BY_ID["glm4_moe"].config, listing(BY_ID["glm4_moe"].names))
    reasons = {each.reason for each in naming.excluded if each.name == "model.layers.2.self_attn.q_proj.weight"}
    assert reasons == {"multi-token-prediction layer (num_nextn_predict_layers = 1)"}
    assert max(t.layer for t in naming.tensors if t.layer is not None) == 1


def _in_order(family: Family, shapes: dict[str, tuple[int, ...]]) -> Draft:
    draft = Draft(load(family.file), flattened(family.config))
    draft.fill(NameForms(shapes), shapes, in_order=True)
    return draft


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label or family.file)
def test_form_by_form_and_one_by_one_give_the_same(family, shuffled):
    items = [*listing(family.names).items(), ("model.layers.0.strange.weight", (4,)), ("model.layers.1.", (2, 2))]
    items += [("another.norm.weight", (3,)), (items[0][0] + ".weight", (1,)), (items[-3][0] + "x", (1,))]
    if shuffled:
        Random(7).shuffle(items)
        items[3] = items[3][0], (*items[3][1], 2)  # one axis too many
    shapes = dict(items)
    found = name_tensors(family.config, shapes)
    expected = _in_order(family, shapes)
    assert found.architecture == family.file
    assert found.tensors == tuple(expected.found[slot] for slot in sorted(expected.found))
    assert found.unmapped == tuple(sorted(expected.unmapped))
    assert found.excluded == tuple(sorted(expected.excluded, key=lambda each: each.name))
    assert found.notes[: len(expected.notes())] == tuple(expected.notes())


def test_chatglm_without_groups_of_queries_is_not_split_as_if_it_had_them() -> None:
    """Its rows go by heads then, and equal sizes would hide the mistake."""
    shapes = listing(BY_ID["chatglm"].names)
    naming = name_tensors({**BY_ID["chatglm"].config, "multi_query_attention": False}, shapes)
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in naming.unmapped} == {"query_key_value"}
