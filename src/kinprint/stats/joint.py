"""Test several blocks (layers) at once, under one permutation for all or one for each."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray, safely_scaled
from kinprint.errors import DegenerateInput
from kinprint.results.measurements import NullResult
from kinprint.results.p_values import PMethod
from kinprint.stats.combine import bonferroni
from kinprint.stats.dot_products import EXCHANGEABLE, SAMPLED, NullRequest, dot_nulls, moments_null
from kinprint.stats.moments import Moments, each_dot_moments, pairs_at_once
from kinprint.stats.tails import DECISIVE, analytic_tail, least_log10_p
from kinprint.text import Text

MAX_STACK = 192 * 4096  # elements of all blocks together in `joint_tail`: cost grows with the square of the rows
AT_ONCE = 1 << 16  # entries of the tables of blocks whose moments are computed together: 512 KiB each

MOST_DONE = 64  # answers kept
_DONE: dict[Hashable, NullResult] = {}

BOUND_ROWS = 8
"""Rows of the smaller stack on which `joint_tail` computes a rigorous bound: more rows cost much and tighten nothing."""


def rows_taken(blocks: int, width: int) -> int:
    """Return how many rows of each block `joint_tail` looks at."""
    return max(1, MAX_STACK // (width * max(blocks, 1)))


def of_usual_width(blocks: Sequence[tuple[FloatArray, FloatArray]]) -> Sequence[tuple[FloatArray, FloatArray]]:
    """Return the blocks that have as many permuted units as most of them, the more units if two numbers are as common."""
    widths = Counter(one.shape[-1] for one, _ in blocks)
    if len(widths) < 2:
        return blocks
    usual = max(widths, key=lambda width: (widths[width], width))
    return [block for block in blocks if block[0].shape[-1] == usual]


def joint_tail(
    blocks: Sequence[tuple[FloatArray, FloatArray]], *, seed: int = 0, draws: int | None = None
) -> NullResult:
    """Test all blocks at once like `joint_blocks`, on at most `MAX_STACK` elements, with a bound from a few rows."""
    # Where the normal tail is not believed, the Chernoff bound of a smaller stack is looked at too. The smaller p-value of the
    # two is taken and doubled: the second was looked at because of the first. What the summary by role asks for, the tests ask for
    # again: the last answers are kept, by a hash of the values. Where layers differ in width, no permutation serves all of them:
    # those of the usual width are tested.
    blocks = of_usual_width(blocks)
    share = rows_taken(len(blocks), blocks[0][0].shape[-1] if blocks else 1)
    cut = [(one[:share], two[:share]) for one, two in blocks]
    # Python hashes bytes five times as fast as hashlib, with a secret of this process
    key = (tuple((side.shape, hash(side.tobytes())) for block in cut for side in block), seed, draws)
    if key not in _DONE:
        while len(_DONE) >= MOST_DONE:
            _DONE.pop(next(iter(_DONE)), None)
        _DONE[key] = _joint_tail(cut, seed, draws)
    return _DONE[key]


def _joint_tail(blocks: Sequence[tuple[FloatArray, FloatArray]], seed: int, draws: int | None) -> NullResult:
    null = joint_blocks(blocks, seed=seed, draws=draws, bound=False)
    if null.p_method is PMethod.NORMAL or null.log10_p is None or null.log10_p <= DECISIVE or (null.z or 0.0) < 3.0:
        return null
    few, step = max(1, BOUND_ROWS // len(blocks)), max(1, -(-len(blocks) // BOUND_ROWS))
    thin = [(one[:few], two[:few]) for one, two in blocks[::step]]
    bound = joint_blocks(thin, seed=seed, draws=draws)
    rows = sum(len(one) for one, _ in thin)
    if bound.log10_p is None or bound.log10_p >= null.log10_p:
        return replace(null, log10_p=bonferroni(null.log10_p, 2))
    said = Text("{method}, on {n} of the rows, doubled", method=bound.p_method.label, n=rows)
    return replace(null, log10_p=bonferroni(bound.log10_p, 2), p_method=bound.p_method, p_detail=said)


def joint_blocks(
    blocks: Sequence[tuple[FloatArray, FloatArray]], *, seed: int = 0, draws: int | None = None, bound: bool = True
) -> NullResult:
    """Test all blocks at once: T = mean of their correlations, ONE permutation of the last axis for all."""
    # Each block is (m, d) on either side, d being the same for all. A block's correlation is that of its flattened values, so
    # blocks of vectors (m = 1) give the joint norm test and blocks of row slices the same for matrices. Var T holds all
    # the covariances between layers, because the Gram matrices are those of the whole stack: for vectors it is
    # Σ_lm (a_l·a_m)(b_l·b_m) / (L²(d−1)). Treating layers as independent would be wrong. `bound` False spares the Chernoff
    # bound, which is costly for many rows.
    if not blocks:
        raise DegenerateInput("joint: no block to test")
    left, right = [], []
    for number, (A, B) in enumerate(blocks):
        if A.shape != B.shape or A.shape[-1] != blocks[0][0].shape[-1]:
            raise DegenerateInput(f"joint: block {number} has shapes {A.shape} and {B.shape}; expected equal widths")
        left.append(_unit(A, number))
        right.append(_unit(B, number) / len(blocks))
    stack_a, stack_b = np.concatenate(left), np.concatenate(right)
    observed = float(np.vdot(stack_a, stack_b))
    ask = NullRequest("joint", (observed,), higher_is_closer=True, seed=seed, draws=draws, bound=bound)
    return dot_nulls(stack_a[None], stack_b[None], ask.observed, ask)[0]


def _unit(X: FloatArray, number: int) -> FloatArray:
    scaled = safely_scaled(X)
    mean = float(scaled.mean())
    centred = scaled - mean
    length = float(np.linalg.norm(centred))
    if length <= NEAR_CONSTANT * abs(mean):
        raise DegenerateInput("joint: block {number} is constant up to rounding", number=number, hint="leave it out")
    return centred / length


def block_nulls(blocks: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[list[float], list[NullResult]]:
    """Return the blocks' correlations and the exact moments of their nulls, without p-values: `joint_independent` needs none."""
    units = [(_unit(one, number), _unit(two, number)) for number, (one, two) in enumerate(blocks)]
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, (one, _) in enumerate(units):
        alike.setdefault(one.shape, []).append(number)
    nulls: dict[int, NullResult] = {}
    for shape, numbers in alike.items():
        step = pairs_at_once(shape[0], shape[1], AT_ONCE)
        for start in range(0, len(numbers), step):
            chunk = numbers[start : start + step]
            moments = each_dot_moments(*(np.stack([units[k][side] for k in chunk]) for side in (0, 1)))
            found = [moments_null(one, "pearson", rows=shape[0]) for one in moments]
            nulls.update(zip(chunk, found, strict=True))
    return [float(np.vdot(one, two)) for one, two in units], [nulls[k] for k in range(len(units))]


