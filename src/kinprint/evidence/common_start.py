"""Whether two related models share their training, or only the random numbers they started from.

Same seed and other data leave W_A = W₀ + D_A and W_B = W₀ + D_B: fixed points and correlations reject independence although
neither model derives from the other. Three things tell the cases apart.

* **Scales of norms** start as constants, so whatever varies in them was learned. A descendant keeps it, a sibling does not.
* **Learned directions** are the leading singular directions of A's matrices: noise has none. Along them a descendant keeps A's
  weights (slope near that of the rest), while a sibling has only W₀'s small share there.
* **One slope for all.** A weighted average of A with something unrelated shrinks every tensor of A, norms included, by the same
  factor; what a sibling keeps of W₀ differs from role to role.

The thresholds were set on the trained family of the tests and are no p-values: where none of the three is clear the answer is
"weights or initialisation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.text import Text

TRAINING, INITIALISATION, UNCLEAR = "training", "initialisation", "unclear"

NORM_KEPT = 0.6
SLOPE_KEPT = 0.5
UNIFORM_CV = 0.2
LEADING_SHARE = 16  # one in so many singular directions counts as learned


@dataclass(frozen=True)
class Origin:
    """What the shared part looks like. Figures are None where there was nothing to take them from."""

    reading: str
    norm_correlation: float | None
    learned_slope: float | None
    slope: float | None
    slope_cv: float | None
    uniform: bool
    reasons: tuple[Text, ...]


def origin_of(
    matrices: Mapping[str, Sequence[tuple[FloatArray, FloatArray]]], norms: Sequence[tuple[FloatArray, FloatArray]]
) -> Origin:
    """Read slices (rows × columns, both sides, by role) and varying norm scales of layers that match."""
    norm_r = float(np.mean([_correlation(a, b) for a, b in norms])) if norms else None
    slopes = {role: _slope(pairs) for role, pairs in matrices.items() if pairs}
    learned = [_leading(a, b) for pairs in matrices.values() for a, b in pairs if min(a.shape) >= 8]
    learned_slope = float(np.mean(learned)) if learned else None
    every = list(slopes.values())
    if norms:
        every.append(_slope([(a - a.mean(), b - b.mean()) for a, b in norms]))
    slope = float(np.mean(every)) if every else None
    cv = float(np.std(every) / abs(slope)) if slope and len(every) >= 4 else None
    uniform = cv is not None and slope is not None and cv <= UNIFORM_CV and slope > 0.05
    reasons = []
    if norm_r is not None:
        reasons.append(Text("what norms learned correlates at {x:.2f}", x=norm_r))
    if learned_slope is not None:
        reasons.append(Text("along A's leading directions B keeps {x:.2f} of A's weights", x=learned_slope))
    if cv is not None and slope is not None:
        reasons.append(Text("B keeps {x:.2f} of A's weights, varying by {y:.0%} between roles", x=slope, y=cv))
    kept = (norm_r is not None and norm_r >= NORM_KEPT) or (learned_slope is not None and learned_slope >= SLOPE_KEPT)
    if kept or uniform:
        reading = TRAINING
    elif norm_r is not None and learned_slope is not None:
        reading = INITIALISATION
    else:
        reading = UNCLEAR
    return Origin(reading, norm_r, learned_slope, slope, cv, uniform, tuple(reasons))


def _correlation(a: FloatArray, b: FloatArray) -> float:
    left, right = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.vdot(left, right)) / scale if scale > 0.0 else 0.0


def _slope(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    total = sum(float(np.vdot(a, a)) for a, _ in pairs)
    return sum(float(np.vdot(a, b)) for a, b in pairs) / total if total > 0.0 else 0.0


def _leading(a: FloatArray, b: FloatArray) -> float:
    """Return Σ u_k·B v_k / Σ s_k over A's leading singular directions: the share of them that B has too."""
    U, s, Vt = np.linalg.svd(a, full_matrices=False)
    count = max(1, len(s) // LEADING_SHARE)
    kept = np.einsum("ik,ij,kj->k", U[:, :count], b, Vt[:count])
    return float(kept.sum() / s[:count].sum()) if s[0] > 0.0 else 0.0
