"""Match neurons after reordering or width pruning, and test whether gate and up rows agree about the match.

The gate rows of two models give one assignment of neurons, the up rows another. A neuron that was copied is found by both
(Zhu et al. 2025, "Independence tests for language models"); unrelated models agree about as often as random orders do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.cores import on_all_cores
from kinprint._util.numeric import FloatArray, check_finite, unit_rows
from kinprint.align.assignment import IDENTITY, NONE, PERMUTED, SUBSET, assigned
from kinprint.errors import DegenerateInput
from kinprint.results.p_values import PMethod
from kinprint.stats.moments import check_range
from kinprint.stats.tails import least_log10_p, log10_p_monte_carlo
from kinprint.text import Text

MAX_ASSIGNED = 2048
"""Up to so many rows the best one-to-one assignment is found; beyond, mutual nearest neighbours are paired."""

NULL_ROWS = 256
"""Rows of A that a draw of the null matches; more would cost minutes and tell little."""

FEW_DRAWS, LEAST_DRAWS = 9, 19
"""Draws that show what chance does where nothing was found, and least number from which their spread is judged."""

OVERDISPERSION = 1.5
"""Draws look Poisson or lighter if their variance is at most so many times their mean, up to three standard errors."""

CONFIDENCE, _QUANTILE = 0.99, 2.3263478740408408  # of the normal distribution
SIGNIFICANT = -3.0
"""log10 p above which `recovered_map` names no map."""


Real = TypeVar("Real", bound=np.floating[Any])
_Rows: TypeAlias = tuple[FloatArray, FloatArray]  # gate and up

_BLOCK = 1 << 21  # cosines held at a time: 16 MiB


@dataclass(frozen=True)
class NeuronMatch:
    """What gate and up rows say about the neurons of one layer."""

    gate_index: NDArray[np.intp]  # for each neuron of A the neuron of B that its gate row matches, or −1
    up_index: NDArray[np.intp]  # the same for up rows
    agreement: int  # neurons for which both name the same one
    n: int  # the smaller number of neurons
    rows_b: int  # number of neurons of B
    null_mean: float  # of the agreement among `null_rows` neurons of A when the columns of one model are permuted
    null_sd: float
    null_rows: int
    n_draws: int
    z: float | None  # (agreement of that sample − null_mean)/null_sd, None if the draws are all equal
    rate: float  # upper confidence bound of the mean agreement of all n under the null, at least 1
    log10_p_monte_carlo: float  # exact, from the sample's agreement among the draws; no smaller than 1/(draws + 1)
    # P(X ≥ agreement) for X Poisson of `rate` if the draws look Poisson or lighter, else the Monte-Carlo one
    log10_p: float
    p_method: PMethod  # which of the two
    p_detail: Text  # the same in words


def match_rows(A: ArrayLike, B: ArrayLike, *, signed: bool = True) -> NDArray[np.intp]:
    """Return for each row of `A` the row of `B` with which it is paired by cosine, or −1.

    Up to `MAX_ASSIGNED` rows the pairs are those of the best one-to-one assignment, so that every row of the smaller side
    has a partner, good or bad; beyond, only mutual nearest neighbours are paired. A row of zeros has no direction and
    no partner. With `signed` False a negated row is as good as the row.
    """
    left, right = _directions(A, "a"), _directions(B, "b")
    if left.shape[1] != right.shape[1]:
        raise DegenerateInput(f"neurons: rows of {left.shape[1]} and {right.shape[1]} values: expected equal widths")
    return _match(left, right, signed=signed, mutual=_too_many(left, right))


def _directions(X: ArrayLike, side: str) -> FloatArray:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.size == 0:
        raise DegenerateInput(f"neurons: {side} has shape {rows.shape}: expected a matrix with a row per neuron")
    check_finite(rows, Text("neurons"), side)
    check_range(rows, side)
    return unit_rows(rows)


def _match(left: FloatArray, right: FloatArray, *, signed: bool, mutual: bool) -> NDArray[np.intp]:
    likeness = partial(cosines, left, right, signed=signed)
    index = mutual_nearest(likeness, len(left), len(right)) if mutual else assigned(likeness(slice(None)))
    index[~np.asarray(left.any(axis=1))] = -1
    index[(index >= 0) & ~np.asarray(right.any(axis=1))[index]] = -1
    return index


def cosines(left: NDArray[Real], right: NDArray[Real], some: slice, *, signed: bool) -> NDArray[Real]:
    """Return the cosines of some rows at unit length with others, or their sizes."""
    found: NDArray[Real] = left[some] @ right.T
    return found if signed else np.abs(found, out=found)


def _too_many(left: FloatArray, right: FloatArray) -> bool:
    return bool(max(left.shape[0], right.shape[0]) > MAX_ASSIGNED)


def mutual_nearest(similarity: Callable[[slice], NDArray[np.floating]], rows: int, columns: int) -> NDArray[np.intp]:
    """Return for each row the column that it is nearest to and that is nearest to it, or −1; some rows at a time."""
    step = max(1, _BLOCK // columns)

    def nearest(start: int) -> tuple[NDArray[np.intp], NDArray[np.floating], NDArray[np.floating]]:
        block = similarity(slice(start, start + step))
        index = block.argmax(axis=1)
        return index, block[np.arange(len(index)), index], block.max(axis=0)

    found, own, best = zip(*on_all_cores(nearest, range(0, rows, step)), strict=True)
    index = np.concatenate(found)
    near = np.flatnonzero(np.concatenate(own) == np.max(best, axis=0)[index])
    _, first = np.unique(index[near], return_index=True)  # of rows that are equally near, the first
    mutual = np.full(rows, -1, dtype=np.intp)
    mutual[near[first]] = index[near[first]]
    return mutual


def gate_up_agreement(
    gate_a: ArrayLike,
    up_a: ArrayLike,
    gate_b: ArrayLike,
    up_b: ArrayLike,
    *,
    draws: int = 99,
    seed: int = 0,
    up_signed: bool = True,
    null_rows: int = NULL_ROWS,
    beyond: float = 0.0,
) -> NeuronMatch:
    """Count the neurons that gate rows and up rows pair alike, beside a null of permuted residual dimensions.

    If the models are unrelated, the order of one's residual dimensions means nothing. A draw permutes it, by ONE permutation
    for gate and up, since both read the same dimensions, and matches again: what gate and up rows of a neuron have in
    common inside each model is kept. Beyond `null_rows` a draw matches a random sample of the smaller model, and the rate of
    the Poisson tail is scaled up in proportion, which trained models bear out within error. Monte-Carlo p and z compare the
    sample with itself and need no such step.

    Rows are neurons, columns residual dimensions; the two models may have different numbers of neurons. `up_signed` False finds
    neurons whose up row (and down column) were negated as well. `beyond` is a share of neurons up to which the caller will call
    nothing found: then `FEW_DRAWS` show what chance does.
    """
    a = _directions(gate_a, "gate_a"), _directions(up_a, "up_a")
    b = _directions(gate_b, "gate_b"), _directions(up_b, "up_b")
    _check_sides(a, b)
    if draws < 1:
        raise ValueError(f"got {draws} draws: expected at least one")
    mutual = _too_many(a[0], b[0])  # decided once: a draw on a sample must match in the same way

    def match(left: _Rows, right: _Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return (
            _match(left[0], right[0], signed=True, mutual=mutual),
            _match(left[1], right[1], signed=up_signed, mutual=mutual),
        )

    rng = np.random.default_rng(seed)
    # the draws permute the same model, whichever of the two is called A
    one, two = sorted((a, b), key=lambda side: (len(side[0]), float(side[0].sum())))
    count, width = one[0].shape
    chosen = np.sort(rng.choice(count, null_rows, replace=False)) if count > null_rows else np.arange(count)
    sample = one[0][chosen], one[1][chosen]
    found = match(a, b)
    observed = _agreement(*(found if chosen.size == count else match(sample, two)))
    if beyond and _agreement(*found) <= beyond * count:
        draws = min(draws, FEW_DRAWS)

    def draw(order: NDArray[np.intp]) -> int:
        # permuting the sample's columns instead of the other side's is the same draw, and cheaper
        return _agreement(*match((sample[0].take(order, axis=1), sample[1].take(order, axis=1)), two))

    drawn = on_all_cores(draw, [rng.permutation(width) for _ in range(draws)])
    return _judged(found, b[0].shape, observed, np.array(drawn, dtype=np.float64), rows=int(chosen.size))


def _judged(
    found: tuple[NDArray[np.intp], NDArray[np.intp]],
    shape_b: tuple[int, ...],
    observed: int,
    drawn: FloatArray,
    *,
    rows: int,
) -> NeuronMatch:
    """Hold the agreement of all neurons, and that of the `rows` sampled ones, against the draws."""
    (n_b, width), draws = shape_b, drawn.size
    n = min(found[0].size, n_b)
    agreement = _agreement(*found)
    mean, sd = float(drawn.mean()), float(drawn.std(ddof=1)) if draws > 1 else 0.0
    rate = max(1.0, _upper_mean(drawn) * n / rows)
    by_draws = log10_p_monte_carlo(int(np.count_nonzero(drawn >= observed)), draws)
    by_poisson = max(log10_p_poisson(agreement, rate), least_log10_p(width))  # the identity is one of the orders
    # too few draws say nothing about their spread
    light = draws >= LEAST_DRAWS and sd * sd <= OVERDISPERSION * mean + 3.0 * math.sqrt(
        (mean + 2.0 * mean * mean) / draws
    )
    method = PMethod.POISSON if light else PMethod.MONTE_CARLO
    detail = method.label
    if light and rows != n:
        detail = Text("{method}, rate scaled up from {n} of {m} rows", method=detail, n=rows, m=n)
    return NeuronMatch(
        gate_index=found[0],
        up_index=found[1],
        agreement=agreement,
        n=n,
        rows_b=n_b,
        null_mean=mean,
        null_sd=sd,
        null_rows=rows,
        n_draws=draws,
        z=(observed - mean) / sd if sd > 0.0 else None,
        rate=rate,
        log10_p_monte_carlo=by_draws,
        log10_p=by_poisson if light else by_draws,
        p_method=method,
        p_detail=detail,
    )


def _check_sides(a: _Rows, b: _Rows) -> None:
    for side, (gate, up) in (("a", a), ("b", b)):
        if gate.shape != up.shape:
            raise DegenerateInput(
                f"neurons: gate and up of {side} have shapes {gate.shape} and {up.shape}: expected equal"
            )
    if a[0].shape[1] != b[0].shape[1]:
        raise DegenerateInput(
            f"neurons: widths {a[0].shape[1]} and {b[0].shape[1]} differ: expected one residual width"
        )


def _agreement(first: NDArray[np.intp], second: NDArray[np.intp]) -> int:
    return int(np.count_nonzero((first == second) & (first >= 0)))


def _upper_mean(counts: FloatArray) -> float:
    """Return an upper confidence bound of the mean: the larger of the exact Poisson one and the normal one."""
    total, rate = int(counts.sum()), float(counts.sum()) + 1.0
    for _ in range(
        100
    ):  # Newton's steps to the rate at which so few are as rare as that; the tail is concave in log space
        below, slope = _poisson_below(total, rate)
        step = (below - math.log(1.0 - CONFIDENCE)) / slope
        rate += step
        if abs(step) <= 1e-14 * rate:
            break
    error = float(counts.std(ddof=1)) / math.sqrt(counts.size) if counts.size > 1 else 0.0
    return max(rate / counts.size, float(counts.mean()) + _QUANTILE * error)


def _poisson_below(count: int, rate: float) -> tuple[float, float]:
    """Return log P(X ≤ count) for X Poisson of mean `rate`, which is beyond `count`, and how fast it falls with the rate."""
    # pmf(k)·(1 + k/λ + k(k−1)/λ² + …), whose ratios are below one
    total, term, k = 1.0, 1.0, count
    while k > 0 and term > 1e-17 * total:
        term *= k / rate
        total += term
        k -= 1
    return count * math.log(rate) - rate - math.lgamma(count + 1) + math.log(total), 1.0 / total


def log10_p_poisson(count: int, rate: float) -> float:
    """Return log10 P(X ≥ count) for X Poisson of mean `rate`, in log space: nothing underflows."""
    if count <= 0:
        return 0.0
    if count <= rate:
        return math.log1p(-math.exp(_poisson_below(count - 1, rate)[0])) / math.log(10.0)
    # P(X ≥ k) = pmf(k)·(1 + λ/(k+1) + λ²/((k+1)(k+2)) + …), whose ratios are below one from the first
    total, term, k = 1.0, 1.0, count
    while term > 1e-17 * total:
        k += 1
        term *= rate / k
        total += term
    return min(0.0, count * math.log(rate) - rate - math.lgamma(count + 1) + math.log(total)) / math.log(10.0)


def recovered_map(match: NeuronMatch) -> tuple[str, NDArray[np.intp]]:
    """Return the kind of map on which gate and up agree, and for each neuron of A that of B, or −1; none if it may be chance."""
    index = np.where(match.gate_index == match.up_index, match.gate_index, -1)
    if match.log10_p > SIGNIFICANT:
        # with few draws the Monte-Carlo p cannot fall this far: then more draws are needed, not a lower bar
        return NONE, np.full_like(index, -1)
    if index.size != match.rows_b:
        return SUBSET, index
    in_place = np.count_nonzero(index == np.arange(index.size))
    return IDENTITY if 2 * in_place > np.count_nonzero(index >= 0) else PERMUTED, index
