"""Register metrics, and check their input. A new metric is one decorated function (CONTRIBUTING.md)."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, check_finite, each_norm, each_safely_scaled, row_means
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput
from kinprint.registry import Registry

Kind: TypeAlias = Literal["vector", "matrix"]

INVARIANCES = (
    "scale",  # b times a positive number
    "shift",  # b plus a constant
    "joint_scale",  # both times the same positive number
    "joint_shift",  # both plus the same constant
    "joint_permutation",  # both reordered alike
    "one_sided_permutation",  # b alone reordered: the metric cannot see order
    "rotation",  # columns of b rotated by an orthogonal matrix (matrix metrics only)
)
AFFINE = INVARIANCES[:5]
"""Invariances of a correlation: scale and shift, of one side or of both, and a reordering of both."""


@dataclass(frozen=True)
class Metric:
    """One registered comparison of two validated float64 arrays."""

    name: str  # key in `METRICS`
    label: str  # name that a reader sees
    higher_is_closer: bool  # True for similarities, False for distances
    bounds: tuple[float, float]
    invariant_to: tuple[str, ...]  # out of `INVARIANCES`; what is not named does change the value
    null: str  # kind of permutation null, as understood by `kinprint.stats.nulls.null_for`
    reference: str
    function: Callable[..., Any]
    symmetric: bool = True  # whether swapping the sides leaves the value unchanged
    kinds: tuple[Kind, ...] = ("vector", "matrix")  # these flatten; ("matrix",) needs two axes, and equal row counts
    # Whether the function takes many pairs at once, (pairs, values) on either side, and returns as many values; one pair
    # without a value then raises `DegenerateInput`.
    stacked: bool = False

    def __call__(self, a: ArrayLike, b: ArrayLike, **options: Any) -> float:
        """Return the value for `a` and `b`; raise `DegenerateInput` where the metric is undefined."""
        left, right = validate(a, b, metric=self.name, kinds=self.kinds)
        if self.stacked:
            return float(self.function(left[None], right[None], **options)[0])
        return float(self.function(left, right, **options))

    def each(self, a: FloatArray, b: FloatArray) -> list[float]:
        """Return the values of many pairs of flattened tensors, (pairs, values), which were validated before."""
        if self.stacked:
            values: list[float] = self.function(a, b).tolist()
            return values
        return [float(self.function(one, two)) for one, two in zip(a, b, strict=True)]


METRICS: Registry[Metric] = Registry("metric")


def register(
    name: str, *, invariant_to: tuple[str, ...], null: str | None = None, **fields: Any
) -> Callable[[Callable[..., Any]], Metric]:
    """Turn a function of two arrays into a `Metric` with these fields; its kind of null is by default called as the metric."""
    unknown = set(invariant_to) - set(INVARIANCES)
    if unknown:
        raise ValueError(f"metric {name!r} declares unknown invariances: {', '.join(sorted(unknown))}")

    def decorate(function: Callable[..., Any]) -> Metric:
        metric = Metric(name, invariant_to=invariant_to, null=null or name, function=function, **fields)
        return METRICS.add(name, metric)

    return decorate


def validate(a: ArrayLike, b: ArrayLike, *, metric: str, kinds: tuple[Kind, ...]) -> tuple[FloatArray, FloatArray]:
    """Return both sides as float64, flattened for metrics that take vectors, or say what is wrong with them."""
    left, right = _one_side(a, "a", metric), _one_side(b, "b", metric)
    if "vector" in kinds:
        if left.shape != right.shape:
            found = {"metric": metric, "left": str(left.shape), "right": str(right.shape)}
            raise DegenerateInput("{metric}: shapes differ: expected equal, got a {left} and b {right}", **found)
        return left.ravel(), right.ravel()
    if left.ndim != 2 or right.ndim != 2:
        raise DegenerateInput(f"{metric}: expected two matrices, got a {left.shape} and b {right.shape}")
    if left.shape[0] != right.shape[0]:
        raise DegenerateInput(f"{metric}: row counts differ: expected equal, got a {left.shape} and b {right.shape}")
    return left, right


def _one_side(values: ArrayLike, side: str, metric: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise DegenerateInput(f"{metric}: {side} has shape {array.shape}: expected one or two dimensions")
    if array.size == 0:
        raise DegenerateInput(f"{metric}: {side} is empty: expected at least one element, got shape {array.shape}")
    check_finite(array, metric, side)
    return array


def each_centred(stack: FloatArray, *, side: str, metric: str) -> FloatArray:
    """Return the rows of `stack` minus their means, scaled; a constant or nearly constant one is refused."""
    scaled = each_safely_scaled(stack)
    means = row_means(scaled)
    deviations: FloatArray = scaled - means
    flat = each_norm(deviations) <= NEAR_CONSTANT * np.abs(means[:, 0])
    if not flat.any():
        return deviations
    if (scaled[flat].max(axis=1) == scaled[flat].min(axis=1)).any():
        raise DegenerateInput(
            "{metric}: {side} is constant, so its spread is zero: expected varying values", metric=metric, side=side
        )
    raise DegenerateInput(
        "{metric}: {side} is constant up to rounding (relative to its mean)", metric=metric, side=side
    )


def each_checked(values: FloatArray, metric: str) -> FloatArray:
    """Return `values`, unless one left the range of float64."""
    if not np.isfinite(values).all():
        raise DegenerateInput(
            "{metric}: the result is too large for float64: the inputs reach beyond about 1e154", metric=metric
        )
    return values
