"""The names of published models' tensors, family by family, with two blocks and little sides.

A new architecture file needs one entry in FAMILIES: a config excerpt, the names as published, what to expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# V tokens, D width, Q = heads × head_dim, K = kv_heads × head_dim, F neurons, M neurons of an expert, E experts,
# H head_dim, P positions, and the sums that fused tensors have.
SIZES = {"V": 40, "D": 16, "Q": 16, "K": 8, "F": 24, "M": 6, "E": 3, "H": 4, "P": 10, "T": 2, "1": 1, "L": 5}
SIZES |= {"QKV": 32, "3D": 48, "MQ": 24, "2F": 48, "2D": 32, "2M": 12, "KV": 9, "KVB": 24}
GQA: dict[str, object] = {
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
}
GQA |= {"num_hidden_layers": 2, "vocab_size": 40, "tie_word_embeddings": False}

OUTER = "model.embed_tokens.weight V D; model.norm.weight D; lm_head.weight V D;"
NORMS = "model.layers.{l}.input_layernorm.weight D; model.layers.{l}.post_attention_layernorm.weight D;"
ATTENTION = """
    model.layers.{l}.self_attn.q_proj.weight Q D; model.layers.{l}.self_attn.k_proj.weight K D;
    model.layers.{l}.self_attn.v_proj.weight K D; model.layers.{l}.self_attn.o_proj.weight D Q;"""
QKV_BIAS = """
    model.layers.{l}.self_attn.q_proj.bias Q; model.layers.{l}.self_attn.k_proj.bias K;
    model.layers.{l}.self_attn.v_proj.bias K;"""
QK_NORM = "model.layers.{l}.self_attn.q_norm.weight H; model.layers.{l}.self_attn.k_norm.weight H;"
MLP = """
    model.layers.{l}.mlp.gate_proj.weight F D; model.layers.{l}.mlp.up_proj.weight F D;
    model.layers.{l}.mlp.down_proj.weight D F;"""
MLP_FIRST = MLP.replace("{l}", "0")
MOE = """
    model.layers.{l}.mlp.gate.weight E D; model.layers.{l}.mlp.experts.{e}.gate_proj.weight M D;
    model.layers.{l}.mlp.experts.{e}.up_proj.weight M D; model.layers.{l}.mlp.experts.{e}.down_proj.weight D M;"""
SHARED = """
    model.layers.{l}.mlp.shared_experts.gate_proj.weight M D; model.layers.{l}.mlp.shared_experts.up_proj.weight M D;
    model.layers.{l}.mlp.shared_experts.down_proj.weight D M;"""
CORRECTION = "model.layers.{l}.mlp.gate.e_score_correction_bias E;"
MIXTRAL_MOE = """
    model.layers.{l}.block_sparse_moe.gate.weight E D; model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight M D;
    model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight D M;
    model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight M D;"""
MTP = """
    model.layers.2.eh_proj.weight D 2D; model.layers.2.enorm.weight D; model.layers.2.hnorm.weight D;
    model.layers.2.shared_head.norm.weight D; model.layers.2.shared_head.head.weight V D;
    model.layers.2.embed_tokens.weight V D;"""
LLAMA = OUTER + NORMS + ATTENTION + MLP
GLM = OUTER + NORMS + ATTENTION + QKV_BIAS + MLP_FIRST + (MOE + SHARED + CORRECTION).replace("{l}", "1")
GLM_MTP = (NORMS + ATTENTION + QKV_BIAS + MOE + SHARED + CORRECTION).replace("{l}", "2") + MTP
SANDWICH = """
    model.layers.{l}.pre_feedforward_layernorm.weight D; model.layers.{l}.post_feedforward_layernorm.weight D;"""
PHI3 = """
    model.layers.{l}.self_attn.qkv_proj.weight QKV D; model.layers.{l}.self_attn.o_proj.weight D Q;
    model.layers.{l}.mlp.gate_up_proj.weight 2F D; model.layers.{l}.mlp.down_proj.weight D F;"""
PHIMOE_EXTRA = """
    model.norm.bias D; lm_head.bias V; model.layers.{l}.input_layernorm.bias D;
    model.layers.{l}.post_attention_layernorm.bias D; model.layers.{l}.self_attn.o_proj.bias D;"""
INTERNLM2 = """
    model.tok_embeddings.weight V D; model.norm.weight D; output.weight V D; model.layers.{l}.attention_norm.weight D;
    model.layers.{l}.ffn_norm.weight D; model.layers.{l}.attention.wqkv.weight QKV D;
    model.layers.{l}.attention.wo.weight D Q; model.layers.{l}.feed_forward.w1.weight F D;
    model.layers.{l}.feed_forward.w2.weight D F; model.layers.{l}.feed_forward.w3.weight F D;"""
OLMO_NATIVE = """
    model.transformer.wte.weight V D; model.transformer.ff_out.weight V D;
    model.transformer.blocks.{l}.att_proj.weight 3D D; model.transformer.blocks.{l}.attn_out.weight D D;
    model.transformer.blocks.{l}.ff_proj.weight 2F D; model.transformer.blocks.{l}.ff_out.weight D F;"""
OLMO2 = """
    model.layers.{l}.post_attention_layernorm.weight D; model.layers.{l}.post_feedforward_layernorm.weight D;
    model.layers.{l}.self_attn.q_norm.weight Q; model.layers.{l}.self_attn.k_norm.weight K;"""
MLA = """
    model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight KV D; model.layers.{l}.self_attn.kv_a_layernorm.weight L;
    model.layers.{l}.self_attn.kv_b_proj.weight KVB L; model.layers.{l}.self_attn.o_proj.weight D Q;"""
MLA_Q = """
    model.layers.{l}.self_attn.q_a_proj.weight L D; model.layers.{l}.self_attn.q_a_layernorm.weight L;
    model.layers.{l}.self_attn.q_b_proj.weight Q L;"""
DEEPSEEK = OUTER + NORMS + MLA + MLP_FIRST + (MOE + SHARED).replace("{l}", "1")
DEEPSEEK_LITE = DEEPSEEK + "model.layers.{l}.self_attn.q_proj.weight Q D;"
DEEPSEEK_MTP = (NORMS + MLA + MLA_Q + MOE + SHARED + CORRECTION).replace("{l}", "2") + MTP
GPT2 = """
    wte.weight V D; wpe.weight P D; ln_f.weight D; ln_f.bias D; h.{l}.ln_1.weight D; h.{l}.ln_1.bias D;
    h.{l}.ln_2.weight D; h.{l}.ln_2.bias D; h.{l}.attn.c_attn.weight D 3D; h.{l}.attn.c_attn.bias 3D;
    h.{l}.attn.c_proj.weight D D; h.{l}.attn.c_proj.bias D; h.{l}.mlp.c_fc.weight D F; h.{l}.mlp.c_fc.bias F;
    h.{l}.mlp.c_proj.weight F D; h.{l}.mlp.c_proj.bias D; h.{l}.attn.bias 1 1 P P; h.{l}.attn.masked_bias;"""
NEOX = """
    gpt_neox.embed_in.weight V D; gpt_neox.final_layer_norm.weight D; gpt_neox.final_layer_norm.bias D;
    embed_out.weight V D; gpt_neox.layers.{l}.input_layernorm.weight D; gpt_neox.layers.{l}.input_layernorm.bias D;
    gpt_neox.layers.{l}.post_attention_layernorm.weight D; gpt_neox.layers.{l}.post_attention_layernorm.bias D;
    gpt_neox.layers.{l}.attention.query_key_value.weight 3D D; gpt_neox.layers.{l}.attention.query_key_value.bias 3D;
    gpt_neox.layers.{l}.attention.dense.weight D D; gpt_neox.layers.{l}.attention.dense.bias D;
    gpt_neox.layers.{l}.mlp.dense_h_to_4h.weight F D; gpt_neox.layers.{l}.mlp.dense_h_to_4h.bias F;
    gpt_neox.layers.{l}.mlp.dense_4h_to_h.weight D F; gpt_neox.layers.{l}.mlp.dense_4h_to_h.bias D;
    gpt_neox.layers.{l}.attention.rotary_emb.inv_freq T; gpt_neox.layers.{l}.attention.bias 1 1 P P;
    gpt_neox.layers.{l}.attention.masked_bias;"""
FALCON = """
    transformer.word_embeddings.weight V D; transformer.ln_f.weight D; transformer.ln_f.bias D; lm_head.weight V D;
    transformer.h.{l}.self_attention.dense.weight D D; transformer.h.{l}.mlp.dense_h_to_4h.weight F D;
    transformer.h.{l}.mlp.dense_4h_to_h.weight D F; transformer.h.{l}.self_attention.query_key_value.weight"""
FALCON_7B = FALCON + " MQ D; transformer.h.{l}.input_layernorm.weight D; transformer.h.{l}.input_layernorm.bias D;"
FALCON_40B = (
    FALCON
    + """ QKV D; transformer.h.{l}.ln_attn.weight D; transformer.h.{l}.ln_attn.bias D;
    transformer.h.{l}.ln_mlp.weight D; transformer.h.{l}.ln_mlp.bias D;"""
)
BERT_BODY = """
    bert.embeddings.word_embeddings.weight V D; bert.embeddings.position_embeddings.weight P D;
    bert.embeddings.token_type_embeddings.weight T D; bert.embeddings.LayerNorm.weight D;
    bert.embeddings.LayerNorm.bias D; bert.embeddings.position_ids 1 P;
    bert.encoder.layer.{l}.attention.self.query.weight D D; bert.encoder.layer.{l}.attention.self.query.bias D;
    bert.encoder.layer.{l}.attention.self.key.weight D D; bert.encoder.layer.{l}.attention.self.key.bias D;
    bert.encoder.layer.{l}.attention.self.value.weight D D; bert.encoder.layer.{l}.attention.self.value.bias D;
    bert.encoder.layer.{l}.attention.output.dense.weight D D; bert.encoder.layer.{l}.attention.output.dense.bias D;
    bert.encoder.layer.{l}.attention.output.LayerNorm.weight D;
    bert.encoder.layer.{l}.attention.output.LayerNorm.bias D;
    bert.encoder.layer.{l}.intermediate.dense.weight F D; bert.encoder.layer.{l}.intermediate.dense.bias F;
    bert.encoder.layer.{l}.output.dense.weight D F; bert.encoder.layer.{l}.output.dense.bias D;
    bert.encoder.layer.{l}.output.LayerNorm.weight D; bert.encoder.layer.{l}.output.LayerNorm.bias D;"""
POOLER = "bert.pooler.dense.weight D D; bert.pooler.dense.bias D;"
BERT_HEAD = """
    cls.predictions.transform.dense.weight D D; cls.predictions.transform.dense.bias D;
    cls.predictions.transform.LayerNorm.weight D; cls.predictions.transform.LayerNorm.bias D;
    cls.predictions.decoder.weight V D; cls.predictions.decoder.bias V; cls.predictions.bias V;
    cls.seq_relationship.weight T D; cls.seq_relationship.bias T;"""
ROBERTA_HEAD = """
    lm_head.dense.weight D D; lm_head.dense.bias D; lm_head.layer_norm.weight D; lm_head.layer_norm.bias D;
    lm_head.decoder.weight V D; lm_head.bias V;"""
DISTILBERT = """
    distilbert.embeddings.word_embeddings.weight V D; distilbert.embeddings.position_embeddings.weight P D;
    distilbert.embeddings.LayerNorm.weight D; distilbert.embeddings.LayerNorm.bias D;
    distilbert.transformer.layer.{l}.attention.q_lin.weight D D; distilbert.transformer.layer.{l}.attention.q_lin.bias D;
    distilbert.transformer.layer.{l}.attention.k_lin.weight D D; distilbert.transformer.layer.{l}.attention.k_lin.bias D;
    distilbert.transformer.layer.{l}.attention.v_lin.weight D D; distilbert.transformer.layer.{l}.attention.v_lin.bias D;
    distilbert.transformer.layer.{l}.attention.out_lin.weight D D;
    distilbert.transformer.layer.{l}.attention.out_lin.bias D; distilbert.transformer.layer.{l}.sa_layer_norm.weight D;
    distilbert.transformer.layer.{l}.sa_layer_norm.bias D; distilbert.transformer.layer.{l}.ffn.lin1.weight F D;
    distilbert.transformer.layer.{l}.ffn.lin1.bias F; distilbert.transformer.layer.{l}.ffn.lin2.weight D F;
    distilbert.transformer.layer.{l}.ffn.lin2.bias D; distilbert.transformer.layer.{l}.output_layer_norm.weight D;
    distilbert.transformer.layer.{l}.output_layer_norm.bias D; vocab_transform.weight D D; vocab_transform.bias D;
    vocab_layer_norm.weight D; vocab_layer_norm.bias D; vocab_projector.weight V D; vocab_projector.bias V;"""

GGUF_OUTER = "token_embd.weight V D; output_norm.weight D; output.weight V D;"
GGUF_ATTENTION = """
    blk.{l}.attn_norm.weight D; blk.{l}.attn_q.weight Q D; blk.{l}.attn_k.weight K D; blk.{l}.attn_v.weight K D;
    blk.{l}.attn_output.weight D Q;"""
GGUF_QKV = "blk.{l}.attn_norm.weight D; blk.{l}.attn_qkv.weight QKV D; blk.{l}.attn_output.weight D Q;"
GGUF_NORM = "blk.{l}.ffn_norm.weight D;"
GGUF_MLP = "blk.{l}.ffn_gate.weight F D; blk.{l}.ffn_up.weight F D; blk.{l}.ffn_down.weight D F;"
GGUF_BIASES = "blk.{l}.attn_q.bias Q; blk.{l}.attn_k.bias K; blk.{l}.attn_v.bias K;"
GGUF_QK_NORM = "blk.{l}.attn_q_norm.weight H; blk.{l}.attn_k_norm.weight H;"
GGUF_SANDWICH = "blk.{l}.post_attention_norm.weight D; blk.{l}.post_ffw_norm.weight D;"
GGUF_MOE = """
    blk.{l}.ffn_gate_inp.weight E D; blk.{l}.ffn_gate_exps.{e}.weight M D; blk.{l}.ffn_up_exps.{e}.weight M D;
    blk.{l}.ffn_down_exps.{e}.weight D M;"""
GGUF_SHARED = """
    blk.{l}.ffn_gate_shexp.weight M D; blk.{l}.ffn_up_shexp.weight M D; blk.{l}.ffn_down_shexp.weight D M;
    blk.{l}.ffn_gate_inp_shexp.weight 1 D; blk.{l}.exp_probs_b.bias E;"""
GGUF_OLD_MOE = GGUF_MOE.replace("_exps.", ".")
GGUF_FUSED_MOE = """
    blk.{l}.ffn_gate_inp.weight E D; blk.{l}.ffn_gate_up_exps.{e}.weight 2M D; blk.{l}.ffn_down_exps.{e}.weight D M;"""
GGUF_MLA = """
    blk.{l}.attn_norm.weight D; blk.{l}.attn_q_a.weight L D; blk.{l}.attn_q_a_norm.weight L; blk.{l}.attn_q_b.weight Q L;
    blk.{l}.attn_kv_a_mqa.weight KV D; blk.{l}.attn_kv_a_norm.weight L; blk.{l}.attn_kv_b.weight KVB L;
    blk.{l}.attn_k_b.weight E L H; blk.{l}.attn_v_b.weight E H L; blk.{l}.attn_output.weight D Q;"""
GGUF_BERT = """
    token_embd.weight V D; position_embd.weight P D; token_types.weight T D; token_embd_norm.weight D;
    token_embd_norm.bias D; cls.weight D D; blk.{l}.attn_q.weight D D; blk.{l}.attn_k.weight D D; blk.{l}.attn_v.weight D D;
    blk.{l}.attn_output.weight D D; blk.{l}.attn_output.bias D; blk.{l}.attn_output_norm.weight D;
    blk.{l}.attn_output_norm.bias D; blk.{l}.ffn_up.weight F D; blk.{l}.ffn_up.bias F; blk.{l}.ffn_down.weight D F;
    blk.{l}.ffn_down.bias D; blk.{l}.layer_output_norm.weight D; blk.{l}.layer_output_norm.bias D;"""
GGUF_GLM_MTP = """
    blk.2.attn_norm.weight D; blk.2.attn_q.weight Q D; blk.2.nextn.eh_proj.weight D 2D; blk.2.nextn.enorm.weight D;"""


def listing(text: str, layers: int = 2, experts: int = 3) -> dict[str, tuple[int, ...]]:
    """Expand "name size size; …" over layers and experts."""
    shapes: dict[str, tuple[int, ...]] = {}
    for line in filter(None, (entry.split() for entry in text.split(";"))):
        shape = tuple(SIZES[size] for size in line[1:])
        for layer in range(layers if "{l}" in line[0] else 1):
            for expert in range(experts if "{e}" in line[0] else 1):
                shapes[line[0].format(l=layer, e=expert)] = shape
    return shapes


class Family(NamedTuple):
    """A model of a family: the architecture file that fits, a config, its tensors' names, and how many have a role."""

    file: str
    config: dict[str, object]
    names: str
    tensors: int  # roles found: fused tensors count once for every part
    excluded: int = 0
    experts: int = 0
    label: str = ""

    @property
    def id(self) -> str:
        """The name of the entry."""
        return f"{self.file}-{self.label}".rstrip("-")


