"""List tensor names, shapes, shard counts and configs of the studied models.

Solar's and GLM's dimensions were published with the first analysis and reproduce the published parameter counts to the last
unit; the others are those of the models' public configs. INTELLECT-3's number of shards is not published: files of 5 GB
are assumed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kinprint.formats.safetensors.writer import TensorSpec
from kinprint.lab.replicas.published_figures import STORED, published

Named = Iterator[tuple[str, TensorSpec]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions. ``shared`` counts shared experts, ``dense`` the first layers without experts."""

    repo: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    shards: int
    head_dim: int = 128
    experts: int = 0
    active: int = 0
    moe_intermediate: int = 0
    shared: int = 0
    dense: int = 0
    mtp: int = 0
    biased: str = ""  # projections with a bias: letters of "qkvo"
    qk_norm: bool = False
    tied: bool = False
    config: dict[str, Any] = field(default_factory=dict)


_COMMON: dict[str, Any] = {"hidden_act": "silu", "rms_norm_eps": 1e-05}
_GLM_BASE = _COMMON | {"attention_bias": True, "head_dim": 128, "norm_topk_prob": True, "use_qk_norm": False}
_SOLAR_EXTRA = _GLM_BASE | {"attention_bias": False}


def _read() -> dict[str, Shape]:
    """Return the shapes of all studied models, from models.json."""
    told = orjson.loads((Path(__file__).parent / "models.json").read_bytes())
    for shape in told.values():
        if "config" in shape:
            shape["config"] = _COMMON | shape["config"]
    return {name: Shape(**shape) for name, shape in told.items()}


SHAPES: dict[str, Shape] = _read()
NAMES: tuple[str, ...] = tuple(SHAPES)
REPOS: dict[str, str] = {name: shape.repo for name, shape in SHAPES.items()}


def config_of(name: str) -> dict[str, Any]:
    """Return a model's config.json. Solar's and GLM's hold every published key with its published value."""
    shape = SHAPES[name]
    if shape.family == "glm":
        stated = published()["origin"]["config"]["A" if name == "Solar" else "B"]["config_summary"]
        found = (_SOLAR_EXTRA if name == "Solar" else _GLM_BASE) | stated
        if not shape.mtp:
            found.pop("num_nextn_predict_layers", None)
        return dict(sorted(found.items()))
    found = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "vocab_size": shape.vocab,
    } | shape.config
    if shape.family == "mixtral":
        found |= {"num_local_experts": shape.experts, "num_experts_per_tok": shape.active}
    if shape.family == "deepseek":
        found |= {
            "first_k_dense_replace": shape.dense,
            "moe_intermediate_size": shape.moe_intermediate,
            "n_routed_experts": shape.experts,
            "n_shared_experts": shape.shared,
            "num_experts_per_tok": shape.active,
        }
    return dict(sorted(found.items()))


@cache
def tensors_of(name: str) -> Mapping[str, TensorSpec]:
    """Return every tensor of a model, in forward order."""
    shape = SHAPES[name]
    if shape.family == "internlm2":
        return dict(_internlm2(shape))
    found = {"model.embed_tokens.weight": _bf16(shape.vocab, shape.hidden)}
    for layer in range(shape.layers + shape.mtp):
        found.update(_layer(shape, layer))
    found["model.norm.weight"] = _bf16(shape.hidden)
    if shape.config.get("lm_head_bias"):
        found["model.norm.bias"] = _bf16(shape.hidden)
        found["lm_head.bias"] = _bf16(shape.vocab)
    if not shape.tied:
        found["lm_head.weight"] = _bf16(shape.vocab, shape.hidden)
    return found


def norm_name(name: str, kind: str, layer: int) -> str:
    """Return the name of a block norm's weight; kind is ``input_norm`` or ``post_attention_norm``."""
    other = SHAPES[name].family == "internlm2"
    stored = {"input_norm": "attention_norm", "post_attention_norm": "ffn_norm"}[kind] if other else STORED[kind]
    return f"model.layers.{layer}.{stored}.weight"


@cache
def _bf16(*sides: int) -> TensorSpec:
    return TensorSpec("BF16", sides)


