"""Find the effective rank of the difference of two matrices, given what rounding alone would do to it.

Rounding to a grid of step u adds an error of variance u²/12 to an element. A matrix of such errors has no singular value
beyond about σ(√m + √n) (Marchenko & Pastur 1967; fluctuations by Tracy & Widom); what stands above is signal. An adapter
(LoRA, Hu et al. 2021) leaves few such values and nothing else; full training leaves a spectrum that sinks into the noise.
"""

import math

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.edits.rounding import steps, used_dtype
from kinprint.errors import DegenerateInput
from kinprint.text import Text

MAX_SIDE = 1024  # rows (or columns, if fewer) whose spectrum is taken; beyond, an even sample stands for all
LOW = 0.25
EXPLAINED = 0.9
"""A difference is of low rank if at most this share of the possible rank explains this share of what is not rounding."""

CERTAIN_SIDE = 64
"""Below so many rows or columns a high rank refutes nothing: an adapter of rank 16 would fill a quarter of them."""

CLEAR = 10.0
"""Energy of the difference over that of rounding below which u²/12 is not known well enough: errors shrink with steps."""

GAP = 2.0
STARK = 4.0
"""Ratio of the last singular value counted to the next one and to the edge: an adapter ends, a trained spectrum fades.

After a stark fall, half of the possible rank counts as low: a slice of few rows can show an adapter's rank no better.
"""

_LEAST_SIDE = 4
_QUANTILE = 4.0  # of Tracy–Widom, in its own units: exceeded once in about ten thousand
_MARGIN = 0.03  # rounding errors are not quite independent


@dataclass(frozen=True)
class LowRank:
    """Effective rank of D = child − parent."""

    # `rank` counts the singular values above rounding, out of `side` that the changed part of the slice could show.
    # `explained` is the least share of the energy that is not rounding which they account for, None if there are none.
    # `is_low_rank` is None where slice or noise do not allow an answer.
    rank: int
    side: int
    explained: float | None
    is_low_rank: bool | None
    limits: tuple[Text, ...]


@dataclass(frozen=True)
class _Spectrum:
    """Squared singular values of the scaled difference, and the least and the greatest noise variance of an element."""

    # Whether the parent's own rounding counts depends on how the child was made: from the stored parent it does not.
    energies: FloatArray
    shape: tuple[int, int]
    least: float
    greatest: float
    reach: float  # longest row plus longest column of the noise, in units of σ: √m + √n if all are equal


def difference_rank(A: FloatArray, B: FloatArray, *, dtype_a: str, dtype_b: str) -> LowRank:
    """Return the effective rank of B − A, for matrices (or equal row slices) stored as `dtype_a` and `dtype_b`."""
    if A.ndim != 2 or A.shape != B.shape:
        raise DegenerateInput(f"difference_rank: shapes {A.shape} and {B.shape}: expected two equal matrices")
    D = B - A
    limits: list[Text] = []
    dtype_a, dtype_b = used_dtype(A, dtype_a), used_dtype(B, dtype_b)
    if min(D.shape) > MAX_SIDE:
        limits.append(Text("spectrum of {n} evenly spaced rows or columns", n=MAX_SIDE))
        shorter = int(np.argmin(D.shape))
        some = np.linspace(0, D.shape[shorter] - 1, MAX_SIDE).astype(np.intp)
        D, A, B = (np.take(X, some, axis=shorter) for X in (D, A, B))
    changed = [int(np.count_nonzero(np.any(D != 0.0, axis=axis))) for axis in (1, 0)]
    side = min(changed)
    if side < 0.5 * min(D.shape):
        # unchanged rows bound the rank for a reason of their own, such as a few edited embeddings
        (a, c), (b, d) = changed, D.shape
        limits.append(Text("only {a} of {b} rows and {c} of {d} columns changed", a=a, b=b, c=c, d=d))
    if side < _LEAST_SIDE:
        limits.append(Text("fewer than {n} rows or columns changed: no rank can be told", n=_LEAST_SIDE))
        return LowRank(0, side, None, None, tuple(limits))
    return _judge(_spectrum(D, A, B, dtype_a, dtype_b), side, limits)


