"""Find uniform grids of few levels under a child's numbers: weights that were quantised and written out again.

A group of weights (a row, or 128, 64 or 32 neighbours in it) is on a grid if its values are whole multiples of one step,
or whole steps above its least value, as far as storage allows: a multiple kept as BF16 is off by up to half a step of
BF16. Every float format is a grid too, so a fit counts only as far as values of that format would not have fitted by
themselves; and the parent must not lie on such grids already.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, distinct, median
from kinprint._util.records import dataclass
from kinprint.edits.rounding import is_float, steps, stored_bits, used_dtype
from kinprint.errors import DegenerateInput
from kinprint.text import Text

GROUPS = (128, 64, 32)  # group sizes looked for, next to whole rows; the coarsest that fits is named
MOST_LEVELS = 256
SCREENED = 16
SAMPLED = 48
"""Groups looked at to exclude a grid, and to describe one."""

FITTING = 0.9
EVIDENCE = 20.0
"""Share of groups that must fit, and nats by which they must do so better than chance."""

ROUNDED = 0.97
"""Share of the parent's values that must round to the child's for rounding to explain the child.

Measured on 28 matrices of the demo family: 1.00 for rounding to nearest at 3, 4 and 8 bits; 0.32 to 0.66 (4 bits) and 0.04 to 0.10
(8 bits) if the parent was fine-tuned before. The value between is a choice: a change below about a fortieth of a step passes.
"""

WHOLLY = 0.999  # share from which nothing but rounding is looked for: rounding to nearest explains all

FP8_DIGITS, FREE, EVEN = 8, 2.0, 0.005
"""Different mantissas that FP8 has at most (E4M3; E5M2 has four), how many times as many the parent's groups have to have (32
numbers of BF16 have 25 or more), and the slack of the middle between two numbers, of which a scale may have been rounded (2⁻⁸)."""

_NEW_ZEROS = 0.05
_FIRST = 3  # elements of a group by which most steps are excluded
_PROBE = 64  # elements of a group that are tried against all steps
_LEAST_GROUP = 16
_FEW = 16  # steps, of a code of four bits
_SLACK = 1.15  # dequantised in F16 and then stored as BF16, a number is rounded twice
_SPANS = np.arange(1, MOST_LEVELS)
_BLOCK = 1 << 18  # trials held at a time
_SAME_STEP = 0.6  # a larger group is one grid if its step is that of its parts, not a fraction that suits them all


@dataclass(frozen=True)
class GridFit:
    """Uniform grids under the child's values."""

    # `is_quantised` says that the child is on grids and the parent is not, None where its format hides it. `group` is the
    # number of neighbours that share a step (the row's length if `row_wise`), `levels` the most that a sampled group spans,
    # `bits` what they need. `rounded_share` is the share of the parent's values that round to the child's level, or lie
    # within half a step of it: one for rounding to nearest, less if the parent was changed before, or by a method that
    # corrects errors; `kept_share` is that of the values that are not zero in the child. `rounding` is the root mean square
    # error that rounding to such steps makes. `factor` multiplied the parent before, where only then rounding explains it.
    is_quantised: bool | None
    group: int | None = None
    row_wise: bool = False
    levels: int | None = None
    bits: int | None = None
    free_zero: bool = False
    fitting_share: float = 0.0
    rounded_share: float | None = None
    kept_share: float | None = None
    rounding: float | None = None
    limits: tuple[Text, ...] = ()
    factor: float | None = None


@dataclass(frozen=True)
class _Fit:
    """Per group: the number of steps between its anchors (0: no fit), the evidence in nats, and the step."""

    spans: NDArray[np.intp]
    evidence: FloatArray
    steps: FloatArray
    free_zero: bool

    @property
    def share(self) -> float:
        return float(np.mean(self.spans > 0))

    @property
    def nats(self) -> float:
        return float(self.evidence[self.spans > 0].sum())

    @property
    def step(self) -> float:
        return median(self.steps[self.spans > 0]) if self.spans.any() else 0.0


