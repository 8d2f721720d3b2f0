"""Find models that are nearly a weighted sum of two others, by least squares over common slices of weights.

If C = ½A + ½B then A = 2C − B as well: only the one whose coefficients are shares, both positive and below one, is read as
the child. A model on a chain A–C–B is no merge: the two ends explain half of what the nearer one leaves, not nearly all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.edits.merging import MixtureSums
from kinprint.errors import DegenerateInput
from kinprint.evidence.edit_kinds import LEAST_COEFFICIENT, MERGED_GAIN, MERGED_R2, SURE_ERRORS
from kinprint.tree.arborescence import Arc, pair_key

LARGEST_SHARE = 1.0 - LEAST_COEFFICIENT
_ALIKE = 1e-9  # 1 − cosine² of parents below which they are one

Slices = Mapping[str, FloatArray]


@dataclass(frozen=True)
class Mix:
    """child ≈ first·parents[0] + second·parents[1]."""

    child: int
    parents: tuple[int, int]
    shares: tuple[float, float]
    r_squared: float
    gain: float

    @property
    def pairs(self) -> tuple[Arc, ...]:
        """Child with either parent, smaller number first."""
        return tuple(pair_key(self.child, parent) for parent in self.parents)


def find_mixes(slices: Sequence[Slices], related: frozenset[Arc]) -> list[Mix]:
    """Find for each model the best explanation as a merge of two related models, where one is good enough."""
    # A model is a child in one mix at most, and no parent of a child's own parent: the best explained come first.
    grams = _grams(slices)
    found: list[Mix] = []
    for child in range(len(slices)):
        near = [other for other in range(len(slices)) if pair_key(child, other) in related]
        options = [_screened(grams, child, pair) for pair in combinations(near, 2)]
        if sure := [mix for mix in options if mix is not None and _is_sure(slices, mix)]:
            found.append(max(sure, key=lambda mix: (mix.gain, mix.r_squared)))
    kept: list[Mix] = []
    for mix in sorted(found, key=lambda mix: -mix.gain):
        if not any(mix.child in other.parents and other.child in mix.parents for other in kept):
            kept.append(mix)
    return kept


def _grams(slices: Sequence[Slices]) -> dict[str, FloatArray]:
    """Return for each slice the products of all models that have it in the most common shape; NaN for the others."""
    found = {}
    for key in sorted({key for side in slices for key in side}):
        held = [(number, side[key]) for number, side in enumerate(slices) if key in side]
        shapes = [values.shape for _, values in held]
        usual = max(shapes, key=shapes.count)
        numbers = [number for number, values in held if values.shape == usual]
        stacked = np.stack([side.ravel() for _, side in held if side.shape == usual]).astype(np.float64)
        gram = np.full((len(slices), len(slices)), np.nan)
        gram[np.ix_(numbers, numbers)] = stacked @ stacked.T
        found[key] = gram
    return found


def _screened(grams: Mapping[str, FloatArray], child: int, parents: tuple[int, int]) -> Mix | None:
    """Solve the two normal equations; None unless both coefficients are shares and nearly all is explained."""
    chosen = np.array([child, *parents])
    blocks = [block for gram in grams.values() if np.isfinite(block := gram[np.ix_(chosen, chosen)]).all()]
    if not blocks:
        return None
    total = np.sum(blocks, axis=0)
    square, product, gram = float(total[0, 0]), total[0, 1:], total[1:, 1:]
    size = float(gram[0, 0] * gram[1, 1])
    determinant = float(gram[0, 0] * gram[1, 1] - gram[0, 1] ** 2)
    if square <= 0.0 or size <= 0.0 or determinant <= _ALIKE * size:
        return None
    one = float(gram[1, 1] * product[0] - gram[0, 1] * product[1]) / determinant
    two = float(gram[0, 0] * product[1] - gram[0, 1] * product[0]) / determinant
    if not all(LEAST_COEFFICIENT <= share <= LARGEST_SHARE for share in (one, two)):
        return None
    explained = (one * float(product[0]) + two * float(product[1])) / square
    best = max(float(product[0]) ** 2 / float(gram[0, 0]), float(product[1]) ** 2 / float(gram[1, 1])) / square
    gain = (explained - best) / (1.0 - best) if best < 1.0 else 0.0
    if explained < MERGED_R2 or gain < MERGED_GAIN:
        return None
    return Mix(child, parents, (one, two), explained, gain)


def _is_sure(slices: Sequence[Slices], mix: Mix) -> bool:
    """Whether both shares differ from zero by several standard errors, which allow for correlated errors of slices."""
    sums = MixtureSums(2)
    for key, child in slices[mix.child].items():
        parents = [slices[number].get(key) for number in mix.parents]
        held = [values for values in parents if values is not None and values.shape == child.shape]
        if len(held) == 2:
            sums.add(held, child)
    try:
        found = sums.solve()
    except DegenerateInput:
        return False
    pairs = zip(found.coefficients, found.standard_errors, strict=True)
    return all(abs(share) >= SURE_ERRORS * error for share, error in pairs)
