"""Numerical rules that metrics and nulls must share: what is constant, how to scale without rounding, how to rank."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint.errors import DegenerateInput

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]

T = TypeVar("T")

NEAR_CONSTANT = float(np.finfo(np.float64).eps) ** 0.75
"""A centred norm below this share of |mean| is rounding, not signal: the rule of ``scipy.stats.pearsonr``."""

SAFE_EXPONENT = 64  # values up to two to this power, and down to its inverse, have eighth powers well inside float64


def largest_magnitude(values: NDArray[Any]) -> float:
    """Return the largest |value|, 0 of none; NaN if one of them is."""
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def exponent(*arrays: FloatArray) -> int:
    """Return e such that every value times 2**-e lies in [-1, 1]; scaling by it is exact and prevents overflow."""
    return int(np.frexp(max(map(largest_magnitude, arrays)))[1])


def safely_scaled(array: FloatArray) -> FloatArray:
    """Return `array`, times a power of two if its eighth powers might leave float64: exact, so no result depends on it."""
    e = exponent(array)
    return array if abs(e) <= SAFE_EXPONENT else np.ldexp(array, -e)


def each_exponent(*stacks: FloatArray) -> IntArray:
    """Return the power of two that `safely_scaled` divides each array, or both arrays of a pair, by; 0 if it need not."""
    flat = [stack.reshape(len(stack), -1) for stack in stacks]
    largest = np.max([np.maximum(each.max(axis=1), -each.min(axis=1)) for each in flat], axis=0)
    e = np.frexp(largest)[1]
    return np.where(np.abs(e) <= SAFE_EXPONENT, 0, e)


def each_safely_scaled(stack: FloatArray) -> FloatArray:
    """Apply `safely_scaled` to each array of a stack."""
    # one pass instead of three: the largest value lies between the root mean square and the length
    with np.errstate(over="ignore", under="ignore"):
        squares = each_dot(stack, stack)
    if stack.size and squares.max() < 4.0**SAFE_EXPONENT and squares.min() > stack[0].size * 4.0**-SAFE_EXPONENT:
        return stack
    e = each_exponent(stack)
    return np.ldexp(stack, -e.reshape(-1, *[1] * (stack.ndim - 1))) if e.any() else stack


def each_dot(X: FloatArray, Y: FloatArray) -> FloatArray:
    """Return ⟨x, y⟩ of the arrays of two stacks, pair by pair."""
    dots: FloatArray = np.vecdot(X.reshape(len(X), -1), Y.reshape(len(Y), -1))
    return dots


def each_norm(X: FloatArray) -> FloatArray:
    """Return the lengths of the arrays of a stack."""
    return np.sqrt(each_dot(X, X))


def row_means(A: FloatArray) -> FloatArray:
    """Return the means along the last axis, which stays; as `mean` does, without what that asks first."""
    means: FloatArray = np.add.reduce(A, axis=-1, keepdims=True) / A.shape[-1]
    return means


def median(values: ArrayLike) -> float:
    """Return the median, NaN of nothing; `np.median` takes five times as long on few values and loads masked arrays."""
    array = np.asarray(values).ravel()
    if not array.size:
        return float("nan")
    middle = (array.size - 1) // 2, array.size // 2
    low, high = np.partition(array, middle)[list(middle)].tolist()
    return float(0.5 * (low + high))


def medians(values: FloatArray, axis: int) -> FloatArray:
    """Return the medians along an axis, which stays; as `median` of each."""
    middle = [(values.shape[axis] - 1) // 2, values.shape[axis] // 2]
    found: FloatArray = 0.5 * np.take(np.partition(values, middle, axis), middle, axis).sum(axis, keepdims=True)
    return found


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in their order, each once; `np.unique` loads masked arrays, in 35 ms."""
    ranked = np.sort(values, axis=None)
    found: NDArray[Any] = ranked[np.append(ranked[1:] != ranked[:-1], True)[: ranked.size]]
    return found


def unit_rows(rows: FloatArray) -> FloatArray:
    """Return rows at unit length, zeros where a row is zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: FloatArray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0.0)
    return found


def ranks(values: NDArray[Any]) -> FloatArray:
    """Return the ranks 1..n of all values, in their shape; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    shared: FloatArray = np.cumsum(counts) - (counts - 1) / 2.0
    return shared[inverse].reshape(values.shape)


def evenly_spaced(
    items: Sequence[T], count: int, at: Literal["starts", "middles", "ends", "nearest"] = "starts"
) -> list[T]:
    """Return at most `count` of the items, at the starts or in the middles of as many equal parts.

    With "ends" and "nearest" the first and the last are among them, others rounded down, or to the nearest; one alone is the last.
    """
    n = len(items)
    if n <= count:
        return list(items)
    if at == "starts":
        return [items[k * n // count] for k in range(count)]
    if at == "middles":
        return [items[int((k + 0.5) * n / count)] for k in range(count)]
    if count == 1:
        return [items[-1]]
    if at == "ends":
        return [items[k * (n - 1) // (count - 1)] for k in range(count)]
    return [items[round(k * (n - 1) / (count - 1))] for k in range(count)]


def spaced_places(size: int, count: int) -> NDArray[np.intp]:
    """Return the places of `evenly_spaced` among so many items, at the starts of equal parts."""
    return np.arange(min(size, count), dtype=np.intp) * size // min(size, count) if size else np.empty(0, dtype=np.intp)


def check_finite(values: NDArray[Any], of: str, side: str) -> None:
    """Refuse NaN and infinity in one side of what is to be computed."""
    if bad := values.size - int(np.count_nonzero(np.isfinite(values))):
        raise DegenerateInput(
            "{of}: {side} holds {bad} non-finite of {n} values: expected none", of=of, side=side, bad=bad, n=values.size
        )
