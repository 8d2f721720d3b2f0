"""Model folders in the hub's layout: small real checkpoints, and a sparse stand-in for a 110-billion-parameter one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.formats.safetensors.writer import (
    Array,
    Fill,
    TensorSpec,
    from_bf16,
    layout,
    spec_of,
    to_bf16,
)
from kinprint.lab.safetensors_files import split_shards, write_dense

__all__ = [
    "GlmAirReport",
    "GlmAirShape",
    "TensorSpec",
    "from_bf16",
    "glm_air_config",
    "glm_air_tensors",
    "to_bf16",
    "write_checkpoint",
    "write_sparse_glm_air",
]

_METADATA = {"format": "pt"}


def _shard_names(shards: int) -> list[str]:
    if shards == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_index(folder: Path, cut: Mapping[str, list[str]], total_size: int) -> None:
    places = {name: file for file, names in cut.items() for name in names}
    weight_map = {name: places[name] for name in sorted(places)}
    _write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    )


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Array | TensorSpec],
    config: Mapping[str, Any],
    *,
    shards: int = 1,
    dtype: str | Mapping[str, str] | None = None,
    fill: Fill | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = _METADATA,
) -> list[Path]:
    """Write a small checkpoint: weights, index where sharded, config.json, and tokenizer.json if given.

    Parameters
    ----------
    folder : Path
        Made if missing.
    tensors : mapping of name to array or TensorSpec
        A spec without data gets its values from ``fill``, or zeros.
    config : mapping
        Content of config.json.
    shards : int
        One file, or so many of about equal size, cut in the order given.
    dtype : str or mapping, optional
        Stored type ("BF16", "F16", "F32", …) for all tensors or by name. Floats are rounded to it; for BF16 an array
        of uint16 is taken as the bits themselves.
    fill : callable, optional
        ``fill(name, spec)`` returns the values of a tensor without data.

    Returns
    -------
    list of Path
        The weight files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specs = {
        name: spec_of(value, dtype if isinstance(dtype, str) or dtype is None else dtype.get(name))
        for name, value in tensors.items()
    }
    cut = dict(
        zip(
            _shard_names(shards),
            split_shards({name: spec.nbytes for name, spec in specs.items()}, shards),
            strict=True,
        )
    )
    for file, names in cut.items():
        write_dense(folder / file, {name: specs[name] for name in names}, fill=fill, metadata=metadata)
    if shards > 1:
        _write_index(folder, cut, sum(spec.nbytes for spec in specs.values()))
    _write_json(folder / "config.json", config)
    if tokenizer is not None:
        _write_json(folder / "tokenizer.json", tokenizer)
    return [folder / file for file in cut]


@dataclass(frozen=True, slots=True)
class GlmAirShape:
    """Dimensions of a GLM-4.5-Air-like model; the defaults are the real ones."""

    layers: int = 46
    mtp: int = 1
    experts: int = 128
    hidden: int = 4096
    vocab: int = 151552
    heads: int = 96
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 10944
    moe_intermediate: int = 1408
    first_dense: int = 1


@dataclass(frozen=True, slots=True)
class GlmAirReport:
    """What was written.

    ``parameters`` counts everything in the files; ``main_parameters`` leaves out the multi-token-prediction layers and
    is the figure a model card quotes (106 B).
    """

    parameters: int
    main_parameters: int
    tensors: int
    apparent_bytes: int
    files: list[Path]


