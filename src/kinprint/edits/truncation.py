"""Find a child whose rank was cut: singular values beyond some number are rounding, and the others are its parent's."""

import math

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.edits.rounding import steps, used_dtype

LEAST_SIDE = 16
CUT = 0.9  # share of the possible rank below which a child's rank counts as cut, if the parent's is not
PROJECTED = 0.1  # share of the difference that may remain after the parent was projected on the child's directions
_FLOOR = 4e-15  # of the largest squared singular value: rounding of the computation
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
    if _full_rank(gram, _edge(B, dtype_b, rounding)):
        return None
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
    floor = _FLOOR * float(energies[-1])
    return int(np.count_nonzero(energies > max(_edge(values, dtype, rounding), floor)))


def _edge(values: FloatArray, dtype: str, rounding: float | None) -> float:
    """Return the squared singular value that a matrix of rounding errors does not exceed."""
    m, n = values.shape
    return (_MARGIN * (rounding or _error(values, dtype)) * (math.sqrt(m) + math.sqrt(n))) ** 2


def _full_rank(gram: FloatArray, edge: float) -> bool:
    """Whether all squared singular values are surely beyond an edge, as Cholesky's factors tell in a tenth of the time."""
    beyond = 1.001 * max(edge, 1e3 * _FLOOR * float(np.trace(gram)))  # the trace is no less than the largest
    try:
        np.linalg.cholesky(gram - beyond * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    return True
