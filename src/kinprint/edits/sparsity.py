"""Describe the zeros that a child has and its parent has not: which weights, in what pattern, and whether the others stayed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import ranks
from kinprint._util.records import dataclass
from kinprint.edits.rounding import few_rows

PATTERNS = ((1, 4), (2, 4), (4, 8))
"""N of M neighbours kept, strictest first; 2 of 4 is what sparse tensor cores need (Mishra et al. 2021)."""

_NEW = 0.02  # share of new zeros below which no pattern is looked for
_RANKED = 1 << 14
_LEAST = 16  # zeros and survivors needed for a rank statistic


@dataclass(frozen=True)
class Sparsity:
    """Exact zeros of parent and child."""

    # `new_zeros` is the share of elements that are zero in the child only. `small_first` is the chance that a removed weight
    # was smaller than a surviving one, over pairs of a sample: 1 for a global magnitude threshold, ½ for removal at random;
    # None without new zeros. `survivors_equal` is the share of the child's non-zero elements that equal the parent's.
    # `survivors_near` is the share of them within the error of rounding to eight bits by rows: pruned, and quantised or
    # trained too little to tell. `pattern` is "N:M" if every group of M neighbours in a row keeps at most N, and the parent's
    # did not.
    parent_zeros: float
    child_zeros: float
    new_zeros: float
    small_first: float | None
    survivors_equal: float | None
    pattern: str | None
    survivors_near: float | None = None


def sparsity_of(A: NDArray[Any], B: NDArray[Any]) -> Sparsity:
    """Compare the zeros of a parent A and a child B, equal-shaped matrices of stored numbers."""
    kept = np.count_nonzero(B)
    zeros = (B.size - np.count_nonzero(A), B.size - kept)
    if zeros[1] == 0:
        return Sparsity(zeros[0] / B.size, 0.0, 0.0, None, None, None)
    gone = (B == 0) & (A != 0)
    new = np.count_nonzero(gone) / B.size
    equal = np.count_nonzero((B == A) & (B != 0)) / kept if kept else None
    small_first = _small_first(A, B, gone) if new > 0.0 else None
    pattern = _pattern(A, B) if new > _NEW else None
    near = None
    if equal is not None and new > _NEW:
        half_step = np.abs(A).max(axis=1, keepdims=True) / (2 * 127)
        near = np.count_nonzero((np.abs(B - A) <= 1.05 * half_step) & (B != 0)) / kept
    return Sparsity(zeros[0] / B.size, zeros[1] / B.size, new, small_first, equal, pattern, near)


def _small_first(A: NDArray[Any], B: NDArray[Any], gone: NDArray[np.bool_]) -> float | None:
    some = few_rows(A.shape[0], A.shape[1], _RANKED)
    magnitude, removed = np.abs(A[some]), gone[some]
    counted = removed | (B[some] != 0)
    removed, rank = removed[counted], ranks(magnitude[counted])
    n = int(np.count_nonzero(removed))
    m = removed.size - n
    if min(n, m) < _LEAST:
        return None
    # Mann & Whitney 1947: the rank sum of one class counts the pairs it wins
    wins = float(rank[~removed].sum()) - m * (m + 1) / 2.0
    return float(wins / (n * m))


def _pattern(A: NDArray[Any], B: NDArray[Any]) -> str | None:
    for keep, out_of in PATTERNS:
        width = B.shape[1] // out_of * out_of
        groups = B.shape[0] * width // out_of
        if groups < _LEAST:
            continue
        child, parent = ((X[:, :width] != 0).reshape(-1, out_of).sum(axis=1) for X in (B, A))
        # a matrix of few weights satisfies every pattern: most groups must keep as many as they may
        if child.max() <= keep and child.mean() >= 0.9 * keep and parent.max() > keep:
            return f"{keep}:{out_of}"
    return None