def find_grid(A: FloatArray, B: FloatArray, *, dtype_a: str, dtype_b: str) -> GridFit:
    """Return the grids of B, the child, as opposed to A, its parent; matrices or equal row slices."""
    if A.ndim != 2 or A.shape != B.shape:
        raise DegenerateInput(f"find_grid: shapes {A.shape} and {B.shape}: expected two equal matrices")
    if not is_float(dtype_b):
        return _of_format(A, B, dtype_a, dtype_b)
    width = A.shape[1]
    least = min(width, GROUPS[-1])
    if least < _LEAST_GROUP:
        short = Text("rows of {n} elements: expected {m} or more", n=width, m=_LEAST_GROUP)
        return GridFit(None, limits=(short,))
    dtypes = (used_dtype(A, dtype_a), used_dtype(B, dtype_b))
    screen = _best(A, B, least, SCREENED, dtypes[1])
    if screen is None:
        return GridFit(None, limits=(Text("no group has two different values"),))
    if screen.share < FITTING:  # a grid of larger groups would be one of smaller groups too
        other = _of_survivors(A, B, dtypes[1]) or _of_floats(A, B)
        return other or GridFit(is_quantised=False, fitting_share=screen.share)
    found = _uniform(A, B, screen, dtypes)
    if (found.rounded_share or 0.0) >= ROUNDED:
        return found
    floats = _of_floats(A, B)  # small numbers of FP8 are whole multiples of one step, larger ones are fewer than those
    return floats if floats is not None and (floats.rounded_share or 0.0) >= ROUNDED else found


def _uniform(A: FloatArray, B: FloatArray, screen: _Fit, dtypes: tuple[str, str]) -> GridFit:
    """Return the uniform grid of the largest groups that have one."""
    width = A.shape[1]
    least = min(width, GROUPS[-1])
    finest = _best(A, B, least, SAMPLED, dtypes[1]) or screen
    for size in _sizes(width, GROUPS):
        fit = finest if size == least else _best(A, B, size, SAMPLED, dtypes[1])
        if fit is not None and fit.share >= FITTING and fit.step >= _SAME_STEP * finest.step:
            return _describe(A, B, size, fit, dtypes)
    return GridFit(is_quantised=False, fitting_share=finest.share)


def _sizes(width: int, groups: Sequence[int]) -> list[int]:
    return [width, *(size for size in groups if size < width)]


def _of_format(A: FloatArray, B: FloatArray, dtype_a: str, dtype_b: str) -> GridFit:
    """Return what rounding to the child's format explains; the format itself is the grid, uniform or not."""
    # Scales serve the largest groups that hold no more values than a code has: by those, or by steps that fit, a parent's values
    # are rounded anew. Codes without their scales cannot be held against the parent.
    limits = (Text("stored as {a}: the format itself is the grid", a=dtype_b),)
    bits = stored_bits(dtype_b)
    if bits is None or not is_float(dtype_a) or np.array_equal(B, np.rint(B)):
        return GridFit(None, limits=limits)
    uniform = find_grid(A, B, dtype_a=dtype_a, dtype_b="F32")
    if uniform.is_quantised:
        return replace(uniform, bits=bits, limits=limits)
    for size in _sizes(A.shape[1], (*GROUPS, _LEAST_GROUP)):
        parent, child = _groups(A, B, size, SAMPLED)
        levels = [distinct(group) for group in child]
        if levels and max(map(len, levels)) <= 2**bits + 1:
            cuts = [0.5 * (group[1:] + group[:-1]) for group in levels]
            places = zip(levels, cuts, parent, strict=True)
            nearest = np.stack([group[np.searchsorted(cut, values)] for group, cut, values in places])
            gaps = np.concatenate([np.diff(group) for group in levels])
            share, rounding = float(np.mean(nearest == child)), median(gaps) / math.sqrt(12.0)
            return GridFit(True, size, bits=bits, rounded_share=share, rounding=rounding, limits=limits)
    return GridFit(None, limits=limits)


