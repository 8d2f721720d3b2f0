"""Reorderings, sign flips and scalings of a Llama or Mixtral that leave its function as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive.states import NORMS, READERS, WRITERS, Config, State, blocks, ends_in, head_counts, mapped

Order = NDArray[np.intp]


def rescale_pairs(state: State, factor: float) -> State:
    """Multiply query, value and up matrices by ``factor`` and divide their partners by it: the same function."""
    up, down = ("q_proj", "v_proj", "up_proj", "w3"), ("k_proj", "o_proj", "down_proj", "w2")
    # A bias before the partner scales with its own matrix; one after it (o_proj, down_proj) stays as it is.
    still = {name for name in state if name.endswith(("o_proj.bias", "down_proj.bias"))}
    factors = {name: factor if name.split(".")[-2] in up else 1 / factor for name in state if ends_in(name, up + down)}
    return mapped(state, lambda name, values: values * factors[name], set(factors) - still)


def _shuffle(count: int, rng: np.random.Generator) -> Order:
    """Draw an order that is not the one there was, where there is another."""
    identity = np.arange(count)
    while True:
        order: Order = rng.permutation(count)
        if count < 2 or not np.array_equal(order, identity):
            return order


def _take_rows(state: State, stem: str, order: Order) -> None:
    for name in (f"{stem}.weight", f"{stem}.bias"):
        if name in state:
            state[name] = state[name][order]


def _take_columns(state: State, stem: str, order: Order) -> None:
    state[f"{stem}.weight"] = np.ascontiguousarray(state[f"{stem}.weight"][:, order])


def permute_neurons(state: State, config: Config, seed: int) -> State:
    """Reorder the neurons of each feed-forward block; the same function."""
    return choose_neurons(state, config, config["intermediate_size"], seed)


def choose_neurons(state: State, config: Config, keep: int, seed: int) -> State:
    """Keep the first ``keep`` neurons of each feed-forward block in an order drawn at random."""
    rng = np.random.default_rng(seed)
    result = {name: value.copy() for name, value in state.items()}
    for gate, up, down in blocks(state, config):
        order = _shuffle(config["intermediate_size"], rng)[:keep]
        _take_rows(result, gate, order)
        _take_rows(result, up, order)
        _take_columns(result, down, order)
    return result


def permute_heads(state: State, config: Config, seed: int) -> State:
    """Reorder key-value groups, and query heads within their groups, in each layer; the same function."""
    rng = np.random.default_rng(seed)
    heads, kv_heads, width = head_counts(config)
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

    Raise ValueError if a tensor's part in the model is not known, since leaving it alone would change the function.
    """
    order = _shuffle(config["hidden_size"], np.random.default_rng(seed))
    result: State = {}
    for name, value in state.items():
        axis = residual_axis(name)
        if axis is None:
            result[name] = value.copy()
        else:
            result[name] = np.ascontiguousarray(value.take(order, axis=axis))
    return result


def flip_signs(state: State, config: Config, seed: int) -> State:
    """Negate about half of the residual dimensions wherever they are read or written; the same function.

    Norms divide by a mean of squares and multiply by their gains: a sign goes through them unchanged. Raise ValueError if a
    tensor's part in the model is not known.
    """
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), config["hidden_size"])

    def change(name: str, value: NDArray[np.float32]) -> NDArray[Any]:
        axis = residual_axis(name)
        if axis is None or ends_in(name, NORMS):
            return value
        flipped: NDArray[np.float64] = value * (signs if axis == value.ndim - 1 else signs[:, None])
        return flipped

    return mapped(state, change, set(state))


def residual_axis(name: str) -> int | None:
    """Return the axis of a tensor along which the residual stream runs, None for biases that never meet it.

    Raise ValueError if the tensor's part in the model is not known.
    """
    module, kind = name.split(".")[-2:]
    if module in NORMS or module in WRITERS:
        return 0
    if module in READERS:
        return 1 if kind == "weight" else None
    raise ValueError(f"cannot tell how {name} meets the residual stream")


def random_symmetry(state: State, config: Config, seed: int) -> State:
    """Reorder neurons, heads and residual dimensions, each at random and independently: the same function.

    Applied to one of two related models it changes neither function and breaks every tie of position between them.
    """
    neurons, heads, residual = (int(part) for part in np.random.SeedSequence(seed).generate_state(3))
    result = permute_heads(permute_neurons(state, config, neurons), config, heads)
    return permute_residual(result, config, residual)
