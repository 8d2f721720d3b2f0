"""Measure how one matrix was made from another: sameness, slope, zeros, grid, spectrum and residual in one record."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.edits.lowrank import LowRank, difference_rank
from kinprint.edits.quantisation_grids import ROUNDED, WHOLLY, GridFit, find_grid
from kinprint.edits.regression import LEAST_ROWS, Residual, Slope, residual_of, slope_of
from kinprint.edits.rescaling import Rescaling, rescaling_of
from kinprint.edits.rounding import few_rows, is_float, steps, used_dtype
from kinprint.edits.sameness import TensorIdentity, identity_of
from kinprint.edits.sparsity import Sparsity, sparsity_of
from kinprint.edits.truncation import Truncation, truncation_of
from kinprint.errors import DegenerateInput
from kinprint.metrics.identity import GRIDS, on_grid
from kinprint.text import Text

LEAST_ELEMENTS = 64  # elements below which nothing but sameness is said
_LEAST_SCALED = 32  # non-zero pairs needed before one factor for all of them means anything
_SLACK = 1.01


@dataclass(frozen=True)
class PairEdit:
    """What relates a parent matrix and a child matrix, or equal row slices of both."""

    # Parts are None where they were not needed (the two are the same), not asked for, or undefined; `limits` says which.
    # `common_scale` is the factor s with child = s·parent up to the child's rounding, its zeros aside, None if there is none.
    shape: tuple[int, int]
    identity: TensorIdentity
    slope: Slope | None = None
    common_scale: float | None = None
    rescaling: Rescaling | None = None
    sparsity: Sparsity | None = None
    residual: Residual | None = None
    grid: GridFit | None = None
    low_rank: LowRank | None = None
    truncation: Truncation | None = None
    limits: tuple[Text, ...] = ()


def describe(
    stored_a: NDArray[Any], stored_b: NDArray[Any], *, dtype_a: str, dtype_b: str, spectrum: bool = True
) -> PairEdit:
    """Compare the parent's matrix (or row slice) with the child's, both as decoded from storage of the named dtypes."""
    # `spectrum` False leaves out the spectrum of the difference, by far the dearest part.
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
    why = None
    if A.size < LEAST_ELEMENTS:
        why = Text("{n} elements: expected {m} or more", n=A.size, m=LEAST_ELEMENTS)
    elif min(size) == 0.0:
        why = Text("the parent is zero") if size[0] == 0.0 else Text("the child is zero")
    if why is not None:
        return PairEdit(shape, identity, limits=(why,))
    slope = slope_of(A, B)
    common = _common_scale(A, B, dtype_b)
    sparsity = sparsity_of(_as_child(A, stored_a, dtype_a, dtype_b), stored_b)
    grid = find_grid(A, B, dtype_a=dtype_a, dtype_b=dtype_b)
    # what is explained already needs no spectrum: a pruned or quantised difference has one of no interest
    rescaling = None if common is not None or grid.is_quantised else rescaling_of(A, B, dtype_a, dtype_b)
    explained = common is not None or rescaling is not None or (sparsity.survivors_equal or 0.0) > 0.99
    low_rank, truncation = None, None
    if spectrum and not explained and is_float(dtype_a) and is_float(dtype_b):
        rounding = grid.rounding if grid.is_quantised else None
        truncation = truncation_of(A, B, dtype_a=dtype_a, dtype_b=dtype_b, rounding=rounding)
        # a small update of a model on a grid lies within the grid's steps, nearly, and has a rank that rounding has not
        nearly = ROUNDED <= (grid.rounded_share or 0.0) < WHOLLY
        if truncation is None and (nearly or not grid.is_quantised):
            low_rank = difference_rank(A, B, dtype_a=dtype_a, dtype_b=dtype_b)
    limits: tuple[Text, ...] = () if spectrum else (Text("no spectrum was taken"),)
    if min(shape) < LEAST_ROWS:
        limits += (Text("{n} rows or columns: too few to tell added noise from training", n=min(shape)),)
    return PairEdit(
        shape=shape,
        identity=identity,
        slope=slope,
        common_scale=common,
        rescaling=rescaling,
        sparsity=sparsity,
        residual=residual_of(A, B, slope.slope, dtype_b),
        grid=grid,
        low_rank=low_rank,
        truncation=truncation,
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
    """Return a factor that takes every sampled element of A to B within half a step of B's format, if there is one."""
    # Each element allows an interval of factors; the answer is the middle of what all allow. A factor that rounding hides,
    # where one would do as well, is none.
    if not is_float(dtype_b):
        return None
    some = few_rows(A.shape[0], A.shape[1])
    a, b = A[some], B[some]
    half = 0.5 * _SLACK * steps(b, used_dtype(b, dtype_b))
    used = (a != 0.0) & (b != 0.0)
    if np.count_nonzero(used) < _LEAST_SCALED or np.any(b[a == 0.0] != 0.0):
        return None
    a, b, half = a[used], b[used], half[used]
    ratio, width = b / a, half / np.abs(a)
    low, high = float(np.max(ratio - width)), float(np.min(ratio + width))
    if low > high or low <= 1.0 <= high or low <= 0.0 <= high:
        return None
    return 0.5 * (low + high)