def of(model_type: str, sizes: Mapping[str, object] = GQA, **more: object) -> dict[str, object]:
    """Return a config."""
    return {"model_type": model_type, **sizes, **more}


def gguf(architecture: str, **more: object) -> dict[str, object]:
    """Return the config that a GGUF file of an architecture has."""
    return {"model_type": architecture, **GQA, "gguf": True, **more}


GGUF_PHI3_MLP = "blk.{l}.ffn_up.weight 2F D; blk.{l}.ffn_down.weight D F;"
GGUF_FALCON_40B = "blk.{l}.attn_norm_2.weight D; blk.{l}.ffn_up.weight F D; blk.{l}.ffn_down.weight D F;"
MTP_MOE = {**GQA, "n_routed_experts": 3, "num_nextn_predict_layers": 1}
ENCODER = {**GQA, "num_key_value_heads": None}
GPT2_SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 4}
FALCON_SIZES = {"hidden_size": 16, "num_attention_heads": 4, "multi_query": True, "num_hidden_layers": 2}
ONE_SHARED = SHARED.replace("shared_experts", "shared_expert") + "model.layers.{l}.mlp.shared_expert_gate.weight 1 D;"
GEMMA3 = LLAMA + SANDWICH + QK_NORM
GPT_OSS = (
    OUTER
    + NORMS
    + ATTENTION
    + QKV_BIAS
    + """model.layers.{l}.self_attn.o_proj.bias D; model.layers.{l}.self_attn.sinks H;
    model.layers.{l}.mlp.router.weight E D; model.layers.{l}.mlp.router.bias E;
    model.layers.{l}.mlp.experts.gate_up_proj E D 2M; model.layers.{l}.mlp.experts.gate_up_proj_bias E 2M;
    model.layers.{l}.mlp.experts.down_proj E M D; model.layers.{l}.mlp.experts.down_proj_bias E D;"""
)
LLAMA4 = (
    (OUTER + NORMS + ATTENTION).replace("model.", "language_model.model.").replace("lm_", "language_model.lm_")
    + """
    language_model.model.layers.{l}.feed_forward.router.weight E D;
    language_model.model.layers.{l}.feed_forward.experts.gate_up_proj E D 2M;
    language_model.model.layers.{l}.feed_forward.experts.down_proj E M D;
    language_model.model.layers.{l}.feed_forward.shared_expert.gate_proj.weight F D;
    language_model.model.layers.{l}.feed_forward.shared_expert.up_proj.weight F D;
    language_model.model.layers.{l}.feed_forward.shared_expert.down_proj.weight D F;
    multi_modal_projector.linear_1.weight D D;"""
)
QWEN3_VL_MOE = (
    (OUTER + NORMS + ATTENTION + QK_NORM).replace("model.", "model.language_model.")
    + """
    model.language_model.layers.{l}.mlp.gate.weight E D; model.visual.patch_embed.proj.weight D D;
    model.language_model.layers.{l}.mlp.experts.gate_up_proj E D 2M;
    model.language_model.layers.{l}.mlp.experts.down_proj E M D;"""
)
GRANITE_MOE = (
    OUTER
    + NORMS
    + ATTENTION
    + """model.layers.{l}.block_sparse_moe.router.layer.weight E D;
    model.layers.{l}.block_sparse_moe.input_linear.weight E 2M D;
    model.layers.{l}.block_sparse_moe.output_linear.weight E D M;
    model.layers.{l}.shared_mlp.input_linear.weight 2F D; model.layers.{l}.shared_mlp.output_linear.weight D F;"""
)
VISION = "vision_tower.encoder.layers.{l}.layer_norm1.weight D; multi_modal_projector.mm_soft_emb_norm.weight D;"
MULTIMODAL = GEMMA3.replace("model.", "language_model.model.") + VISION
PHIMOE = OUTER + NORMS + ATTENTION + QKV_BIAS + MIXTRAL_MOE + PHIMOE_EXTRA
DEEPSEEK_V3 = DEEPSEEK + MLA_Q + CORRECTION.replace("{l}", "1") + DEEPSEEK_MTP
GPT2_PREFIXED = ";".join(f"transformer.{entry.strip()}" for entry in GPT2.split(";")[:-1]) + "; lm_head.weight V D"
OLD_BERT = (
    (BERT_BODY + POOLER).replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
)
NEMOTRON = (
    OUTER
    + NORMS
    + ATTENTION
    + """model.norm.bias D; model.layers.{l}.input_layernorm.bias D; model.layers.{l}.post_attention_layernorm.bias D;
    model.layers.{l}.mlp.up_proj.weight F D; model.layers.{l}.mlp.down_proj.weight D F;"""
)
# The first of two layers has linear attention; q of the second has a gate for each of its rows.
DELTA_NET = """
    model.layers.0.linear_attn.conv1d.weight F 1 T; model.layers.0.linear_attn.A_log T;
    model.layers.0.linear_attn.dt_bias T; model.layers.0.linear_attn.norm.weight H;
    model.layers.0.linear_attn.out_proj.weight D Q;"""