def joint_independent(observed: Sequence[float], nulls: Sequence[NullResult]) -> NullResult:
    """Test the mean of statistics that are permuted independently of each other, from their exact nulls."""
    # Cumulants of independent sums add, so mean, variance, skewness and kurtosis of the mean are exact. The tail is the
    # normal one where those allow it, else a bound; nothing is drawn.
    count = len(nulls)
    if not count:
        raise DegenerateInput("joint: nothing to test")
    total = sum(null.sd**2 for null in nulls)
    mean = sum(null.mean for null in nulls) / count
    n = min(null.n for null in nulls)
    if total == 0.0:
        raise DegenerateInput("joint: every permutation gives the same value")
    moments = Moments(mean, total / count**2, n, sampled=any(SAMPLED in null.assumptions for null in nulls))
    if all(None not in (null.skewness, null.excess_kurtosis, null.fourth, null.reach) for null in nulls):
        moments = replace(
            moments,
            skewness=sum((null.skewness or 0.0) * null.sd**3 for null in nulls) / total**1.5,
            excess_kurtosis=sum((null.excess_kurtosis or 0.0) * null.sd**4 for null in nulls) / total**2,
            fourth=sum((null.fourth or 0.0) * null.sd**4 for null in nulls) / total**2,
            reach=max((null.reach or 0.0) * null.sd for null in nulls) / math.sqrt(total),
        )
    z = (math.fsum(observed) / count - mean) / moments.sd
    log10_p, method = analytic_tail(z, moments, least=sum(least_log10_p(null.n) for null in nulls))
    assumptions = (EXCHANGEABLE, Text("each block has units of its own, permuted independently"))
    null = moments_null(moments, "joint", rows=1)
    return replace(null, z=z, log10_p=log10_p, p_method=method, assumptions=assumptions)
