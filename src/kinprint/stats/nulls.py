"""From a metric's declared kind of null to its mean, spread and p-value, in the metric's own units."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint.errors import DegenerateInput
from kinprint.numeric import FloatArray, ranks, unit_scaled
from kinprint.results import NullResult
from kinprint.stats import costs, kernels, montecarlo
from kinprint.stats.moments import (
    Moments,
    as_rows,
    centred_rows,
    dot_moments,
    identity_log_probability,
)
from kinprint.stats.tails import MOMENT_BOUND, MONTE_CARLO, log10_p_dot, log10_p_moments, log10_p_monte_carlo

DOT_DRAWS = 1_999
COST_DRAWS = 999
MATRIX_DRAWS = 99
"""Default numbers of draws: a dot product, a vector's cost or an n×n alignment, a whole matrix."""

MAX_WORK = 10**9
"""Elements permuted at most by default, some ten seconds; larger inputs get fewer draws, but not below 99."""

POINT = "none: every permutation gives the same value"
BLIND = "none: the metric cannot see order"
EXCHANGEABLE = "the units of the permuted axis are exchangeable if the sides are unrelated"
ONE_PERMUTATION = "one permutation serves all rows, so rows may be correlated"
SAMPLED = "skewness and kurtosis of the null estimated from its longest columns and a sample of the others"
DELTA = "mean and sd by a second-order delta method; z and p are those of the dot product, of which this is a function"


@dataclass(frozen=True)
class Request:
    """What a null is asked for; see `null_for`."""

    kind: str
    observed: float
    higher_is_closer: bool
    rng_seed: int
    draws: int | None
    known: NullResult | None = None
    bound: bool = True

    @property
    def tail(self) -> str:
        """Side of the null on which "closer" lies."""
        return "greater" if self.higher_is_closer else "less"


def null_for(
    kind: str,
    A: ArrayLike,
    B: ArrayLike,
    *,
    observed: float,
    higher_is_closer: bool,
    rng_seed: int = 0,
    draws: int | None = None,
    known: NullResult | None = None,
) -> NullResult:
    """Return the permutation null of a metric.

    Parameters
    ----------
    kind
        The metric's ``null``; one of `KINDS`.
    A, B
        The values the metric was given: a vector (d,), or (m, d) whose columns are permuted together. For "cka" and
        "cka_unbiased" (n, p) and (n, q), whose rows are permuted. For "ulp" the integers of
        ``kinprint.metrics.identity.ordinals`` in place of the values.
    observed
        The metric's value.
    higher_is_closer
        The metric's direction; the p-value is one-sided towards closer.
    rng_seed, draws
        For Monte-Carlo; by default 1,999 draws for dot products, 999 for costs of vectors and CKA, 99 for matrices.
    known
        A null already computed on the same data whose statistic is a function of the same dot product (the Pearson
        correlation, say) and was observed together with it: its z and p-value are taken over.
    """
    try:
        handler = _HANDLERS[kind]
    except KeyError:
        raise ValueError(f"unknown kind of null {kind!r}: expected one of {', '.join(_HANDLERS)}") from None
    request = Request(kind, float(observed), higher_is_closer, rng_seed, draws, known)
    left, right = np.asarray(A), np.asarray(B)
    if left.ndim not in (1, 2) or left.size == 0 or right.ndim != left.ndim:
        raise DegenerateInput(
            f"null {kind}: expected two non-empty vectors or matrices, got {left.shape}, {right.shape}"
        )
    for side, values in (("a", left), ("b", right)):
        bad = values.size - int(np.count_nonzero(np.isfinite(values)))
        if bad:
            raise DegenerateInput(f"null {kind}: {side} holds {bad} non-finite of {values.size} values: expected none")
    if not kind.startswith("cka") and left.shape != right.shape:
        raise DegenerateInput(f"null {kind}: shapes differ: got {left.shape} and {right.shape}")
    return handler(left, right, request)


# --- dot products -----------------------------------------------------------------------------------------------------