QWEN3_NEXT_DELTA = (
    "model.layers.0.linear_attn.in_proj_qkvz.weight QKV D; model.layers.0.linear_attn.in_proj_ba.weight T D;"
)
QWEN3_5_DELTA = """
    model.layers.0.linear_attn.in_proj_qkv.weight QKV D; model.layers.0.linear_attn.in_proj_z.weight Q D;
    model.layers.0.linear_attn.in_proj_b.weight T D; model.layers.0.linear_attn.in_proj_a.weight T D;"""
GATED_ATTENTION = (ATTENTION.replace("q_proj.weight Q", "q_proj.weight 2D") + QK_NORM).replace("{l}", "1")
STACKED = "model.layers.{l}.mlp.gate.weight E D; model.layers.{l}.mlp.experts.gate_up_proj E 2M D;"
STACKED += "model.layers.{l}.mlp.experts.down_proj E D M;"
GEMMA3N = (
    GEMMA3.replace("model.", "model.language_model.")
    + """
    model.language_model.layers.{l}.altup.correct_output_scale D; model.language_model.layers.{l}.altup.modality_router.weight T D;
    model.language_model.layers.{l}.altup.router_norm.weight D; model.language_model.layers.{l}.altup.prediction_coefs.weight D T;
    model.language_model.layers.{l}.laurel.linear_left.weight H D; model.language_model.layers.{l}.laurel.linear_right.weight D H;
    model.language_model.layers.{l}.laurel.post_laurel_norm.weight D;
    model.language_model.layers.{l}.per_layer_input_gate.weight H D;
    model.language_model.layers.{l}.per_layer_projection.weight D H;
    model.language_model.layers.{l}.post_per_layer_input_norm.weight D;
    model.language_model.embed_tokens_per_layer.weight V H; model.language_model.per_layer_model_projection.weight H D;
    model.language_model.per_layer_projection_norm.weight H; model.language_model.altup_projections.0.weight D D;
    model.language_model.altup_unembed_projections.0.weight D D; model.embed_vision.embedding.weight V D;"""
)
GGUF_HYBRID = """
    blk.{l}.attn_norm.weight D; blk.{l}.post_attention_norm.weight D; blk.0.attn_qkv.weight QKV D;
    blk.0.attn_gate.weight Q D; blk.0.ssm_a T; blk.0.ssm_conv1d.weight F T; blk.0.ssm_dt.bias T;
    blk.0.ssm_ba.weight T D; blk.0.ssm_norm.weight H; blk.0.ssm_out.weight D Q; blk.1.attn_q.weight 2D D;
    blk.1.attn_k.weight K D; blk.1.attn_v.weight K D; blk.1.attn_output.weight D Q;
    blk.1.attn_q_norm.weight H; blk.1.attn_k_norm.weight H;"""