def _spectrum(D: FloatArray, A: FloatArray, B: FloatArray, dtype_a: str, dtype_b: str) -> _Spectrum:
    """Scale rows and columns to equal noise, which keeps the rank, and return what is needed of the result."""
    of_child = np.square(steps(B, dtype_b))
    # an adapter's product may have been rounded to BF16 before it was added
    of_all = of_child + np.square(steps(A, dtype_a)) + np.square(steps(D, "BF16"))
    by_row = of_all.mean(axis=1, keepdims=True)
    by_column = (of_all / by_row).mean(axis=0, keepdims=True)
    weights = 1.0 / (by_row * by_column)
    scaled = D * np.sqrt(weights)
    if scaled.shape[0] > scaled.shape[1]:
        scaled = scaled.T
    energies = np.linalg.eigvalsh(scaled @ scaled.T)[::-1]
    noise = of_all * weights / 12.0
    greatest = float(noise.mean())
    reach = math.sqrt(float(noise.sum(axis=0).max()) / greatest) + math.sqrt(float(noise.sum(axis=1).max()) / greatest)
    # the Gram matrix squares the condition: below 1e-15 of the largest, energies are rounding of the computation
    floor = 4e-15 * float(energies[0]) / max(D.shape)
    least = float((of_child * weights).mean()) / 12.0
    shape = (min(D.shape), max(D.shape))
    return _Spectrum(np.maximum(energies, 0.0), shape, max(least, floor), max(greatest, floor), reach)


def _edge(spectrum: _Spectrum) -> float:
    """Return the squared singular value that rounding of both sides does not exceed."""
    m, n = spectrum.shape
    usual = math.sqrt(m) + math.sqrt(n)
    fluctuation: float = 0.5 * _QUANTILE * (1.0 / math.sqrt(m) + 1.0 / math.sqrt(n)) ** (1.0 / 3.0)
    longest: float = max(usual, spectrum.reach) * (1.0 + _MARGIN) + fluctuation
    return spectrum.greatest * longest * longest


def _judge(spectrum: _Spectrum, side: int, limits: list[Text]) -> LowRank:
    m, n = spectrum.shape
    energies, edge = spectrum.energies, _edge(spectrum)
    found = int(np.count_nonzero(energies > edge))
    total, above = float(energies.sum()), float(energies[:found].sum())
    signal = max(above - spectrum.least * found * (m + n - found), 0.0)
    left = (total - above) / max(1, (m - found) * (n - found)) * m * n
    excess = max(left - m * n * spectrum.least, 0.0)  # at most so much is not rounding
    sure = max(left - (1.0 + _MARGIN) * m * n * spectrum.greatest, 0.0)  # at least so much
    clarity = total / (m * n * spectrum.least)
    fall = math.sqrt(float(energies[found - 1]) / max(edge, float(energies[found]))) if 0 < found < side else 1.0
    if side < CERTAIN_SIDE:
        limits.append(Text("{n} rows or columns: no rank beyond {m} can be seen", n=side, m=side))
    verdict: bool | None = None
    if found == 0:
        limits.append(Text("no singular value stands above rounding"))
        verdict = False if sure > 0.0 else None
    elif found > (2.0 * LOW if fall >= STARK else LOW) * side:
        verdict = None if side < CERTAIN_SIDE else False
    elif signal / (signal + sure) < EXPLAINED:
        verdict = False
    elif signal / (signal + excess) < EXPLAINED or clarity < CLEAR:
        limits.append(Text("what the few values leave cannot be told from rounding"))
    elif fall < GAP:
        limits.append(Text("the values sink into rounding without a gap: there may be more of them"))
    else:
        verdict = True
    explained = signal / (signal + excess) if signal > 0.0 else None
    return LowRank(found, side, explained, verdict, tuple(limits))
