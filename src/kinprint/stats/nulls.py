"""Compute the null of a metric from its declared kind: mean, spread and p-value in the metric's own units."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray, check_finite, safely_scaled
from kinprint.errors import DegenerateInput
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats import costs, dot_products, kernels, montecarlo
from kinprint.stats.dot_products import DOT_KINDS, EXCHANGEABLE, ONE_PERMUTATION, NullRequest
from kinprint.stats.moments import Moments, as_rows, dot_moments, identity_log_probability
from kinprint.stats.tails import least_log10_p, log10_p_moments, log10_p_monte_carlo
from kinprint.text import Text

COST_DRAWS = 999
MATRIX_DRAWS = 99
"""Default numbers of draws: a vector's cost or an n×n alignment, a whole matrix."""


Handler = Callable[[NDArray[Any], NDArray[Any], NullRequest], NullResult]


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
    statistic: montecarlo.Statistic | None = None,
) -> NullResult:
    """Return the permutation null of a metric.

    Parameters
    ----------
    kind : The metric's ``null``; one of `KINDS`.
    A, B : The values the metric was given: a vector (d,), or (m, d) whose columns are permuted together. For "cka" and
        "cka_unbiased" (n, p) and (n, q), whose rows are permuted. For "ulp" ordinals in place of the values.
    observed, higher_is_closer : The metric's value and direction; the p-value is one-sided towards closer.
    rng_seed, draws : For Monte-Carlo; by default 1,999 draws for dot products, 999 for vectors and CKA, 99 for matrices.
    known : A null of a statistic that is a function of the same dot product: its z and p-value are taken over.
    statistic : The metric itself; needed for "drawn", which knows nothing else of it.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of null {kind!r}: expected one of {', '.join(KINDS)}")
    left, right = np.asarray(A), np.asarray(B)
    if left.ndim not in (1, 2) or left.size == 0 or right.ndim != left.ndim:
        shapes = f"{left.shape}, {right.shape}"
        raise DegenerateInput(f"null {kind}: expected two non-empty vectors or matrices, got {shapes}")
    for side, values in (("a", left), ("b", right)):
        check_finite(values, Text("null {kind}", kind=kind), side)
    if not kind.startswith("cka") and left.shape != right.shape:
        raise DegenerateInput(f"null {kind}: shapes differ: got {left.shape} and {right.shape}")
    taken = None if known is None else (known,)
    ask = NullRequest(kind, (float(observed),), higher_is_closer, rng_seed, draws, taken, statistic=statistic)
    if kind in DOT_KINDS:
        return DOT_KINDS[kind](as_rows(left)[None], as_rows(right)[None], ask)[0]
    return _HANDLERS[kind](left, right, ask)


def _cost(
    moments: Callable[[NDArray[Any], NDArray[Any]], Moments], cost: Callable[[FloatArray, FloatArray], NDArray[Any]]
) -> Handler:
    """Return the handler of a mean of costs: exact mean and sd for vectors, p by drawing; all drawn for matrices."""
    # `cost` is that of every element, and may write into its second argument.

    def means(a: FloatArray, b: FloatArray) -> FloatArray:
        found: FloatArray = cost(a, b).mean(axis=-1)
        return found

    def handler(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
        if A.ndim == 2 and A.shape[0] > 1:
            drawn = montecarlo.draw_costs(A, B, cost, draws=ask.draws or MATRIX_DRAWS, seed=ask.seed)
            return null_from_draws(ask, drawn, A.shape[1])
        a, b = as_rows(A).ravel(), as_rows(B).ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            exact = moments(a, b)
        if not (math.isfinite(exact.mean) and math.isfinite(exact.variance)):
            raise DegenerateInput("null {kind}: the values are too large to be squared in float64", kind=ask.kind)
        base = _null(ask, exact.mean / exact.n, exact.sd / exact.n, exact.n)
        draws = ask.draws or dot_products.affordable(COST_DRAWS, a.size)
        drawing = partial(montecarlo.draw_pairs, a, b, means, draws=draws, seed=ask.seed)
        return _bounded_or_drawn(base, ask, draws, drawing)

    return handler


def _null(ask: NullRequest, mean: float, sd: float, n: int, **known: Any) -> NullResult:
    """Return a null of which no more than these is known."""
    told = {"z": None, "log10_p": 0.0, "p_method": PMethod.POINT, "assumptions": (EXCHANGEABLE,)} | known
    return NullResult(ask.kind, mean, sd, tail=ask.tail, n=n, **told)


def _bounded_or_drawn(base: NullResult, ask: NullRequest, draws: int, draw: Callable[[], FloatArray]) -> NullResult:
    """Complete `base` (exact mean and sd) by z and p: Cantelli's bound if below what `draws` could show, else draws."""
    if base.sd == 0.0:
        return base
    z = (ask.value - base.mean) / base.sd
    bound = log10_p_moments(z if ask.higher_is_closer else -z, None)
    if bound < log10_p_monte_carlo(0, draws):
        return replace(base, z=z, log10_p=bound, p_method=PMethod.MOMENT_BOUND)
    drawn = dot_products.log10_p_of_draws(draw(), ask.value, base.sd, greater=ask.higher_is_closer)
    log10_p = max(drawn, least_log10_p(base.n))
    return replace(base, z=z, log10_p=log10_p, p_method=PMethod.MONTE_CARLO, n_draws=draws)


