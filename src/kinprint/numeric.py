"""Numerical rules that metrics and nulls must share: what is constant, how to scale without rounding, how to rank."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

NEAR_CONSTANT = float(np.finfo(np.float64).eps) ** 0.75
"""A centred norm below this share of |mean| is rounding, not signal: the rule of ``scipy.stats.pearsonr``."""


def exponent(*arrays: FloatArray) -> int:
    """Return e such that every value times 2**-e lies in [-1, 1]; scaling by it is exact and prevents overflow."""
    return int(np.frexp(max(float(np.abs(array).max()) for array in arrays))[1])


def unit_scaled(array: FloatArray) -> FloatArray:
    """Return `array` times the power of two that brings its largest value near one: exact, and squares cannot overflow."""
    return np.ldexp(array, -exponent(array))


def ranks(values: NDArray[Any]) -> FloatArray:
    """Return the ranks 1..n of all values, in their shape; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    shared: FloatArray = np.cumsum(counts) - (counts - 1) / 2.0
    return shared[inverse].reshape(values.shape)
