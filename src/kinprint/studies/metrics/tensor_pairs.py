"""Measure a pair of tensors in seven ways, each beside its permutation null, fast enough for whole attention matrices.

Vectors and small matrices go through `METRICS` and `null_for`. A matrix of four million elements would cost seconds there for
each pair, so its sums are taken in blocks, and the null of its dot product comes from Gram matrices, computed once a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.arch.roles import permuted_axis
from kinprint.errors import DegenerateInput
from kinprint.formats.dtypes import Array
from kinprint.metrics import METRICS
from kinprint.metrics.distance import MAX_CV
from kinprint.metrics.identity import GRIDS
from kinprint.results.measurements import NullResult
from kinprint.stats.nulls import null_for
from kinprint.stats.tails import log10_p_moments, log10_p_normal
from kinprint.studies.outcome import Missing
from kinprint.text import Text

MEASURES = ("cosine", "centred", "pearson", "mean_abs_diff", "p99_abs_diff", "rel_l2_a", "rel_l2", "cv_diff")
"""As in `METRICS`; ``centred`` is the cosine of the centred values, computed as such to be set beside Pearson."""

BLIND = ("p99_abs_diff", "cv_diff")
"""Measures that cannot see order: no permutation changes them, so that they have no permutation null."""

MAX_ROWS = 1024  # rows of a matrix that are compared: key and value projections of the originals have as many
SMALL = 1 << 17  # elements up to which a matrix is treated like a vector
DRAWN_ROWS = 32  # rows of a large matrix on which the null of the mean absolute difference is drawn
DRAWS = 499
MATRIX_DRAWS = 99
TRUSTED_Z = 4.0
"""So far a large matrix's dot product is taken as normal; beyond, p is held at its value here, or Cantelli's bound if less."""

_BLOCK = 16  # rows at a time, so that they stay in cache


@dataclass(frozen=True)
class TensorStatistics:
    """Population statistics over all elements of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    mean: float
    sd: float
    norm: float
    q99: float

    @property
    def cv(self) -> float:
        """Coefficient of variation as published: σ/|mean|."""
        return self.sd / max(abs(self.mean), 1e-12)

    @property
    def meaningful_cv(self) -> bool:
        """Whether the mean is far enough from zero for a coefficient of variation to describe the spread."""
        return self.cv <= MAX_CV

    @property
    def q99_step(self) -> float | None:
        """Distance of neighbouring numbers of the stored format at the 99th percentile."""
        grid = GRIDS.get(self.dtype)
        return None if grid is None else math.ldexp(1.0, max(math.frexp(self.q99)[1] - grid.precision, grid.least))


@dataclass(frozen=True)
class ComparedTensor:
    """One tensor, laid out so that its last axis is the one permuted (if any may be), and what all its pairs share."""

    values: Array
    statistics: TensorStatistics
    permuted: bool
    row_means: FloatArray
    gram: NDArray[np.float32] | None


@dataclass(frozen=True)
class MeasuredValue:
    """A measure of two tensors and its null; None where the measure cannot see order or no axis may be permuted."""

    value: float
    null_mean: float | None = None
    null_sd: float | None = None
    z: float | None = None
    log10_p: float | None = None
    drawn: float | None = None  # the value on the rows on which the null was drawn, where these are not all

    def times(self, factor: float) -> MeasuredValue:
        """Return the same in other units."""
        mean, sd, drawn = (None if x is None else x * factor for x in (self.null_mean, self.null_sd, self.drawn))
        return MeasuredValue(self.value * factor, mean, sd, self.z, self.log10_p, drawn)


