"""Build tiny diffusion models by diffusers, name their tensors, reorder them by their roles, and compare.

    PYTHONPATH=FOLDER_OF_DIFFUSERS .venv-demo/bin/python tools/architectures/diffusion.py [--write] [NAME ...]

Needs torch and diffusers (0.42), which no environment of the project installs: unpack its wheel into a folder. For every
model: are all tensors named, or left out with a reason? What is the verdict on a copy with 5 % noise, and on a model of another
seed? Does a copy that is reordered along the exchangeable axes, and along what goes with them, compute the same? With
`--write` names and shapes go to `tests/support/diffusion_names.json`, where CI names them all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import (
    DiTTransformer2DModel,
    FluxTransformer2DModel,
    PixArtTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).resolve().parent)]

from permuted_copies import Arrays, Orders, put_back, stored_view, units  # noqa: E402

import kinprint  # noqa: E402
from kinprint.arch import Axis, Naming, Role, RoleTensor, name_tensors, ordered_axes  # noqa: E402
from kinprint.arch.roles import BIASES  # noqa: E402

NAMES = ROOT / "tests" / "support" / "diffusion_names.json"
FILE = "diffusion_pytorch_model.safetensors"
HEADS = {"num_attention_heads": 4, "attention_head_dim": 16}
_UNET = {
    "sample_size": 16,
    "block_out_channels": (64, 128),
    "layers_per_block": 1,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
}
_XL = {
    "transformer_layers_per_block": (1, 2),
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 32 + 6 * 8,
}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "unet": (UNet2DConditionModel, _UNET),
    "unet_xl": (UNet2DConditionModel, _UNET | _XL),
    "flux": (
        FluxTransformer2DModel,
        HEADS
        | {"in_channels": 8, "num_layers": 2, "num_single_layers": 2, "joint_attention_dim": 32}
        | {"pooled_projection_dim": 24, "guidance_embeds": True, "axes_dims_rope": (4, 6, 6)},
    ),
    "sd3": (
        SD3Transformer2DModel,
        HEADS
        | {"sample_size": 8, "in_channels": 4, "num_layers": 3, "joint_attention_dim": 32, "caption_projection_dim": 64}
        | {"pooled_projection_dim": 24, "out_channels": 4, "pos_embed_max_size": 8, "qk_norm": "rms_norm"},
    ),
    "pixart": (
        PixArtTransformer2DModel,
        HEADS
        | {"num_layers": 3, "sample_size": 8, "cross_attention_dim": 64, "caption_channels": 32}
        | {"use_additional_conditions": False, "in_channels": 4, "out_channels": 8},
    ),
    "dit": (DiTTransformer2DModel, HEADS | {"num_layers": 3, "sample_size": 8, "in_channels": 4, "out_channels": 8}),
}


def inputs(name: str) -> dict[str, Any]:
    """Return what a model is asked for."""
    torch.manual_seed(7)
    picture, text = torch.randn(2, 4, 16, 16), torch.randn(2, 5, 32)
    if name.startswith("unet"):
        more = {"added_cond_kwargs": {"text_embeds": torch.randn(2, 32), "time_ids": torch.rand(2, 6)}}
        given = {"sample": picture, "timestep": torch.tensor([3, 400]), "encoder_hidden_states": text}
        return given | (more if name == "unet_xl" else {})
    if name == "flux":
        given = {
            "hidden_states": torch.randn(2, 9, 8),
            "encoder_hidden_states": text,
            "guidance": torch.tensor([3.0, 2.0]),
        }
        places = {"img_ids": torch.rand(9, 3) * 9, "txt_ids": torch.zeros(5, 3), "timestep": torch.tensor([0.3, 0.9])}
        return given | places | {"pooled_projections": torch.randn(2, 24)}
    small = {"hidden_states": picture[:, :, :8, :8], "timestep": torch.tensor([3, 400])}
    if name == "sd3":
        return small | {"encoder_hidden_states": text, "pooled_projections": torch.randn(2, 24)}
    if name == "pixart":
        return small | {"encoder_hidden_states": text, "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}
    return small | {"class_labels": torch.tensor([1, 2])}


def made(name: str, seed: int, folder: Path) -> Any:
    """Build a model with random weights everywhere (those that start at zero too), and save it as the library does."""
    torch.manual_seed(seed)
    kind, config = MODELS[name]
    model = kind(**config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def reordered(arrays: Arrays, naming: Naming, ordered: dict[Axis, Any], seed: int) -> Arrays:
    """Return a copy reordered along exchangeable axes, with all that goes along: groups of channels, shifts and scales."""
    orders = Orders(seed)
    found = {name: np.array(values) for name, values in arrays.items()}
    width = max((t.shape[0] for t in naming.tensors if t.role is Role.ATTN_O), default=0)
    for tensor in naming.tensors:
        values = stored_view(arrays, tensor)
        for position, axis in enumerate(tensor.role.info.axes):
            name = (
                units(tensor, axis, False)
                if axis not in ordered and not tensor.role.value.startswith("conv_up")
                else None
            )
            if name is not None:
                values = np.take(values, orders.of(name, values.shape[position]), axis=position)
        put_back(found, tensor, _along(values, tensor, orders, width, ordered))
    for layer in {tensor.layer for tensor in naming.tensors if tensor.role is Role.CONV_UP}:
        _groups(found, naming, layer, orders)
    return found


def _along(values: np.ndarray, tensor: RoleTensor, orders: Orders, width: int, ordered: dict[Axis, Any]) -> np.ndarray:
    """Reorder what runs along the residual stream or neurons without being permuted in any test."""
    role = tensor.role.value.removesuffix("_bias")
    residual = np.arange(width) if Axis.RESIDUAL in ordered else orders.of("residual", width)
    if role in ("modulation", "context_modulation", "final_modulation", "modulation_base"):
        blocks = np.arange(values.shape[0]).reshape(-1, width)
        return values[blocks[:, residual].ravel()]
    if role in ("modulation_table", "final_shifts"):
        return values[:, residual]
    if role == "attn_mlp_out" and values.ndim == 2:
        neurons = values.shape[1] - width
        return np.concatenate(
            [values[:, :width], values[:, width:][:, orders.of(("mlp", tensor.layer, None), neurons)]], 1
        )
    return values


def _groups(found: Arrays, naming: Naming, layer: int | None, orders: Orders) -> None:
    """Reorder the groups of the channels between two convolutions, and channels inside each group."""
    parts = {tensor.role: tensor for tensor in naming.tensors if tensor.layer == layer}
    name, count = parts[Role.CONV_UP].name, parts[Role.CONV_UP].shape[0]
    channels = found[name].shape[0]
    blocks = np.arange(channels).reshape(count, -1)[orders.of(("groups", layer), count)]
    order = np.concatenate([block[orders.of(("in", layer, n), len(block))] for n, block in enumerate(blocks)])
    along = (Role.CONV_TIME, Role.CONV_HIDDEN_NORM)
    rows = [name, name.removesuffix("weight") + "bias"]
    rows += [parts[role].name for one in along for role in (one, BIASES[one]) if role in parts]
    for each in rows:
        found[each] = found[each][order]
    found[parts[Role.CONV_DOWN].name] = found[parts[Role.CONV_DOWN].name][:, order]


def answer(model: Any, name: str) -> np.ndarray:
    """Return what a model computes."""
    with torch.no_grad():
        return np.asarray(model(**inputs(name), return_dict=False)[0])


def surveyed(name: str, home: Path) -> tuple[str, dict[str, Any]]:
    """Return a line about a model, and its names."""
    model = made(name, 1, home / "base")
    made(name, 2, home / "other")
    arrays = load_file(home / "base" / FILE)
    config = json.loads((home / "base" / "config.json").read_text())
    naming = name_tensors(config, {key: values.shape for key, values in arrays.items()})
    ordered = ordered_axes({**config, "sinusoidal_pos_embds": naming.fixed_positions})
    rng = np.random.default_rng(5)
    spread = {key: (0.05 * values.std() * rng.standard_normal(values.shape)) for key, values in arrays.items()}
    copies = {"noisy": {key: (values + spread[key]).astype(np.float32) for key, values in arrays.items()}}
    copies["reordered"] = reordered(arrays, naming, ordered, 3)
    for copy, content in copies.items():
        (home / copy).mkdir()
        (home / copy / "config.json").write_text(json.dumps(config))
        save_file({key: np.ascontiguousarray(values) for key, values in content.items()}, home / copy / FILE)
    before = answer(model, name)
    after = answer(MODELS[name][0].from_pretrained(home / "reordered").eval(), name)
    moved = sum(not np.array_equal(copies["reordered"][key], arrays[key]) for key in arrays)
    same = float(np.abs(before - after).max() / np.abs(before).max())
    verdicts = []
    for other in ("noisy", "other", "reordered"):
        verdict = kinprint.compare(str(home / "base"), str(home / other), deep=other == "reordered").verdict
        verdicts.append(f"{verdict.class_} ({', '.join(verdict.kinds)})" if verdict.kinds else verdict.class_)
    named = len(arrays) - len(naming.unmapped) - len(naming.excluded)
    line = f"| {name} | {naming.architecture} | {named} of {len(arrays)}, {len(naming.excluded)} left out | "
    line += " | ".join(verdicts) + f" | {moved} tensors moved, {'same' if same < 1e-4 else f'differs by {same:.2g}'} |"
    stored = {key: list(values.shape) for key, values in arrays.items()}
    return line, {"config": {"_class_name": config["_class_name"]}, "shapes": stored}


def main() -> int:
    """Go through the models."""
    parser = argparse.ArgumentParser(description="Tiny diffusion models, named, reordered, compared.")
    parser.add_argument("name", nargs="*", choices=[*MODELS, []])
    parser.add_argument("--write", action="store_true", help="write names and shapes for the tests")
    chosen = parser.parse_args()
    lists: dict[str, Any] = {}
    for name in chosen.name or MODELS:
        with tempfile.TemporaryDirectory() as home:
            line, lists[name] = surveyed(name, Path(home))
        sys.stdout.write(line + os.linesep)
        sys.stdout.flush()
    if chosen.write:
        lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in lists.items()]
        NAMES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