HYBRID = OUTER + NORMS + GATED_ATTENTION + DELTA_NET
IN_WRAPPER = "model.language_model."
CHATGLM = """
    transformer.embedding.word_embeddings.weight V D; transformer.rotary_pos_emb.inv_freq T;
    transformer.encoder.final_layernorm.weight D; transformer.output_layer.weight V D;
    transformer.encoder.layers.{l}.input_layernorm.weight D; transformer.encoder.layers.{l}.post_attention_layernorm.weight D;
    transformer.encoder.layers.{l}.self_attention.query_key_value.weight QKV D;
    transformer.encoder.layers.{l}.self_attention.query_key_value.bias QKV;
    transformer.encoder.layers.{l}.self_attention.dense.weight D Q;
    transformer.encoder.layers.{l}.mlp.dense_h_to_4h.weight 2F D; transformer.encoder.layers.{l}.mlp.dense_4h_to_h.weight D F;"""
CHATGLM_1 = """
    transformer.word_embeddings.weight V D; transformer.final_layernorm.weight D; transformer.final_layernorm.bias D;
    lm_head.weight V D; transformer.layers.{l}.attention.rotary_emb.inv_freq T;
    transformer.layers.{l}.input_layernorm.weight D; transformer.layers.{l}.input_layernorm.bias D;
    transformer.layers.{l}.post_attention_layernorm.weight D; transformer.layers.{l}.post_attention_layernorm.bias D;
    transformer.layers.{l}.attention.query_key_value.weight 3D D; transformer.layers.{l}.attention.query_key_value.bias 3D;
    transformer.layers.{l}.attention.dense.weight D D; transformer.layers.{l}.attention.dense.bias D;
    transformer.layers.{l}.mlp.dense_h_to_4h.weight F D; transformer.layers.{l}.mlp.dense_h_to_4h.bias F;
    transformer.layers.{l}.mlp.dense_4h_to_h.weight D F; transformer.layers.{l}.mlp.dense_4h_to_h.bias D;"""
