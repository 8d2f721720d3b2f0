"""A writer of GGUF files without the `gguf` package: conversions of little models as llama.cpp makes them, or sparse giants.

The quantisers are plain ones: each block's scale is its largest magnitude over the largest code. llama.cpp searches for better
scales; the formats are the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.gguf.blocks import TYPES
from kinprint.formats.safetensors.writer import to_bf16

Array = NDArray[Any]
Value = int | float | str | bool | Sequence[str] | Sequence[int] | Sequence[float]
NUMBERS = {each.name: number for number, each in TYPES.items()}
ALIGNMENT = 32


def _text(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    """Return a metadata value with its type: u32, i32 if negative, f32, bool, string, or an array of one of these."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<Ii", 5, value) if value < 0 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    first = value[0] if value else 0
    kind, form = (8, "") if isinstance(first, str) else (6, "f") if isinstance(first, float) else (5, "i")
    head = struct.pack("<IIQ", 9, kind, len(value))
    if kind == 8:
        return head + b"".join(_text(str(item)) for item in value)
    return head + struct.pack(f"<{len(value)}{form}", *value)


def header(
    metadata: Mapping[str, Value], tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, version: int = 3
) -> tuple[bytes, dict[str, int], int]:
    """Return the header, padded, each tensor's place in the file, and the size of the file."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    places: dict[str, int] = {}
    table: list[bytes] = []
    at = 0
    for name, (dtype, shape) in tensors.items():
        kind = TYPES[NUMBERS[dtype]]
        places[name] = at
        table.append(_text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1]))
        table.append(struct.pack("<IQ", NUMBERS[dtype], at))
        at += int(np.prod(shape, dtype=np.int64)) // kind.elements * kind.size
        at += -at % ALIGNMENT
    head += b"".join(table)
    head += bytes(-len(head) % ALIGNMENT)
    return head, {name: len(head) + place for name, place in places.items()}, len(head) + at


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, tuple[str, Array]], *, version: int = 3
) -> None:
    """Write a whole file. Values are encoded as the type says; bytes (uint8, for a quantised type) are taken as they are."""
    stored = {name: (dtype, *_stored(dtype, values)) for name, (dtype, values) in tensors.items()}
    head, places, size = header(
        metadata, {n: (dtype, shape) for n, (dtype, shape, _) in stored.items()}, version=version
    )
    with path.open("wb") as stream:
        stream.truncate(size)
        stream.write(head)
        for name, (_, _, raw) in stored.items():
            stream.seek(places[name])
            stream.write(raw)


def write_sparse(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    filled: Mapping[str, Array],
) -> int:
    """Write the header and some tensors' float32 values, leaving holes for the rest; return the apparent size."""
    head, places, size = header(metadata, tensors)
    with path.open("wb") as stream:
        stream.truncate(size)
        stream.write(head)
        for name, values in filled.items():
            stream.seek(places[name])
            stream.write(encode(values, tensors[name][0]))
    return size


