"""Find factors for rows and columns that take a parent to its child: B = diag(r)·A·diag(s), up to rounding.

Multiplying a norm's scales into the matrices behind it, or the rows of one matrix by what the columns of the next are divided
by, changes numbers and not the model's function.
"""

from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray, medians
from kinprint._util.records import dataclass
from kinprint.edits.rounding import few_rows, is_float, steps, used_dtype

FITTING = 0.98  # share of elements that must be the product of their factors, up to rounding
VARIED = 0.02  # least spread of the factors' logarithms: smaller ones are hidden by rounding or by training
_SWEEPS = 4
_LEAST_SIDE = 16


@dataclass(frozen=True)
class Rescaling:
    """Spread (standard deviation of logarithms) of the factors of rows and of columns."""

    rows: float
    columns: float


def rescaling_of(A: FloatArray, B: FloatArray, dtype_a: str, dtype_b: str) -> Rescaling | None:
    """Return the spread of the factors that explain B by A, up to rounding of both; None if there are no such factors."""
    if min(A.shape) < _LEAST_SIDE or not (is_float(dtype_a) and is_float(dtype_b)):
        return None
    some = few_rows(A.shape[0], A.shape[1])
    A, B = A[some], B[some]
    used = (A != 0.0) & (B != 0.0)
    if not np.array_equal(A == 0.0, B == 0.0) or used.mean() < 0.5:
        return None
    signs = np.sign(A[used]) == np.sign(B[used])
    if min(used.sum(axis=0).min(), used.sum(axis=1).min()) == 0 or not (signs.all() or not signs.any()):
        return None
    logs = np.log(np.where(used, np.abs(B) / np.where(used, np.abs(A), 1.0), np.nan))
    # numpy's own take ten times as long where some are left out, and load masked arrays where none are
    median = medians if used.all() else partial(np.nanmedian, keepdims=True)
    rows, columns = np.zeros((A.shape[0], 1)), np.zeros((1, A.shape[1]))
    for _ in range(_SWEEPS):  # of median polish (Tukey 1977)
        rows += median(logs - rows - columns, axis=1)
        columns += median(logs - rows - columns, axis=0)
    factors = np.exp(rows + columns)
    left = np.abs(B - np.sign(B * A) * factors * A)
    rounding = steps(B, used_dtype(B, dtype_b)) + factors * steps(A, used_dtype(A, dtype_a))
    if np.mean(left <= rounding) < FITTING:
        return None
    found = Rescaling(float(np.std(rows)), float(np.std(columns)))
    return found if max(found.rows, found.columns) > VARIED else None
