"""Edits of a model's shape: layers repeated, dropped or taken from two models, neurons dropped, experts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinprint.lab.zoo.derive.states import LAYER, Config, State, generator
from kinprint.lab.zoo.derive.symmetry import choose_neurons


def stack_layers(state: State, config: Config, source_layers: Sequence[int]) -> tuple[State, Config]:
    """Return a model whose layer i is a copy of layer ``source_layers[i]``.

    Raise ValueError if a source layer does not exist.
    """
    missing = sorted(set(source_layers) - set(range(config["num_hidden_layers"])))
    if missing:
        raise ValueError(f"there are {config['num_hidden_layers']} layers, numbers {missing} do not exist")
    result: State = {name: value.copy() for name, value in state.items() if not LAYER.match(name)}
    for name, value in state.items():
        found = LAYER.match(name)
        if found:
            copies = [new for new, old in enumerate(source_layers) if old == int(found[1])]
            result |= {f"model.layers.{new}.{found[2]}": value.copy() for new in copies}
    return result, {**config, "num_hidden_layers": len(source_layers)}


def drop_layers(state: State, config: Config, keep: Sequence[int]) -> tuple[State, Config]:
    """Keep the named layers, in their order.

    Raise ValueError if ``keep`` is not increasing, or names a layer that does not exist.
    """
    if list(keep) != sorted(set(keep)):
        raise ValueError(f"layers to keep must be increasing, got {list(keep)}; stack_layers takes any order")
    return stack_layers(state, config, keep)


def frankenmerge(models: Sequence[State], config: Config, layers: Sequence[tuple[int, int]]) -> tuple[State, Config]:
    """Return a model whose layer i is layer ``layers[i][1]`` of model ``layers[i][0]``; all else is of the first model.

    Raise ValueError if a layer is not there, or the layers differ in shape.
    """
    result: State = {name: value.copy() for name, value in models[0].items() if not LAYER.match(name)}
    for new, (model, old) in enumerate(layers):
        stem = f"model.layers.{old}."
        parts = {name.removeprefix(stem): value for name, value in models[model].items() if name.startswith(stem)}
        if not parts:
            raise ValueError(f"model {model} has no layer {old}")
        result |= {f"model.layers.{new}.{name}": value.copy() for name, value in parts.items()}
    shapes = {
        tuple(sorted((name.split(".", 3)[3], value.shape) for name, value in result.items() if name.startswith(stem)))
        for stem in (f"model.layers.{number}." for number in range(len(layers)))
    }
    if len(shapes) > 1:
        raise ValueError("cannot stack layers that differ in shape")
    return result, {**config, "num_hidden_layers": len(layers)}


def prune_neurons(state: State, config: Config, keep: int, seed: int) -> tuple[State, Config]:
    """Keep so many neurons of each feed-forward block, drawn at random and in random order.

    Raise ValueError if there are not so many.
    """
    if not 1 <= keep <= config["intermediate_size"]:
        raise ValueError(f"cannot keep {keep} of {config['intermediate_size']} neurons")
    return choose_neurons(state, config, keep, seed), {**config, "intermediate_size": keep}


def upcycle(state: State, config: Config, experts: int, noise: float, seed: int) -> tuple[State, Config]:
    """Copy each feed-forward block into Mixtral experts, each with its own noise, and draw routers.

    ``noise`` is relative to each matrix's standard deviation; with none the function is that of the dense model. Raise
    ValueError if a feed-forward block has biases, for which Mixtral has no place.
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
            result[router] = (0.02 * generator(seed, router).standard_normal(width)).astype(np.float32)
        for expert in range(experts):
            new = f"{stem}experts.{expert}.{names[after.split('.')[0]]}.weight"
            sigma = noise * value.std(dtype=np.float64)
            result[new] = (value + sigma * generator(seed, new).standard_normal(value.shape)).astype(np.float32)
    return result, {
        **config,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": min(2, experts),
        "num_local_experts": experts,
    }
