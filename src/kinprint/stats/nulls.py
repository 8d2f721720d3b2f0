"""From a metric's declared kind of null to its mean, spread and p-value, in the metric's own units."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray, safely_scaled
from kinprint.errors import DegenerateInput
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats import costs, kernels, montecarlo
from kinprint.stats.dot_products import (
    DOT_KINDS,
    EXCHANGEABLE,
    ONE_PERMUTATION,
    Ask,
    affordable,
    log10_p_of_draws,
)
from kinprint.stats.moments import Moments, as_rows, dot_moments, identity_log_probability
from kinprint.stats.tails import least_log10_p, log10_p_moments, log10_p_monte_carlo
from kinprint.text import Text

COST_DRAWS = 999
MATRIX_DRAWS = 99
"""Default numbers of draws: a vector's cost or an n×n alignment, a whole matrix."""


@dataclass(frozen=True)
class NullRequest:
    """What a null is asked for; see `null_for`."""

    kind: str
    observed: float
    higher_is_closer: bool
    rng_seed: int
    draws: int | None

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
    if kind not in KINDS:
        raise ValueError(f"unknown kind of null {kind!r}: expected one of {', '.join(KINDS)}")
    left, right = np.asarray(A), np.asarray(B)
    if left.ndim not in (1, 2) or left.size == 0 or right.ndim != left.ndim:
        raise DegenerateInput(
            f"null {kind}: expected two non-empty vectors or matrices, got {left.shape}, {right.shape}"
        )
    for side, values in (("a", left), ("b", right)):
        bad = values.size - int(np.count_nonzero(np.isfinite(values)))
        if bad:
            raise DegenerateInput(
                "null {kind}: {side} holds {bad} non-finite of {values} values: expected none",
                kind=kind,
                side=side,
                bad=bad,
                values=values.size,
            )
    if not kind.startswith("cka") and left.shape != right.shape:
        raise DegenerateInput(f"null {kind}: shapes differ: got {left.shape} and {right.shape}")
    if kind in DOT_KINDS:
        ask = Ask(kind, (float(observed),), higher_is_closer, rng_seed, draws, None if known is None else (known,))
        return DOT_KINDS[kind](as_rows(left)[None], as_rows(right)[None], ask)[0]
    return _HANDLERS[kind](left, right, NullRequest(kind, float(observed), higher_is_closer, rng_seed, draws))


# --- pairwise costs ---------------------------------------------------------------------------------------------------


def _cost(
    moments: Callable[[NDArray[Any], NDArray[Any]], Moments],
    statistic: Callable[[FloatArray, FloatArray], FloatArray],
    cost: Callable[[FloatArray, FloatArray], NDArray[Any]],
) -> Callable[[NDArray[Any], NDArray[Any], NullRequest], NullResult]:
    """Return the handler of a mean of costs: exact mean and sd for vectors, p by drawing; all drawn for matrices.

    `statistic` gives the mean of each row, `cost` that of every element, and may write into its second argument.
    """

    def handler(A: NDArray[Any], B: NDArray[Any], request: NullRequest) -> NullResult:
        if A.ndim == 2 and A.shape[0] > 1:
            draws = request.draws or MATRIX_DRAWS
            drawn = montecarlo.draw_costs(A, B, cost, draws=draws, seed=request.rng_seed)
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
            raise DegenerateInput("null {kind}: the values are too large to be squared in float64", kind=request.kind)
        mean, sd = exact.mean / exact.n, exact.sd / exact.n
        base = NullResult(
            request.kind, mean, sd, None, 0.0, PMethod.POINT, request.tail, exact.n, assumptions=(EXCHANGEABLE,)
        )
        if sd == 0.0:
            return base
        draws = request.draws or affordable(COST_DRAWS, a.size)
        return _bounded_or_drawn(
            base, request, draws, lambda seed: montecarlo.draw_pairs(a, b, statistic, draws=draws, seed=seed)
        )

    return handler


def _bounded_or_drawn(
    base: NullResult, request: NullRequest, draws: int, draw: Callable[[int], FloatArray]
) -> NullResult:
    """Complete `base` (exact mean and sd) by z and p: Cantelli's bound if below what `draws` could show, else draws."""
    z = (request.observed - base.mean) / base.sd
    bound = log10_p_moments(z if request.higher_is_closer else -z, None)
    if bound < log10_p_monte_carlo(0, draws):
        return replace(base, z=z, log10_p=bound, p_method=PMethod.MOMENT_BOUND)
    drawn = log10_p_of_draws(draw(request.rng_seed), request.observed, base.sd, greater=request.higher_is_closer)
    log10_p = max(drawn, least_log10_p(base.n))
    return replace(base, z=z, log10_p=log10_p, p_method=PMethod.MONTE_CARLO, n_draws=draws)


