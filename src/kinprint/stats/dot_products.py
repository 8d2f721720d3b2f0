"""Compute nulls of metrics that are functions of a permuted dot product T = ⟨A, B∘π⟩, for pairs of one shape, (pairs, m, d)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import (
    NEAR_CONSTANT,
    FloatArray,
    each_exponent,
    each_norm,
    each_safely_scaled,
    ranks,
    row_means,
)
from kinprint._util.records import dataclass
from kinprint.errors import DegenerateInput
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats import montecarlo
from kinprint.stats.moments import Moments, centred_dot_moments, centred_rows, dot_means
from kinprint.stats.tails import each_log10_p_dot, least_log10_p, log10_p_monte_carlo
from kinprint.text import Text

DOT_DRAWS = 1_999
LEAST_DRAWS = 99
MAX_WORK = 10**9
"""Draws by default, and elements permuted at most, some ten seconds; larger inputs get fewer draws, but not below 99."""

EXCHANGEABLE = Text("the units of the permuted axis are exchangeable if the sides are unrelated")
ONE_PERMUTATION = Text("one permutation serves all rows, so rows may be correlated")
SAMPLED = Text("skewness and kurtosis of the null estimated from its longest columns and a sample of the others")
DELTA = Text(
    "mean and sd by a second-order delta method; z and p are those of the dot product, of which this is a function"
)


@dataclass(frozen=True)
class NullRequest:
    """Request for the null of each of several pairs; see `kinprint.stats.nulls.null_for`."""

    kind: str
    observed: Sequence[float]
    higher_is_closer: bool
    seed: int = 0
    draws: int | None = None
    known: Sequence[NullResult] | None = None
    bound: bool = True
    statistic: montecarlo.Statistic | None = None

    @property
    def value(self) -> float:
        """Observation, where there is a single pair."""
        return self.observed[0]

    @property
    def tail(self) -> str:
        """Side of the null on which "closer" lies."""
        return "greater" if self.higher_is_closer else "less"


def affordable(draws: int, cost: int) -> int:
    """Return the number of draws that `MAX_WORK` allows at `cost` elements each."""
    return max(min(draws, MAX_WORK // cost), LEAST_DRAWS)


def log10_p_of_draws(values: FloatArray, observed: float, scale: float, *, greater: bool) -> float:
    """Return log10 p; a draw equal to the observation up to rounding counts as reaching it."""
    slack = 1e-9 * scale
    reached = values >= observed - slack if greater else values <= observed + slack
    return log10_p_monte_carlo(int(np.count_nonzero(reached)), values.size)


def dot_nulls(
    A: FloatArray, B: FloatArray, t: Sequence[float], ask: NullRequest, *, rising: bool = True
) -> list[NullResult]:
    """Return the nulls of T = ⟨A, B∘π⟩ itself, at the observed `t`; `rising` says whether the metric rises with T."""
    known, means = ask.known, dot_means(A, B)
    if known is None:
        left, right = centred_rows(A), centred_rows(B)
        moments = centred_dot_moments(left, right, means)
    else:
        moments = _known_moments(A, B, means, known)
    side = 1.0 if rising == ask.higher_is_closer else -1.0
    tail = "greater" if side > 0 else "less"
    found = [moments_null(one, ask.kind, rows=A.shape[1], tail=tail) for one in moments]
    varying = [k for k, one in enumerate(moments) if one.variance > 0.0]
    if known is not None and side > 0:
        for k in varying:
            # z and p as found on the correlation itself: re-derived from a cosine near one they would be mostly rounding
            found[k] = replace(known[k], name=ask.kind, mean=found[k].mean, sd=found[k].sd, tail=found[k].tail)
        return found
    if not varying:
        return found
    z = [(t[k] - moments[k].mean) / moments[k].sd for k in varying]
    if known is not None:
        left, right = centred_rows(A), centred_rows(B)
    if len(varying) < len(found):
        left, right = left[varying], right[varying]
    right = right if side > 0 else -right
    draws = ask.draws or affordable(DOT_DRAWS, montecarlo.dot_cost(*A.shape[1:]))
    turned = [replace(one, skewness=side * one.skewness if one.skewness is not None else None) for one in moments]
    upper = [side * one for one in z], [turned[k] for k in varying]  # moments of side·T
    tails = each_log10_p_dot(*upper, left, right, floor=log10_p_monte_carlo(0, draws), bound=ask.bound)
    for place, (k, known_tail) in enumerate(zip(varying, tails, strict=True)):
        if known_tail is not None:
            found[k] = replace(found[k], z=z[place], log10_p=known_tail[0], p_method=known_tail[1])
            continue
        values = montecarlo.draw_dots(left[place], right[place], draws=draws, seed=ask.seed)
        drawn = log10_p_of_draws(values, side * z[place] * moments[k].sd, moments[k].sd, greater=True)
        log10_p = max(drawn, least_log10_p(moments[k].n))
        found[k] = replace(found[k], z=z[place], log10_p=log10_p, p_method=PMethod.MONTE_CARLO, n_draws=draws)
    return found


def moments_null(moments: Moments, kind: str, *, rows: int, tail: str = "greater") -> NullResult:
    """Return a null of which the moments are known, and no p-value."""
    assumptions = (EXCHANGEABLE,) if rows == 1 else (EXCHANGEABLE, ONE_PERMUTATION)
    return NullResult(
        name=kind,
        mean=moments.mean,
        sd=moments.sd,
        z=None,
        log10_p=0.0,
        p_method=PMethod.POINT,
        tail=tail,
        n=moments.n,
        skewness=moments.skewness,
        excess_kurtosis=moments.excess_kurtosis,
        assumptions=(*assumptions, SAMPLED) if moments.sampled else assumptions,
        fourth=moments.fourth,
        reach=moments.reach,
    )


def _known_moments(A: FloatArray, B: FloatArray, means: FloatArray, known: Sequence[NullResult]) -> list[Moments]:
    """Return mean and variance of ⟨A, B∘π⟩ from those of the correlation of the same values, shifted and scaled or not."""
    # A shift changes T by a constant and a factor scales it, so sd(T) = sd(r)·‖A − Ā‖‖B − B̄‖ with the means over all values.
    spreads = A[0].size * _spreads(A) * _spreads(B)
    return [
        Moments(mean, (one.sd * spread) ** 2, one.n)
        for mean, spread, one in zip(means.tolist(), spreads.tolist(), known, strict=True)
    ]


def _spreads(X: FloatArray) -> FloatArray:
    """Return the standard deviations, zero where they are rounding."""
    flat = X.reshape(len(X), -1)
    means = row_means(flat)
    spreads = each_norm(flat - means) / math.sqrt(flat.shape[1])
    return np.where(spreads <= NEAR_CONSTANT * np.abs(means[:, 0]), 0.0, spreads)


def _angles(A: FloatArray, B: FloatArray, ask: NullRequest) -> list[NullResult]:
    """Nulls of ⟨A, B⟩/(‖A‖‖B‖): an exact linear map of the dot product, since norms do not see order."""
    return _unit_nulls(each_safely_scaled(A), each_safely_scaled(B), ask)


def _unit_nulls(A: FloatArray, B: FloatArray, ask: NullRequest) -> list[NullResult]:
    norms_a, norms_b = each_norm(A), each_norm(B)
    if not (norms_a.all() and norms_b.all()):
        raise DegenerateInput("null {kind}: a side has zero length: expected a direction", kind=ask.kind)
    if ask.known is None or not ask.higher_is_closer:
        return dot_nulls(A / norms_a[:, None, None], B / norms_b[:, None, None], ask.observed, ask)
    moments = _known_moments(A, B, dot_means(A, B), ask.known)  # mean and spread in units of the two lengths
    found = []
    for one, known, length in zip(moments, ask.known, (norms_a * norms_b).tolist(), strict=True):
        unit = replace(one, mean=one.mean / length, variance=one.variance / length**2)
        null = moments_null(unit, ask.kind, rows=A.shape[1])
        found.append(replace(known, name=ask.kind, mean=null.mean, sd=null.sd) if unit.variance > 0.0 else null)
    return found


def unit_deviations(X: FloatArray) -> FloatArray:
    """Return each array less its overall mean, which no permutation changes, at unit length; DegenerateInput for a constant one."""
    centred = centred_rows(each_safely_scaled(X).reshape(len(X), -1))
    lengths = np.sqrt(np.vecdot(centred, centred))
    if not lengths.all():
        raise DegenerateInput("null pearson: a side is constant: expected varying values")
    centred /= lengths[:, None]
    return centred.reshape(X.shape)


def _correlations(A: FloatArray, B: FloatArray, ask: NullRequest) -> list[NullResult]:
    return dot_nulls(unit_deviations(A), unit_deviations(B), ask.observed, ask)


def _rank_correlations(A: FloatArray, B: FloatArray, ask: NullRequest) -> list[NullResult]:
    left, right = (np.stack([ranks(one) for one in X]) for X in (A, B))
    return _correlations(left, right, ask)


def _distances(A: FloatArray, B: FloatArray, ask: NullRequest) -> list[NullResult]:
    """Nulls of ‖A − B∘π‖/D = √(S − 2T)/D, with S = ‖A‖² + ‖B‖² and a denominator D that no permutation changes."""
    scale = np.ldexp(1.0, -each_exponent(A, B))
    left, right = (_settled(X * scale[:, None, None]) for X in (A, B))
    norms_a, norms_b = each_norm(left), each_norm(right)
    common = np.sqrt((norms_a**2 + norms_b**2) / 2.0)
    denominators = {"l2": scale, "rel_l2_a": norms_a, "rel_l2": common}[ask.kind]
    if not denominators.all():
        raise DegenerateInput("null {kind}: the denominator is zero: expected a nonzero norm", kind=ask.kind)
    # a common shift changes no distance, and without it T would be the small difference of large numbers
    origin = 0.5 * (left.mean(axis=(1, 2)) + right.mean(axis=(1, 2)))[:, None, None]
    left, right = left - origin, right - origin
    totals = each_norm(left) ** 2 + each_norm(right) ** 2
    t = (totals - (np.asarray(ask.observed) * denominators) ** 2) / 2.0
    dots = dot_nulls(left, right, t.tolist(), ask, rising=False)
    found = []
    columns = (totals.tolist(), denominators.tolist(), ask.observed)
    for null, total, denominator, observed in zip(dots, *columns, strict=True):
        centre = total - 2.0 * null.mean  # the mean squared distance
        if centre <= 0.0 or null.sd == 0.0:
            found.append(replace(null, mean=observed, sd=0.0, tail=ask.tail))
            continue
        mean, sd = (figure / denominator for figure in _root_moments(centre, null.sd, null.skewness or 0.0))
        z, assumptions = None if null.z is None else -null.z, (*null.assumptions, DELTA)
        found.append(replace(null, mean=mean, sd=sd, z=z, tail=ask.tail, assumptions=assumptions))
    return found


def _settled(X: FloatArray) -> FloatArray:
    """Return X with its rows that are constant up to rounding made constant: a shift would make their rounding look like spread."""
    rounding = (centred_rows(X) == 0.0).all(axis=-1) & (X.max(axis=-1) > X.min(axis=-1))
    return np.where(rounding[..., None], X.mean(axis=-1, keepdims=True), X) if rounding.any() else X


def _root_moments(centre: float, sd: float, skewness: float) -> tuple[float, float]:
    """Return mean and sd of f(T) = √(S − 2T) to second order, with f' = −q^(−½) and f'' = −q^(−3/2) at q = `centre`."""
    first, second = -(centre**-0.5), -(centre**-1.5)
    mean = math.sqrt(centre) + 0.5 * second * sd**2
    variance = first**2 * sd**2 + first * second * skewness * sd**3 + 0.5 * second**2 * sd**4
    return max(0.0, mean), math.sqrt(max(0.0, variance))


DOT_KINDS: dict[str, Callable[[FloatArray, FloatArray, NullRequest], list[NullResult]]] = {
    "cosine": _angles,
    "deviation": lambda A, B, ask: _angles(A - 1.0, B - 1.0, ask),
    "pearson": _correlations,
    "spearman": _rank_correlations,
    "l2": _distances,
    "rel_l2_a": _distances,
    "rel_l2": _distances,
}
