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
# What a model is run on where the inputs of its kind do not fit: "drawn" numbers, "tokens" or "ones" of a shape, or the values.
INPUTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("special_inputs.json").read_text())
transformers.utils.logging.disable_progress_bar()
SEVERAL_TOWERS = (
    "clip", "siglip", "llava", "paligemma", "qwen2_5_vl", "qwen3_vl", "idefics3", "internvl", "mistral3", "glm4v",
    "llava_onevision", "qwen2_5_omni_thinker", "vision-encoder-decoder",
)  # fmt: skip
MAPPINGS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "audio": {
        **modeling_auto.MODEL_FOR_CTC_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    },
    "image": modeling_auto.MODEL_FOR_IMAGE_MAPPING_NAMES,
    # some of the models that are made of several towers; the others are made of the same ones
    "towers": {
        name: {**modeling_auto.MODEL_MAPPING_NAMES, **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES}[name]
        for name in SEVERAL_TOWERS
    },
    # encoders of pictures and sound that multimodal models are made of, each a type of its own
    "tower": {
        name: made
        for name, made in modeling_auto.MODEL_MAPPING_NAMES.items()
        if name.endswith(("_vision", "_vision_model", "_audio", "_encoder"))
    },
}


def all_types() -> dict[str, str]:
    """Map every model type to the first kind of task that has it: causal before masked before seq2seq."""
    found: dict[str, str] = {}
    for kind in ("seq2seq", "causal", "masked", "speech", "audio", "image", "tower", "towers"):
        for name in MAPPINGS[kind]:
            found.setdefault(name, kind)
    return found


def tiny_config(model_type: str, made: Any) -> Any:
    """Make a config with small sizes, of the kind that a class takes: of a multimodal type it may be the language part's."""
    kind = configuration_auto.CONFIG_MAPPING[model_type]
    wanted = made.config_class or kind
    if not issubclass(kind, wanted):
        model_type = wanted.model_type
        kind = wanted
    return _shrunk(kind, SPECIAL.get(model_type, {}))


def _shrunk(kind: Any, special: dict[str, Any]) -> Any:
    default = kind(**special.get("_default", {}))
    small: dict[str, Any] = {}
    nested = {"_default"}
    for name, value in default.to_dict().items():
        part = default.__dict__.get(name)
        if isinstance(part, transformers.PretrainedConfig):
            inner = special.get(name) if isinstance(special.get(name), dict) else {}
            small[name] = _shrunk(type(part), {**SPECIAL.get(part.model_type, {}), **inner}).to_dict()
            nested.add(name)
        elif name in SMALL and (value is not None or name in ("n_inner", "head_dim", "max_window_layers")):
            if name in ("n_inner", "head_dim") and value is None:
                continue
            if isinstance(value, (list, tuple)):
                continue
            if name == "num_key_value_heads" and value == _heads(default) and "num_key_value_heads" not in special:
                small[name] = HEADS
            elif value != 0 or name.endswith("token_id"):
                small[name] = SMALL[name]
    return kind(**{**small, **{key: value for key, value in special.items() if key not in nested}})


def _heads(config: Any) -> int | None:
    return config.__dict__.get("num_attention_heads")


def model_class(model_type: str, kind: str) -> Any:
    """Return the class of a type for a kind of task."""
    name = MAPPINGS[kind][model_type]
    return getattr(transformers, name if isinstance(name, str) else name[0])


def tiny_model(model_type: str, kind: str, seed: int) -> Any:
    """Make a tiny model with random parameters."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model_class(model_type, kind)
        model = made(tiny_config(model_type, made)).eval().float()
    draws = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point() or not parameter.requires_grad:
                continue
            if parameter.ndim < 2 or float(parameter.std()) < 1e-6:
                parameter += 0.1 * torch.randn(parameter.shape, generator=draws)
    return model


def save(model: Any, folder: Path) -> Path:
    """Save a model as the library does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return folder


ENCODERS = ("audio", "image", "tower")  # kinds that hand out their last hidden state