CHATGLM_SIZES: dict[str, object] = {
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_layers": 2,
    "tie_word_embeddings": False,
}
FAMILIES = [
    Family("llama", of("llama"), LLAMA, 21),
    Family("llama", of("mistral"), LLAMA, 21, label="mistral"),
    Family("llama", {"architectures": ["YiForCausalLM"], **GQA}, LLAMA, 21, label="yi"),
    Family("qwen2", of("qwen2"), LLAMA + QKV_BIAS, 27),
    Family(
        "qwen2_moe", of("qwen2_moe", num_experts=3), OUTER + NORMS + ATTENTION + QKV_BIAS + MOE + ONE_SHARED, 49, 0, 3
    ),
    Family("qwen3", of("qwen3"), LLAMA + QK_NORM, 25),
    Family("qwen3_moe", of("qwen3_moe", num_experts=3), OUTER + NORMS + ATTENTION + QK_NORM + MOE, 39, 0, 3),
    Family("glm4_moe", of("glm4_moe", MTP_MOE), GLM + GLM_MTP, 38, 29, 3),
    Family("glm4_moe", of("glm4_moe", MTP_MOE), GLM + QK_NORM, 42, 0, 3, label="intellect-3"),
    Family(
        "solar_open",
        of("solar_open", n_routed_experts=3),
        OUTER + NORMS + ATTENTION + MOE + SHARED + CORRECTION,
        43,
        0,
        3,
    ),
    Family("gpt_oss", of("gpt_oss", num_local_experts=3, intermediate_size=6), GPT_OSS, 63, 2, 3),
    Family("llama4", of("llama4", {}, text_config=of("llama4_text", num_local_experts=3)), LLAMA4, 41, 1, 3),
    Family("qwen3_vl_moe", of("qwen3_vl_moe", {}, text_config=of("qwen3_vl_moe_text")), QWEN3_VL_MOE, 39, 1, 3),
    Family("granitemoe", of("granitemoeshared", num_local_experts=3, intermediate_size=6), GRANITE_MOE, 41, 0, 3),
    Family("phi3", of("phi3"), OUTER + NORMS + PHI3, 21),
    Family("mixtral", of("mixtral", num_local_experts=3), OUTER + NORMS + ATTENTION + MIXTRAL_MOE, 35, 0, 3),
    Family("phimoe", of("phimoe", num_local_experts=3), PHIMOE, 49, 0, 3),
    Family("internlm2", of("internlm2"), INTERNLM2, 21),
    Family("nemotron", of("nemotron"), NEMOTRON, 24),
    Family("gemma3n", of("gemma3n", {}, text_config=of("gemma3n_text")), GEMMA3N, 29, 26),
    Family("gemma3n", of("gemma4_text"), GEMMA3, 29, label="4"),
    Family("gguf_hybrid", gguf("qwen3next", num_experts=3), GGUF_OUTER + GGUF_HYBRID + GGUF_MOE, 33, 8, 3),
    Family("gguf_hybrid", gguf("qwen35"), GGUF_OUTER + GGUF_HYBRID + GGUF_MLP, 19, 8, label="dense"),
    Family("qwen3_next", of("qwen3_next", num_experts=3), HYBRID + QWEN3_NEXT_DELTA + MOE + ONE_SHARED, 47, 1, 3),
    Family("qwen3_5", of("qwen3_5_text"), HYBRID + QWEN3_5_DELTA + MLP, 27, 1),
    Family(
        "qwen3_5",
        of("qwen3_5", {}, text_config=of("qwen3_5_text")),
        (HYBRID + QWEN3_5_DELTA + MLP).replace("model.", IN_WRAPPER),
        27,
        1,
        label="multimodal",
    ),
    Family(
        "qwen3_5_moe", of("qwen3_5_moe_text", num_experts=3), HYBRID + QWEN3_5_DELTA + STACKED + ONE_SHARED, 49, 1, 3
    ),
    Family("gemma", of("gemma"), LLAMA, 21),
    Family("gemma2", of("gemma2"), LLAMA + SANDWICH, 25),
    Family("gemma3", of("gemma3_text"), GEMMA3, 29),
    Family("gemma3", of("gemma3", {}, text_config=of("gemma3_text")), MULTIMODAL, 29, 3, label="multimodal"),
    Family("olmo", of("olmo"), OUTER.replace("model.norm.weight D;", "") + ATTENTION + MLP, 16),
    Family(
        "olmo_native",
        {"model_type": "hf_olmo", "d_model": 16, "n_heads": 4, "n_layers": 2, "mlp_hidden_size": 48},
        OLMO_NATIVE,
        16,
    ),
    Family("olmo2", of("olmo2"), OUTER + ATTENTION + MLP + OLMO2, 25),
    Family("deepseek_v2", of("deepseek_v2", n_routed_experts=3), DEEPSEEK + MLA_Q, 37, 0, 3),
    Family("deepseek_v2", of("deepseek_v2", n_routed_experts=3), DEEPSEEK_LITE, 33, 0, 3, label="lite"),
    Family("deepseek_v3", of("deepseek_v3", MTP_MOE), DEEPSEEK_V3, 38, 29, 3),
    Family("gpt2", of("gpt2", GPT2_SIZES), GPT2, 36, 4),
    Family("gpt2", of("gpt2", GPT2_SIZES), GPT2_PREFIXED, 37, 4, label="prefixed"),
    Family("gpt_neox", of("gpt_neox", ENCODER), NEOX, 36, 6),
    Family(
        "falcon", of("falcon", FALCON_SIZES, num_kv_heads=4, new_decoder_architecture=False), FALCON_7B, 20, label="7b"
    ),
    Family(
        "falcon", of("falcon", FALCON_SIZES, num_kv_heads=2, new_decoder_architecture=True), FALCON_40B, 24, label="40b"
    ),
    Family(
        "falcon",
        of("RefinedWeb", {"hidden_size": 16, "n_head": 4, "n_head_kv": 2, "n_layer": 2}),
        FALCON_40B,
        24,
        label="own-code",
    ),
    Family("bert", of("bert", ENCODER), BERT_BODY + POOLER + BERT_HEAD, 45, 4),
    Family("bert", of("bert", ENCODER), (BERT_BODY + POOLER).replace("bert.", ""), 39, 1, label="sentence-encoder"),
    Family("bert", of("bert", ENCODER), OLD_BERT, 39, 1, label="old-names"),
    Family("roberta", of("roberta", ENCODER), BERT_BODY.replace("bert.", "roberta.") + ROBERTA_HEAD, 43, 1),
    Family("gguf", gguf("llama"), GGUF_OUTER + GGUF_ATTENTION + GGUF_NORM + GGUF_MLP + "rope_freqs.weight T;", 21, 1),
    Family("gguf", gguf("qwen2"), GGUF_OUTER + GGUF_ATTENTION + GGUF_BIASES + GGUF_NORM + GGUF_MLP, 27, label="qwen2"),
    Family(
        "gguf",
        gguf("gemma3"),
        GGUF_OUTER + GGUF_ATTENTION + GGUF_QK_NORM + GGUF_NORM + GGUF_SANDWICH + GGUF_MLP,
        29,
        label="gemma3",
    ),
    Family("gguf", gguf("gpt2"), GGUF_OUTER + GGUF_QKV + GGUF_NORM + GGUF_MLP, 21, label="qkv"),
    Family(
        "gguf",
        gguf("qwen2moe", num_experts=3),
        GGUF_OUTER + GGUF_ATTENTION + GGUF_NORM + GGUF_MOE + GGUF_SHARED,
        45,
        0,
        3,
        label="experts",
    ),
    Family(
        "gguf",
        gguf("llama", num_experts=3),
        GGUF_OUTER + GGUF_ATTENTION + GGUF_NORM + GGUF_OLD_MOE,
        35,
        0,
        3,
        label="old-experts",
    ),
    Family(
        "gguf",
        gguf("qwen3moe", num_experts=3, moe_intermediate_size=6),
        GGUF_OUTER + GGUF_ATTENTION + GGUF_NORM + GGUF_FUSED_MOE,
        35,
        0,
        3,
        label="fused-experts",
    ),
    Family("gguf", gguf("deepseek2"), GGUF_OUTER + GGUF_MLA + GGUF_NORM + GGUF_MLP, 27, 4, label="latent"),
    Family("gguf", gguf("bert"), GGUF_BERT, 31, 1, label="bert"),
    Family("gguf_fused", gguf("phi3"), GGUF_OUTER + GGUF_QKV + GGUF_NORM + GGUF_PHI3_MLP, 21),
    Family(
        "gguf_before_mlp",
        gguf("glm4moe", num_experts=3, num_nextn_predict_layers=1),
        GGUF_OUTER + GGUF_ATTENTION + GGUF_SANDWICH.partition(";")[0] + ";" + GGUF_MOE + GGUF_GLM_MTP,
        35,
        4,
        3,
    ),
    Family("gguf_falcon", gguf("falcon"), GGUF_OUTER + GGUF_QKV + GGUF_FALCON_40B, 17, 2),
    Family(
        "chatglm",
        of(
            "chatglm",
            CHATGLM_SIZES,
            kv_channels=4,
            multi_query_attention=True,
            multi_query_group_num=2,
            ffn_hidden_size=24,
        ),
        CHATGLM,
        27,
        1,
    ),
    Family("chatglm", of("chatglm", CHATGLM_SIZES, inner_hidden_size=24), CHATGLM_1, 36, 2, label="1"),
    Family("distilbert", of("distilbert", {"dim": 16, "n_heads": 4, "n_layers": 2, "hidden_dim": 24}), DISTILBERT, 42),
]
BY_ID = {family.id: family for family in FAMILIES}