def _stored(dtype: str, values: Array) -> tuple[tuple[int, ...], bytes]:
    kind = TYPES[NUMBERS[dtype]]
    if values.dtype == np.uint8 and kind.elements > 1:
        return (*values.shape[:-1], values.shape[-1] // kind.size * kind.elements), values.tobytes()
    return values.shape, encode(values, dtype)


# -- quantisers ----------------------------------------------------------------------------------------------------------


def encode(values: Array, dtype: str) -> bytes:
    """Return values in the bytes of a tensor type.

    Raises
    ------
    KeyError
        If there is no quantiser for the type.
    """
    if dtype in _PLAIN:
        return np.ascontiguousarray(values, dtype=_PLAIN[dtype]).tobytes()
    if dtype == "BF16":
        return to_bf16(values).tobytes()
    elements = TYPES[NUMBERS[dtype]].elements
    with np.errstate(divide="ignore", invalid="ignore"):
        return _QUANTISERS[dtype](np.ascontiguousarray(values, dtype=np.float32).reshape(-1, elements)).tobytes()


_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


def _codes(values: Array, steps: Array) -> Array:
    """Return values over steps, rounded; 0 where the step is."""
    return np.rint(np.where(steps == 0, 0.0, values / steps))


def _halves(values: Array) -> Array:
    """Return float16 numbers as bytes (n, 2)."""
    return values.astype("<f2").view(np.uint8).reshape(len(values), 2)


def _q8_0(blocks: Array) -> Array:
    steps = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    codes = _codes(blocks, steps.astype(np.float32)[:, None]).clip(-127, 127).astype(np.int8)
    return np.concatenate([_halves(steps), codes.view(np.uint8)], axis=1)


def _q4_0(blocks: Array) -> Array:
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    steps = (largest / -8).astype(np.float16)
    codes = (_codes(blocks, steps.astype(np.float32)[:, None]) + 8).clip(0, 15).astype(np.uint8)
    return np.concatenate([_halves(steps), codes[:, :16] | (codes[:, 16:] << 4)], axis=1)


def _q4_k(blocks: Array) -> Array:
    groups = blocks.reshape(-1, 8, 32)
    least = np.maximum(0.0, -groups.min(axis=2))
    widths = (groups.max(axis=2) + least) / 15
    unit, unit_least = ((each.max(axis=1) / 63).astype(np.float16) for each in (widths, least))
    scale = _codes(widths, unit.astype(np.float32)[:, None]).clip(0, 63).astype(np.uint8)
    minimum = _codes(least, unit_least.astype(np.float32)[:, None]).clip(0, 63).astype(np.uint8)
    steps = unit.astype(np.float32)[:, None] * scale
    shifted = groups + (unit_least.astype(np.float32)[:, None] * minimum)[..., None]
    codes = _codes(shifted, steps[..., None]).clip(0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    top = scale[:, 4:], minimum[:, 4:]
    packed = [
        scale[:, :4] | ((top[0] >> 4) << 6),
        minimum[:, :4] | ((top[1] >> 4) << 6),
        (top[0] & 15) | ((top[1] & 15) << 4),
    ]
    quants = (codes[:, :, 0] | (codes[:, :, 1] << 4)).reshape(-1, 128)
    return np.concatenate([_halves(unit), _halves(unit_least), *packed, quants], axis=1)


def _q6_k(blocks: Array) -> Array:
    groups = blocks.reshape(-1, 16, 16)
    widths = np.abs(groups).max(axis=2) / 31
    unit = (widths.max(axis=1) / 127).astype(np.float16)
    scale = _codes(widths, unit.astype(np.float32)[:, None]).clip(0, 127).astype(np.int8)
    steps = unit.astype(np.float32)[:, None] * scale
    codes = (_codes(groups, steps[..., None]).clip(-32, 31) + 32).astype(np.uint8)
    low = (codes & 15).reshape(-1, 2, 2, 64)
    high = (codes >> 4).reshape(-1, 2, 4, 32)
    first = (low[:, :, 0] | (low[:, :, 1] << 4)).reshape(-1, 128)
    second = (high[:, :, 0] | (high[:, :, 1] << 2) | (high[:, :, 2] << 4) | (high[:, :, 3] << 6)).reshape(-1, 64)
    return np.concatenate([first, second, scale.view(np.uint8), _halves(unit)], axis=1)


_QUANTISERS: dict[str, Callable[[Array], Array]] = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_K": _q4_k, "Q6_K": _q6_k}


# -- conversion ----------------------------------------------------------------------------------------------------------

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")


def interleaved(values: Array, heads: int) -> Array:
    """Put the two halves of each head's rows alternately, as the conversion of Llama does."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def convert_llama(
    tensors: Mapping[str, Array], config: Mapping[str, Any], dtype: str
) -> tuple[dict[str, Value], dict[str, tuple[str, Array]]]:
    """Return metadata and tensors of a Llama as llama.cpp converts it: matrices as `dtype`, norms and biases as F32."""
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.type": "model",
        "llama.block_count": int(config["num_hidden_layers"]),
        "llama.context_length": int(config.get("max_position_embeddings", 2048)),
        "llama.embedding_length": int(config["hidden_size"]),
        "llama.feed_forward_length": int(config["intermediate_size"]),
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.rope.freq_base": float(config.get("rope_theta", 10000.0)),
        "llama.attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-5)),
        "llama.vocab_size": int(config["vocab_size"]),
    }
    found: dict[str, tuple[str, Array]] = {}
    for name, values in tensors.items():
        layer = _LAYER.fullmatch(name)
        module, kind = (layer[2], layer[3]) if layer else name.rsplit(".", 1)
        prefix = f"blk.{layer[1]}." if layer else ""
        if module in ("self_attn.q_proj", "self_attn.k_proj"):
            values = interleaved(values, heads if module == "self_attn.q_proj" else kv_heads)
        found[f"{prefix}{_NAMES[module]}.{kind}"] = ("F32" if values.ndim == 1 else dtype, values)
    return metadata, found