def _of_survivors(A: FloatArray, B: FloatArray, dtype: str) -> GridFit | None:
    """Return the grid of a pruned child: values so few and large show it in all groups together, in none by itself."""
    if np.mean((B == 0.0) & (A != 0.0)) < _NEW_ZEROS:
        return None
    for size in _sizes(A.shape[1], GROUPS):
        parent, child = _groups(A, B, size, SAMPLED)
        kept, top = child != 0.0, np.abs(child).max(axis=1, keepdims=True)
        unit = 0.5 * _SLACK * (steps(child, dtype) + np.abs(child) / top * steps(top, dtype))
        for bits in range(8, 2, -1):
            step = top / (2 ** (bits - 1) - 1)
            on, own = (np.abs(x - np.rint(x / step) * step)[kept] <= unit[kept] for x in (child, parent))
            share, chance = float(on.mean()), float(np.minimum(1.0, 2.0 * unit / step)[kept].mean())
            rounds = float((np.abs(parent - child) <= 0.5 * step + 2.0 * unit)[kept].mean())
            if share >= ROUNDED and on.size * (share - max(chance, own.mean())) >= EVIDENCE:
                error, most = float(np.sqrt(np.mean(step**2) / 12.0)), rounds * float(kept.mean())
                row_wise = size == A.shape[1]
                return GridFit(True, size, row_wise, 2**bits - 1, bits, False, share, most, rounds, error)
    return None


def _of_floats(A: FloatArray, B: FloatArray) -> GridFit | None:
    """Return the grid of a child that was rounded to numbers of few digits, each group with a scale: FP8, written out again."""
    best = None
    for size in _sizes(A.shape[1], GROUPS):
        parent, child = _groups(A, B, size, SCREENED)
        if not child.size or _mantissas(child[0]).size > FP8_DIGITS:  # one group tells of almost every child
            continue
        digits = [_mantissas(group) for group in child]
        most = max(one.size for one in digits)
        if not 2 < most <= FP8_DIGITS or min(_mantissas(group).size for group in parent) < FREE * most:
            continue
        rounds, gaps = [], []
        for a, b, levels in zip(parent, child, digits, strict=True):
            around = np.concatenate([0.5 * levels[-1:], levels, 2.0 * levels[:1]])
            mantissas, exponents = np.frexp(np.abs(b))
            at = np.searchsorted(levels, 2.0 * mantissas) % levels.size + 1
            octave, least = np.ldexp(0.5, exponents), 0.5 * np.min(np.abs(b[b != 0.0]))  # the smallest have equal steps
            below, above = (np.maximum(0.5 * np.abs(around[at + x] - around[at]) * octave, least) for x in (-1, 1))
            own, slack = np.where(b == 0.0, np.abs(a), np.sign(b) * a - np.abs(b)), EVEN * np.abs(b)
            rounds.append((own >= -below - slack) & (own <= np.where(b == 0.0, least, above) + slack))
            gaps.append(below + above)
        fits = np.concatenate(rounds)
        share, most_kept = float(fits.mean()), float(fits[child.ravel() != 0.0].mean())
        error = math.sqrt(float(np.mean(np.square(np.concatenate(gaps)))) / 12.0)
        found = Text(
            "in groups of {m} all values are one of {n} numbers times a power of two, as in FP8", m=size, n=most
        )
        fit = GridFit(True, size, bits=8, rounded_share=share, kept_share=most_kept, rounding=error, limits=(found,))
        if share >= ROUNDED:
            return fit
        best = best or fit  # two groups of few digits may have no more together than FP8 has
    return best


def _mantissas(group: FloatArray) -> FloatArray:
    """Return the different mantissas of numbers, from 1 to 2."""
    return distinct(2.0 * np.frexp(np.abs(group[group != 0.0]))[0])