def dot_null(A: FloatArray, B: FloatArray, t: float, request: Request, *, rising: bool = True) -> NullResult:
    """Return the null of T = ⟨A, B∘π⟩ itself, at the observed `t`.

    `rising` says whether the metric rises with T; with the request's direction it decides which tail of T is "closer".
    """
    known = request.known
    moments = dot_moments(A, B, shape=known is None)
    side = 1.0 if rising == request.higher_is_closer else -1.0
    assumptions = (EXCHANGEABLE,) if A.shape[0] == 1 else (EXCHANGEABLE, ONE_PERMUTATION)
    if moments.sampled:
        assumptions = (*assumptions, SAMPLED)
    result = NullResult(
        name=request.kind,
        mean=moments.mean,
        sd=moments.sd,
        z=None,
        log10_p=None,
        p_method=POINT,
        tail="greater" if side > 0 else "less",
        n=moments.n,
        skewness=moments.skewness,
        excess_kurtosis=moments.excess_kurtosis,
        assumptions=assumptions,
        fourth=moments.fourth,
        reach=moments.reach,
    )
    if moments.variance == 0.0:
        return replace(result, log10_p=0.0)
    if known is not None and side > 0:
        # z and p as found on the correlation itself: re-derived from a cosine near one they would be mostly rounding
        return replace(known, name=result.name, mean=result.mean, sd=result.sd, tail=result.tail)
    z = (t - moments.mean) / moments.sd
    left, right = centred_rows(A), centred_rows(B) * side
    upper = moments if side > 0 else replace(moments, skewness=None if moments.skewness is None else -moments.skewness)
    draws = request.draws or _affordable(DOT_DRAWS, montecarlo.dot_cost(*A.shape))
    found = log10_p_dot(side * z, upper, left, right, floor=log10_p_monte_carlo(0, draws), bound=request.bound)
    if found is not None:
        return replace(result, z=z, log10_p=found[0], p_method=found[1])
    values = montecarlo.draw_dots(left, right, draws=draws, seed=request.rng_seed)
    log10_p = _monte_carlo(values, side * z * moments.sd, moments.sd, greater=True)
    return replace(result, z=z, log10_p=log10_p, p_method=MONTE_CARLO, n_draws=draws)


