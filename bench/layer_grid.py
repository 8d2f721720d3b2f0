"""Every layer against every layer (47×47, width 4096) with exact permutation nulls: matrix products against a loop.

Two loops, both with the same rules for the p-value: one written with the library calls that a careful script uses (scipy's
``pearsonr`` and ``norm.logsf``), and a lean one that spells everything out in numpy. All ways use one thread.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, pearsonr

from bench.common import Cell, Goal, Report, finish, median, parser, timed
from kinprint.stats.moments import Moments
from kinprint.stats.tails import analytic_tail, is_trusted, tail_correction
from kinprint.studies.row_grid import row_grid

Floats = NDArray[np.float64]
FIELDS = ("cosine", "pearson", "cosine_null_mean", "cosine_null_sd", "z", "log10_p")
TOLERANCE = 1e-9
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
LN10 = math.log(10.0)


def make_layers(count: int, width: int) -> tuple[Floats, Floats]:
    """Draw norms of two models: every third layer of the second derives from the first, and one has an outlier."""
    rng = np.random.default_rng(20)
    A, B = rng.lognormal(0.0, 0.2, (2, count, width))
    B[::3] = A[::3] * (1.0 + 0.05 * rng.standard_normal(A[::3].shape))
    A[1, 7] = B[1, 7] = 60.0
    return A, B


def pair(a: Floats, b: Floats, *, library: bool) -> tuple[float, ...]:
    """Compare two vectors: cosine, Pearson, the cosine's null mean and sd, z and log10 p."""
    d = a.size
    x, y = a - a.mean(), b - b.mean()
    x2, y2 = x * x, y * y
    sx, sy = float(x2.sum()), float(y2.sum())
    if library:
        lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
        pearson = float(pearsonr(a, b).statistic)
    else:
        lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
        pearson = float(x @ y) / math.sqrt(sx * sy)
    cosine = float(a @ b) / lengths
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
    shape = third * (d - 1) ** 1.5, fourth * (d - 1) ** 2 - 3.0
    largest = float(np.abs(x).max()) * float(np.abs(y).max()) / math.sqrt(sx * sy)
    moments = Moments(0.0, 1 / (d - 1), d, *shape, s4 * (d - 1) ** 2 / d, largest * math.sqrt(d - 1))
    return cosine, pearson, mean, sd, z, tail(z, moments, library=library)


def tail(z: float, moments: Moments, *, library: bool) -> float:
    """Return log10 p of the upper tail, by the library's own rules for one pair."""
    if library and is_trusted(z, moments):
        return min(0.0, (float(norm.logsf(z)) + tail_correction(z, moments)) / LN10)
    return analytic_tail(z, moments)[0]


def loop(A: Floats, B: Floats, *, library: bool) -> Floats:
    """Return fields × rows of A × rows of B, pair by pair."""
    cells = [pair(a, b, library=library) for a, b in itertools.product(A, B)]
    return np.array(cells).T.reshape(len(FIELDS), len(A), len(B))


def matrix(A: Floats, B: Floats) -> Floats:
    """Return the same by `kinprint.studies.row_grid.row_grid`."""
    found = row_grid(A, B)
    return np.array([getattr(found, field) for field in FIELDS])


def largest_difference(ours: Floats, theirs: Floats) -> float:
    """Return the largest difference, relative where the value exceeds one."""
    return float(np.max(np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))))


def compare(count: int, width: int, *, times: int, factor: float) -> Report:
    """Time all ways in turns and judge."""
    A, B = make_layers(count, width)
    ways: dict[str, Callable[[], Floats]] = {
        "loop, numpy and scipy.stats": lambda: loop(A, B, library=True),
        "loop, lean numpy": lambda: loop(A, B, library=False),
        "kinprint.studies.row_grid": lambda: matrix(A, B),
    }
    library, lean, ours = ways
    walls: dict[str, list[float]] = {way: [] for way in ways}
    expected = ways[ours]()  # the first call also loads scipy.special
    difference = 0.0
    for _ in range(times):
        gc.collect()
        for way, run in ways.items():
            # Several of ours for one of theirs, as each takes only milliseconds.
            for _ in range(5 if way == ours else 1):
                wall, found = timed(run)
                walls[way].append(wall)
            difference = max(difference, largest_difference(found, expected))
    middle = {way: median(values) for way, values in walls.items()}
    rows: tuple[dict[str, Cell], ...] = tuple(
        {
            "way": way,
            "wall ms": round(wall * 1e3, 2),
            "÷ kinprint": round(wall / middle[ours], 1),
            "µs per pair": round(wall * 1e6 / count**2, 2),
            "runs": len(walls[way]),
        }
        for way, wall in middle.items()
    )
    goals = (
        Goal("times faster than the loop with library calls", middle[library] / middle[ours], ">=", factor),
        Goal("times faster than the lean loop, wished for", middle[lean] / middle[ours], ">=", factor, required=False),
        Goal("largest difference of any figure", difference, "<=", TOLERANCE, ""),
    )
    bounds = int(np.count_nonzero(~row_grid(A, B).normal))
    notes = (
        f"{len(FIELDS)} figures for each of {count**2} pairs; p is a bound, not a normal tail, in {bounds} of them.",
    )
    return Report("layer_grid", f"{count}×{count} pairs of layers, width {width}, one thread", rows, goals, notes)


def on_one_thread() -> bool:
    """Tell whether BLAS was told to use one thread: the gain must come from the algebra, not from a second core."""
    return all(os.environ.get(name) == "1" for name in THREADS)


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.layer_grid", __doc__).parse_args(argv)
    if not on_one_thread():  # read when numpy loads, so only a new process obeys
        again = [sys.executable, "-m", "bench.layer_grid", *(sys.argv[1:] if argv is None else argv)]
        return subprocess.run(again, env={**os.environ, **dict.fromkeys(THREADS, "1")}, check=False).returncode
    if asked.quick:
        # The fixed cost of the matrix way weighs more on a small matrix.
        report = compare(16, 1024, times=3, factor=5)
    else:
        report = compare(47, 4096, times=5, factor=50)
    return finish([report], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
