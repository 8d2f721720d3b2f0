"""Models derived from others by construction, in numpy: what a test needs to know about a pair is then known.

A state maps tensor names, Llama's or Mixtral's, to float32 arrays. Every function returns a new state and leaves its
arguments alone; where the shape of the model changes, a new config comes with it. Randomness depends on ``seed`` and,
except for orders, on the tensor's name, never on the order of the tensors.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.writing import STORAGE, from_bf16
from kinprint.testing.layouts import write_checkpoint

State = dict[str, NDArray[np.float32]]
Config = dict[str, Any]
Order = NDArray[np.intp]

LOW_RANK_TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")

_LAYER = re.compile(r"^model\.layers\.(\d+)\.(.+)$")
_TABLES = ("model.embed_tokens.weight", "lm_head.weight")
_READERS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "gate", "embed_tokens", "lm_head")
_WRITERS = ("o_proj", "down_proj", "w2")
_NORMS = ("input_layernorm", "post_attention_layernorm", "norm")
_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def load_state(folder: Path) -> tuple[State, Config, dict[str, Any] | None]:
    """Read a model folder: tensors as float32, config, and the content of tokenizer.json if there is one.

    Raises
    ------
    ValueError
        If the folder holds no safetensors file, or a tensor that is not BF16, F16 or F32.
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
    config = {**config, "torch_dtype": _TORCH_NAMES[dtype]}
    write_checkpoint(folder, tensors, config, dtype=dtype, tokenizer=tokenizer)


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _map(state: State, change: Callable[[str, NDArray[np.float32]], NDArray[Any]], chosen: set[str]) -> State:
    """Apply ``change`` to the chosen tensors and copy the others."""
    return {k: change(k, v).astype(np.float32) if k in chosen else v.copy() for k, v in state.items()}


def _matrices(state: State, embeddings: bool) -> set[str]:
    return {name for name, value in state.items() if value.ndim == 2 and (embeddings or name not in _TABLES)}


