"""Changes of a Llama that keep its function, and deep models to make them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive import Config, State, TokenizerJson


def deepened(folder: Path, layers: int, seed: int = 1) -> tuple[State, Config, TokenizerJson | None]:
    """Stack a trained model's layers, each further copy reordered and with half its spread of noise: related to none in place."""
    state, config, tokenizer = derive.load_state(folder)
    depth = config["num_hidden_layers"]
    result = {name: value for name, value in state.items() if ".layers." not in name}
    for layer in range(layers):
        copy, source = divmod(layer, depth)
        changed = state
        if copy:
            drawn = seed * 100 + copy
            changed = derive.permute_neurons(derive.permute_residual(state, config, drawn), config, drawn)
            changed = derive.noise(changed, 0.5, drawn)
        at, to = f".layers.{source}.", f".layers.{layer}."
        result |= {name.replace(at, to): value for name, value in changed.items() if at in name}
    return result, {**config, "num_hidden_layers": layers}, tokenizer


def negated(
    state: State, config: Config, *, neurons: bool = False, values: bool = False, residual: bool = False
) -> State:
    """Draw signs for the units asked for and put them on everything that reads or writes them."""
    rng, made = np.random.default_rng(3), dict(state)
    kv, heads = config["num_key_value_heads"], config["num_attention_heads"]

    def signs(count: int) -> Any:
        return rng.choice([-1.0, 1.0], size=count).astype(np.float32)

    for name in state:
        if neurons and "up_proj" in name:
            flips, down = signs(len(state[name])), name.replace("up_proj", "down_proj")
            made[name], made[down] = made[name] * flips[:, None], made[down] * flips
        if values and "v_proj" in name:
            flips, out = signs(len(state[name])), name.replace("v_proj", "o_proj")
            made[name] = made[name] * flips[:, None]
            made[out] = made[out] * np.repeat(flips.reshape(kv, -1), heads // kv, axis=0).reshape(-1)
    if residual:
        flips = signs(config["hidden_size"])
        for name, value in made.items():
            writes = "o_proj" in name or "down_proj" in name
            made[name] = value if value.ndim == 1 else value * (flips[:, None] if writes else flips)
    return made


CHANGES = {
    "neurons": lambda s, c: (derive.permute_neurons(s, c, 3), c),
    "heads": lambda s, c: (derive.permute_heads(s, c, 3), c),
    "signs": lambda s, c: (derive.flip_signs(s, c, 3), c),
    "residual": lambda s, c: (derive.permute_residual(s, c, 3), c),
    "neurons, heads and residual": lambda s, c: (derive.random_symmetry(s, c, 3), c),
    "rotated": lambda s, c: derive.rotate_residual(s, c, 3),
    "rotated, neurons reordered": lambda s, c: derive.rotate_residual(derive.permute_neurons(s, c, 5), c, 3),
    "neurons rescaled": lambda s, c: (derive.rescale_neurons(s, c, 3), c),
    "rotary pairs turned": lambda s, c: (derive.turn_rotary(s, c, 3), c),
    "all": lambda s, c: derive.all_symmetries(s, c, 3),
}


def more_neurons(state: State, config: Config, count: int, *, idle: bool) -> tuple[State, Config]:
    """Add neurons that do nothing, or split some in two: the same function."""
    state = dict(state)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp."
        gate, up, down = (state[f"{at}{name}_proj.weight"] for name in ("gate", "up", "down"))
        down = down.copy()
        if not idle:
            down[:, :count] *= 0.5
        added = (matrix[:count] * (0.0 if idle else 1.0) for matrix in (gate, up, down.T))
        wider = [np.concatenate(both) for both in zip((gate, up, down.T), added, strict=True)]
        state |= {
            f"{at}gate_proj.weight": wider[0],
            f"{at}up_proj.weight": wider[1],
            f"{at}down_proj.weight": wider[2].T,
        }
    return state, {**config, "intermediate_size": config["intermediate_size"] + count}


def widened(state: State, config: Config, extra: int = 32) -> tuple[State, Config]:
    """Add residual dimensions that hold nothing; norms make up for the longer mean: the same function up to epsilon."""
    state, config = derive.fold_norms(state, config)
    width = config["hidden_size"]
    result = {}
    for name, value in state.items():
        if value.ndim == 1:
            result[name] = np.full(width + extra, np.sqrt(width / (width + extra)), np.float32)
        else:
            axis = derive.symmetry.residual_axis(name)
            result[name] = np.pad(value, [(0, extra * (axis == place)) for place in (0, 1)])
    return result, {**config, "hidden_size": width + extra}