def _describe(A: FloatArray, B: FloatArray, size: int, fit: _Fit, dtypes: tuple[str, str]) -> GridFit:
    parent, child = _groups(A, B, size, SAMPLED)
    levels, rounded, kept, step = _levels(parent, child, fit, dtypes[1])
    slope = float(np.vdot(A[B != 0.0], B[B != 0.0]) / max(float(np.sum(A[B != 0.0] ** 2)), 1e-300))
    if rounded < ROUNDED <= (scaled := _levels(slope * parent, child, fit, dtypes[1]))[1]:
        rounded, kept = scaled[1:3]
    else:
        slope = 1.0
    found = GridFit(
        is_quantised=None,
        group=size,
        row_wise=size == A.shape[1],
        levels=levels,
        bits=math.ceil(math.log2(levels if levels <= 4 else levels - 1)),  # a rounded zero point can span one more
        free_zero=fit.free_zero,
        fitting_share=fit.share,
        rounded_share=rounded,
        kept_share=kept,
        rounding=step / math.sqrt(12.0),
        factor=None if slope == 1.0 else slope,
    )
    if fit.nats < EVIDENCE or levels > MOST_LEVELS + 1:
        return replace(found, limits=(Text("the format's own steps are as coarse as the grid"),))
    of_parent = _best(A, A, size, SAMPLED, dtypes[0])
    both = of_parent is not None and of_parent.share >= 0.5 and of_parent.nats >= EVIDENCE
    limits = (Text("the parent lies on such grids too"),) if both else ()
    return replace(found, is_quantised=not both, limits=limits)


