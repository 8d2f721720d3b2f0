"""Decompose a raw cosine into two coefficients of variation and one correlation, exactly."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from kinprint._util.numeric import FloatArray, each_norm, each_safely_scaled, row_means
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput
from kinprint.metrics.angular import cosine, pearson
from kinprint.metrics.base import validate
from kinprint.metrics.distance import MAX_CV
from kinprint.text import Text


@dataclass(frozen=True)
class CosineIdentity:
    """The cosine taken apart."""

    # ``r`` is None where a side is constant (it then has no weight); ``predicted`` and ``if_independent`` are None, with a
    # ``reason``, where a mean is near zero and the coefficients of variation say nothing.
    r: float | None
    cv_a: float | None
    cv_b: float | None
    predicted: float | None
    observed: float
    if_independent: float | None
    reason: Text | None = None


def cosine_if_independent(cv_a: float, cv_b: float, *, sign: float = 1.0) -> float:
    """Return the cosine of uncorrelated vectors with these coefficients of variation and this `sign` of their means' product."""
    return math.copysign(1.0, sign) / (math.hypot(1.0, cv_a) * math.hypot(1.0, cv_b))


def cosine_identity(a: ArrayLike, b: ArrayLike) -> CosineIdentity:
    """Decompose the cosine of `a` and `b`."""
    # With means ā, b̄ and population deviations σ: a·b/d = āb̄ + rσ_aσ_b and ‖a‖²/d = ā² + σ_a². Dividing numerator and
    # denominator by |āb̄|, with CV = σ/|mean| ≥ 0 and s = sign(āb̄):
    #
    #     cos = (s + r·CV_a·CV_b) / √((1 + CV_a²)(1 + CV_b²))
    #
    # For positive vectors (norm scales) it is nearly a function of the two CVs alone.
    left, right = validate(a, b, metric="cosine_identity", kinds=("vector", "matrix"))
    return cosine_identities(left[None], right[None])[0]


def cosine_identities(a: FloatArray, b: FloatArray) -> list[CosineIdentity]:
    """Decompose the cosines of many pairs of flattened tensors, (pairs, values), which were validated before."""
    left, right = each_safely_scaled(a), each_safely_scaled(b)
    observed = cosine.each(left, right)
    means, stds = spreads(left, right)
    return [
        _identity(*each)
        for each in zip(_correlations(left, right), observed, means.tolist(), stds.tolist(), strict=True)
    ]


def spreads(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means and standard deviations of both sides of each pair, (pairs, 2)."""
    means = [row_means(side) for side in (a, b)]
    stds = [each_norm(side - mean) / math.sqrt(a.shape[1]) for side, mean in zip((a, b), means, strict=True)]
    return np.concatenate(means, axis=1), np.stack(stds, axis=1)


def can_be_explained(a: FloatArray, b: FloatArray) -> bool:
    """Whether some pair has means on both sides that say anything beside the spread."""
    means, stds = spreads(a, b)
    return bool(np.all((means != 0.0) & (stds <= MAX_CV * np.abs(means)), axis=1).any())


def _correlations(a: FloatArray, b: FloatArray) -> Sequence[float | None]:
    """Return the correlations, None where a side is constant: its CV is 0 and the term vanishes."""
    try:
        return pearson.each(a, b)
    except DegenerateInput:
        if len(a) == 1:
            return [None]
        return [_correlations(one[None], two[None])[0] for one, two in zip(a, b, strict=True)]


def _identity(r: float | None, observed: float, means: list[float], stds: list[float]) -> CosineIdentity:
    for side, mean, std in zip("ab", means, stds, strict=True):
        if mean == 0.0 or std > MAX_CV * abs(mean):
            reason = Text(
                "the mean of {side} is near zero (|mean| below {least:g} of the standard deviation)",
                side=side,
                least=1 / MAX_CV,
            )
            return CosineIdentity(r, None, None, None, observed, None, reason)
    pairs = zip(map(abs, means), stds, strict=True)
    cv_a, cv_b = (0.0 if r is None and std < 1e-11 * mean else std / mean for mean, std in pairs)
    independent = cosine_if_independent(cv_a, cv_b, sign=means[0] * means[1])
    predicted = independent + (r or 0.0) * cv_a * cv_b * abs(independent)
    return CosineIdentity(r, cv_a, cv_b, predicted, observed, independent)
