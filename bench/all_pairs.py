"""Every layer against every layer (47×47, width 4096) with exact permutation nulls: matrix products against a loop.

The loop takes two vectors at a time, with numpy and the same rules for the p-value; both use one thread.
"""

from __future__ import annotations

import os

# Before numpy loads its BLAS: the gain must come from the algebra, not from a second core.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import gc
import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from bench.common import Cell, Goal, Report, finish, median, parser, timed
from kinprint.stats import all_pairs

Floats = NDArray[np.float64]
FIELDS = ("cosine", "pearson", "cosine_null_mean", "cosine_null_sd", "z", "log10_p")
TOLERANCE = 1e-9
LN10 = math.log(10.0)


def make_layers(count: int, width: int) -> tuple[Floats, Floats]:
    """Draw norms of two models: every third layer of the second derives from the first, and one has an outlier."""
    rng = np.random.default_rng(20)
    A, B = rng.lognormal(0.0, 0.2, (2, count, width))
    B[::3] = A[::3] * (1.0 + 0.05 * rng.standard_normal(A[::3].shape))
    A[1, 7] = B[1, 7] = 60.0
    return A, B


def tail(z: float, skewness: float, kurtosis: float) -> float:
    """Return log10 p of the upper tail: normal where the exact moments allow it, a bound elsewhere."""
    limit = 0.0
    if abs(skewness) <= 0.1 and abs(kurtosis) <= 0.2:
        linear, quadratic = max(skewness, 0.0) / 3.0, max(kurtosis, 0.0) / 12.0
        under = linear + math.sqrt(linear**2 + 0.4 * quadratic)
        limit = 0.2 / under if under > 0.0 else math.inf
    if limit > 0.0 and z <= limit:
        return float(log_ndtr(-z)) / LN10
    bounds = [0.0]
    if limit > 0.0:
        bounds.append(float(log_ndtr(-limit)))
    if z > 0.0:
        bounds += [-math.log1p(z * z), math.log(3.0 + kurtosis) - 4.0 * math.log(z)]
    return min(bounds) / LN10


def pair(a: Floats, b: Floats) -> tuple[float, ...]:
    """Compare two vectors: cosine, Pearson, the cosine's null mean and sd, z and log10 p."""
    d = a.size
    lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    cosine = float(a @ b) / lengths
    x, y = a - a.mean(), b - b.mean()
    x2, y2 = x * x, y * y
    sx, sy = float(x2.sum()), float(y2.sum())
    pearson = float(x @ y) / math.sqrt(sx * sy)
    mean = float(a.sum()) * float(b.sum()) / d / lengths
    sd = math.sqrt(sx * sy / (d - 1)) / lengths
    z = pearson * math.sqrt(d - 1)
    # Third and fourth moments of the permuted correlation (Pitman 1937), from the power sums of unit vectors.
    a3, b3 = float(x2 @ x) / sx**1.5, float(y2 @ y) / sy**1.5
    a4, b4 = float(x2 @ x2) / sx**2, float(y2 @ y2) / sy**2
    s4 = a4 * b4
    third = a3 * b3 * d / ((d - 1) * (d - 2))
    fourth = (
        s4 / d
        + (4 * s4 + 3 * (1 - a4 - b4 + s4)) / (d * (d - 1))
        + 6 * (4 * s4 + 1 - 2 * a4 - 2 * b4) / (d * (d - 1) * (d - 2))
        + (36 * s4 - 18 * a4 - 18 * b4 + 3 + 6) / (d * (d - 1) * (d - 2) * (d - 3))
    )
    return cosine, pearson, mean, sd, z, tail(z, third * (d - 1) ** 1.5, fourth * (d - 1) ** 2 - 3.0)


def loop(A: Floats, B: Floats) -> Floats:
    """Return fields × rows of A × rows of B, pair by pair."""
    cells = [pair(a, b) for a, b in itertools.product(A, B)]
    return np.array(cells).T.reshape(len(FIELDS), len(A), len(B))


def matrix(A: Floats, B: Floats) -> Floats:
    """Return the same by `kinprint.stats.all_pairs`."""
    found = all_pairs(A, B)
    return np.array([getattr(found, field) for field in FIELDS])


def largest_difference(ours: Floats, theirs: Floats) -> float:
    """Return the largest difference, relative where the value exceeds one."""
    return float(np.max(np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))))


def compare(count: int, width: int, *, times: int, factor: float) -> Report:
    """Time both in turns and judge."""
    A, B = make_layers(count, width)
    matrix(A, B)  # the first call loads scipy.special
    walls: dict[str, list[float]] = {"loop": [], "matrix": []}
    difference = math.inf
    for _ in range(times):
        gc.collect()
        slow, theirs = timed(lambda: loop(A, B))
        walls["loop"].append(slow)
        # Several for one, as each takes only milliseconds.
        for _ in range(5):
            fast, ours = timed(lambda: matrix(A, B))
            walls["matrix"].append(fast)
        difference = largest_difference(ours, theirs)
    bounds = int(np.count_nonzero(~all_pairs(A, B).normal))
    ratio = median(walls["loop"]) / median(walls["matrix"])
    names = {"loop": "loop over pairs", "matrix": "kinprint.stats.all_pairs"}
    rows: tuple[dict[str, Cell], ...] = tuple(
        {
            "way": names[way],
            "wall ms": round(median(walls[way]) * 1e3, 2),
            "µs per pair": round(median(walls[way]) * 1e6 / count**2, 2),
            "runs": len(walls[way]),
        }
        for way in walls
    )
    goals = (
        Goal("times faster than the loop", ratio, ">=", factor),
        Goal("largest difference of any figure", difference, "<=", TOLERANCE, ""),
    )
    notes = (
        f"{len(FIELDS)} figures for each of {count**2} pairs; p is a bound, not a normal tail, in {bounds} of them.",
    )
    return Report("all_pairs", f"{count}×{count} pairs of layers, width {width}, one thread", rows, goals, notes)


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.all_pairs", __doc__).parse_args(argv)
    if asked.quick:
        # The fixed cost of the matrix way weighs more on a small matrix.
        report = compare(16, 1024, times=3, factor=5)
    else:
        report = compare(47, 4096, times=7, factor=50)
    return finish([report], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