def _groups(A: FloatArray, B: FloatArray, size: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Return evenly spread groups of parent and child; those in which the child has one value only are left out."""
    rows, per_row = A.shape[0], A.shape[1] // size
    chosen = np.linspace(0, rows * per_row - 1, min(3 * count, rows * per_row)).astype(np.intp)
    row, start = chosen // per_row, (chosen % per_row) * size
    columns = start[:, None] + np.arange(size)
    child = B[row[:, None], columns]
    varied = np.flatnonzero(np.ptp(child, axis=1) > 0.0)
    kept = varied[np.linspace(0, varied.size - 1, min(count, varied.size)).astype(np.intp)]
    return A[row[kept][:, None], columns[kept]], child[kept]


def _best(A: FloatArray, B: FloatArray, size: int, count: int, dtype: str) -> _Fit | None:
    parent, child = _groups(A, B, size, count)
    if child.size == 0:
        return None
    unit = steps(child, dtype)
    multiples, offsets = (_fit(parent, child, unit, free_zero=free) for free in (False, True))
    if offsets.share < FITTING <= multiples.share:
        return multiples
    if multiples.share < FITTING <= offsets.share:
        return offsets
    return multiples if multiples.step >= _SAME_STEP * offsets.step else offsets


def _fit(parent: FloatArray, child: FloatArray, unit: FloatArray, *, free_zero: bool) -> _Fit:
    """Try child = k·s, the largest magnitude being whole steps, or with `free_zero` child = least + k·s, the range being so."""
    probe = np.linspace(0, child.shape[1] - 1, min(child.shape[1], _PROBE)).astype(np.intp)
    sizes = child if free_zero else np.abs(child)
    high = np.argmax(sizes, axis=1)[:, None]
    low = np.argmin(child, axis=1)[:, None] if free_zero else high  # the anchors, which fit by construction
    least, of_low = (np.take_along_axis(x, low, axis=1) if free_zero else 0.0 for x in (child, unit))
    size = np.take_along_axis(sizes, high, axis=1) - least
    ratio, own = (sizes[:, probe] - least) / size, unit[:, probe] / size
    of_high = np.take_along_axis(unit, high, axis=1)
    tolerance = 0.5 * _SLACK * (own + ((1.0 - ratio) * of_low + ratio * of_high) / size)
    counted = _evidence(parent[:, probe], child[:, probe], (probe != low) & (probe != high))
    return _try(ratio, tolerance, own, counted, size[:, 0], free_zero=free_zero)


def _evidence(
    parent: FloatArray, child: FloatArray, free: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark the elements that count as evidence for a grid of many levels, and of few."""
    # Anchors fit by construction, and zeros may come from pruning. A value that occurs again says nothing new, except of a
    # grid so coarse that its values must repeat, and if the parent's do not.
    counted = free & (child != 0.0)
    again = _repeated(child)
    usual = _repeated(parent).mean(axis=1, keepdims=True) > 0.2
    return counted & ~again, counted & ~(again & usual)


def _repeated(values: FloatArray) -> NDArray[np.bool_]:
    magnitudes = np.abs(values)
    order = np.argsort(magnitudes, axis=1, kind="stable")
    ranked = np.take_along_axis(magnitudes, order, axis=1)
    again = np.zeros(values.shape, dtype=np.bool_)
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
    return again


def _try(
    ratio: FloatArray,
    tolerance: FloatArray,
    own: FloatArray,
    counted: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    size: FloatArray,
    *,
    free_zero: bool,
) -> _Fit:
    """Return for each group the coarsest grid that fits all its elements."""
    # By chance a number of spacing u falls within ±t of a multiple of the step s with probability at most (2t + u)/s. The
    # number of grids tried is charged against the evidence.
    found = np.zeros(ratio.shape[0], dtype=np.intp)
    block = max(1, _BLOCK // ratio.size)
    for start in range(0, _SPANS.size, block):
        spans = _SPANS[start : start + block, None]
        open_ = np.flatnonzero(found == 0)
        # most grids fail at the first few elements
        places = ratio[open_, :_FIRST] * spans[..., None]
        outside = np.abs(places - np.rint(places)) > tolerance[open_, :_FIRST] * spans[..., None]
        fits: NDArray[np.bool_] = np.logical_not(outside.any(axis=2))
        for part in (slice(_FIRST, 8), slice(8, None)):
            alive, group = np.nonzero(fits)
            places = ratio[open_[group], part] * spans[alive]
            off = np.abs(places - np.rint(places)) > tolerance[open_[group], part] * spans[alive]
            fits[alive, group] = ~off.any(axis=1)
        hit = fits.any(axis=0)
        found[open_[hit]] = spans[:, 0][np.argmax(fits[:, hit], axis=0)]
    chance = np.minimum(1.0, (2.0 * tolerance + own) * np.maximum(found, 1)[:, None])
    counts = np.where((found <= _FEW)[:, None], counted[1], counted[0])
    charge = np.where(counts.any(axis=1), math.log(_SPANS.size), 0.0)
    evidence = -np.sum(np.log(chance), axis=1, where=counts) - charge
    found[(evidence < 0.0) & (found > _FEW)] = 0  # any numbers of this format would have fitted so well
    return _Fit(found, evidence, size / np.maximum(found, 1), free_zero)


def _levels(parent: FloatArray, child: FloatArray, fit: _Fit, dtype: str) -> tuple[int, float, float, float]:
    """Return the most levels a group spans, the share of parent values that round to the child's, of those kept, and a step."""
    held = fit.spans > 0
    A, B, spans = parent[held], child[held], fit.spans[held][:, None]
    base = B.min(axis=1, keepdims=True) if fit.free_zero else np.zeros((B.shape[0], 1))
    size = np.abs(B - base).max(axis=1, keepdims=True)
    places = np.rint((B - base) / size * spans)
    # the anchor was rounded when stored: all elements together know the step better
    step = np.sum((B - base) * places, axis=1, keepdims=True) / np.sum(places**2, axis=1, keepdims=True)
    places = np.rint((B - base) / step)
    low, high = places.min(axis=1, keepdims=True), places.max(axis=1, keepdims=True)
    nearest = np.clip(np.rint((A - base) / step), low, high)
    within = np.abs(A - B) <= 0.5 * (step + _SLACK * steps(B, dtype))
    mean_step = math.sqrt(float(np.mean(step**2)))
    rounds = (nearest == places) | within
    return int((high - low).max()) + 1, float(np.mean(rounds)), float(np.mean(rounds[B != 0.0])), mean_step