def glm_air_config(shape: GlmAirShape) -> dict[str, Any]:
    """Return a config.json with the keys of the real one."""
    return {
        "architectures": ["Glm4MoeForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": [151329, 151336, 151338],
        "first_k_dense_replace": shape.first_dense,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": 131072,
        "model_type": "glm4_moe",
        "moe_intermediate_size": shape.moe_intermediate,
        "n_group": 1,
        "n_routed_experts": shape.experts,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": shape.heads,
        "num_experts_per_tok": min(8, shape.experts),
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "num_nextn_predict_layers": shape.mtp,
        "pad_token_id": 151329,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.54.0",
        "use_cache": True,
        "use_qk_norm": False,
        "vocab_size": shape.vocab,
    }


def _attention(shape: GlmAirShape, prefix: str) -> Iterator[tuple[str, TensorSpec]]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for part, rows in (("q", queries), ("k", keys), ("v", keys)):
        yield f"{prefix}self_attn.{part}_proj.weight", TensorSpec("BF16", (rows, shape.hidden))
        yield f"{prefix}self_attn.{part}_proj.bias", TensorSpec("BF16", (rows,))
    yield f"{prefix}self_attn.o_proj.weight", TensorSpec("BF16", (shape.hidden, queries))


def _gated_mlp(shape: GlmAirShape, prefix: str, width: int) -> Iterator[tuple[str, TensorSpec]]:
    yield f"{prefix}gate_proj.weight", TensorSpec("BF16", (width, shape.hidden))
    yield f"{prefix}up_proj.weight", TensorSpec("BF16", (width, shape.hidden))
    yield f"{prefix}down_proj.weight", TensorSpec("BF16", (shape.hidden, width))


def _layer(shape: GlmAirShape, index: int) -> Iterator[tuple[str, TensorSpec]]:
    prefix = f"model.layers.{index}."
    vector = TensorSpec("BF16", (shape.hidden,))
    yield f"{prefix}input_layernorm.weight", vector
    yield from _attention(shape, prefix)
    yield f"{prefix}post_attention_layernorm.weight", vector
    if index < shape.first_dense:
        yield from _gated_mlp(shape, f"{prefix}mlp.", shape.intermediate)
    else:
        yield f"{prefix}mlp.gate.weight", TensorSpec("BF16", (shape.experts, shape.hidden))
        yield f"{prefix}mlp.gate.e_score_correction_bias", TensorSpec("F32", (shape.experts,))
        for expert in range(shape.experts):
            yield from _gated_mlp(shape, f"{prefix}mlp.experts.{expert}.", shape.moe_intermediate)
        yield from _gated_mlp(shape, f"{prefix}mlp.shared_experts.", shape.moe_intermediate)
    if index >= shape.layers:
        yield f"{prefix}embed_tokens.weight", TensorSpec("BF16", (shape.vocab, shape.hidden))
        yield f"{prefix}enorm.weight", vector
        yield f"{prefix}hnorm.weight", vector
        yield f"{prefix}eh_proj.weight", TensorSpec("BF16", (shape.hidden, 2 * shape.hidden))
        yield f"{prefix}shared_head.norm.weight", vector
        yield f"{prefix}shared_head.head.weight", TensorSpec("BF16", (shape.vocab, shape.hidden))


def glm_air_tensors(shape: GlmAirShape) -> dict[str, TensorSpec]:
    """Return every tensor of the model, in forward order."""
    table = TensorSpec("BF16", (shape.vocab, shape.hidden))
    tensors = {"model.embed_tokens.weight": table}
    for index in range(shape.layers + shape.mtp):
        tensors.update(_layer(shape, index))
    tensors["model.norm.weight"] = TensorSpec("BF16", (shape.hidden,))
    tensors["lm_head.weight"] = table
    return tensors


class _Values:
    """Seeded values for norms and, where asked, for the first rows of matrices."""

    def __init__(
        self, shape: GlmAirShape, seed: int, filled: tuple[int, int], perturb: tuple[int, float] | None
    ) -> None:
        self._shape = shape
        self._seed = seed
        self._rows, self._experts = filled
        self._perturb = perturb
        self._norms = {
            kind: self._chain(kind, low, high)
            for kind, low, high in (("input_layernorm", 0.08, 1.6), ("post_attention_layernorm", 0.12, 1.1))
        }

    def _rng(self, name: str, seed: int | None = None) -> np.random.Generator:
        return np.random.default_rng([self._seed if seed is None else seed, zlib.crc32(name.encode())])

    def _chain(self, kind: str, low: float, high: float) -> NDArray[np.float64]:
        """Return norms layer by layer: log-normal channels, mean rising with depth, each layer close to the last."""
        rng = self._rng(kind)
        depth = self._shape.layers + self._shape.mtp
        memory = 0.9
        channels = rng.standard_normal(self._shape.hidden)
        drift = rng.standard_normal()
        rows = []
        for index in range(depth):
            place = index / max(1, depth - 1)
            mean = low + (high - low) * place * np.exp(0.1 * drift)
            spread = (0.35 - 0.2 * place) * np.exp(0.1 * rng.standard_normal())
            rows.append(mean * np.exp(spread * channels - spread**2 / 2))
            fresh = np.sqrt(1 - memory**2)
            channels = memory * channels + fresh * rng.standard_normal(self._shape.hidden)
            drift = memory * drift + fresh * rng.standard_normal()
        return np.array(rows)

    def _norm(self, name: str) -> NDArray[np.float64]:
        parts = name.split(".")
        if parts[-2] in self._norms:
            row: NDArray[np.float64] = self._norms[parts[-2]][int(parts[2])]
            return row
        channels: NDArray[np.float64] = self._rng(name).standard_normal(self._shape.hidden)
        return 1.2 * np.exp(0.2 * channels)

    def _is_filled(self, name: str, spec: TensorSpec) -> bool:
        if not self._rows or name == "lm_head.weight" or "shared_head.head" in name:
            return False
        if ".mlp.experts." in name:
            return int(name.split(".")[5]) < self._experts
        return len(spec.shape) == 2 or name.endswith("bias")

    def piece(self, name: str, spec: TensorSpec) -> bytes | None:
        """Return the beginning of a tensor, None for a hole."""
        if name.endswith("norm.weight"):
            values = self._norm(name)
        elif self._is_filled(name, spec):
            count = spec.count if len(spec.shape) == 1 else min(self._rows, spec.shape[0]) * spec.shape[1]
            values = 0.02 * self._rng(name).standard_normal(count)
        else:
            return None
        if self._perturb is not None:
            other, sigma = self._perturb
            values = values * (1 + sigma * self._rng(name, other).standard_normal(values.shape))
        if spec.dtype == "F32":
            return values.astype("<f4").tobytes()
        return to_bf16(values).astype("<u2").tobytes()


def _write_sparse(
    path: Path,
    specs: Mapping[str, TensorSpec],
    pieces: Iterable[tuple[str, bytes]],
    *,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write head and the given beginnings of tensors, leaving holes for the rest; return the apparent size."""
    head, offsets = layout(specs, metadata)
    size = len(head) + sum(spec.nbytes for spec in specs.values())
    with path.open("wb") as stream:
        stream.truncate(size)
        stream.write(head)
        for name, piece in pieces:
            if len(piece) > specs[name].nbytes:
                raise ValueError(f"tensor {name}: {len(piece)} bytes given, room for {specs[name].nbytes}")
            stream.seek(offsets[name])
            stream.write(piece)
    return size


def write_sparse_glm_air(
    folder: Path,
    *,
    seed: int = 0,
    shards: int = 47,
    filled_rows: int = 0,
    filled_experts: int = 1,
    perturb: tuple[int, float] | None = None,
    **dimensions: int,
) -> GlmAirReport:
    """Write a GLM-4.5-Air-like repository: true names, shapes and headers, about 221 GB apparent, some MB on disk.

    Norms hold plausible positive values; everything else is a hole (reads as zero) unless ``filled_rows`` is set.

    Parameters
    ----------
    folder : Path
        Made if missing; its filesystem must hold sparse files.
    seed : int
        Same seed, same values; another seed, an unrelated model.
    shards : int
        Number of weight files.
    filled_rows : int
        So many first rows of the embedding and of every attention, dense, shared-expert, router, expert and eh_proj
        matrix are drawn from N(0, 0.02²), and so are the biases in full (else two unrelated models would agree in
        them). The two output heads stay holes.
    filled_experts : int
        So many first experts of each layer are filled like that; the others stay holes.
    perturb : (int, float), optional
        (other seed, sigma): every value times (1 + sigma · noise), as for a model derived from the one of ``seed``.
    **dimensions : int
        Fields of `GlmAirShape`; small ones give a tiny variant.
    """
    shape = GlmAirShape(**dimensions)
    tensors = glm_air_tensors(shape)
    values = _Values(shape, seed, (filled_rows, filled_experts), perturb)
    folder.mkdir(parents=True, exist_ok=True)
    parts = split_shards({name: spec.nbytes for name, spec in tensors.items()}, shards)
    cut = dict(zip(_shard_names(shards), parts, strict=True))
    apparent = 0
    for file, names in cut.items():
        specs = {name: tensors[name] for name in names}
        pieces = ((name, piece) for name, spec in specs.items() if (piece := values.piece(name, spec)) is not None)
        apparent += _write_sparse(folder / file, specs, pieces, metadata=_METADATA)
    if shards > 1:
        _write_index(folder, cut, sum(spec.nbytes for spec in tensors.values()))
    _write_json(folder / "config.json", glm_air_config(shape))
    extra = tuple(f"model.layers.{index}." for index in range(shape.layers, shape.layers + shape.mtp))
    main = sum(spec.count for name, spec in tensors.items() if not (extra and name.startswith(extra)))
    total = sum(spec.count for spec in tensors.values())
    return GlmAirReport(total, main, len(tensors), apparent, [folder / file for file in cut])
