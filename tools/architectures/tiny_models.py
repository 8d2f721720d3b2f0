"""Build a tiny random model of any type of transformers, and save it as the library does.

A config of the type is made with its sizes replaced by small ones, under whatever names it has them. Constant parameters (norms of ones,
biases of zeros) are drawn at random: a copy could not be told from another model by them, nor a wrong order be seen.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

WIDTH, NEURONS, LAYERS, HEADS, KV_HEADS, TOKENS, EXPERTS = 64, 128, 3, 4, 2, 192, 4
_SIZES = [
    (WIDTH, "hidden_size n_embd d_model dim n_embed embed_dim emb_dim embedding_size word_embed_proj_dim attention_hidden_size "
    "lru_width encoder_hidden_size decoder_hidden_size embedding_dim rnn_hidden_size"),
    (NEURONS, "intermediate_size n_inner ffn_dim ffn_hidden_size d_ff encoder_ffn_dim decoder_ffn_dim dff n_inner_dim hidden_dim mlp_dim "
    "block_ff_dim ffn_hidden_dim dim_feedforward feed_forward_size feed_forward_proj_dim dim_ff"),
    (LAYERS, "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers depth "
    "max_window_layers num_blocks"),
    (HEADS, "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_encoder_attention_heads "
    "num_decoder_attention_heads"),
    (KV_HEADS, "num_key_value_heads num_kv_heads n_head_kv attention_num_key_value_heads"),
    (16, "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_d_state state_size ssm_state_size linear_key_head_dim linear_value_head_dim "
    "attention_head_dim head_size global_head_dim kv_channels ssm_cfg_d_state"),
    (TOKENS, "vocab_size n_vocab decoder_vocab_size src_vocab_size tgt_vocab_size vocab_size_per_layer_input encoder_vocab_size"),
    (48, "moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
    "shared_intermediate_size expert_dim dense_intermediate_size_mlp moe_shared_intermediate_size"),
    (EXPERTS, "num_experts num_local_experts n_routed_experts moe_num_experts linear_num_value_heads"),
    (2, "num_experts_per_tok num_experts_per_token moe_k top_k linear_num_key_heads moe_topk n_group_size mamba_n_groups n_groups "
    "moe_topk_group"),
    (1, "num_nextn_predict_layers n_group topk_group first_k_dense_replace n_shared_experts num_shared_experts moe_num_shared_experts"),
    (32, "q_lora_rank kv_lora_rank time_step_rank mamba_dt_rank index_head_dim hidden_size_per_layer_input"),
    (128, "max_position_embeddings n_positions max_source_positions max_target_positions n_ctx max_seq_len sliding_window "
    "max_encoder_position_embeddings max_decoder_position_embeddings mamba_d_ssm"),
]
SMALL = {name: size for size, names in _SIZES for name in names.split()}
SMALL |= {"image_size": 32, "patch_size": 8, "num_mel_bins": 16, "num_channels": 3, "type_vocab_size": 2, "num_nextn_predict_layers": 0}
SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "image_token_id": 190, "mamba_d_head": 32}
SMALL |= {"image_token_index": 190, "audio_token_id": 191, "audio_token_index": 191, "video_token_id": 189, "vision_start_token_id": 188}
SMALL |= {"vision_end_token_id": 187, "sep_token_id": 2, "mask_token_id": 3, "cls_token_id": 1, "unk_token_id": 4}

# Where sizes depend on each other in a way of their own.
SPECIAL: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "mamba": {"time_step_rank": 8},
    "falcon_mamba": {"time_step_rank": 8},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "attn_layer_indices": [1]},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2},
    "granitemoehybrid": {
        "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "layer_types": ["mamba", "attention", "mamba"],
        "num_local_experts": 4, "num_experts_per_tok": 2,
    },
    "nemotron_h": {
        "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "attention", "mamba", "moe"], "moe_latent_size": None, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 48,
    },
    "zamba": {
        "mamba_expand": 2, "n_mamba_heads": 2, "mamba_dt_rank": 8, "attention_head_dim": 32, "num_key_value_heads": 4,
        "attn_layer_period": 2, "attn_layer_offset": 1, "layers_block_type": ["mamba", "hybrid", "mamba"],
    },
    "zamba2": {
        "mamba_ngroups": 1, "n_mamba_heads": 8, "num_key_value_heads": 4, "attention_head_dim": 32, "mamba_headdim": 16,
        "layers_block_type": ["mamba", "hybrid", "mamba"], "num_mem_blocks": 1, "use_mem_rope": True, "adapter_rank": 8,
    },
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_dt_rank": 8, "use_mamba_kernels": False},
    "xlstm": {"num_blocks": 3, "chunkwise_kernel": "chunkwise--native_autograd", "step_kernel": "native"},
    "recurrent_gemma": {"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 64, "num_key_value_heads": 1},
    "reformer": {"attn_layers": ["local", "local", "local"], "axial_pos_shape": [8, 16], "axial_pos_embds_dim": [32, 32], "is_decoder": False},
    "t5": {"d_kv": 16}, "albert": {"embedding_size": 32}, "opt": {"word_embed_proj_dim": 64}, "electra": {"embedding_size": 64},
    "funnel": {"block_sizes": [1, 1], "d_head": 16, "d_inner": 128}, "ctrl": {"dff": 128}, "xlnet": {"d_inner": 128, "d_head": 16},
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]], "num_layers": 3},
    "gptj": {"rotary_dim": 8}, "codegen": {"rotary_dim": 8}, "mobilebert": {
        "true_hidden_size": 64, "intra_bottleneck_size": 64, "embedding_size": 32, "use_bottleneck": True, "intermediate_size": 128,
    },
    "longformer": {"attention_window": [8, 8, 8]}, "led": {"attention_window": [8, 8, 8], "max_encoder_position_embeddings": 128},
    "bigbird_pegasus": {"attention_type": "original_full"}, "big_bird": {"attention_type": "original_full"},
    "deepseek_v2": {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy"},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "minimax": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    "whisper": {"max_source_positions": 32, "max_target_positions": 64},
    "dbrx": {"attn_config": {"kv_n_heads": 2}, "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}},
    "convbert": {"head_ratio": 2}, "squeezebert": {"embedding_size": 64}, "fsmt": {"langs": ["en", "de"]},
    "gemma3n": {"laurel_rank": 8, "num_kv_shared_layers": 1}, "gemma3n_text": {"laurel_rank": 8, "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "activation_sparsity_pattern": [0.0, 0.0, 0.0]},
    "luke": {"entity_vocab_size": 32, "entity_emb_size": 32}, "tapas": {"type_vocab_sizes": [3, 8, 2, 2, 8, 8, 4]},
    "data2vec-text": {}, "cpmant": {"prompt_types": 4, "prompt_length": 4, "dim_head": 16}, "rwkv": {"attention_hidden_size": 64},
    "llama4_text": {"intermediate_size_mlp": 128, "intermediate_size": 48, "layer_types": None, "no_rope_layers": [1, 1, 0],
        "moe_layers": [1, 2]},
    "doge": {"is_moe": False}, "jetmoe": {"num_key_value_heads": 2, "num_attention_heads": 4, "kv_channels": 16},
    "longcat_flash": {"ffn_hidden_size": 128, "expert_ffn_hidden_size": 48, "zero_expert_num": 2, "moe_topk": 2, "num_layers": 2},
    "exaone4": {"layer_types": None, "sliding_window_pattern": 3}, "gpt_bigcode": {"multi_query": True},
}  # fmt: skip
transformers.utils.logging.disable_progress_bar()
MAPPINGS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "image": modeling_auto.MODEL_FOR_IMAGE_MAPPING_NAMES,
    "audio": modeling_auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
}


def all_types() -> dict[str, str]:
    """Map every model type to the first kind of task that has it: causal before masked before seq2seq."""
    found: dict[str, str] = {}
    for kind in ("seq2seq", "causal", "masked", "speech", "image", "audio"):
        for name in MAPPINGS[kind]:
            found.setdefault(name, kind)
    return found


def tiny_config(model_type: str) -> Any:
    """Make a config of a type with small sizes."""
    return _shrunk(configuration_auto.CONFIG_MAPPING[model_type], SPECIAL.get(model_type, {}))


def _shrunk(kind: Any, special: dict[str, Any]) -> Any:
    try:
        default = kind()
    except Exception:  # one that needs arguments
        default = kind(**{name: size for name, size in SMALL.items() if name.startswith(("num_", "hidden_size"))})
    small: dict[str, Any] = {}
    for name, value in default.to_dict().items():
        part = getattr(default, name, None)
        if isinstance(part, transformers.PretrainedConfig):
            small[name] = _shrunk(type(part), SPECIAL.get(part.model_type, {})).to_dict()
        elif name in SMALL and (value is not None or name in ("n_inner", "head_dim", "max_window_layers")):
            if name in ("n_inner", "head_dim") and value is None:
                continue
            if isinstance(value, (list, tuple)):
                continue
            if name == "num_key_value_heads" and value == _heads(default) and "num_key_value_heads" not in special:
                small[name] = HEADS
            elif value != 0 or name.endswith("token_id"):
                small[name] = SMALL[name]
    return kind(**{**small, **special})


def _heads(config: Any) -> int | None:
    return getattr(config, "num_attention_heads", None)


def model_class(model_type: str, kind: str) -> Any:
    """Return the class of a type for a kind of task."""
    name = MAPPINGS[kind][model_type]
    return getattr(transformers, name if isinstance(name, str) else name[0])


def tiny_model(model_type: str, kind: str, seed: int) -> Any:
    """Make a tiny model with random parameters."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_class(model_type, kind)(tiny_config(model_type)).eval().float()
    made = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point() or not parameter.requires_grad:
                continue
            if parameter.ndim < 2 or float(parameter.std()) < 1e-6:
                parameter += 0.1 * torch.randn(parameter.shape, generator=made)
    return model


def save(model: Any, folder: Path) -> Path:
    """Save a model as the library does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return folder


def logits(model: Any, kind: str) -> torch.Tensor:
    """Return what a model computes for a fixed input: its logits, or its last hidden state."""
    made = torch.Generator().manual_seed(7)
    config = model.config
    ids = torch.randint(5, TOKENS - 10, (2, 16), generator=made)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind in ("causal", "masked"):
            found = model(input_ids=ids)
        elif kind == "seq2seq":
            found = model(input_ids=ids, decoder_input_ids=ids[:, :8])
        elif kind == "speech":
            frames = 2 * getattr(config, "max_source_positions", 32)
            sound = torch.randn((2, getattr(config, "num_mel_bins", 16), frames), generator=made)
            found = model(input_features=sound, decoder_input_ids=ids[:, :8])
        elif kind == "image":
            size = getattr(config, "image_size", 32)
            size = size if isinstance(size, int) else 32
            found = model(pixel_values=torch.randn((2, getattr(config, "num_channels", 3), size, size), generator=made))
        else:
            found = model(torch.randn((2, 1600), generator=made))
    out = found.logits if getattr(found, "logits", None) is not None else found.last_hidden_state
    return torch.as_tensor(out)