def null_from_draws(ask: NullRequest, values: FloatArray, n: int) -> NullResult:
    """Return the null of a statistic from its drawn values (see `montecarlo.draw_columns`); `n` units were permuted."""
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else 0.0
    beyond = ask.value - mean
    assumptions = (EXCHANGEABLE, ONE_PERMUTATION, Text("mean and sd estimated from {n} draws", n=values.size))
    base = _null(ask, mean, 0.0, n, n_draws=values.size, assumptions=assumptions)
    if sd <= 1e-12 * abs(mean):
        closer = (beyond if ask.higher_is_closer else -beyond) > 1e-12 * abs(mean)
        return replace(base, log10_p=log10_p_monte_carlo(0, values.size) if closer else 0.0)
    log10_p = dot_products.log10_p_of_draws(values, ask.value, sd, greater=ask.higher_is_closer)
    return replace(base, sd=sd, z=beyond / sd, log10_p=log10_p, p_method=PMethod.MONTE_CARLO)


_abs_null = _cost(costs.abs_cost_moments, lambda a, b: np.abs(np.subtract(b, a, out=b), out=b))


def _ulp(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
    if A.dtype.kind != "i" or B.dtype.kind != "i":
        raise ValueError("null ulp: expected the integers of kinprint.metrics.identity.ordinals, got other numbers")
    # ordinals of F64 reach ±2⁶³: the least is subtracted modulo 2⁶⁴, before float64 could merge neighbours
    origin = np.int64(min(int(A.min()), int(B.min()))).view(np.uint64)
    left, right = ((X.astype(np.int64).view(np.uint64) - origin).astype(np.float64) for X in (A, B))
    return _abs_null(left, right, ask)


def _drawn(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
    """Return the null of any metric: its values on drawn permutations of the last axis."""
    if ask.statistic is None:
        raise ValueError("null drawn: expected the metric as `statistic`, got None")
    draws, statistics = ask.draws or dot_products.affordable(COST_DRAWS, A.size), {ask.kind: ask.statistic}
    values = montecarlo.draw_columns(A, B, statistics, draws=draws, seed=ask.seed)[ask.kind]
    return null_from_draws(ask, values, A.shape[-1])


def _identity(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
    """Return the null of a yes-or-no statistic, which has no useful distance z from its mean."""
    log_probability = identity_log_probability(A, B)
    chance = math.exp(log_probability)
    log10_p = log_probability / math.log(10.0) if ask.value >= 1.0 else 0.0
    sd, n = math.sqrt(chance * (1.0 - chance)), as_rows(A).shape[1]
    return _null(ask, chance, sd, n, log10_p=log10_p, p_method=PMethod.ORDERINGS)


def _shuffled(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
    """Null of a cosine that is itself a draw from it: where it lies is shown, but it tests nothing, so it has no p."""
    left, right = safely_scaled(as_rows(A)), safely_scaled(as_rows(B))
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    moments = dot_moments(left, right, shape=False)
    mean, sd = moments.mean / length, moments.sd / length
    z = (ask.value - mean) / sd if sd > 0.0 else None
    return _null(ask, mean, sd, moments.n, z=z, log10_p=None, p_method=PMethod.OWN_DRAW)


def _cka(A: NDArray[Any], B: NDArray[Any], ask: NullRequest) -> NullResult:
    if A.ndim != 2 or A.shape[0] != B.shape[0]:
        raise DegenerateInput(f"null {ask.kind}: expected equal row counts, got {A.shape} and {B.shape}")
    K, L = (kernels.centred_gram(X.astype(np.float64)) for X in (A, B))
    if ask.kind == "cka":
        moments = kernels.cka_moments(K, L)
    else:
        K, L = kernels.u_centred(K), kernels.u_centred(L)
        moments = kernels.unbiased_cka_moments(K.shape[0])
    base = _null(ask, moments.mean, moments.sd if moments.sd > 1e-12 else 0.0, moments.n)
    draws = ask.draws or dot_products.affordable(COST_DRAWS, moments.n**2)
    return _bounded_or_drawn(base, ask, draws, lambda: montecarlo.draw_alignments(K, L, draws=draws, seed=ask.seed))


_HANDLERS: dict[str, Handler] = {
    "abs_diff": _abs_null,
    "changed": _cost(costs.unequal_cost_moments, np.not_equal),
    "ulp": _ulp,
    "drawn": _drawn,
    "identity": _identity,
    "shuffled": _shuffled,
    "invariant": lambda A, _, ask: _null(
        ask, ask.value, 0.0, as_rows(A).shape[1], log10_p=None, p_method=PMethod.BLIND, assumptions=()
    ),
    "cka": _cka,
    "cka_unbiased": _cka,
}

KINDS: tuple[str, ...] = (*DOT_KINDS, *_HANDLERS)
