"""LoRA adapters in PEFT's layout, written without torch or PEFT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinprint.formats.writing import Array, spec_of, write_dense

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
