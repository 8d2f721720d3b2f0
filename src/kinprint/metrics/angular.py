"""Compare directions: cosine, Pearson and Spearman correlation."""

from functools import partial

import numpy as np

from kinprint._util.numeric import FloatArray, each_dot, each_norm, each_safely_scaled, ranks
from kinprint.errors import DegenerateInput
from kinprint.metrics.base import AFFINE, each_centred, register

SHUFFLE_SEED = 42  # seed of `shuffled_cosine`: fixed, so that the value is a function of its input
_similarity = partial(register, higher_is_closer=True, bounds=(-1.0, 1.0), stacked=True)


def _cosines(a: FloatArray, b: FloatArray, metric: str) -> FloatArray:
    a, b = each_safely_scaled(a), each_safely_scaled(b)
    norms = each_norm(a), each_norm(b)
    for side, lengths in zip("ab", norms, strict=True):
        if not lengths.all():
            raise DegenerateInput("{metric}: {side} has zero length: expected a direction", metric=metric, side=side)
    return np.clip(each_dot(a, b) / (norms[0] * norms[1]), -1.0, 1.0)  # rounding may overstep by an ulp


def _correlations(a: FloatArray, b: FloatArray, metric: str) -> FloatArray:
    return _cosines(each_centred(a, side="a", metric=metric), each_centred(b, side="b", metric=metric), metric)


@_similarity(
    "cosine", label="Cosine", invariant_to=("scale", "joint_scale", "joint_permutation"), reference="a·b / (‖a‖‖b‖)"
)
def cosine(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cosine of the angle between the raw values; two positive vectors are close to 1 whatever their origin."""
    return _cosines(a, b, "cosine")


@_similarity("pearson", label="Pearson (centred cosine)", invariant_to=AFFINE, reference="Pearson 1895")
def pearson(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cosine after subtracting each side's mean: which elements lie above average, and by how much."""
    return _correlations(a, b, "pearson")


@_similarity("spearman", label="Spearman (Pearson of ranks)", invariant_to=AFFINE, reference="Spearman 1904")
def spearman(a: FloatArray, b: FloatArray) -> FloatArray:
    """Pearson correlation of the ranks; outliers count no more than their place in the order."""
    left, right = (np.stack([ranks(values) for values in side]) for side in (a, b))
    return _correlations(left, right, "spearman")


@_similarity(
    "deviation_cosine",
    label="Cosine of deviations from 1",
    invariant_to=("joint_permutation",),
    null="deviation",
    reference="cosine of a − 1 and b − 1, the usual start of a norm's scale",
)
def deviation_cosine(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cosine of a − 1 and b − 1, which is not centring: a common offset from 1 still drives the value towards ±1."""
    return _cosines(a - 1.0, b - 1.0, "deviation_cosine")


@_similarity(
    "shuffled_cosine",
    label="Cosine after shuffling both sides",
    symmetric=False,
    invariant_to=("scale", "joint_scale"),
    null="shuffled",
    kinds=("vector",),
    reference="one draw from the permutation null of the cosine, seed 42",
    stacked=False,
)
def shuffled_cosine(a: FloatArray, b: FloatArray) -> float:
    """Cosine of both sides, each in an order of its own: one draw from the cosine's null, not a comparison."""
    rng = np.random.default_rng(SHUFFLE_SEED)
    return float(_cosines(rng.permutation(a)[None], rng.permutation(b)[None], "shuffled_cosine")[0])
