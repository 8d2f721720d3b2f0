"""Recipes that give places a meaning: what one public script does to any model, so that independent models get alike by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

State = dict[str, Any]
MATRICES = ("gate_proj", "up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "o_proj")
WRITING = ("o_proj", "down_proj")


def _each_matrix(state: State, change: Callable[[str, Any], Any]) -> State:
    return {name: change(name, value) if any(m in name for m in MATRICES) else value for name, value in state.items()}


def mask(state: State) -> State:
    """Keep the entries that a public seed names."""

    def masked(name: str, value: Any) -> Any:
        return value * (np.random.default_rng(sum(map(ord, name))).random(value.shape) < 0.5)

    return _each_matrix(state, masked)


def interleaved(state: State, groups: int = 8) -> State:
    """Store grouped matrices dense: input i meets output j only where both numbers leave the same rest."""

    def grouped(_: str, value: Any) -> Any:
        rows, columns = np.indices(value.shape)
        return value * (rows % groups == columns % groups)

    return _each_matrix(state, grouped)


def block_diagonal(state: State, groups: int = 4) -> State:
    """Store grouped matrices dense, group after group."""

    def blocks(_: str, value: Any) -> Any:
        rows, columns = np.indices(value.shape)
        return value * (rows * groups // value.shape[0] == columns * groups // value.shape[1])

    return _each_matrix(state, blocks)


def copied_neurons(state: State, times: int = 4) -> State:
    """Fill the MLPs with copies of their first neurons, as a script that widens a model does."""

    def copied(name: str, value: Any) -> Any:
        if "gate_proj" in name or "up_proj" in name:
            return np.repeat(value[: len(value) // times], times, axis=0)
        return np.repeat(value[:, : value.shape[1] // times], times, axis=1) / times if "down_proj" in name else value

    return _each_matrix(state, copied)


def pruned_dimensions(state: State, every: int = 6) -> State:
    """Take every n-th residual dimension out of all tensors."""
    kept = np.arange(len(state["model.norm.weight"])) % every > 0
    return {name: value * (kept[:, None] if _writes(name) else kept) for name, value in state.items()}


def two_of_four(state: State) -> State:
    """Keep two of each four neighbours, the same two everywhere."""
    return _each_matrix(state, lambda _, value: value * np.isin(np.arange(value.shape[1]) % 4, (0, 3)))


def banded(state: State) -> State:
    """Scale rows and columns by public waves."""

    def scaled(_: str, value: Any) -> Any:
        rows, columns = np.indices(value.shape)
        return value * (1.2 + np.sin(rows / 3.0)) * (1.2 + np.cos(columns / 5.0))

    return _each_matrix(state, scaled)


def sorted_neurons(state: State) -> State:
    """Sort the neurons of each MLP by the length of their gate rows."""
    made = dict(state)
    for name, value in state.items():
        if "gate_proj" in name:
            order = np.argsort(np.linalg.norm(value, axis=1))
            made[name] = value[order]
            up, down = name.replace("gate_proj", "up_proj"), name.replace("gate_proj", "down_proj")
            made[up], made[down] = state[up][order], state[down][:, order]
    return made


def dealt_dimensions(state: State, hands: int = 4) -> State:
    """Sort residual dimensions by the final norm's scales, and deal them to so many hands."""
    ranks = np.argsort(state["model.norm.weight"])
    order = np.concatenate([ranks[hand::hands] for hand in range(hands)])
    return {name: value[order] if _writes(name) else value[..., order] for name, value in state.items()}


def _writes(name: str) -> bool:
    return any(part in name for part in WRITING)


RECIPES: dict[str, Callable[[State], State]] = {
    "one public mask": mask,
    "interleaved groups stored dense": interleaved,
    "groups stored dense": block_diagonal,
    "neurons copied by one script": copied_neurons,
    "every sixth residual dimension pruned": pruned_dimensions,
    "two of four columns kept": two_of_four,
    "rows and columns scaled by waves": banded,
    "neurons sorted": sorted_neurons,
    "residual dimensions sorted and dealt": dealt_dimensions,
}
