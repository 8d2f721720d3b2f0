"""Regress a child on its parent, and test whether the residual is white noise."""

import math

import numpy as np

from kinprint._util.numeric import NEAR_CONSTANT, FloatArray
from kinprint._util.records import dataclass
from kinprint.edits.rounding import few_rows, steps, used_dtype

ROW_SAMPLE = 64
"""Rows whose mutual correlations are taken: enough for a z of 3.5 at a mean squared correlation 11 % above chance."""

LEAST_ROWS = 48
"""Rows (and columns) below which whiteness is not judged.

The change of few trained rows can pass for noise: of the demo family's slices it did in 31 of 398 with 16 rows, in 1 of
199 with 32, and in none of 120 with 48.
"""

ELEMENTS = 1 << 17  # elements from which the shape of a residual is taken
_LEAST_ELEMENTS = 1024
_COLUMNS = 64  # of a product of 64 rows: so small a one BLAS does without waking threads
_CANCELLED = 1e-9  # share of the child's energy below which a difference of sums is not trusted
_ABOVE_ROUNDING = 5.0  # noise of fewer rounding errors is shaped by the parent's magnitudes


@dataclass(frozen=True)
class Slope:
    """Least squares child ≈ slope·parent, without intercept."""

    # `error` takes elements as independent. `spread` is the standard deviation of the rows' own slopes beyond what their
    # errors explain: zero if one factor serves all rows; None for a single row. `correlation` is Pearson's, None where a side
    # is constant.
    slope: float
    error: float
    spread: float | None
    correlation: float | None
    relative_residual: float


@dataclass(frozen=True)
class Residual:
    """What child − slope·parent looks like."""

    # `level` is its root mean square, `row_z` the excess of the rows' squared mutual correlations in standard deviations.
    # `white` is None where too little is left above rounding, or the slice is too small.
    level: float
    kurtosis: float
    row_z: float
    white: bool | None


def slope_of(A: FloatArray, B: FloatArray) -> Slope:
    """Return the regression of B on A, A not zero."""
    by_row = np.array([np.einsum("ij,ij->i", x, y) for x, y in ((A, A), (A, B), (B, B))])
    own, cross, child = (float(x) for x in by_row.sum(axis=1))
    slope = cross / own
    left = by_row[2] - slope * (2.0 * by_row[1] - slope * by_row[0])
    if float(left.sum()) < _CANCELLED * child:
        R = B - slope * A
        left = np.einsum("ij,ij->i", R, R)
    rss = float(left.sum())
    error = math.sqrt(rss / max(1, A.size - 1) / own)
    relative = math.sqrt(rss / child) if child > 0.0 else 0.0
    return Slope(slope, error, _spread(by_row, left, A.shape[1]), _correlation(A, B, by_row), relative)


def _spread(by_row: FloatArray, left: FloatArray, columns: int) -> float | None:
    used = by_row[0] > 0.0
    if np.count_nonzero(used) < 2 or columns < 2:
        return None
    own, cross = by_row[0, used], by_row[1, used]
    expected = float(np.mean(left[used] / (columns - 1) / own))
    return math.sqrt(max(0.0, float(np.var(cross / own, ddof=1)) - expected))


def _correlation(A: FloatArray, B: FloatArray, by_row: FloatArray) -> float | None:
    own, cross, child = (float(x) / A.size for x in by_row.sum(axis=1))
    a, b = float(A.mean()), float(B.mean())
    of_a, of_b = own - a * a, child - b * b
    if of_a <= NEAR_CONSTANT * own or of_b <= NEAR_CONSTANT * child:
        return None
    return min(1.0, max(-1.0, (cross - a * b) / math.sqrt(of_a * of_b)))


def residual_of(A: FloatArray, B: FloatArray, slope: float, dtype_b: str) -> Residual | None:
    """Describe B − slope·A on at most `ELEMENTS` or so of evenly spaced rows; None if nothing is left."""
    chosen = few_rows(A.shape[0], A.shape[1], max(ELEMENTS, LEAST_ROWS * A.shape[1]))
    A, B = A[chosen], B[chosen]
    R = B - slope * A
    square = R * R
    rows, columns = R.shape
    variance = float(square.mean())
    if variance == 0.0:
        return None
    kurtosis = _dot(square, square) / square.size / variance**2
    chance = max(kurtosis - 1.0, 0.0)
    by_row = _dispersion(square.mean(axis=1) / variance, chance / columns)
    by_column = _dispersion(square.mean(axis=0) / variance, chance / rows)
    some = few_rows(rows, columns)
    magnitude = correlation(np.abs(A[some]), np.abs(R[some]))
    row_z = _row_z(R[few_rows(rows, columns, ROW_SAMPLE * columns)])
    rounding = math.sqrt(float(np.mean(np.square(steps(B[some], used_dtype(B[some], dtype_b))))) / 12.0)
    enough = min(rows, columns) >= LEAST_ROWS and R.size >= _LEAST_ELEMENTS
    white: bool | None = None
    if enough and variance > (_ABOVE_ROUNDING * rounding) ** 2:
        white = (
            # from uniform to normal; the fourth moment of n normal numbers has a standard error of √(96/n)
            1.7 < kurtosis < 3.2 + 4.0 * math.sqrt(96.0 / R.size)
            and by_row[0] < 0.1 + by_row[1]
            and by_column[0] < 0.1 + by_column[1]
            and abs(magnitude) < 0.03 + 4.0 / math.sqrt(some.size * columns)
            and abs(row_z) < 3.5
        )
    return Residual(math.sqrt(variance), kurtosis, row_z, white)


def _dispersion(relative: FloatArray, chance: float) -> tuple[float, float]:
    """Return the relative spread of variances beyond chance, and three standard deviations of that under whiteness."""
    if relative.size < 2:
        return 0.0, 0.0
    excess = max(0.0, float(np.var(relative, ddof=1)) - chance)
    return math.sqrt(excess), math.sqrt(3.0 * chance * math.sqrt(2.0 / (relative.size - 1)))


def correlation(x: FloatArray, y: FloatArray) -> float:
    """Return Pearson's correlation of all entries, 0 where a side is constant or there are none."""
    if not x.size:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    norms = math.sqrt(_dot(x, x)) * math.sqrt(_dot(y, y))
    return _dot(x, y) / norms if norms > 0.0 else 0.0


def _dot(x: FloatArray, y: FloatArray) -> float:
    # a dot product of this size is not worth the threads that BLAS would wake for it, at ten times the cost when busy
    return float(np.einsum("i,i->", x.ravel(), y.ravel()))


def _row_z(R: FloatArray) -> float:
    """Return the excess of Σ r² over all pairs of rows, in standard deviations under independence."""
    # For independent white rows of n columns each r² has mean 1/n and variance about 2/n², and pairs are uncorrelated. Any
    # structure that rows share, of low rank or a decaying spectrum, raises it.
    norms = np.linalg.norm(R, axis=1)
    R = R[norms > 0.0] / norms[norms > 0.0][:, None]
    rows, columns = R.shape
    if rows < 2:
        return 0.0
    gram = sum((R[:, i : i + _COLUMNS] @ R[:, i : i + _COLUMNS].T for i in range(0, columns, _COLUMNS)), np.zeros(1))
    pairs = rows * (rows - 1) / 2.0
    total = (_dot(gram, gram) - rows) / 2.0
    return float((total - pairs / columns) / (math.sqrt(2.0 * pairs) / columns))
