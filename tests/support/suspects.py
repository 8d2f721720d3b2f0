"""Suspects: copies of a small model with something wrong in shapes, numbers, names, config or tokenizer.

Whoever is to be compared chooses these, so `compare` may refuse them or say what it could not test, and nothing else. A case is
given by its number, so that a failure can be repeated by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.safetensors.writer import TensorSpec, encode, layout, spec_of
from support.fuzzing import spoil

Array = NDArray[Any]
Tensors = dict[str, Array | TensorSpec]
Files = dict[str, bytes]
HIDDEN, NEURONS, LAYERS, VOCABULARY, HEADS = 32, 72, 3, 80, 4
ODD: tuple[Any, ...] = (None, [], {}, "", "x", -1, 0, 1, 3, 7, 2.5, 1e308, True, 10**9, 2**63, [1], {"a": 1}, ["llama"])
DTYPES = ("F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2", "I8", "U8", "I32", "BOOL")
WORDS = (b"[]", b"{}", b"null", b"-1", b"1e999", b'"', b",", b"F8_E4M3", b"data_offsets", b'"shape":[0,32]')


def sound(seed: int = 0, *, experts: int = 0, layers: int = LAYERS) -> tuple[Tensors, dict[str, Any], dict[str, Any]]:
    """Return tensors, config and tokenizer of a small random Llama, or of a mixture of experts."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> Array:
        return (rng.standard_normal(shape) / 6).astype(np.float32)

    tensors: Tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{name}.weight"] = (1 + matrix(HIDDEN)).astype(np.float32)
        for name, rows in (("q", HIDDEN), ("k", HIDDEN // 2), ("v", HIDDEN // 2), ("o", HIDDEN)):
            tensors[f"{at}.self_attn.{name}_proj.weight"] = matrix(rows, HIDDEN)
        mlps = [f"{at}.block_sparse_moe.experts.{e}" for e in range(experts)] or [f"{at}.mlp"]
        names = ("w1", "w3", "w2") if experts else ("gate_proj", "up_proj", "down_proj")
        for mlp in mlps:
            for name, shape in zip(names, ((NEURONS, HIDDEN), (NEURONS, HIDDEN), (HIDDEN, NEURONS)), strict=True):
                tensors[f"{mlp}.{name}.weight"] = matrix(*shape)
        if experts:
            tensors[f"{at}.block_sparse_moe.gate.weight"] = matrix(experts, HIDDEN)
    tensors["model.norm.weight"] = (1 + matrix(HIDDEN)).astype(np.float32)
    tensors["lm_head.weight"] = matrix(VOCABULARY, HIDDEN)
    config = {
        "model_type": "mixtral" if experts else "llama",
        "architectures": ["MixtralForCausalLM" if experts else "LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "float32",
    }
    config |= {"num_local_experts": experts, "num_experts_per_tok": 1} if experts else {}
    vocabulary = {f"t{number}": number for number in range(VOCABULARY)}
    return tensors, config, {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": []}


def files_of(tensors: Tensors, config: Any, tokenizer: Any) -> Files:
    """Return the files of a model."""
    specs = {name: spec_of(value) for name, value in tensors.items()}
    head, starts = layout(specs, {"format": "pt"})
    with np.errstate(over="ignore"):  # what a type cannot hold is infinite in it
        body = b"".join(encode(name, specs[name]) for name in starts)
    texts = {"config.json": config, "tokenizer.json": tokenizer}
    return {"model.safetensors": head + body} | {name: json.dumps(text).encode() for name, text in texts.items()}


# -- what can be wrong -------------------------------------------------------------------------------------------------


def _plain(rng: Random, tensors: Tensors) -> tuple[str, Array]:
    """Choose a tensor that is an array still."""
    names = [name for name, value in tensors.items() if isinstance(value, np.ndarray) and value.size and value.ndim]
    name = rng.choice(names)
    return name, np.asarray(tensors[name])


def _reshape(rng: Random, tensors: Tensors, config: Any, _tokenizer: Any) -> None:
    """Take rows or columns off one tensor, down to none, or add some."""
    name, value = _plain(rng, tensors)
    axis, size = rng.randrange(value.ndim), rng.choice((0, 1, 2, -1, -1, 1 << 20))
    length = value.shape[axis]
    wanted = max(0, length + size) if size < 0 else min(size, length + 1)
    index = [np.arange(n) for n in value.shape]
    index[axis] = np.arange(wanted) % max(1, length)
    tensors[name] = np.ascontiguousarray(value[np.ix_(*index)])


def _renumber(rng: Random, tensors: Tensors, _config: Any, _tokenizer: Any) -> None:
    """Put odd numbers into one tensor."""
    name, value = _plain(rng, tensors)
    value = value.copy()
    odd = rng.choice((np.nan, np.inf, -np.inf, 0.0, 1.0, 1e-42, 3e38, -3e38))
    if rng.random() < 0.4:
        value[...] = odd
    else:
        value.reshape(-1)[rng.randrange(value.size or 1) :: rng.choice((1, 2, 7))] = odd
    tensors[name] = value


def _rename(rng: Random, tensors: Tensors, _config: Any, _tokenizer: Any) -> None:
    """Drop tensors, give one another's place, or number layers oddly."""
    name = rng.choice(list(tensors))
    value = tensors.pop(name)
    match rng.randrange(4):
        case 0:
            tensors[rng.choice(list(tensors))] = value
        case 1:
            tensors[name.replace(".1.", f".{rng.choice((7, 10**6, 10**30))}.")] = value
        case 2:
            tensors[name + rng.choice((".weight", "_scale_inv", ".absmax", "")) + rng.choice(("", "é\n"))] = value
        case _:
            for other in [key for key in tensors if rng.random() < 0.3]:
                del tensors[other]


def _flatten(rng: Random, tensors: Tensors, _config: Any, _tokenizer: Any) -> None:
    """Give one tensor other dimensions."""
    name, value = _plain(rng, tensors)
    shapes: tuple[tuple[int, ...], ...] = ((-1,), (1, *value.shape), (*value.shape, 1), value.shape[::-1], ())
    shape = rng.choice(shapes)
    tensors[name] = value.reshape(shape) if shape else np.ones((), np.float32)


def _retype(rng: Random, tensors: Tensors, config: Any, _tokenizer: Any) -> None:
    """Store tensors in another number format, with scales or without."""
    dtype = rng.choice(DTYPES)
    for name in [key for key in tensors if "proj" in key or rng.random() < 0.1]:
        value = tensors[name]
        if not isinstance(value, np.ndarray) or rng.random() < 0.5:
            continue
        integers = dtype in ("I8", "U8", "I32", "BOOL")
        bits = integers or dtype.startswith("F8")
        with np.errstate(all="ignore"):
            tensors[name] = spec_of(np.abs(value * 8 % 2).astype(np.uint8) if bits else value, dtype)
        if dtype.startswith("F8") and rng.random() < 0.8 and value.ndim:
            scales = rng.choice(((), (1,), (value.shape[0], 1), (0,), (1, 1)))
            tensors[f"{name}_scale{rng.choice(('', '_inv'))}"] = np.ones(scales, np.float32)
    if rng.random() < 0.5 and isinstance(config, dict):
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": rng.choice(([16, 16], [0, 0], []))}


def _reconfigure(rng: Random, _tensors: Tensors, config: Any, tokenizer: Any) -> None:
    """Put values of odd types into config and tokenizer."""
    if isinstance(config, dict) and rng.random() < 0.7:
        config[
            rng.choice([*config, "rope_scaling", "layer_types", "head_dim", "num_experts", "tie_word_embeddings"])
        ] = rng.choice(ODD)
    else:
        place = rng.choice((tokenizer, tokenizer["model"] if isinstance(tokenizer.get("model"), dict) else tokenizer))
        place[rng.choice([*place, "vocab", "merges"])] = rng.choice((*ODD, [["a", 0]], {"a": "b"}, {"a": -5}))


WRONG: tuple[Callable[[Random, Tensors, Any, Any], None], ...] = (
    *(_reshape, _renumber, _rename, _flatten, _retype, _reconfigure),
)


def suspect(number: int) -> Files:
    """Return the files of one suspect, a copy or another model: with a mutated header, or in a third of cases with other faults."""
    rng = Random(number)
    mutated = number % 3 > 0
    tensors, config, tokenizer = sound(
        rng.choice((0, 0, 1)), experts=rng.choice((0, 0, 2)), layers=1 if mutated else rng.choice((2, 2, 3))
    )
    for _ in range(0 if mutated else rng.randint(1, 3)):
        rng.choice(WRONG)(rng, tensors, config, tokenizer)
    files = files_of(tensors, config, tokenizer)
    if mutated:
        name = rng.choice(("model.safetensors", "model.safetensors", "config.json", "tokenizer.json"))
        header = 8 + int.from_bytes(files[name][:8], "little")
        stop = header if name == "model.safetensors" else None
        files[name] = spoil(files[name], rng, words=WORDS, stop=stop, most=2)
    return files


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files of a model into a folder."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
