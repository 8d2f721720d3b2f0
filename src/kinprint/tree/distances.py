"""Compute one distance for each related pair from the roles that were measured, and the support of each tree edge.

The distance is −ln r, with r the correlation of weights in the same place. If every step of a lineage shrinks what it got and
adds something independent, correlations multiply along a path and these distances add: the information distance of Gaussian
trees (Choi et al. 2011), whose minimum spanning tree is that of Chow & Liu (1968). Unrelated models have r = 0 but for
sampling, and are kept out by the tests, not by a threshold on r.

Roles differ in how fast training moves them, and not every role can be compared in every pair. So each role has a scale, the
median over pairs of its distance to that of all roles, and a pair that lacks roles is made somewhat longer: between an edge
that was seen whole and one that was seen in part, the whole one is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from kinprint.tree.arborescence import Arc, pair_key, spanning_forest
from kinprint.tree.facts import PairFacts

UNSEEN = 0.5
"""By how much of itself a distance grows if none of the roles that others have was measured; in proportion, if some were."""

MOVED = 0.1  # likewise, for a pair of different depths: its layers are not those that were looked at in the others
REORDERED = 0.02  # length of a reordering: no weights change, but one of the two ends must have done it
UNKNOWN = 5.0  # length of an edge that tests show and no role measures: longer than any measured one
DRAWS = 200
LEAST_ROLES = 3
_SCALES = (0.1, 10.0)


@dataclass(frozen=True)
class Length:
    """Distance of a pair, and from how many roles. ``value`` is None if nothing could be measured."""

    value: float | None
    roles: int
    reordered: bool

    @property
    def cost(self) -> float:
        """What the edge costs the tree."""
        return UNKNOWN if self.value is None else self.value


class Lengths:
    """Distances of all related pairs, on one scale."""

    def __init__(self, pairs: Sequence[PairFacts]) -> None:
        self.pairs = {pair.key: pair for pair in pairs}
        self.roles = sorted({role for pair in pairs for role in pair.distances})
        self.most = max((len(pair.distances) for pair in pairs), default=0)
        self.scales = self._scales(pairs)
        self.lengths = {key: self._length(pair) for key, pair in self.pairs.items()}

    def get(self, one: int, two: int) -> Length | None:
        """Return the distance of two models, None if they are not related."""
        return self.lengths.get(pair_key(one, two))

    def _scales(self, pairs: Sequence[PairFacts]) -> dict[str, float]:
        """Return each role's distance relative to the mean over the roles of weights in place: a median over pairs."""
        ratios: dict[str, list[float]] = {}
        for pair in pairs:
            mean = fmean(pair.distances.values()) if pair.distances else 0.0
            if len(pair.distances) == self.most and mean > 0.0:
                for role, value in (*pair.distances.items(), *pair.carried.items()):
                    ratios.setdefault(role, []).append(value / mean)
        low, high = _SCALES
        return {role: min(high, max(low, median(values))) for role, values in ratios.items()}

    def _length(self, pair: PairFacts) -> Length:
        reordered, found = not pair.distances and bool(pair.carried), pair.distances or pair.carried
        if not found:
            return Length(None, 0, False)
        scaled = math.fsum(found.values()) / math.fsum(self.scales.get(role, 1.0) for role in found)
        return Length(scaled * self._stretch(pair) + (REORDERED if reordered else 0.0), len(found), reordered)

    def _stretch(self, pair: PairFacts) -> float:
        """Return the factor by which a pair that was seen in part is made longer."""
        unseen = 1.0 - len(pair.distances) / max(self.most, 1)
        return 1.0 + UNSEEN * unseen + MOVED * pair.moved

    def support(self, *, seed: int) -> dict[Arc, float] | None:
        """Return how often each pair is an edge of the least tree when roles are drawn anew (Felsenstein 1985)."""
        # None with too few roles to draw from. Roles are few and not independent: this is a mark of firmness, no probability.
        if len(self.roles) < LEAST_ROLES:
            return None
        rng = np.random.default_rng(seed)
        pairs = list(self.pairs.values())
        values = np.array([[pair.distances.get(role, 0.0) for role in self.roles] for pair in pairs])
        scales = np.array(
            [[self.scales.get(role, 1.0) if role in pair.distances else 0.0 for role in self.roles] for pair in pairs]
        )
        stretch = np.array([self._stretch(pair) for pair in pairs])
        usual = np.array([length.cost for length in self.lengths.values()])
        counts = dict.fromkeys(self.pairs, 0)
        for _ in range(DRAWS):
            times = np.bincount(rng.integers(len(self.roles), size=len(self.roles)), minlength=len(self.roles))
            whole = scales @ times
            drawn = np.divide((values @ times) * stretch, whole, out=usual.copy(), where=whole > 0.0)
            for edge in spanning_forest(dict(zip(self.pairs, drawn.tolist(), strict=True))):
                counts[edge] += 1
        return {key: count / DRAWS for key, count in counts.items()}


def bend(lengths: Lengths, middle: int, one: int, two: int) -> float | None:
    """Return how far a model lies off the path between two others, relative to the distance of the nearer one."""
    # 0: the middle one lies between them, or is their only common ancestor. Towards 1: the two share what the middle one has
    # not, an ancestor that is not among the models. Below 0: they lie on a line through it, as when training went on alike.
    # None where a distance is missing or rests on another kind of weights.
    sides = [lengths.get(middle, one), lengths.get(middle, two), lengths.get(one, two)]
    if any(side is None or side.value is None or side.reordered for side in sides):
        return None
    near, far, across = (side.cost for side in sides if side is not None)
    least = min(near, far)
    return (near + far - across) / (2.0 * least) if least > 0.0 else None