def compared_tensor(
    values: Array, role: Role, dtype: str, ordered: Mapping[Axis, Text] = MappingProxyType({})
) -> ComparedTensor:
    """Return a tensor with its statistics; of a matrix at most `MAX_ROWS` rows. Axes that are `ordered` may not be permuted."""
    axis, _ = permuted_axis(role, ordered)
    laid_out = values.T if values.ndim == 2 and axis == 0 else values
    if laid_out.ndim == 2 and laid_out.shape[0] > MAX_ROWS:
        laid_out = laid_out[np.linspace(0, laid_out.shape[0] - 1, MAX_ROWS).astype(int)]
    rows = np.atleast_2d(laid_out)
    row_means = rows.mean(axis=1, dtype=np.float64)
    mean = float(row_means.mean())
    squares = sum(_dot(x, x) for (x,) in _blocks((rows, mean)))
    sd, norm = math.sqrt(squares / rows.size), math.sqrt(squares + rows.size * mean**2)
    q99 = float(np.quantile(np.abs(laid_out).astype(np.float64), 0.99))
    statistics = TensorStatistics(values.shape, dtype, mean, sd, norm, q99)
    gram = None
    if laid_out.ndim == 2 and axis is not None and laid_out.size > SMALL:
        centred = np.subtract(rows, row_means[:, None].astype(np.float32), dtype=np.float32)
        gram = centred @ centred.T
    return ComparedTensor(laid_out, statistics, axis is not None, row_means, gram)


def _blocks(*sides: tuple[Array, float]) -> Iterator[list[FloatArray]]:
    """Yield blocks of rows of all sides in float64, minus their means; the arrays are used again for the next block."""
    count, width = sides[0][0].shape
    buffers = [np.empty((min(_BLOCK, count), width)) for _ in sides]
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        yield [
            np.subtract(rows[start:stop], mean, out=buffer[: stop - start], dtype=np.float64)
            for buffer, (rows, mean) in zip(buffers, sides, strict=True)
        ]


def _dot(x: FloatArray, y: FloatArray) -> float:
    """Return the sum of products. Not by BLAS, whose threads would wait for each other at every small block."""
    return float(np.einsum("ij,ij->", x, y))


def measure_pair(
    role: Role, name_a: str, a: ComparedTensor, name_b: str, b: ComparedTensor, *, seed: int
) -> dict[str, MeasuredValue]:
    """Return all `MEASURES` of two tensors; `Missing` if their shapes differ, `DegenerateInput` if one is constant."""
    if a.statistics.shape != b.statistics.shape:  # taking as many rows of each would compare different rows
        left, right = ("×".join(str(n) for n in side.statistics.shape) for side in (a, b))
        said = "{role} of {a} and {b} is not comparable: the shapes are {left} and {right}"
        raise Missing(said, role=role.value, a=name_a, b=name_b, left=left, right=right)
    found = _small(a, b, seed) if a.values.size <= SMALL else _large(a, b, seed)
    found["p99_abs_diff"] = MeasuredValue(abs(a.statistics.q99 - b.statistics.q99))
    found["cv_diff"] = MeasuredValue(abs(a.statistics.cv - b.statistics.cv))  # also where METRICS refuses it
    return found


def _small(a: ComparedTensor, b: ComparedTensor, seed: int) -> dict[str, MeasuredValue]:
    left, right = a.values.astype(np.float64), b.values.astype(np.float64)
    known: NullResult | None = None
    found: dict[str, MeasuredValue] = {}
    for name in ("pearson", "cosine", "rel_l2_a", "rel_l2", "mean_abs_diff"):
        metric = METRICS[name]
        value = metric(left, right)
        if not a.permuted:
            found[name] = MeasuredValue(value)
            continue
        shared = None if name == "mean_abs_diff" else known  # the others are functions of one dot product
        against = partial(null_for, observed=value, higher_is_closer=metric.higher_is_closer, rng_seed=seed)
        null = against(metric.null, left, right, draws=DRAWS, known=shared)
        known = known or null
        mean = 0.0 if abs(null.mean) < 1e-9 * null.sd else null.mean  # zero up to rounding
        found[name] = MeasuredValue(value, mean, null.sd, null.z, null.log10_p)
    left, right = left - left.mean(), right - right.mean()
    centred = METRICS["cosine"](left, right)
    scores = float(np.mean((left / left.std()) * (right / right.std())))  # Pearson as the original computes it
    found["centred"], found["pearson"] = (replace(found["pearson"], value=value) for value in (centred, scores))
    return found


