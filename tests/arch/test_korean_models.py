"""Korean foundation models and their kin: every tensor of their published names has a role."""

import pytest

from kinprint.arch import name_tensors

WIDTH, LAYERS, EXPERTS, VOCABULARY = 32, 3, 4, 50
NORMS = {"input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}
ATTENTION = {f"self_attn.{which}_proj": (rows, WIDTH) for which, rows in (("q", 32), ("k", 16), ("v", 16), ("o", 32))}
QK_NORMS = {"self_attn.q_norm": (8,), "self_attn.k_norm": (8,)}
LATENT = {
    "self_attn.q_a_proj": (12, WIDTH),
    "self_attn.q_a_layernorm": (12,),
    "self_attn.q_b_proj": (48, 12),
    "self_attn.kv_a_proj_with_mqa": (12, WIDTH),
    "self_attn.kv_a_layernorm": (8,),
    "self_attn.kv_b_proj": (64, 8),
    "self_attn.o_proj": (WIDTH, 32),
}
MLP = {"mlp.gate_proj": (64, WIDTH), "mlp.up_proj": (64, WIDTH), "mlp.down_proj": (WIDTH, 64)}
BEFORE_AND_AFTER = {"pre_mlp_layernorm": (WIDTH,), "post_mlp_layernorm": (WIDTH,)}
GQA = {"num_attention_heads": 4, "num_key_value_heads": 2}


def experts():
    one = {"gate_proj": (16, WIDTH), "up_proj": (16, WIDTH), "down_proj": (WIDTH, 16)}
    found = {f"mlp.experts.{n}.{part}": shape for n in range(EXPERTS) for part, shape in one.items()}
    found |= {f"mlp.shared_experts.{part}": shape for part, shape in one.items()}
    return found | {"mlp.gate": (EXPERTS, WIDTH), "mlp.gate.e_score_correction_bias": (EXPERTS,)}


MODELS = {  # repository: model type and class, parts of a layer, parts of the first layer if that is dense
    "upstage/Solar-Open-100B": ("solar_open", "SolarOpenForCausalLM", NORMS | ATTENTION | experts(), None),
    "skt/A.X-K1": ("axk1", "AXK1ForCausalLM", NORMS | LATENT | {"post_mlp_layernorm": (WIDTH,)} | experts(), MLP),
    "skt/A.X-4.0": ("qwen2", "Qwen2ForCausalLM", NORMS | ATTENTION | MLP, None),
    "naver-hyperclovax/HyperCLOVAX-SEED-Think-14B": (
        "hyperclovax",
        "HyperCLOVAXForCausalLM",
        NORMS | ATTENTION | MLP | {"post_norm1": (WIDTH,), "post_norm2": (WIDTH,)},
        None,
    ),
    "naver-hyperclovax/HyperCLOVAX-SEED-Text-Instruct-1.5B": (
        "llama",
        "LlamaForCausalLM",
        NORMS | ATTENTION | MLP,
        None,
    ),
    "LGAI-EXAONE/EXAONE-4.0-32B": (
        "exaone4",
        "Exaone4ForCausalLM",
        {"post_attention_layernorm": (WIDTH,), "post_feedforward_layernorm": (WIDTH,)} | ATTENTION | QK_NORMS | MLP,
        None,
    ),
    "LGAI-EXAONE/K-EXAONE-236B-A23B": (
        "exaone_moe",
        "ExaoneMoEForCausalLM",
        NORMS | ATTENTION | QK_NORMS | experts(),
        MLP,
    ),
    "kakaocorp/kanana-1.5-8b-instruct-2505": ("llama", "LlamaForCausalLM", NORMS | ATTENTION | MLP, None),
    "kakaocorp/kanana-2-30b-a3b-instruct": ("deepseek_v3", "DeepseekV3ForCausalLM", NORMS | LATENT | experts(), MLP),
    "NC-AI-consortium-VAETKI/VAETKI": (
        "vaetki",
        "VaetkiForCausalLM",
        NORMS | BEFORE_AND_AFTER | LATENT | experts(),
        MLP,
    ),
}


def names(repository):
    _, _, layer, dense = MODELS[repository]
    found = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    found["model.norm.weight"] = (WIDTH,)
    for number in range(LAYERS):
        parts = layer
        if dense and number == 0:
            parts = {part: shape for part, shape in layer.items() if not part.startswith("mlp.")} | dense
        for part, shape in parts.items():
            end = "" if part.endswith("_bias") else ".weight"
            found[f"model.layers.{number}.{part}{end}"] = shape
    return found


@pytest.mark.parametrize("repository", MODELS)
def test_every_published_name_has_a_role(repository):
    kind, class_, layer, _ = MODELS[repository]
    config = {"model_type": kind, "architectures": [class_], "hidden_size": WIDTH, "num_hidden_layers": LAYERS, **GQA}
    config |= {"n_routed_experts": EXPERTS} if "mlp.gate" in layer else {}
    stored = names(repository)
    naming = name_tensors(config, stored)
    assert (naming.guessed, naming.unmapped) == (False, ())
    assert {item.name for item in naming.excluded} <= {name for name in stored if name.endswith("correction_bias")}
    assert naming.layers == LAYERS


def test_the_four_norms_of_vaetki_are_told_apart():
    naming = name_tensors({"model_type": "vaetki"}, names("NC-AI-consortium-VAETKI/VAETKI"))
    roles = {tensor.name.split(".")[-2]: tensor.role.value for tensor in naming.tensors if tensor.layer == 1}
    assert roles["input_layernorm"] == "input_norm"
    assert roles["post_attention_layernorm"] == "attention_output_norm"
    assert roles["pre_mlp_layernorm"] == "post_attention_norm"
    assert roles["post_mlp_layernorm"] == "mlp_output_norm"
