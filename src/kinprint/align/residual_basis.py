"""Align the residual dimensions of two models by the embeddings of shared tokens: as a permutation, or as a rotation.

What was aligned on embeddings must be tested on OTHER matrices: neuron rows, say, whose order no step here has looked at.
Independent models trained on like data agree a little after alignment too, so such a test needs its own null.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray, check_finite, unit_rows
from kinprint.align.assignment import assigned
from kinprint.errors import DegenerateInput
from kinprint.stats.moments import check_range
from kinprint.text import Text

MAX_WIDTH = 4096
"""Widest residual stream that is aligned here: a d×d assignment takes seconds there, a rotation minutes."""

NULL_SHUFFLES = 3


@dataclass(frozen=True)
class ColumnMatch:
    """A permutation of residual dimensions, with signs."""

    index: NDArray[np.intp]  # for each column of A the column of B, or −1
    sign: NDArray[np.int8]  # the sign it carries there; 0 where there is none
    share: float  # of the matched columns whose gap to the best other column is beyond all gaps of shuffled tokens

    @property
    def in_place(self) -> FloatArray:
        """Signs of dimensions that stand in their own places; 0 of those that do not."""
        return np.where(self.index == np.arange(self.index.size), self.sign, 0).astype(np.float64)

    def columns_of_a(self, X: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return the columns of a matrix of B in A's order and signs, and which columns of A these are."""
        kept = np.flatnonzero(self.index >= 0)
        return X[:, self.index[kept]] * self.sign[kept], kept

    def columns_of_b(self, X: NDArray[np.float32], width: int) -> NDArray[np.float32]:
        """Return the columns of a matrix of A in B's order and signs, zero where B's dimension has no partner."""
        kept = np.flatnonzero(self.index >= 0)
        moved = np.zeros((len(X), width), dtype=np.float32)
        moved[:, self.index[kept]] = X[:, kept] * self.sign[kept]
        return moved


def match_columns(E_a: ArrayLike, E_b: ArrayLike, *, signs: bool = True, seed: int = 0) -> ColumnMatch:
    """Pair the columns of two embeddings of the same tokens (t×d each) by the best assignment on |cosine|.

    The widths may differ; then some columns of the wider side have no partner. With `signs` False no column is taken to
    be negated. The null shuffles tokens, all columns alike: margins that shuffled tokens reach show nothing.
    """
    left, right = _embeddings(E_a, E_b)
    left, right = unit_rows(left.T).T, unit_rows(right.T).T
    cosines = left.T @ right
    index = assigned(np.abs(cosines) if signs else cosines)
    index[~np.asarray(left.any(axis=0))] = -1
    index[(index >= 0) & ~np.asarray(right.any(axis=0))[index]] = -1
    kept = np.flatnonzero(index >= 0)
    if not kept.size:
        raise DegenerateInput("residual: every column is zero: expected embeddings")
    sign = np.zeros(index.size, dtype=np.int8)
    sign[kept] = np.where(signs & (cosines[kept, index[kept]] < 0.0), -1, 1)
    if signs:
        np.abs(cosines, out=cosines)
    margin = cosines[kept, index[kept]]
    if right.shape[1] > 1:
        cosines[kept, index[kept]] = -np.inf
        margin -= cosines[kept].max(axis=1)  # negative where the assignment had to take a lesser column
    share = float(np.mean(margin > _null_margin(left, right, signs=signs, seed=seed)))
    return ColumnMatch(index, sign, share)


def _null_margin(left: FloatArray, right: FloatArray, *, signs: bool, seed: int) -> float:
    """Return the largest gap between best and second best column when tokens are shuffled.

    Without the constraint of an assignment, which could only make gaps smaller.
    """
    if right.shape[1] < 2:
        return math.inf  # no second column, so no gap can be told from chance
    rng = np.random.default_rng(seed)
    largest = 0.0
    for _ in range(NULL_SHUFFLES):
        cosines = left.T @ right[rng.permutation(right.shape[0])]
        if signs:
            np.abs(cosines, out=cosines)
        top = np.partition(cosines, -2, axis=1)[:, -2:]
        largest = max(largest, float((top[:, 1] - top[:, 0]).max()))
    return largest


def embedding_rotation(E_a: ArrayLike, E_b: ArrayLike) -> FloatArray:
    """Return the rotation that takes the embeddings of A nearest to those of B (orthogonal Procrustes, Schönemann 1966).

    R = UVᵀ of E_aᵀE_b = UΣVᵀ, which may be a reflection; its d² free numbers fit anything to some degree. At least as many
    tokens as dimensions are needed: fewer leave R undetermined.
    """
    left, right = _embeddings(E_a, E_b)
    t, d = left.shape
    if right.shape[1] != d or t < d:
        raise DegenerateInput(
            f"rotation: embeddings of shapes {left.shape} and {right.shape}: expected equal widths and as many tokens"
        )
    norms = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    if 0.0 in norms:
        raise DegenerateInput("rotation: a side is all zeros: expected embeddings")
    left, right = left / norms[0], right / norms[1]
    U, _, Vt = np.linalg.svd(left.T @ right)
    return np.asarray(U @ Vt)


def _embeddings(E_a: ArrayLike, E_b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = np.asarray(E_a, dtype=np.float64), np.asarray(E_b, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0] or not left.size or not right.size:
        raise DegenerateInput(f"residual: shapes {left.shape} and {right.shape}: expected a row per token they share")
    for side, E in (("a", left), ("b", right)):
        if E.shape[1] > MAX_WIDTH:
            raise DegenerateInput(f"residual: {side} is {E.shape[1]} wide: expected at most {MAX_WIDTH} columns")
        check_finite(E, Text("residual"), side)
        check_range(E, side)
    return left, right
