"""Find the weakest relation that a test sees with a given probability, by planting relations and running the test.

"Not significant" says little by itself. A test that would have found a correlation of 0.05 and did not is news; one that
needs 0.9 is none. Formulas overstate what a test sees whose bounds weaken as a relation grows, so nothing is taken from formulas.
"""

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.stats.fixedpoints import log10_p_total

STRENGTHS = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.12, *(n / 20 for n in range(3, 21)))
"""Strengths that are planted; the last is a copy."""

COARSE = 3  # every third strength, where all above the answer are looked at
DRAWS = 8
TOLERANCE = 3.187
"""Of `DRAWS` normal values, mean − TOLERANCE·sd is below 95 % of all values with 95 % confidence (one-sided tolerance factor)."""


def least_strength(simulate: Callable[[float, int], float], needed: float, *, falling: bool = False) -> float | None:
    """Return the least planted strength from which on a statistic reaches `needed` in 95 % of all cases; None if a copy does not.

    `simulate` gives the statistic of a relation of some strength, in the draw of some number. Where it may be `falling` as the
    relation grows, every strength above the answer is looked at.
    """

    def seen(strength: float) -> bool:
        values = np.array([simulate(strength, draw) for draw in range(DRAWS)])
        return bool(values.mean() - TOLERANCE * values.std(ddof=1) >= needed)

    if simulate(STRENGTHS[-1], 0) < needed:  # copies do not scatter
        return None
    high = len(STRENGTHS) - 1
    if falling:
        while high >= COARSE and seen(STRENGTHS[high - COARSE]):
            high -= COARSE
        return STRENGTHS[high]
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(STRENGTHS[middle]) else (middle, high)
    return STRENGTHS[high]


def planted(one: FloatArray, two: FloatArray, strength: float, draw: int) -> tuple[FloatArray, FloatArray]:
    """Return rows, and other rows that keep so much of them: the rest is the other side's, in a random order."""
    # The sides take turns, so that the answer does not depend on their order. Rows of both sides have one length on average.
    here, rest = (one, two) if draw % 2 == 0 else (two, one)
    return here, strength * here + math.sqrt(1.0 - strength * strength) * rest[planted_order(len(rest), draw)]


def planted_order(count: int, draw: int) -> NDArray[np.intp]:
    """Return the order of the rest in the draw of some number."""
    return np.random.default_rng(draw // 2).permutation(count)


def count_needed(sizes: tuple[int, ...], log10_alpha: float) -> int | None:
    """Return the smallest total of fixed points whose p-value is at most alpha; None if all rows together do not reach it."""
    most = sum(sizes)
    if log10_p_total(most, sizes) > log10_alpha:
        return None
    return 1 + bisect_left(range(1, most), -log10_alpha, key=lambda total: -log10_p_total(total, sizes))
