"""Measure distances, in the units of the values or relative to a norm, which the label names."""

import math
from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray, IntArray, each_exponent, each_norm, each_safely_scaled
from kinprint.errors import DegenerateInput
from kinprint.metrics.base import each_checked, register
from kinprint.text import Text

MAX_CV = 10.0
"""Coefficients of variation above this are refused.

The mean of d values has the relative error CV/√d. At CV = 10 and d = 4096 that is 16 %, and it grows in proportion: a
larger CV describes the accident of a mean near zero, not the spread (weights with mean zero reach CV = 17,000).
"""

_distance = partial(register, higher_is_closer=False, bounds=(0.0, math.inf), stacked=True)


def _differences(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Return a − b, a and b, each pair scaled by the same power of two, and the exponents."""
    e = each_exponent(a, b)
    if not e.any():
        return a - b, a, b, e
    left, right = np.ldexp(a, -e[:, None]), np.ldexp(b, -e[:, None])
    return left - right, left, right, e


def _restored(values: FloatArray, e: IntArray, metric: str) -> FloatArray:
    with np.errstate(over="ignore"):
        return each_checked(np.ldexp(values, e), metric)


def _ratios(differences: FloatArray, norms: FloatArray, metric: str, what: str) -> FloatArray:
    if not norms.all():
        raise DegenerateInput(
            "{metric}: {what} is zero and is the denominator: expected a nonzero norm", metric=metric, what=what
        )
    with np.errstate(over="ignore"):
        return each_checked(differences / norms, metric)


@_distance("l2", label="L2 distance", invariant_to=("joint_shift", "joint_permutation"), reference="‖a − b‖")
def l2(a: FloatArray, b: FloatArray) -> FloatArray:
    """Euclidean distance."""
    difference, _, _, e = _differences(a, b)
    return _restored(each_norm(difference), e, "l2")


@_distance(
    "rel_l2_a",
    label="Relative L2 (divided by ‖a‖)",
    symmetric=False,
    invariant_to=("joint_scale", "joint_permutation"),
    reference="‖a − b‖ / ‖a‖",
)
def rel_l2_a(a: FloatArray, b: FloatArray) -> FloatArray:
    """Distance in units of the first side's norm; swapping the sides changes it, so it must not be mirrored."""
    difference, left, _, _ = _differences(a, b)
    return _ratios(each_norm(difference), each_norm(left), "rel_l2_a", "‖a‖")


@_distance(
    "rel_l2",
    label="Relative L2 (divided by the root mean square of ‖a‖ and ‖b‖)",
    bounds=(0.0, 2.0),
    invariant_to=("joint_scale", "joint_permutation"),
    reference="‖a − b‖ / √((‖a‖² + ‖b‖²) / 2)",
)
def rel_l2(a: FloatArray, b: FloatArray) -> FloatArray:
    """Distance in units of the common norm: 0 for a copy, √2 for orthogonal sides, 2 for b = −a."""
    difference, left, right, _ = _differences(a, b)
    norm = np.hypot(each_norm(left), each_norm(right)) / math.sqrt(2.0)
    return np.minimum(2.0, _ratios(each_norm(difference), norm, "rel_l2", Text("the common norm")))


@_distance(
    "rel_rmse",
    label="Relative RMSE (divided by the root mean square of a)",
    symmetric=False,
    invariant_to=("joint_scale", "joint_permutation"),
    null="rel_l2_a",
    reference="rms(a − b) / rms(a); equals rel_l2_a on whole tensors",
)
def rel_rmse(a: FloatArray, b: FloatArray) -> FloatArray:
    """Root mean square error over that of the first side: the same number as `rel_l2_a`, since √d cancels."""
    difference, left, _, _ = _differences(a, b)
    rms, rms_a = (np.sqrt(np.mean(x * x, axis=1)) for x in (difference, left))
    return _ratios(rms, rms_a, "rel_rmse", "rms(a)")


@_distance(
    "mean_abs_diff",
    label="Mean absolute difference",
    invariant_to=("joint_shift", "joint_permutation"),
    null="abs_diff",
    reference="mean |a − b|",
)
def mean_abs_diff(a: FloatArray, b: FloatArray) -> FloatArray:
    """Mean of the absolute differences, element by element."""
    difference, _, _, e = _differences(a, b)
    return _restored(np.abs(difference).mean(axis=1), e, "mean_abs_diff")


@_distance(
    "p99_abs_diff",
    label="Difference of the 99th percentiles of |values|",
    invariant_to=("joint_permutation", "one_sided_permutation"),
    null="invariant",
    reference="|Q99(|a|) − Q99(|b|)|, linear interpolation",
)
def p99_abs_diff(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compare two marginals at their 99th percentile; the order of the elements plays no part."""
    q_a, q_b = (np.quantile(np.abs(x), 0.99, axis=1, method="linear") for x in (a, b))
    return each_checked(np.abs(q_a - q_b), "p99_abs_diff")


@_distance(
    "cv_diff",
    label="Difference of the coefficients of variation",
    bounds=(0.0, MAX_CV),
    invariant_to=("scale", "joint_scale", "joint_permutation", "one_sided_permutation"),
    null="invariant",
    reference="|σ_a/|ā| − σ_b/|b̄||, population statistics",
)
def cv_diff(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compare relative spreads; refused where a mean is near zero, see `MAX_CV`."""
    return np.abs(_cvs(a, "a") - _cvs(b, "b"))


def _cvs(values: FloatArray, side: str) -> FloatArray:
    scaled = each_safely_scaled(values)
    means, stds = np.abs(scaled.mean(axis=1)), scaled.std(axis=1)
    bad = (means == 0.0) | (stds > MAX_CV * means)
    if bad.any():
        mean, std = means[bad][0], stds[bad][0]
        raise DegenerateInput(
            "cv_diff: the mean of {side} is near zero (|mean| is {x:.3g} of its std): expected at least {x2:g}",
            side=side,
            x=mean / std if std else 0.0,
            x2=1 / MAX_CV,
        )
    ratios: FloatArray = stds / means
    return ratios