def _affordable(draws: int, cost: int) -> int:
    """Return the number of draws that `MAX_WORK` allows at `cost` elements each."""
    return max(min(draws, MAX_WORK // cost), MATRIX_DRAWS)


def _monte_carlo(values: FloatArray, observed: float, scale: float, *, greater: bool) -> float:
    """Return log10 p; a draw equal to the observation up to rounding counts as reaching it."""
    slack = 1e-9 * scale
    reached = values >= observed - slack if greater else values <= observed + slack
    return log10_p_monte_carlo(int(np.count_nonzero(reached)), values.size)


def _scaled(A: NDArray[Any]) -> FloatArray:
    return unit_scaled(as_rows(A))


def _angle_null(A: FloatArray, B: FloatArray, request: Request) -> NullResult:
    """Null of ⟨A, B⟩/(‖A‖‖B‖): an exact linear map of the dot product, since norms do not see order."""
    A, B = _scaled(A), _scaled(B)
    norms = [float(np.linalg.norm(X)) for X in (A, B)]
    if 0.0 in norms:
        raise DegenerateInput(f"null {request.kind}: a side has zero length: expected a direction")
    return dot_null(A / norms[0], B / norms[1], request.observed, request)


def _cosine(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    return _angle_null(as_rows(A), as_rows(B), request)


def _deviation(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    return _angle_null(as_rows(A) - 1.0, as_rows(B) - 1.0, request)


def _pearson(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    # centred by the overall mean, which no permutation changes: the metric flattens matrices
    left, right = (centred_rows(_scaled(X).reshape(1, -1)).reshape(as_rows(X).shape) for X in (A, B))
    return _angle_null(left, right, request)


def _spearman(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    return _pearson(ranks(A), ranks(B), request)


def _distance(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    """Null of ‖A − B∘π‖/D = √(S − 2T)/D, with S = ‖A‖² + ‖B‖² and a denominator D that no permutation changes."""
    left, right = as_rows(A), as_rows(B)
    e = int(np.frexp(max(float(np.abs(left).max()), float(np.abs(right).max())))[1])
    left, right = np.ldexp(left, -e), np.ldexp(right, -e)
    norm_a, norm_b = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    total = norm_a**2 + norm_b**2
    origin = 0.5 * (float(left.mean()) + float(right.mean()))
    denominator = {"l2": math.ldexp(1.0, -e), "rel_l2_a": norm_a, "rel_l2": math.sqrt(total / 2.0)}[request.kind]
    if denominator == 0.0:
        raise DegenerateInput(f"null {request.kind}: the denominator is zero: expected a nonzero norm")
    # a common shift changes no distance, and without it T would be the small difference of large numbers
    left, right = left - origin, right - origin
    total = float(np.vdot(left, left)) + float(np.vdot(right, right))
    t = (total - (request.observed * denominator) ** 2) / 2.0
    result = dot_null(left, right, t, request, rising=False)
    centre = total - 2.0 * result.mean  # the mean squared distance
    if centre <= 0.0 or result.sd == 0.0:
        return replace(result, mean=request.observed, sd=0.0, tail=request.tail)
    mean, sd = _root_moments(centre, result.sd, result.skewness or 0.0)
    z = None if result.z is None else -result.z
    return replace(
        result,
        mean=mean / denominator,
        sd=sd / denominator,
        z=z,
        tail=request.tail,
        assumptions=(*result.assumptions, DELTA),
    )


def _root_moments(centre: float, sd: float, skewness: float) -> tuple[float, float]:
    """Return mean and sd of f(T) = √(S − 2T) to second order, with f' = −q^(−½) and f'' = −q^(−3/2) at q = `centre`."""
    first, second = -(centre**-0.5), -(centre**-1.5)
    mean = math.sqrt(centre) + 0.5 * second * sd**2
    variance = first**2 * sd**2 + first * second * skewness * sd**3 + 0.5 * second**2 * sd**4
    return max(0.0, mean), math.sqrt(max(0.0, variance))


# --- pairwise costs ---------------------------------------------------------------------------------------------------


def _cost(
    moments: Callable[[NDArray[Any], NDArray[Any]], Moments],
    statistic: Callable[[FloatArray, FloatArray], FloatArray],
    total: Callable[[FloatArray, FloatArray], float],
) -> Callable[[NDArray[Any], NDArray[Any], Request], NullResult]:
    """Return the handler of a mean of costs: exact mean and sd for vectors, p by drawing; all drawn for matrices.

    `statistic` gives the mean of each row, `total` the sum over a whole matrix and may write into its second argument.
    """

    def handler(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
        if A.ndim == 2 and A.shape[0] > 1:
            draws = request.draws or MATRIX_DRAWS
            drawn = montecarlo.draw_costs(A, B, total, draws=draws, seed=request.rng_seed)
            return null_from_draws(
                request.kind,
                drawn,
                observed=request.observed,
                higher_is_closer=request.higher_is_closer,
                n=A.shape[1],
            )
        a, b = as_rows(A).ravel(), as_rows(B).ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            exact = moments(a, b)
        if not (math.isfinite(exact.mean) and math.isfinite(exact.variance)):
            raise DegenerateInput(f"null {request.kind}: the values are too large to be squared in float64")
        mean, sd = exact.mean / exact.n, exact.sd / exact.n
        base = NullResult(request.kind, mean, sd, None, 0.0, POINT, request.tail, exact.n, assumptions=(EXCHANGEABLE,))
        if sd == 0.0:
            return base
        draws = request.draws or _affordable(COST_DRAWS, a.size)
        return _bounded_or_drawn(
            base, request, draws, lambda seed: montecarlo.draw_pairs(a, b, statistic, draws=draws, seed=seed)
        )

    return handler


def _bounded_or_drawn(base: NullResult, request: Request, draws: int, draw: Callable[[int], FloatArray]) -> NullResult:
    """Complete `base` (exact mean and sd) by z and p: Cantelli's bound if below what `draws` could show, else draws."""
    z = (request.observed - base.mean) / base.sd
    bound = log10_p_moments(z if request.higher_is_closer else -z, None)
    if bound < log10_p_monte_carlo(0, draws):
        return replace(base, z=z, log10_p=bound, p_method=MOMENT_BOUND)
    log10_p = _monte_carlo(draw(request.rng_seed), request.observed, base.sd, greater=request.higher_is_closer)
    return replace(base, z=z, log10_p=log10_p, p_method=MONTE_CARLO, n_draws=draws)


def null_from_draws(name: str, values: FloatArray, *, observed: float, higher_is_closer: bool, n: int) -> NullResult:
    """Return the null of a statistic from its drawn values (see `montecarlo.draw_columns`); `n` units were permuted."""
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else 0.0
    tail = "greater" if higher_is_closer else "less"
    assumptions = (EXCHANGEABLE, ONE_PERMUTATION, f"mean and sd estimated from {values.size} draws")
    if sd <= 1e-12 * abs(mean):
        closer = observed > mean if higher_is_closer else observed < mean
        log10_p = log10_p_monte_carlo(0, values.size) if closer and abs(observed - mean) > 1e-12 * abs(mean) else 0.0
        return NullResult(name, mean, 0.0, None, log10_p, POINT, tail, n, values.size, assumptions=assumptions)
    log10_p = _monte_carlo(values, observed, sd, greater=higher_is_closer)
    z = (observed - mean) / sd
    return NullResult(name, mean, sd, z, log10_p, MONTE_CARLO, tail, n, values.size, assumptions=assumptions)


def _mean_gap(a: FloatArray, b: FloatArray) -> FloatArray:
    gaps: FloatArray = np.abs(b - a).mean(axis=-1)
    return gaps


def _mean_unequal(a: FloatArray, b: FloatArray) -> FloatArray:
    shares: FloatArray = (b != a).mean(axis=-1)
    return shares


def _total_gap(a: FloatArray, b: FloatArray) -> float:
    np.subtract(b, a, out=b)
    return float(np.abs(b, out=b).sum())


def _total_unequal(a: FloatArray, b: FloatArray) -> float:
    return float(np.count_nonzero(b != a))


_abs_null = _cost(costs.abs_cost_moments, _mean_gap, _total_gap)


def _ulp(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    if A.dtype.kind != "i" or B.dtype.kind != "i":
        raise ValueError("null ulp: expected the integers of kinprint.metrics.identity.ordinals, got other numbers")
    # ordinals of F64 reach ±2⁶³: the least is subtracted modulo 2⁶⁴, before float64 could merge neighbours
    origin = np.int64(min(int(A.min()), int(B.min()))).view(np.uint64)
    left, right = ((X.astype(np.int64).view(np.uint64) - origin).astype(np.float64) for X in (A, B))
    return _abs_null(left, right, request)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _identity(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    log_probability = identity_log_probability(A, B)
    chance = math.exp(log_probability)
    same = request.observed >= 1.0
    return NullResult(
        name=request.kind,
        mean=chance,
        sd=math.sqrt(chance * (1.0 - chance)),
        z=None,  # a yes-or-no statistic has no useful distance from its mean
        log10_p=log_probability / math.log(10.0) if same else 0.0,
        p_method="exact: orderings that reproduce the other side, over all orderings",
        tail=request.tail,
        n=as_rows(A).shape[1],
        assumptions=(EXCHANGEABLE,),
    )


def _shuffled(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    """Null of a cosine that is itself a draw from it: where it lies is shown, but it tests nothing, so it has no p."""
    left, right = _scaled(A), _scaled(B)
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    moments = dot_moments(left, right, shape=False)
    mean, sd = moments.mean / length, moments.sd / length
    z = (request.observed - mean) / sd if sd > 0.0 else None
    method = "none: the value is itself a draw from this null"
    return NullResult(request.kind, mean, sd, z, None, method, request.tail, moments.n, assumptions=(EXCHANGEABLE,))


def _invariant(A: NDArray[Any], _B: NDArray[Any], request: Request) -> NullResult:
    return NullResult(request.kind, request.observed, 0.0, None, None, BLIND, request.tail, as_rows(A).shape[1])


def _cka(A: NDArray[Any], B: NDArray[Any], request: Request) -> NullResult:
    if A.ndim != 2 or A.shape[0] != B.shape[0]:
        raise DegenerateInput(f"null {request.kind}: expected equal row counts, got {A.shape} and {B.shape}")
    K, L = (kernels.centred_gram(X.astype(np.float64)) for X in (A, B))
    if request.kind == "cka":
        moments = kernels.cka_moments(K, L)
    else:
        K, L = kernels.u_centred(K), kernels.u_centred(L)
        moments = kernels.unbiased_cka_moments(K.shape[0])
    n = moments.n
    base = NullResult(
        request.kind, moments.mean, moments.sd, None, 0.0, POINT, request.tail, n, assumptions=(EXCHANGEABLE,)
    )
    if moments.sd <= 1e-12:
        return replace(base, sd=0.0)
    draws = request.draws or _affordable(COST_DRAWS, n * n)
    return _bounded_or_drawn(
        base, request, draws, lambda seed: montecarlo.draw_alignments(K, L, draws=draws, seed=seed)
    )


_HANDLERS: dict[str, Callable[[NDArray[Any], NDArray[Any], Request], NullResult]] = {
    "cosine": _cosine,
    "deviation": _deviation,
    "pearson": _pearson,
    "spearman": _spearman,
    "l2": _distance,
    "rel_l2_a": _distance,
    "rel_l2": _distance,
    "abs_diff": _abs_null,
    "changed": _cost(costs.unequal_cost_moments, _mean_unequal, _total_unequal),
    "ulp": _ulp,
    "identity": _identity,
    "shuffled": _shuffled,
    "invariant": _invariant,
    "cka": _cka,
    "cka_unbiased": _cka,
}

KINDS: tuple[str, ...] = tuple(_HANDLERS)