def null_from_draws(name: str, values: FloatArray, *, observed: float, higher_is_closer: bool, n: int) -> NullResult:
    """Return the null of a statistic from its drawn values (see `montecarlo.draw_columns`); `n` units were permuted."""
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else 0.0
    tail = "greater" if higher_is_closer else "less"
    assumptions = (EXCHANGEABLE, ONE_PERMUTATION, Text("mean and sd estimated from {n} draws", n=values.size))
    if sd <= 1e-12 * abs(mean):
        closer = observed > mean if higher_is_closer else observed < mean
        log10_p = log10_p_monte_carlo(0, values.size) if closer and abs(observed - mean) > 1e-12 * abs(mean) else 0.0
        return NullResult(name, mean, 0.0, None, log10_p, PMethod.POINT, tail, n, values.size, assumptions=assumptions)
    log10_p = log10_p_of_draws(values, observed, sd, greater=higher_is_closer)
    z = (observed - mean) / sd
    return NullResult(name, mean, sd, z, log10_p, PMethod.MONTE_CARLO, tail, n, values.size, assumptions=assumptions)


def _mean_gap(a: FloatArray, b: FloatArray) -> FloatArray:
    gaps: FloatArray = np.abs(b - a).mean(axis=-1)
    return gaps


def _mean_unequal(a: FloatArray, b: FloatArray) -> FloatArray:
    shares: FloatArray = (b != a).mean(axis=-1)
    return shares


def _gaps(a: FloatArray, b: FloatArray) -> FloatArray:
    np.subtract(b, a, out=b)
    return np.abs(b, out=b)


def _unequal(a: FloatArray, b: FloatArray) -> NDArray[np.bool_]:
    different: NDArray[np.bool_] = b != a
    return different


_abs_null = _cost(costs.abs_cost_moments, _mean_gap, _gaps)


def _ulp(A: NDArray[Any], B: NDArray[Any], request: NullRequest) -> NullResult:
    if A.dtype.kind != "i" or B.dtype.kind != "i":
        raise ValueError("null ulp: expected the integers of kinprint.metrics.identity.ordinals, got other numbers")
    # ordinals of F64 reach ±2⁶³: the least is subtracted modulo 2⁶⁴, before float64 could merge neighbours
    origin = np.int64(min(int(A.min()), int(B.min()))).view(np.uint64)
    left, right = ((X.astype(np.int64).view(np.uint64) - origin).astype(np.float64) for X in (A, B))
    return _abs_null(left, right, request)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _identity(A: NDArray[Any], B: NDArray[Any], request: NullRequest) -> NullResult:
    log_probability = identity_log_probability(A, B)
    chance = math.exp(log_probability)
    same = request.observed >= 1.0
    return NullResult(
        name=request.kind,
        mean=chance,
        sd=math.sqrt(chance * (1.0 - chance)),
        z=None,  # a yes-or-no statistic has no useful distance from its mean
        log10_p=log_probability / math.log(10.0) if same else 0.0,
        p_method=PMethod.ORDERINGS,
        tail=request.tail,
        n=as_rows(A).shape[1],
        assumptions=(EXCHANGEABLE,),
    )


def _shuffled(A: NDArray[Any], B: NDArray[Any], request: NullRequest) -> NullResult:
    """Null of a cosine that is itself a draw from it: where it lies is shown, but it tests nothing, so it has no p."""
    left, right = safely_scaled(as_rows(A)), safely_scaled(as_rows(B))
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    moments = dot_moments(left, right, shape=False)
    mean, sd = moments.mean / length, moments.sd / length
    z = (request.observed - mean) / sd if sd > 0.0 else None
    return NullResult(
        request.kind, mean, sd, z, None, PMethod.OWN_DRAW, request.tail, moments.n, assumptions=(EXCHANGEABLE,)
    )


def _invariant(A: NDArray[Any], _B: NDArray[Any], request: NullRequest) -> NullResult:
    return NullResult(request.kind, request.observed, 0.0, None, None, PMethod.BLIND, request.tail, as_rows(A).shape[1])


def _cka(A: NDArray[Any], B: NDArray[Any], request: NullRequest) -> NullResult:
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
        request.kind, moments.mean, moments.sd, None, 0.0, PMethod.POINT, request.tail, n, assumptions=(EXCHANGEABLE,)
    )
    if moments.sd <= 1e-12:
        return replace(base, sd=0.0)
    draws = request.draws or affordable(COST_DRAWS, n * n)
    return _bounded_or_drawn(
        base, request, draws, lambda seed: montecarlo.draw_alignments(K, L, draws=draws, seed=seed)
    )


_HANDLERS: dict[str, Callable[[NDArray[Any], NDArray[Any], NullRequest], NullResult]] = {
    "abs_diff": _abs_null,
    "changed": _cost(costs.unequal_cost_moments, _mean_unequal, _unequal),
    "ulp": _ulp,
    "identity": _identity,
    "shuffled": _shuffled,
    "invariant": _invariant,
    "cka": _cka,
    "cka_unbiased": _cka,
}

KINDS: tuple[str, ...] = (*DOT_KINDS, *_HANDLERS)