def _inputs(config: Any, kind: str, ids: torch.Tensor, draw: Any) -> list[dict[str, Any]]:
    """List inputs that a model of a kind may take, the likeliest first: encoders have no common signature."""
    size, patch = (config.__dict__.get(name, usual) for name, usual in (("image_size", 32), ("patch_size", 8)))
    size, patch = (value if isinstance(value, int) else usual for value, usual in ((size, 32), (patch, 8)))
    channels = config.__dict__.get("num_channels") or config.__dict__.get("in_channels") or 3
    mel = config.__dict__.get("num_mel_bins") or config.__dict__.get("input_feat_size") or 16
    frames = 2 * config.__dict__.get("max_source_positions", 32)
    thin = draw(32, channels * 2 * patch * patch)
    grid = torch.tensor([[1, 4, 4], [1, 4, 4]])
    pictures = [
        {"pixel_values": draw(2, channels, size, size)},
        {"pixel_values": draw(2, 4, channels, size, size)},
        {"pixel_values": draw(2, 8, channels, size, size)},
        {"hidden_states": thin, "grid_thw": grid},
        {"pixel_values": thin, "grid_thw": grid},
        {"pixel_values": draw(2, 16, channels * patch * patch), "pixel_attention_mask": torch.ones(2, 16),
         "spatial_shapes": torch.tensor([[4, 4], [4, 4]])},
        {"pixel_values": draw(2, channels, size, size), "image_sizes": torch.tensor([[size, size]] * 2)},
    ]  # fmt: skip
    mask = torch.ones(2, 64, dtype=torch.bool)
    sound = [
        {"input_features": draw(2, 64, mel), "attention_mask": mask},
        {"input_features": draw(2, 64, mel)},
        {"input_features": draw(2, 64, 160), "attention_mask": mask},
        {"input_features": draw(2, mel, frames)},
        {"input_values": draw(2, 1600)},
        {"input_values": draw(2, config.__dict__.get("max_length") or 64, mel)},
        {"audio_mel": draw(2, 64, mel), "audio_mel_mask": ~mask},
        {"input_values": draw(2, 1, 1600)},
    ]  # fmt: skip
    if kind == "speech":
        return [{**each, "decoder_input_ids": ids[:, :8]} for each in sound]
    return pictures if kind == "image" else sound + pictures if kind == "audio" else pictures + sound


def _given(value: Any, ids: torch.Tensor, made: torch.Generator) -> Any:
    """Return one input as special_inputs.json describes it."""
    draws = {
        "drawn": lambda shape: torch.randn(shape, generator=made),
        "tokens": lambda shape: torch.randint(5, TOKENS - 10, shape, generator=made),
        "ones": lambda shape: torch.ones(shape, dtype=torch.bool),
    }
    if isinstance(value, dict):
        what, shape = next(iter(value.items()))
        if what in draws:
            return draws[what](shape)
        return {name: _given(each, ids, made) for name, each in value.items()}
    if isinstance(value, list) and isinstance(value[0], dict):
        return [_given(each, ids, made) for each in value]
    return ids if value == "tokens" else torch.tensor(value) if isinstance(value, list) else value


def logits(model: Any, kind: str, model_type: str) -> torch.Tensor:
    """Return what a model computes for a fixed input: its logits, or its last hidden state."""
    made = torch.Generator().manual_seed(7)
    ids = torch.randint(5, TOKENS - 10, (2, 16), generator=made)
    asked = {
        "causal": [{"input_ids": ids, "use_cache": False}],
        "towers": [{"input_ids": ids, "use_cache": False}],
        "masked": [{"input_ids": ids}],
        "seq2seq": [{"input_ids": ids, "decoder_input_ids": ids[:, :8]}, {"input_ids": ids}],
    }
    tried = asked.get(kind) or _inputs(model.config, kind, ids, lambda *sizes: torch.randn(sizes, generator=made))
    if model_type in INPUTS:
        tried = [{name: _given(value, ids, made) for name, value in INPUTS[model_type].items()}]
    problem: Exception | None = None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in tried:
            torch.manual_seed(7)  # some hide parts of a picture at random
            try:
                found = model(**given)
            except Exception as error:  # noqa: BLE001 - the next form of input; the first says most
                problem = problem or error
                continue
            return _main_output(found)
    raise problem or ValueError("no input is known for this kind")


def _main_output(found: Any) -> torch.Tensor:
    if isinstance(found, torch.Tensor):
        return found
    names = ("logits", "logits_per_text", "asr_last_hidden_state", "last_hidden_state")
    values = [getattr(found, name, None) for name in names]
    return next(each for each in (*values, *found.to_tuple()) if isinstance(each, torch.Tensor))
