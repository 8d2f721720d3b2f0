"""LoRA adapters in PEFT's layout, written without torch or PEFT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kinprint.formats.checkpoint import Checkpoint
from kinprint.formats.plan import whole
from kinprint.formats.safetensors.writer import Array, spec_of
from kinprint.lab.safetensors_files import write_dense

CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": None,
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_alpha": 16,
    "lora_dropout": 0.0,
    "modules_to_save": None,
    "r": 8,
    "rank_pattern": {},
    "alpha_pattern": {},
    "revision": None,
    "use_dora": False,
    "use_rslora": False,
}


def lora_names(path: str, down: Array, up: Array) -> dict[str, Array]:
    """Return A and B of a module under the names that PEFT gives them."""
    return {f"base_model.model.{path}.lora_A.weight": down, f"base_model.model.{path}.lora_B.weight": up}


def write_adapter(
    folder: Path,
    tensors: Mapping[str, Array],
    *,
    base: str | Path | None = None,
    dtype: str | None = None,
    **settings: object,
) -> Path:
    """Write adapter_model.safetensors and adapter_config.json; return the folder.

    Parameters
    ----------
    folder
        Made if missing.
    tensors
        By stored name.
    base
        What the adapter declares as its base.
    dtype
        Stored type of all tensors, by default their own.
    settings
        Entries of the config that differ from a plain adapter of rank 8 and alpha 16.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specs = {name: spec_of(values, dtype) for name, values in tensors.items()}
    write_dense(folder / "adapter_model.safetensors", specs, metadata={"format": "pt"})
    declared = None if base is None else str(base)
    config = CONFIG | {"base_model_name_or_path": declared} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder


HIDDEN, NEURONS, VOCAB, LAYERS, RANK = 48, 80, 60, 3, 8
LITTLE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN}
Q, UP, EMBED = "model.layers.{}.self_attn.q_proj", "model.layers.{}.mlp.up_proj", "model.embed_tokens"
PATHS = {Q.format(n): HIDDEN for n in range(LAYERS)} | {UP.format(n): NEURONS for n in range(LAYERS)}
"""Modules of the little base that an adapter changes, with their outputs."""


def drawn(seed: int, *shape: int) -> Array:
    """Return standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def base_tensors() -> dict[str, Array]:
    """Return a little base."""
    found = {f"{EMBED}.weight": drawn(1, VOCAB, HIDDEN), "model.norm.weight": drawn(2, HIDDEN)}
    for layer in range(LAYERS):
        found |= {
            f"{Q.format(layer)}.weight": drawn(10 + layer, HIDDEN, HIDDEN),
            f"{Q.format(layer)}.bias": drawn(20 + layer, HIDDEN),
            f"{UP.format(layer)}.weight": drawn(30 + layer, NEURONS, HIDDEN),
        }
    return found | {"lm_head.weight": drawn(3, VOCAB, HIDDEN)}


def factors(path: str, out: int, into: int, rank: int = RANK, seed: int = 0) -> tuple[Array, Array]:
    """Return A and B of a module; its path makes them its own."""
    rng = np.random.default_rng([seed, *path.encode()])
    down = rng.standard_normal((rank, into)).astype(np.float32)
    return down, (0.1 * rng.standard_normal((out, rank))).astype(np.float32)


def summed(weight: Array, down: Array, up: Array, scale: float) -> Array:
    """Return W + scale·B·A, made whole and in double precision."""
    product: Array = up.astype(np.float64) @ down.astype(np.float64)
    total: Array = (weight.astype(np.float64) + scale * product).astype(np.float32)
    return total


def read(checkpoint: Checkpoint, name: str) -> Array:
    """Return a tensor of an open checkpoint."""
    return checkpoint.read([whole(checkpoint.tensors[name])])[0]


def close(got: Array, want: Array) -> bool:
    """Whether two arrays are equal but for the order of a sum in float64."""
    return got.dtype == want.dtype and got.shape == want.shape and np.allclose(got, want, rtol=3e-7, atol=1e-7)
