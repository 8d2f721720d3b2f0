"""Merge models: weighted sums, spherical interpolation, TIES, DARE.

interpolation; TIES: Yadav et al. 2023 (arXiv:2306.01708); DARE: Yu et al. 2023 (arXiv:2311.03099).
Every function raises ValueError if tensors differ in name or shape, or an argument is out of its range.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.zoo.derive.states import State, generator, mapped

# Two tensors at a smaller angle than this have no plane to turn in that rounding would not choose.
_LEAST_ANGLE = 1e-4


def _check_alike(states: Sequence[State]) -> None:
    first = states[0]
    for other in states[1:]:
        if {k: v.shape for k, v in other.items()} != {k: v.shape for k, v in first.items()}:
            raise ValueError("cannot merge states whose tensors differ in name or shape")


def merge(states: Sequence[State], coefficients: Sequence[float]) -> State:
    """Return the sum of the states, each times its coefficient."""
    _check_alike(states)
    pairs = list(zip(states, coefficients, strict=True))
    return {
        name: np.sum([c * s[name].astype(np.float64) for s, c in pairs], axis=0).astype(np.float32)
        for name in states[0]
    }


def slerp(state: State, other: State, share: float) -> State:
    """Go ``share`` of the way from the first to the second along the great circle of each tensor, lengths interpolated."""
    _check_alike([state, other])

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        a, b = values.astype(np.float64), other[name].astype(np.float64)
        lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        if not all(lengths):
            return (1 - share) * a + share * b
        u, v = a / lengths[0], b / lengths[1]
        angle = float(np.arccos(np.clip(np.vdot(u, v), -1, 1)))
        if min(angle, np.pi - angle) < _LEAST_ANGLE:
            return (1 - share) * a + share * b
        turned: NDArray[np.float64] = (np.sin((1 - share) * angle) * u + np.sin(share * angle) * v) / np.sin(angle)
        return turned * ((1 - share) * lengths[0] + share * lengths[1])

    return mapped(state, change, set(state))


def ties(state: State, others: Sequence[State], density: float, scale: float = 1.0) -> State:
    """Add to a base the differences of its children: the largest ``density`` of each, of the elected sign, averaged."""
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, got {density}")
    _check_alike([state, *others])

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        differences = np.stack([_trimmed(other[name].astype(np.float64) - values, density) for other in others])
        elected = np.sign(differences.sum(axis=0))
        kept = (np.sign(differences) == elected) & (differences != 0)
        # Where no child moved the sum is zero and so is what is added.
        mean = np.where(kept, differences, 0).sum(axis=0) / np.maximum(kept.sum(axis=0), 1)
        moved: NDArray[np.float64] = values + scale * mean
        return moved

    return mapped(state, change, set(state))


def _trimmed(difference: NDArray[np.float64], density: float) -> NDArray[np.float64]:
    flat = difference.ravel().copy()
    flat[np.argsort(np.abs(flat), kind="stable")[: flat.size - round(density * flat.size)]] = 0
    return flat.reshape(difference.shape)


def dare(state: State, other: State, drop: float, seed: int) -> State:
    """Drop that share of a child's difference from its base at random and scale up what is left by 1 / (1 - drop)."""
    if not 0 <= drop < 1:
        raise ValueError(f"the share to drop must be at least 0 and below 1, got {drop}")
    _check_alike([state, other])

    def change(name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        kept = generator(seed, name).random(values.shape) >= drop
        return values + np.where(kept, (other[name].astype(np.float64) - values) / (1 - drop), 0)

    return mapped(state, change, set(state))
