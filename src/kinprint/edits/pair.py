"""All that can be said of how one matrix was made from another, in one record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.edits.lowrank import LowRank, difference_rank
from kinprint.edits.quantisation_grids import GridFit, find_grid
from kinprint.edits.regression import LEAST_ROWS, Residual, Slope, residual_of, slope_of
from kinprint.edits.rounding import few_rows, is_float, steps, used_dtype
from kinprint.edits.sameness import TensorIdentity, identity_of
from kinprint.edits.sparsity import Sparsity, sparsity_of
from kinprint.errors import DegenerateInput
from kinprint.metrics.identity import GRIDS, on_grid
from kinprint.text import Text

LEAST_ELEMENTS = 64
"""Elements below which nothing but sameness is said."""

_LEAST_SCALED = 32  # non-zero pairs needed before one factor for all of them means anything
_SLACK = 1.01


@dataclass(frozen=True)
class PairEdit:
    """What relates a parent matrix and a child matrix, or equal row slices of both.

    Parts are None where they were not needed (the two are the same), not asked for, or undefined; `limits` says which.
    `common_scale` is the factor s with child = s·parent up to the child's rounding, None if there is none.
    """

    shape: tuple[int, int]
    identity: TensorIdentity
    slope: Slope | None = None
    common_scale: float | None = None
    sparsity: Sparsity | None = None
    residual: Residual | None = None
    grid: GridFit | None = None
    low_rank: LowRank | None = None
    limits: tuple[Text, ...] = ()


def describe(
    stored_a: NDArray[Any], stored_b: NDArray[Any], *, dtype_a: str, dtype_b: str, spectrum: bool = True
) -> PairEdit:
    """Compare the parent's matrix (or row slice) with the child's.

    Parameters
    ----------
    stored_a, stored_b
        Equal-shaped matrices as decoded from storage; float64 copies of the same numbers serve as well.
    dtype_a, dtype_b
        How they are stored: "BF16", "F16", "F32", "F8_E4M3", "I8"...
    spectrum
        Whether to take the spectrum of the difference, by far the dearest part.
    """
    if stored_a.ndim != 2 or stored_a.shape != stored_b.shape or stored_a.size == 0:
        raise DegenerateInput(f"describe: shapes {stored_a.shape} and {stored_b.shape}: expected two equal matrices")
    identity = identity_of(stored_a, stored_b, dtype_a, dtype_b)
    shape = (int(stored_a.shape[0]), int(stored_a.shape[1]))
    if identity.same_values or identity.cast is not None:
        return PairEdit(shape, identity)
    A, B = np.asarray(stored_a, dtype=np.float64), np.asarray(stored_b, dtype=np.float64)
    size = float(np.einsum("ij,ij->", A, A)), float(np.einsum("ij,ij->", B, B))
    if not all(math.isfinite(x) for x in size):
        raise DegenerateInput("describe: values that are not finite, or whose squares are not: expected finite weights")
    if A.size < LEAST_ELEMENTS:
        return PairEdit(
            shape, identity, limits=(Text("{n} elements: expected {m} or more", n=A.size, m=LEAST_ELEMENTS),)
        )
    if min(size) == 0.0:
        return PairEdit(
            shape, identity, limits=(Text("the parent is zero") if size[0] == 0.0 else Text("the child is zero"),)
        )
    slope = slope_of(A, B)
    common = _common_scale(A, B, dtype_b)
    sparsity = sparsity_of(_as_child(A, stored_a, dtype_a, dtype_b), stored_b)
    grid = find_grid(A, B, dtype_a=dtype_a, dtype_b=dtype_b)
    # what is explained already needs no spectrum: a pruned or quantised difference has one of no interest
    explained = common is not None or grid.is_quantised is True or (sparsity.survivors_equal or 0.0) > 0.99
    low_rank = None
    if spectrum and not explained and is_float(dtype_a) and is_float(dtype_b):
        low_rank = difference_rank(A, B, dtype_a=dtype_a, dtype_b=dtype_b)
    limits: tuple[Text, ...] = () if spectrum else (Text("no spectrum was taken"),)
    if min(shape) < LEAST_ROWS:
        limits += (Text("{n} rows or columns: too few to tell added noise from training", n=min(shape)),)
    return PairEdit(
        shape=shape,
        identity=identity,
        slope=slope,
        common_scale=common,
        sparsity=sparsity,
        residual=residual_of(A, B, slope.slope, dtype_b),
        grid=grid,
        low_rank=low_rank,
        limits=limits,
    )


def _as_child(A: FloatArray, stored: NDArray[Any], dtype_a: str, dtype_b: str) -> NDArray[Any]:
    """Return the parent as it would be if it had been cast to the child's coarser format and not been changed else."""
    if dtype_a == dtype_b or not (is_float(dtype_a) and is_float(dtype_b)):
        return stored
    if GRIDS[dtype_b].precision >= GRIDS[dtype_a].precision:
        return stored
    try:
        return on_grid(A, dtype_b)
    except DegenerateInput:  # beyond the range of the format
        return stored


def _common_scale(A: FloatArray, B: FloatArray, dtype_b: str) -> float | None:
    """Return a factor that takes every sampled element of A to B within half a step of B's format, if there is one.

    Each element allows an interval of factors; the answer is the middle of what all allow. A factor that rounding hides,
    where one would do as well, is none.
    """
    if not is_float(dtype_b):
        return None
    some = few_rows(A.shape[0], A.shape[1])
    a, b = A[some], B[some]
    half = 0.5 * _SLACK * steps(b, used_dtype(b, dtype_b))
    used = a != 0.0
    if np.count_nonzero(used) < _LEAST_SCALED or np.any(b[~used] != 0.0):
        return None
    a, b, half = a[used], b[used], half[used]
    ratio, width = b / a, half / np.abs(a)
    low, high = float(np.max(ratio - width)), float(np.min(ratio + width))
    if low > high or low <= 1.0 <= high or low <= 0.0 <= high:
        return None
    return 0.5 * (low + high)
