"""Similarities of direction: cosine and its relatives."""

from __future__ import annotations

import numpy as np

from kinprint.errors import DegenerateInput
from kinprint.metrics.base import centred, register
from kinprint.numeric import FloatArray, ranks, safely_scaled

SHUFFLE_SEED = 42
"""Seed of `shuffled_cosine`: fixed, so that the value is a function of its input."""


def _cosine(a: FloatArray, b: FloatArray, metric: str) -> float:
    for side, values in (("a", a), ("b", b)):
        if not values.any():
            raise DegenerateInput(f"{metric}: {side} has zero length: expected a direction")
    a, b = safely_scaled(a), safely_scaled(b)
    value = float(a @ b) / (float(np.linalg.norm(a)) * float(np.linalg.norm(b)))
    return min(1.0, max(-1.0, value))  # rounding may overstep by an ulp


@register(
    "cosine",
    label="Cosine",
    higher_is_closer=True,
    bounds=(-1.0, 1.0),
    symmetric=True,
    invariant_to=("scale", "joint_scale", "joint_permutation"),
    null="cosine",
    reference="a·b / (‖a‖‖b‖)",
)
def cosine(a: FloatArray, b: FloatArray) -> float:
    """Cosine of the angle between the raw values; two positive vectors are close to 1 whatever their origin."""
    return _cosine(a, b, "cosine")


@register(
    "pearson",
    label="Pearson (centred cosine)",
    higher_is_closer=True,
    bounds=(-1.0, 1.0),
    symmetric=True,
    invariant_to=("scale", "shift", "joint_scale", "joint_shift", "joint_permutation"),
    null="pearson",
    reference="Pearson 1895",
)
def pearson(a: FloatArray, b: FloatArray) -> float:
    """Cosine after subtracting each side's mean: which elements lie above average, and by how much."""
    return _cosine(centred(a, side="a", metric="pearson"), centred(b, side="b", metric="pearson"), "pearson")


@register(
    "spearman",
    label="Spearman (Pearson of ranks)",
    higher_is_closer=True,
    bounds=(-1.0, 1.0),
    symmetric=True,
    invariant_to=("scale", "shift", "joint_scale", "joint_shift", "joint_permutation"),
    null="spearman",
    reference="Spearman 1904",
)
def spearman(a: FloatArray, b: FloatArray) -> float:
    """Pearson correlation of the ranks; outliers count no more than their place in the order."""
    left, right = (centred(ranks(x), side=side, metric="spearman") for side, x in (("a", a), ("b", b)))
    return _cosine(left, right, "spearman")


@register(
    "deviation_cosine",
    label="Cosine of deviations from 1",
    higher_is_closer=True,
    bounds=(-1.0, 1.0),
    symmetric=True,
    invariant_to=("joint_permutation",),
    null="deviation",
    reference="cosine of a − 1 and b − 1, the usual start of a norm's scale",
)
def deviation_cosine(a: FloatArray, b: FloatArray) -> float:
    """Cosine of a − 1 and b − 1. This is not centring: a common offset from 1 still drives it towards ±1."""
    return _cosine(a - 1.0, b - 1.0, "deviation_cosine")


@register(
    "shuffled_cosine",
    label="Cosine after shuffling both sides",
    higher_is_closer=True,
    bounds=(-1.0, 1.0),
    symmetric=False,
    invariant_to=("scale", "joint_scale"),
    null="shuffled",
    kinds=("vector",),
    reference="one draw from the permutation null of the cosine, seed 42",
)
def shuffled_cosine(a: FloatArray, b: FloatArray) -> float:
    """Cosine of both sides, each in an order of its own: one draw from the cosine's null, not a comparison."""
    rng = np.random.default_rng(SHUFFLE_SEED)
    return _cosine(rng.permutation(a), rng.permutation(b), "shuffled_cosine")