def _large(a: ComparedTensor, b: ComparedTensor, seed: int) -> dict[str, MeasuredValue]:
    """As `_small`, for matrices, from sums over blocks; columns are permuted together, T = Σ a_ij·b_iπ(j)."""
    count, of_a, of_b = a.values.size, a.statistics, b.statistics
    product = gaps = distance = 0.0
    for x, y in _blocks((a.values, of_a.mean), (b.values, of_b.mean)):
        product += _dot(x, y)
        x -= y
        x += of_a.mean - of_b.mean
        distance += _dot(x, x)
        gaps += float(np.abs(x, out=x).sum())
    shift, spread, norms = count * of_a.mean * of_b.mean, count * of_a.sd * of_b.sd, of_a.norm * of_b.norm
    total = product + shift
    mean_total, sd = _dot_null(a, b)
    z = None if not sd else (total - mean_total) / sd
    log10_p = None if z is None else _tail(z)

    def linear(value: float, unit: float, origin: float = 0.0) -> MeasuredValue:
        """Return a measure that is (T − origin)/unit."""
        if sd is None:
            return MeasuredValue(value)
        return MeasuredValue(value, (mean_total - origin) / unit, sd / unit, z, log10_p)

    if spread == 0.0:
        raise DegenerateInput("pearson: a side is constant, so its spread is zero: expected varying values")
    expected = math.sqrt(max(of_a.norm**2 + of_b.norm**2 - 2.0 * mean_total, 0.0))
    plain = MeasuredValue(math.sqrt(distance))
    if sd is not None and expected > 0.0:  # √(S − 2T) by the first-order delta method: sd/S is below 1e-3 here
        plain = MeasuredValue(plain.value, expected, sd / expected, None if z is None else -z, log10_p)
    return {
        "cosine": linear(total / norms, norms),
        "centred": linear(product / spread, spread, shift),
        "pearson": linear(product / count / (of_a.sd * of_b.sd), spread, shift),
        "rel_l2_a": plain.times(1.0 / of_a.norm),
        "rel_l2": plain.times(math.sqrt(2.0) / math.hypot(of_a.norm, of_b.norm)),
        "mean_abs_diff": _drawn_gap(a, b, gaps / count, seed),
    }


def _dot_null(a: ComparedTensor, b: ComparedTensor) -> tuple[float, float | None]:
    """Return mean and sd of T over all orders of the columns: Var T = ⟨G_a, G_b⟩/(d − 1), see `kinprint.stats.moments`."""
    units = a.values.shape[1]
    mean = units * float(a.row_means @ b.row_means)
    if a.gram is None or b.gram is None:
        return mean, None
    variance = float(np.einsum("ij,ij->", a.gram, b.gram, dtype=np.float64)) / (units - 1) if units > 1 else 0.0
    return mean, math.sqrt(max(variance, 0.0))


def _tail(z: float) -> float:
    return min(log10_p_normal(min(z, TRUSTED_Z)), log10_p_moments(z, None))


def _drawn_gap(a: ComparedTensor, b: ComparedTensor, value: float, seed: int) -> MeasuredValue:
    """Return the mean absolute difference with a null drawn on some rows: no closed form is fast enough for all."""
    if not a.permuted:
        return MeasuredValue(value)
    metric = METRICS["mean_abs_diff"]
    chosen = np.unique(np.linspace(0, a.values.shape[0] - 1, DRAWN_ROWS).astype(int))
    left, right = a.values[chosen].astype(np.float64), b.values[chosen].astype(np.float64)
    drawn = metric(left, right)
    null = null_for(metric.null, left, right, observed=drawn, higher_is_closer=False, rng_seed=seed, draws=MATRIX_DRAWS)
    return MeasuredValue(value, null.mean, null.sd, null.z, null.log10_p, drawn)
