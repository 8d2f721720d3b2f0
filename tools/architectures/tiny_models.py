"""Build a tiny random model of any type of transformers, and save it as the library does.

A config of the type is made with its sizes replaced by small ones, under whatever names it has them. Constant parameters (norms of
ones, biases of zeros) are drawn at random: a copy could not be told from another model by them, nor a wrong order be seen.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

WIDTH, NEURONS, LAYERS, HEADS, KV_HEADS, TOKENS, EXPERTS = 64, 128, 3, 4, 2, 192, 4
_NAMES = """
    WIDTH: hidden_size n_embd d_model dim n_embed embed_dim emb_dim embedding_size word_embed_proj_dim
        attention_hidden_size lru_width encoder_hidden_size decoder_hidden_size embedding_dim rnn_hidden_size
    NEURONS: intermediate_size n_inner ffn_dim ffn_hidden_size d_ff encoder_ffn_dim decoder_ffn_dim dff n_inner_dim
        hidden_dim mlp_dim block_ff_dim ffn_hidden_dim dim_feedforward feed_forward_size feed_forward_proj_dim dim_ff
    LAYERS: num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_encoder_layers
        num_decoder_layers depth max_window_layers num_blocks
    HEADS: num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        num_encoder_attention_heads num_decoder_attention_heads
    KV_HEADS: num_key_value_heads num_kv_heads n_head_kv attention_num_key_value_heads
    16: head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_d_state state_size ssm_state_size
        linear_key_head_dim linear_value_head_dim attention_head_dim head_size global_head_dim kv_channels
        ssm_cfg_d_state
    TOKENS: vocab_size n_vocab decoder_vocab_size src_vocab_size tgt_vocab_size vocab_size_per_layer_input
        encoder_vocab_size
    48: moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size
        moe_shared_expert_intermediate_size shared_intermediate_size expert_dim dense_intermediate_size_mlp
        moe_shared_intermediate_size
    EXPERTS: num_experts num_local_experts n_routed_experts moe_num_experts linear_num_value_heads
    2: num_experts_per_tok num_experts_per_token moe_k top_k linear_num_key_heads moe_topk n_group_size mamba_n_groups
        n_groups moe_topk_group
    1: num_nextn_predict_layers n_group topk_group first_k_dense_replace n_shared_experts num_shared_experts
        moe_num_shared_experts
    32: q_lora_rank kv_lora_rank time_step_rank mamba_dt_rank index_head_dim hidden_size_per_layer_input
    128: max_position_embeddings n_positions max_source_positions max_target_positions n_ctx max_seq_len
        sliding_window max_encoder_position_embeddings max_decoder_position_embeddings mamba_d_ssm
"""
_SIZES = {"WIDTH": WIDTH, "NEURONS": NEURONS, "LAYERS": LAYERS, "HEADS": HEADS, "KV_HEADS": KV_HEADS, "TOKENS": TOKENS}
_SIZES |= {"EXPERTS": EXPERTS}
SMALL: dict[str, int] = {}
for _entry in _NAMES.replace("\n        ", " ").strip().splitlines():
    _size, _, _names = _entry.partition(":")
    SMALL |= dict.fromkeys(_names.split(), _SIZES.get(_size.strip()) or int(_size))
SMALL |= {
    "image_size": 32,
    "patch_size": 8,
    "num_mel_bins": 16,
    "num_channels": 3,
    "type_vocab_size": 2,
    "num_nextn_predict_layers": 0,
}
SMALL |= {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "image_token_id": 190,
    "mamba_d_head": 32,
}
SMALL |= {
    "image_token_index": 190,
    "audio_token_id": 191,
    "audio_token_index": 191,
    "video_token_id": 189,
    "vision_start_token_id": 188,
}
SMALL |= {"vision_end_token_id": 187, "sep_token_id": 2, "mask_token_id": 3, "cls_token_id": 1, "unk_token_id": 4}

# Where sizes depend on each other in a way of their own.
SPECIAL: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("special_sizes.json").read_text())
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
    default = kind()
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
            found = model(input_ids=ids, use_cache=False) if kind == "causal" else model(input_ids=ids)
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