def _layer(shape: Shape, layer: int) -> Named:
    prefix = f"model.layers.{layer}."
    true_layernorm = bool(shape.config.get("lm_head_bias"))  # Phi: weight and bias, where the others scale only
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}{norm}.weight", _bf16(shape.hidden)
        if true_layernorm:
            yield f"{prefix}{norm}.bias", _bf16(shape.hidden)
    yield from _latent_attention(shape, prefix) if shape.family == "deepseek" else _attention(shape, prefix)
    if shape.family == "mixtral":
        yield f"{prefix}block_sparse_moe.gate.weight", _bf16(shape.experts, shape.hidden)
        for expert in range(shape.experts):
            yield from _numbered(shape, f"{prefix}block_sparse_moe.experts.{expert}.")
    elif shape.experts and layer >= shape.dense:
        yield from _experts(shape, f"{prefix}mlp.")
    else:
        yield from _gated(shape, f"{prefix}mlp.", shape.intermediate)
    if layer >= shape.layers:
        yield f"{prefix}embed_tokens.weight", _bf16(shape.vocab, shape.hidden)
        yield f"{prefix}enorm.weight", _bf16(shape.hidden)
        yield f"{prefix}hnorm.weight", _bf16(shape.hidden)
        yield f"{prefix}eh_proj.weight", _bf16(shape.hidden, 2 * shape.hidden)
        yield f"{prefix}shared_head.norm.weight", _bf16(shape.hidden)
        yield f"{prefix}shared_head.head.weight", _bf16(shape.vocab, shape.hidden)


def _attention(shape: Shape, prefix: str) -> Named:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    width = shape.hidden
    for part, rows, columns in (("q", queries, width), ("k", keys, width), ("v", keys, width), ("o", width, queries)):
        yield f"{prefix}self_attn.{part}_proj.weight", _bf16(rows, columns)
        if part in shape.biased:
            yield f"{prefix}self_attn.{part}_proj.bias", _bf16(rows)
    if shape.qk_norm:
        yield f"{prefix}self_attn.q_norm.weight", _bf16(shape.head_dim)
        yield f"{prefix}self_attn.k_norm.weight", _bf16(shape.head_dim)


def _latent_attention(shape: Shape, prefix: str) -> Named:
    rank, value = shape.config["kv_lora_rank"], shape.config["v_head_dim"]
    plain, rotary = shape.config["qk_nope_head_dim"], shape.config["qk_rope_head_dim"]
    yield f"{prefix}self_attn.q_proj.weight", _bf16(shape.heads * (plain + rotary), shape.hidden)
    yield f"{prefix}self_attn.kv_a_proj_with_mqa.weight", _bf16(rank + rotary, shape.hidden)
    yield f"{prefix}self_attn.kv_a_layernorm.weight", _bf16(rank)
    yield f"{prefix}self_attn.kv_b_proj.weight", _bf16(shape.heads * (plain + value), rank)
    yield f"{prefix}self_attn.o_proj.weight", _bf16(shape.hidden, shape.heads * value)


def _gated(shape: Shape, prefix: str, width: int) -> Named:
    yield f"{prefix}gate_proj.weight", _bf16(width, shape.hidden)
    yield f"{prefix}up_proj.weight", _bf16(width, shape.hidden)
    yield f"{prefix}down_proj.weight", _bf16(shape.hidden, width)


def _experts(shape: Shape, prefix: str) -> Named:
    yield f"{prefix}gate.weight", _bf16(shape.experts, shape.hidden)
    if shape.family == "glm":
        yield f"{prefix}gate.e_score_correction_bias", TensorSpec("F32", (shape.experts,))
    for expert in range(shape.experts):
        yield from _gated(shape, f"{prefix}experts.{expert}.", shape.moe_intermediate)
    yield from _gated(shape, f"{prefix}shared_experts.", shape.shared * shape.moe_intermediate)


def _numbered(shape: Shape, prefix: str) -> Named:
    wide = _bf16(shape.intermediate, shape.hidden)
    for part, spec in (("w1", wide), ("w2", _bf16(shape.hidden, shape.intermediate)), ("w3", wide)):
        yield f"{prefix}{part}.weight", spec


def _internlm2(shape: Shape) -> Named:
    queries = shape.heads * shape.head_dim
    yield "model.tok_embeddings.weight", _bf16(shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        yield f"{prefix}attention_norm.weight", _bf16(shape.hidden)
        yield f"{prefix}attention.wqkv.weight", _bf16(queries + 2 * shape.kv_heads * shape.head_dim, shape.hidden)
        yield f"{prefix}attention.wo.weight", _bf16(shape.hidden, queries)
        yield f"{prefix}ffn_norm.weight", _bf16(shape.hidden)
        yield from _numbered(shape, f"{prefix}feed_forward.")
    yield "model.norm.weight", _bf16(shape.hidden)
    yield "output.weight", _bf16(shape.vocab, shape.hidden)