def prune(state: State, share: float, *, embeddings: bool = True) -> State:
    """Set the given share of the smallest entries of each matrix to zero."""

    def change(_: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = values.ravel().copy()
        flat[np.argsort(np.abs(flat), kind="stable")[: round(share * flat.size)]] = 0
        return flat.reshape(values.shape)

    return _map(state, change, _matrices(state, embeddings))


def quantise(state: State, bits: int, group: int = 32, *, embeddings: bool = True) -> State:
    """Round each matrix to ``bits`` bits, symmetrically and to nearest, by groups along a row, and scale it back.

    Raises
    ------
    ValueError
        If ``bits`` is less than two: one bit leaves no level but zero.
    """
    if bits < 2:
        raise ValueError(f"cannot quantise to {bits} bits, at least 2 are needed")
    top = 2 ** (bits - 1) - 1

    def change(_: str, values: NDArray[np.float32]) -> NDArray[Any]:
        rows, columns = values.shape
        padded = np.zeros((rows, -(-columns // group) * group))
        padded[:, :columns] = values
        groups = padded.reshape(rows, -1, group)
        step = np.abs(groups).max(axis=2, keepdims=True) / top
        # A group of zeros has no step; dividing by one keeps it zero.
        levels = np.rint(groups / np.where(step == 0, 1, step))
        scaled: NDArray[np.float64] = levels * step
        return scaled.reshape(rows, -1)[:, :columns]

    return _map(state, change, _matrices(state, embeddings))


def noise(state: State, relative_sigma: float, seed: int) -> State:
    """Add Gaussian noise of ``relative_sigma`` times its own standard deviation to every tensor, norms too."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        sigma = relative_sigma * float(values.std(dtype=np.float64))
        return values + sigma * _rng(seed, name).standard_normal(values.shape)

    return _map(state, change, set(state))


def scale(state: State, factor: float) -> State:
    """Multiply every tensor by ``factor``; the function changes (see `rescale_pairs` for one that keeps it)."""
    return _map(state, lambda _, values: values * factor, set(state))


def rescale_pairs(state: State, factor: float) -> State:
    """Multiply query, value and up matrices by ``factor`` and divide their partners by it: the same function."""
    up, down = ("q_proj", "v_proj", "up_proj", "w3"), ("k_proj", "o_proj", "down_proj", "w2")
    # A bias before the partner scales with its own matrix; one after it (o_proj, down_proj) stays as it is.
    still = {name for name in state if name.endswith(("o_proj.bias", "down_proj.bias"))}
    factors = {name: factor if name.split(".")[-2] in up else 1 / factor for name in state if _ends_in(name, up + down)}
    return _map(state, lambda name, values: values * factors[name], set(factors) - still)


def _ends_in(name: str, modules: Sequence[str]) -> bool:
    return name.split(".")[-2] in modules


def merge(states: Sequence[State], coefficients: Sequence[float]) -> State:
    """Return the sum of the states, each times its coefficient.

    Raises
    ------
    ValueError
        If names or shapes differ, or there are not as many coefficients as states.
    """
    first = states[0]
    for other in states[1:]:
        if {k: v.shape for k, v in other.items()} != {k: v.shape for k, v in first.items()}:
            raise ValueError("cannot merge states whose tensors differ in name or shape")
    pairs = list(zip(states, coefficients, strict=True))
    return {
        name: np.sum([c * s[name].astype(np.float64) for s, c in pairs], axis=0).astype(np.float32) for name in first
    }


def stack_layers(state: State, config: Config, source_layers: Sequence[int]) -> tuple[State, Config]:
    """Return a model whose layer i is a copy of layer ``source_layers[i]``.

    Raises
    ------
    ValueError
        If a source layer does not exist.
    """
    missing = sorted(set(source_layers) - set(range(config["num_hidden_layers"])))
    if missing:
        raise ValueError(f"there are {config['num_hidden_layers']} layers, numbers {missing} do not exist")
    result: State = {name: value.copy() for name, value in state.items() if not _LAYER.match(name)}
    for name, value in state.items():
        found = _LAYER.match(name)
        if found:
            copies = [new for new, old in enumerate(source_layers) if old == int(found[1])]
            result |= {f"model.layers.{new}.{found[2]}": value.copy() for new in copies}
    return result, {**config, "num_hidden_layers": len(source_layers)}


def drop_layers(state: State, config: Config, keep: Sequence[int]) -> tuple[State, Config]:
    """Keep the named layers, in their order.

    Raises
    ------
    ValueError
        If ``keep`` is not increasing, or names a layer that does not exist.
    """
    if list(keep) != sorted(set(keep)):
        raise ValueError(f"layers to keep must be increasing, got {list(keep)}; stack_layers takes any order")
    return stack_layers(state, config, keep)


def _shuffle(count: int, rng: np.random.Generator) -> Order:
    """Draw an order that is not the one there was, where there is another."""
    identity = np.arange(count)
    while True:
        order: Order = rng.permutation(count)
        if count < 2 or not np.array_equal(order, identity):
            return order


def _blocks(state: State, config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield the stems of gate, up and down projections of each feed-forward block, experts included."""
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        if f"{prefix}mlp.up_proj.weight" in state:
            yield f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj", f"{prefix}mlp.down_proj"
        for expert in range(config.get("num_local_experts", 0)):
            stem = f"{prefix}block_sparse_moe.experts.{expert}."
            yield f"{stem}w1", f"{stem}w3", f"{stem}w2"


def _take_rows(state: State, stem: str, order: Order) -> None:
    for name in (f"{stem}.weight", f"{stem}.bias"):
        if name in state:
            state[name] = state[name][order]


def _take_columns(state: State, stem: str, order: Order) -> None:
    state[f"{stem}.weight"] = np.ascontiguousarray(state[f"{stem}.weight"][:, order])


def permute_neurons(state: State, config: Config, seed: int) -> State:
    """Reorder the neurons of each feed-forward block; the same function."""
    return _choose_neurons(state, config, config["intermediate_size"], seed)


def prune_neurons(state: State, config: Config, keep: int, seed: int) -> tuple[State, Config]:
    """Keep so many neurons of each feed-forward block, drawn at random and in random order.

    Raises
    ------
    ValueError
        If there are not so many.
    """
    if not 1 <= keep <= config["intermediate_size"]:
        raise ValueError(f"cannot keep {keep} of {config['intermediate_size']} neurons")
    return _choose_neurons(state, config, keep, seed), {**config, "intermediate_size": keep}


def _choose_neurons(state: State, config: Config, keep: int, seed: int) -> State:
    rng = np.random.default_rng(seed)
    result = {name: value.copy() for name, value in state.items()}
    for gate, up, down in _blocks(state, config):
        order = _shuffle(config["intermediate_size"], rng)[:keep]
        _take_rows(result, gate, order)
        _take_rows(result, up, order)
        _take_columns(result, down, order)
    return result


def permute_heads(state: State, config: Config, seed: int) -> State:
    """Reorder key-value groups, and query heads within their groups, in each layer; the same function."""
    rng = np.random.default_rng(seed)
    heads: int = config["num_attention_heads"]
    kv_heads: int = config.get("num_key_value_heads") or heads
    width: int = config.get("head_dim") or config["hidden_size"] // heads
    group = heads // kv_heads
    result = {name: value.copy() for name, value in state.items()}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.self_attn."
        groups = _shuffle(kv_heads, rng)
        chosen = np.concatenate([g * group + _shuffle(group, rng) for g in groups])
        queries = (chosen[:, None] * width + np.arange(width)).ravel()
        keys = (groups[:, None] * width + np.arange(width)).ravel()
        for part, order in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            _take_rows(result, prefix + part, order)
        _take_columns(result, prefix + "o_proj", queries)
    return result


def permute_residual(state: State, config: Config, seed: int) -> State:
    """Reorder the dimensions of the residual stream wherever they are read, written or scaled; the same function.

    Raises
    ------
    ValueError
        If a tensor's part in the model is not known, since leaving it alone would change the function.
    """
    order = _shuffle(config["hidden_size"], np.random.default_rng(seed))
    result: State = {}
    for name, value in state.items():
        module, kind = name.split(".")[-2:]
        if module in _NORMS or module in _WRITERS:
            result[name] = value[order]
        elif module in _READERS:
            result[name] = np.ascontiguousarray(value[:, order]) if kind == "weight" else value.copy()
        else:
            raise ValueError(f"cannot tell how {name} meets the residual stream")
    return result


def random_symmetry(state: State, config: Config, seed: int) -> State:
    """Reorder neurons, heads and residual dimensions, each at random and independently: the same function.

    Applied to one of two related models it changes neither function and breaks every tie of position between them.
    """
    neurons, heads, residual = (int(part) for part in np.random.SeedSequence(seed).generate_state(3))
    result = permute_heads(permute_neurons(state, config, neurons), config, heads)
    return permute_residual(result, config, residual)


def upcycle(state: State, config: Config, experts: int, noise: float, seed: int) -> tuple[State, Config]:
    """Copy each feed-forward block into Mixtral experts, each with its own noise, and draw routers.

    ``noise`` is relative to each matrix's standard deviation; with none the function is that of the dense model.

    Raises
    ------
    ValueError
        If a feed-forward block has biases, for which Mixtral has no place.
    """
    names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    result: State = {}
    for name, value in state.items():
        before, found, after = name.partition(".mlp.")
        if not found:
            result[name] = value.copy()
            continue
        if value.ndim != 2:
            raise ValueError(f"{name} has no place in a Mixtral checkpoint")
        stem = f"{before}.block_sparse_moe."
        router = f"{stem}gate.weight"
        if router not in result:
            width = (experts, config["hidden_size"])
            result[router] = (0.02 * _rng(seed, router).standard_normal(width)).astype(np.float32)
        for expert in range(experts):
            new = f"{stem}experts.{expert}.{names[after.split('.')[0]]}.weight"
            sigma = noise * value.std(dtype=np.float64)
            result[new] = (value + sigma * _rng(seed, new).standard_normal(value.shape)).astype(np.float32)
    return result, {
        **config,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": min(2, experts),
        "num_local_experts": experts,
    }


def low_rank(state: State, rank: int, relative: float, seed: int, targets: Sequence[str] = LOW_RANK_TARGETS) -> State:
    """Add to each target matrix a random one of the given rank, with ``relative`` times its Frobenius norm."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        rng = _rng(seed, name)
        delta = rng.standard_normal((values.shape[0], rank)) @ rng.standard_normal((rank, values.shape[1]))
        size = np.linalg.norm(values.astype(np.float64))
        return values + relative * size / np.linalg.norm(delta) * delta

    return _map(state, change, {name for name in _matrices(state, False) if _ends_in(name, targets)})


def replace_embeddings(state: State, seed: int) -> State:
    """Draw embeddings and head anew, Gaussian with the spread they had."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        return float(values.std(dtype=np.float64)) * _rng(seed, name).standard_normal(values.shape)

    return _map(state, change, set(_TABLES) & set(state))


def replace_norms(state: State, other: State) -> State:
    """Take the norm gains of another model.

    Raises
    ------
    ValueError
        If it lacks one of them, or has one of another length.
    """
    gains = {name for name, value in state.items() if value.ndim == 1 and _ends_in(name, _NORMS)}
    for name in gains:
        if name not in other or other[name].shape != state[name].shape:
            raise ValueError(f"the other model has no {name} of shape {state[name].shape}")
    return _map(state, lambda name, _: other[name], gains)
