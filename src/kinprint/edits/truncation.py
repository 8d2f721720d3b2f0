"""Find a child whose rank was cut: singular values beyond some number are rounding, and the others are its parent's."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.edits.rounding import steps, used_dtype

LEAST_SIDE = 16
CUT = 0.9  # share of the possible rank below which a child's rank counts as cut, if the parent's is not
PROJECTED = 0.1  # share of the difference that may remain after the parent was projected on the child's directions
_MARGIN = 1.2  # rounding errors are not quite independent, nor of one size


@dataclass(frozen=True)
class Truncation:
    """Rank of a child, out of `side` that the slice could show, and the share of the change that cutting the rank leaves."""

    rank: int
    side: int
    left: float


def truncation_of(
    A: FloatArray, B: FloatArray, *, dtype_a: str, dtype_b: str, rounding: float | None = None
) -> Truncation | None:
    """Return how B's rank was cut from A's, for equal row slices; None if it was not, or too few rows tell."""
    # `rounding` is the root mean square error of the grid that B lies on, where it was quantised after that.
    side = min(A.shape)
    if side < LEAST_SIDE:
        return None
    tall = A.shape[0] > A.shape[1]
    gram = B.T @ B if tall else B @ B.T
    rank = _rank(np.linalg.eigvalsh(gram), B, dtype_b, rounding)
    if rank == 0 or rank > CUT * side:
        return None
    if _rank(np.linalg.eigvalsh(A.T @ A if tall else A @ A.T), A, dtype_a, None) < rank + (1.0 - CUT) * side:
        return None
    leading = np.linalg.eigh(gram)[1][:, side - rank :]
    # directions along rows: those of a slice of rows are those of the whole matrix
    basis = leading if tall else np.linalg.qr(B.T @ leading)[0]
    noise = (rounding or _error(B, dtype_b)) ** 2 * B.size  # the child's rounding is no remainder
    left = max(float(np.sum(np.square(A @ basis @ basis.T - B))) - noise, 0.0)
    change = float(np.sum(np.square(A - B)))
    return Truncation(rank, side, left / change) if left <= PROJECTED * change else None


def _error(values: FloatArray, dtype: str) -> float:
    return math.sqrt(float(np.mean(np.square(steps(values, used_dtype(values, dtype))))) / 12.0)


def _rank(energies: NDArray[np.floating], values: FloatArray, dtype: str, rounding: float | None) -> int:
    """Count squared singular values beyond what a matrix of rounding errors has."""
    m, n = values.shape
    edge = _MARGIN * (rounding or _error(values, dtype)) * (math.sqrt(m) + math.sqrt(n))
    floor = 4e-15 * float(energies[-1])  # rounding of the computation
    return int(np.count_nonzero(energies > max(edge * edge, floor)))
