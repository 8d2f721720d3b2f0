"""Read and write models as tensors by name, config and tokenizer, and name the parts that derivations work on."""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.safetensors.writer import STORAGE, from_bf16, spec_of, to_bf16
from kinprint.lab.safetensors_files import write_dense

State = dict[str, NDArray[np.float32]]
Config = dict[str, Any]
TokenizerJson = dict[str, Any]

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
READERS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "gate", "embed_tokens", "lm_head")
WRITERS = ("o_proj", "down_proj", "w2")
NORMS = ("input_layernorm", "post_attention_layernorm", "norm")
LAYER = re.compile(r"^model\.layers\.(\d+)\.(.+)$")
_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def load_state(folder: Path) -> tuple[State, Config, TokenizerJson | None]:
    """Read a model folder: tensors as float32, config, and the content of tokenizer.json if there is one.

    Raise ValueError if the folder holds no safetensors file, or a tensor that is not BF16, F16 or F32.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no .safetensors file")
    tensors: State = {}
    for file in files:
        tensors.update(_read_tensors(file))
    config: Config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = folder / "tokenizer.json"
    return tensors, config, json.loads(tokenizer.read_text(encoding="utf-8")) if tokenizer.is_file() else None


def _read_tensors(file: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":
            continue
        dtype, (begin, end) = entry["dtype"], entry["data_offsets"]
        if dtype not in _TORCH_NAMES:
            raise ValueError(f"{file}: tensor {name} is {dtype}, expected one of {', '.join(_TORCH_NAMES)}")
        flat = np.frombuffer(content[start + begin : start + end], dtype=STORAGE[dtype])
        values = from_bf16(flat) if dtype == "BF16" else flat.astype(np.float32)
        yield name, values.reshape(entry["shape"])


def save_state(
    folder: Path,
    tensors: Mapping[str, NDArray[np.float32]],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any] | None = None,
    dtype: str = "BF16",
) -> None:
    """Write a model folder, every tensor rounded to ``dtype`` ("BF16", "F16" or "F32"), config adjusted to it."""
    folder.mkdir(parents=True, exist_ok=True)
    specs = {name: spec_of(value, dtype) for name, value in tensors.items()}
    write_dense(folder / "model.safetensors", specs, metadata={"format": "pt"})
    _write_json(folder / "config.json", stored_config(config, dtype))
    if tokenizer is not None:
        _write_json(folder / "tokenizer.json", tokenizer)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def stored_config(config: Mapping[str, Any], dtype: str) -> Config:
    """Return the config that says how its model is stored."""
    return {**config, "torch_dtype": _TORCH_NAMES[dtype]}


def stored(state: Mapping[str, NDArray[np.float32]], dtype: str) -> State:
    """Return the values as a file of that type ("BF16", "F16" or "F32") gives them back. Raise ValueError for other types."""
    if dtype == "BF16":
        return {name: from_bf16(to_bf16(value)) for name, value in state.items()}
    if dtype not in _TORCH_NAMES:
        raise ValueError(f"cannot store as {dtype}, expected one of {', '.join(_TORCH_NAMES)}")
    kept = np.float16 if dtype == "F16" else np.float32
    return {name: value.astype(kept).astype(np.float32) for name, value in state.items()}


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of one tensor: the order in which tensors come plays no part."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def mapped(state: State, change: Callable[[str, NDArray[np.float32]], NDArray[Any]], chosen: set[str]) -> State:
    """Apply ``change`` to the chosen tensors and copy the others; each keeps its own type."""
    return {k: change(k, v).astype(v.dtype) if k in chosen else v.copy() for k, v in state.items()}


def matrices(state: State, embeddings: bool) -> set[str]:
    """Return the names of the matrices, with or without embeddings and head."""
    return {name for name, value in state.items() if value.ndim == 2} - (set() if embeddings else tables(state))


def tables(state: State) -> set[str]:
    """Return the names of the embeddings and, if stored apart, of the head."""
    return {EMBEDDINGS, HEAD} & set(state)


def ends_in(name: str, modules: Sequence[str]) -> bool:
    """Return whether a tensor belongs to one of these modules."""
    return name.split(".")[-2] in modules


def head_counts(config: Config) -> tuple[int, int, int]:
    """Return the number of query heads, of key-value heads, and the width of a head."""
    heads: int = config["num_attention_heads"]
    kv_heads: int = config.get("num_key_value_heads") or heads
    return heads, kv_heads, config.get("head_dim") or config["hidden_size"] // heads


def blocks(state: State, config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield the stems of gate, up and down projections of each feed-forward block, experts included."""
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        if f"{prefix}mlp.up_proj.weight" in state:
            yield f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj", f"{prefix}mlp.down_proj"
        for expert in range(config.get("num_local_experts", 0)):
            stem = f"{prefix}block_sparse_moe.experts.{expert}."
            yield f"{stem}w1", f"{stem}w3", f"{stem}w2"
