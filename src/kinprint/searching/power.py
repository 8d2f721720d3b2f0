"""Say what a search would have found: plant a relation of known strength, and send it through recall and proof."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side, worth_testing
from kinprint.fingerprints.compact.planting import planted
from kinprint.fingerprints.compact.proof import prove_sides
from kinprint.fingerprints.recall import IN_PLACE, features_vectors
from kinprint.results.search import SearchPower
from kinprint.stats.combine import bonferroni

STRENGTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DRAWS, RECALLED = 200, 0.95  # children of each strength drawn as vectors, and the share that must be recalled


def power_of(
    query: Features, vectors: Mapping[str, NDArray[np.float32]], last: Mapping[str, float], entries: int
) -> SearchPower:
    """Return the least correlation, of all parts in place, that would have been recalled and proven in this search.

    `last` is the cosine of the last candidate of each family, beyond which a child would have been one. Strengths are first
    tried on vectors alone; then a child is planted in the fingerprint, and goes through both stages.
    """
    for strength in STRENGTHS:
        if _recalled(strength, vectors, last) >= RECALLED and _found(query, strength, vectors, last, entries):
            return SearchPower("all parts", strength, STRENGTHS, DRAWS)
    return SearchPower("all parts", None, STRENGTHS, DRAWS)


def _recalled(strength: float, vectors: Mapping[str, NDArray[np.float32]], last: Mapping[str, float]) -> float:
    """Return the share of children that some family proposes: a projection of what correlates so much does, give or take."""
    rng = np.random.default_rng(0)
    hit = np.zeros(DRAWS, dtype=bool)
    for name, vector in vectors.items():
        if name in IN_PLACE:
            other = rng.standard_normal((DRAWS, vector.size))
            other *= np.sqrt(1.0 - strength**2) / np.linalg.norm(other, axis=1, keepdims=True)
            child = strength * vector.astype(np.float64) + other
            hit |= child @ vector.astype(np.float64) / np.linalg.norm(child, axis=1) > last.get(name, 1.0)
    return float(hit.mean())


def _found(
    query: Features,
    strength: float,
    vectors: Mapping[str, NDArray[np.float32]],
    last: Mapping[str, float],
    entries: int,
) -> bool:
    """Whether a planted child is recalled and proven."""
    child = planted(query, strength)
    near = features_vectors(child)
    proposed = any(float(vectors[name] @ near[name]) > last.get(name, 1.0) for name in vectors.keys() & near.keys())
    own, other = Side(query, "A"), Side(child, "B")
    if not (proposed and worth_testing(own, other)):
        return False
    proof = prove_sides(own, other)
    return proof.log10_p is not None and bonferroni(proof.log10_p, entries) <= LOG10_ALPHA
