"""Distances in the units of the values, and their ratios to a norm. The label names the denominator."""

from __future__ import annotations

import math

import numpy as np

from kinprint.errors import DegenerateInput
from kinprint.metrics.base import checked, register
from kinprint.numeric import FloatArray, exponent

MAX_CV = 10.0
"""Coefficients of variation above this are refused.

The mean of d values has the relative error CV/√d. At CV = 10 and d = 4096 that is 16 %, and it grows in proportion: a
larger CV describes the accident of a mean near zero, not the spread (weights with mean zero reach CV = 17,000).
"""


def _difference(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Return a − b, a and b, all scaled by the same power of two, and its exponent."""
    e = exponent(a, b)
    left, right = np.ldexp(a, -e), np.ldexp(b, -e)
    return left - right, left, right, e


def _restored(value: float, e: int, metric: str) -> float:
    with np.errstate(over="ignore"):
        return checked(float(np.ldexp(value, e)), metric)


def _ratio(difference: float, norm: float, metric: str, what: str) -> float:
    if norm == 0.0:
        raise DegenerateInput(f"{metric}: {what} is zero and is the denominator: expected a nonzero norm")
    with np.errstate(over="ignore"):
        return checked(float(np.float64(difference) / np.float64(norm)), metric)


@register(
    "l2",
    label="L2 distance",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    symmetric=True,
    invariant_to=("joint_shift", "joint_permutation"),
    null="l2",
    reference="‖a − b‖",
)
def l2(a: FloatArray, b: FloatArray) -> float:
    """Euclidean distance."""
    difference, _, _, e = _difference(a, b)
    return _restored(float(np.linalg.norm(difference)), e, "l2")


@register(
    "rel_l2_a",
    label="Relative L2 (divided by ‖a‖)",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    symmetric=False,
    invariant_to=("joint_scale", "joint_permutation"),
    null="rel_l2_a",
    reference="‖a − b‖ / ‖a‖",
)
def rel_l2_a(a: FloatArray, b: FloatArray) -> float:
    """Distance in units of the first side's norm; swapping the sides changes it, so it must not be mirrored."""
    difference, left, _, _ = _difference(a, b)
    return _ratio(float(np.linalg.norm(difference)), float(np.linalg.norm(left)), "rel_l2_a", "‖a‖")


@register(
    "rel_l2",
    label="Relative L2 (divided by the root mean square of ‖a‖ and ‖b‖)",
    higher_is_closer=False,
    bounds=(0.0, 2.0),
    symmetric=True,
    invariant_to=("joint_scale", "joint_permutation"),
    null="rel_l2",
    reference="‖a − b‖ / √((‖a‖² + ‖b‖²) / 2)",
)
def rel_l2(a: FloatArray, b: FloatArray) -> float:
    """Distance in units of the common norm: 0 for a copy, √2 for orthogonal sides, 2 for b = −a."""
    difference, left, right, _ = _difference(a, b)
    norm = math.hypot(float(np.linalg.norm(left)), float(np.linalg.norm(right))) / math.sqrt(2.0)
    return min(2.0, _ratio(float(np.linalg.norm(difference)), norm, "rel_l2", "the common norm"))


@register(
    "rel_rmse",
    label="Relative RMSE (divided by the root mean square of a)",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    symmetric=False,
    invariant_to=("joint_scale", "joint_permutation"),
    null="rel_l2_a",
    reference="rms(a − b) / rms(a); equals rel_l2_a on whole tensors",
)
def rel_rmse(a: FloatArray, b: FloatArray) -> float:
    """Root mean square error over that of the first side: the same number as `rel_l2_a`, since √d cancels."""
    difference, left, _, _ = _difference(a, b)
    rms, rms_a = (math.sqrt(float(np.mean(x * x))) for x in (difference, left))
    return _ratio(rms, rms_a, "rel_rmse", "rms(a)")


@register(
    "mean_abs_diff",
    label="Mean absolute difference",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    symmetric=True,
    invariant_to=("joint_shift", "joint_permutation"),
    null="abs_diff",
    reference="mean |a − b|",
)
def mean_abs_diff(a: FloatArray, b: FloatArray) -> float:
    """Mean of the absolute differences, element by element."""
    difference, _, _, e = _difference(a, b)
    return _restored(float(np.abs(difference).mean()), e, "mean_abs_diff")


@register(
    "p99_abs_diff",
    label="Difference of the 99th percentiles of |values|",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    symmetric=True,
    invariant_to=("joint_permutation", "one_sided_permutation"),
    null="invariant",
    reference="|Q99(|a|) − Q99(|b|)|, linear interpolation",
)
def p99_abs_diff(a: FloatArray, b: FloatArray) -> float:
    """Compare two marginals at their 99th percentile; the order of the elements plays no part."""
    q_a, q_b = (float(np.quantile(np.abs(x), 0.99, method="linear")) for x in (a, b))
    return checked(abs(q_a - q_b), "p99_abs_diff")


@register(
    "cv_diff",
    label="Difference of the coefficients of variation",
    higher_is_closer=False,
    bounds=(0.0, MAX_CV),
    symmetric=True,
    invariant_to=("scale", "joint_scale", "joint_permutation", "one_sided_permutation"),
    null="invariant",
    reference="|σ_a/|ā| − σ_b/|b̄||, population statistics",
)
def cv_diff(a: FloatArray, b: FloatArray) -> float:
    """Compare relative spreads; refused where a mean is near zero, see `MAX_CV`."""
    return abs(_cv(a, "a") - _cv(b, "b"))


def _cv(values: FloatArray, side: str) -> float:
    scaled = np.ldexp(values, -exponent(values))
    mean, std = abs(float(scaled.mean())), float(scaled.std())
    if mean == 0.0 or std > MAX_CV * mean:
        raise DegenerateInput(
            f"cv_diff: the mean of {side} is near zero (|mean| is {mean / std if std else 0.0:.3g} of its std): "
            f"expected at least {1 / MAX_CV:g}"
        )
    return std / mean
