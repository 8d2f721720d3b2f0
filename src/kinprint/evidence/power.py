"""State the power of the tests: the weakest relation that a test would have seen, at the level it was held to.

"Not significant" says little by itself. A test that would have found a correlation of 0.05 and did not is news; one that
needs 0.9 is none. Formulas overstate what a test sees whose bounds weaken as a relation grows, so nothing is taken from formulas:
relations are planted in the values at hand, and the test that ships is run on them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced, spaced_places, unit_rows
from kinprint._util.records import dataclass
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.assess import Assessment
from kinprint.evidence.dimension_test import DIMENSION_POINTS, norm_profiles, without_outstanding
from kinprint.evidence.exact_tests import norm_test
from kinprint.evidence.exchangeability import without_copies
from kinprint.evidence.probe import Probe, SamplePair, is_residual_norm, pairs_by_role
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.model.reader import Sample
from kinprint.results.findings import TESTED, EvidenceTest, PowerFinding
from kinprint.stats.dot_products import LEAST_DRAWS
from kinprint.stats.fixedpoints import count_needed, fixed_by_scores, fixed_points
from kinprint.stats.joint import of_usual_width
from kinprint.text import Text, joined

POWER = 0.95
POWER_LAYERS = 2  # layers in which rows are planted; the others are taken to be like these
MOST_ROWS = 512  # of one side that look for their nearest; the others are taken to be like these
WEAK = 0.7
SCALES, ROWS = Text("correlation of norm scales"), Text("cosine of rows")
STRENGTHS = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.12, *(n / 20 for n in range(3, 21)))
"""Strengths that are planted; the last is a copy."""

COARSE = 3  # every third strength, where all above the answer are looked at
DRAWS = 8
TOLERANCE = 3.187
"""Of `DRAWS` normal values, mean − TOLERANCE·sd is below 95 % of all values with 95 % confidence (one-sided tolerance factor)."""


def power_of(assessment: Assessment) -> list[PowerFinding]:
    """State the weakest relation that the tests of rows and of norms would have seen."""
    ran = [test for test in assessment.tests if test.status == TESTED and test.log10_p is not None and test.blocks]
    level = LOG10_ALPHA - math.log10(max(len(ran), 1))  # the first step of Holm's correction
    pairs = pairs_by_role(*assessment.probes, assessment.layer_map)
    found: list[PowerFinding] = []
    for test in sorted(ran, key=lambda test: test.name != DIMENSION_POINTS):
        # dimensions may tell enough: role by role, norms are tested more weakly as a rule, and planting there takes long
        weak = any((item.least or 1.0) <= WEAK for item in found if item.name == DIMENSION_POINTS)
        if test.name == DIMENSION_POINTS:
            norms = [pair for role, group in pairs.items() if is_residual_norm(role) for pair in group]
            found.append(_points_power([norm_profiles(norms)], test, level, SCALES, without_outstanding))
        elif test.name == "norm_joint" and not weak:
            found.append(_norm_power(pairs[Role(str(test.scope))], test, level))
        elif test.name == "fixed_points":
            found.append(_row_power(pairs[Role(str(test.scope))], assessment.probes[1], test, level))
    return found


def least_strength(simulate: Callable[[float, int], float], needed: float, *, falling: bool = False) -> float | None:
    """Return the least planted strength from which on a statistic reaches `needed` in 95 % of all cases; None if a copy does not.

    `simulate` gives the statistic of a relation of some strength, in the draw of some number. Where it may be `falling` as the
    relation grows, every strength above the answer is looked at.
    """

    def seen(strength: float) -> bool:
        values = []
        for draw in range(DRAWS):
            values.append(simulate(strength, draw))
            # No mean of n values is above the least of them by more than (n − 1)/√n standard deviations, here 2.47 < `TOLERANCE`.
            if values[-1] < needed:
                return False
        return bool(np.mean(values) - TOLERANCE * np.std(values, ddof=1) >= needed)

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


def _finding(
    test: EvidenceTest, quantity: Text, level: float, least: float | None, reason: Text | None, sizes: tuple[int, int]
) -> PowerFinding:
    n, width = sizes
    why = None if least is not None else reason
    return PowerFinding(test.name, str(test.scope), quantity, least, POWER, level, n, width, test.blocks, why)


def _points_power(
    blocks: Sequence[tuple[FloatArray, FloatArray]],
    test: EvidenceTest,
    level: float,
    quantity: Text,
    prepared: Callable[[FloatArray], FloatArray] | None = None,
) -> PowerFinding:
    """Plant relations in rows, and count fixed points; `test.blocks` layers have rows like those of `blocks`."""
    n, width = blocks[0][0].shape
    layers = test.blocks if test.name != DIMENSION_POINTS else 1
    needed = count_needed((n,) * layers, level)
    reason = Text("{n} rows in each of {m} layers cannot reach the level", n=n, m=layers)
    if needed is None:
        return _finding(test, quantity, level, None, reason, (n, width))

    def simulate(strength: float, draw: int) -> float:
        return layers * float(np.mean([count(strength, draw) for count in counts]))

    if prepared is None:
        counts = [_Products.of(*block).count for block in blocks]
    else:
        counts = [partial(_count, block, [*map(prepared, block)], prepared) for block in blocks]
    return _finding(test, quantity, level, least_strength(simulate, needed), _beyond_a_copy(test, level), (n, width))


@dataclass(frozen=True)
class _Products:
    """Products of all rows of two sides, by which relations are planted in them without touching the rows again."""

    within: tuple[FloatArray, FloatArray]
    across: FloatArray
    width: int

    @classmethod
    def of(cls, one: FloatArray, two: FloatArray) -> Self:
        return cls((one @ one.T, two @ two.T), one @ two.T, one.shape[1])

    def count(self, strength: float, draw: int) -> float:
        """Return the number of fixed points of a relation planted as `planted` does."""
        turned, order, rest = draw % 2, planted_order(len(self.across), draw), math.sqrt(1.0 - strength * strength)
        own, other = self.within[turned].diagonal(), self.within[1 - turned].diagonal()[order]
        across = (self.across.T if turned else self.across)[:, order]
        cosines = strength * self.within[turned] + rest * across
        squares = strength**2 * own + rest**2 * other + 2.0 * strength * rest * across.diagonal()
        lengths = np.sqrt(np.outer(own, np.maximum(squares, 0.0)))
        np.divide(cosines, lengths, out=cosines, where=lengths > 0.0)
        cosines[lengths == 0.0] = -np.inf
        return float(fixed_by_scores(cosines, self.width))


def _count(
    block: tuple[FloatArray, FloatArray],
    ready: Sequence[FloatArray],
    prepared: Callable[[FloatArray], FloatArray],
    strength: float,
    draw: int,
) -> float:
    """Return the number of fixed points of a planted relation; of many rows, some look for their nearest."""
    one, two = ready[draw % 2], prepared(planted(*block, strength, draw)[1])
    if len(one) <= MOST_ROWS:
        return float(fixed_points(one, two).count)
    chosen = spaced_places(len(one), MOST_ROWS)
    left, right = (unit_rows(rows).astype(np.float32) for rows in (one[chosen], two))
    # of many thousand rows: ties do not matter
    return float(np.mean((left @ right.T).argmax(axis=1) == chosen)) * len(one)


def _row_power(pairs: Sequence[SamplePair], b: Probe, test: EvidenceTest, level: float) -> PowerFinding:
    blocks = []
    for pair in evenly_spaced(without_copies(pairs), POWER_LAYERS):
        rows = min(len(pair.a.stored), len(pair.b.stored))
        if pair.role is Role.ATTN_V:
            rows = min(rows, b.head_size(pair.b) or rows)
        if rows > 1 and pair.a.stored.shape[1] == pair.b.stored.shape[1]:
            blocks.append((unit_rows(pair.a.part(slice(rows))), unit_rows(pair.b.part(slice(rows)))))
    least_rows = min(len(one) for one, _ in blocks)
    return _points_power([(one[:least_rows], two[:least_rows]) for one, two in blocks], test, level, ROWS)


def _norm_power(pairs: Sequence[SamplePair], test: EvidenceTest, level: float) -> PowerFinding:
    """Plant correlations in the norms of one role; the bounds of this test may weaken as a relation grows."""
    known = [(pair.a.values, pair.b.values) for pair in pairs if pair.a.shape == pair.b.shape and pair.finite]
    norms = of_usual_width(known)  # as the test does, where stages have widths of their own
    sides = [np.array(side) for side in zip(*((_standard(a), _standard(b)) for a, b in norms), strict=True)]
    one, two = (side.T for side in sides)  # (dimensions, layers)

    def simulate(strength: float, draw: int) -> float:
        left, right = planted(one, two, strength, draw)
        read = [[Sample(1.0 + 0.1 * x, "F64", x.shape) for x in side.T] for side in (left, right)]
        group = [SamplePair(pairs[0].role, n, None, *both) for n, both in enumerate(zip(*read, strict=True))]
        try:
            # what can only be drawn does not reach the level, however often it is drawn
            return -(norm_test(pairs[0].role, group, {}, 0, draws=LEAST_DRAWS).log10_p or 0.0)
        except DegenerateInput:
            return 0.0

    least = least_strength(simulate, -level, falling=True)
    return _finding(test, SCALES, level, least, _beyond_a_copy(test, level), (test.n, len(one)))


def _standard(values: FloatArray) -> FloatArray:
    centred = values - values.mean()
    found: FloatArray = centred / (centred.std() or 1.0)
    return found


def _beyond_a_copy(test: EvidenceTest, level: float) -> Text:
    """Say that nothing reaches the level, which is that of the strongest test: Holm's correction asks less of the others."""
    reason = Text("by itself not even a copy reaches the level of 10^{x:.1f} with these values", x=level)
    if test.log10_p_holm is not None and test.log10_p_holm <= LOG10_ALPHA:
        return joined((reason, Text("it counts here because stronger tests were passed before it")))
    return reason


KEPT = 0.9
"""Correlation with the other model below which a relation is not what most edits leave: a test that cannot see it says little."""


def planted_probe(probe: Probe, other: Probe, strength: float) -> Probe:
    """Return a model that keeps so much of one; the rest of every tensor is another's, of the same shapes."""

    def mixed(mine: Mapping, rest: Mapping) -> dict:  # type: ignore[type-arg]
        return {key: _mixed(sample, rest[key], strength) for key, sample in mine.items()}

    return replace(
        probe,
        label=f"{probe.label}, of which {strength:g} is kept",
        samples=mixed(probe.samples, other.samples),
        heads=mixed(probe.heads, other.heads),
        tokens=mixed(probe.tokens, other.tokens),
    )


def _mixed(sample: Sample, rest: Sample, strength: float) -> Sample:
    one, two = sample.values, rest.values
    mean = one.mean() if one.size and sample.finite else 0.0
    values = mean + strength * (one - mean) + math.sqrt(1.0 - strength * strength) * (two - mean)
    return replace(sample, stored=values, dtype="F64", offset=0.0)
