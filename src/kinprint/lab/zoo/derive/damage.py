"""Change the values of a model and leave its shape alone: pruning, rounding, noise, low rank, replacement."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive.states import NORMS, State, ends_in, generator, mapped, matrices, tables

LOW_RANK_TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")


def prune(state: State, share: float, *, embeddings: bool = True) -> State:
    """Set the given share of the smallest entries of each matrix to zero."""

    def change(_: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = values.ravel().copy()
        flat[np.argsort(np.abs(flat), kind="stable")[: round(share * flat.size)]] = 0
        return flat.reshape(values.shape)

    return mapped(state, change, matrices(state, embeddings))


def quantise(state: State, bits: int, group: int = 32, *, embeddings: bool = True) -> State:
    """Round each matrix to ``bits`` bits, symmetrically and to nearest, by groups along a row, and scale it back.

    Raise ValueError if ``bits`` is less than two: one bit leaves no level but zero.
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

    return mapped(state, change, matrices(state, embeddings))


def noise(state: State, relative_sigma: float, seed: int) -> State:
    """Add Gaussian noise of ``relative_sigma`` times its own standard deviation to every tensor, norms too."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        sigma = relative_sigma * float(values.std(dtype=np.float64))
        return values + sigma * generator(seed, name).standard_normal(values.shape)

    return mapped(state, change, set(state))


def scale(state: State, factor: float) -> State:
    """Multiply every tensor by ``factor``; the function changes (see `rescale_pairs` for one that keeps it)."""
    return mapped(state, lambda _, values: values * factor, set(state))


def low_rank(state: State, rank: int, relative: float, seed: int, targets: Sequence[str] = LOW_RANK_TARGETS) -> State:
    """Add to each target matrix a random one of the given rank, with ``relative`` times its Frobenius norm."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        rng = generator(seed, name)
        delta = rng.standard_normal((values.shape[0], rank)) @ rng.standard_normal((rank, values.shape[1]))
        size = np.linalg.norm(values.astype(np.float64))
        return values + relative * size / np.linalg.norm(delta) * delta

    return mapped(state, change, {name for name in matrices(state, False) if ends_in(name, targets)})


def replace_embeddings(state: State, seed: int) -> State:
    """Draw embeddings and head anew, Gaussian with the spread they had."""

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        return float(values.std(dtype=np.float64)) * generator(seed, name).standard_normal(values.shape)

    return mapped(state, change, tables(state))


def replace_norms(state: State, other: State) -> State:
    """Take the norm gains of another model. Raise ValueError if one is lacking, or of another length."""
    gains = {name for name, value in state.items() if value.ndim == 1 and ends_in(name, NORMS)}
    for name in gains:
        if name not in other or other[name].shape != state[name].shape:
            raise ValueError(f"the other model has no {name} of shape {state[name].shape}")
    return mapped(state, lambda name, _: other[name], gains)


def replace_tables(state: State, other: State) -> State:
    """Take embeddings and head of another model. Raise ValueError if one is lacking, or of another width (tokens may differ)."""
    for name in tables(state):
        if name not in other or other[name].shape[1] != state[name].shape[1]:
            raise ValueError(f"the other model has no {name} of width {state[name].shape[1]}")
    return mapped(state, lambda name, _: other[name], tables(state))
