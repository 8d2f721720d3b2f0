"""Compare stored numbers: equal bytes, share of changed elements, distance in units in the last place."""

import math
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinprint._util.numeric import FloatArray
from kinprint.errors import DegenerateInput, UnsupportedDtype
from kinprint.metrics.base import register
from kinprint.text import Text

IntArray: TypeAlias = NDArray[np.int64]


class FloatGrid(NamedTuple):
    """A binary floating-point format: significant bits, exponent of its least step, greatest finite value."""

    precision: int
    least: int
    largest: float


GRIDS: dict[str, FloatGrid] = {
    "F64": FloatGrid(53, -1074, float(np.finfo(np.float64).max)),
    "F32": FloatGrid(24, -149, float(np.finfo(np.float32).max)),
    "F16": FloatGrid(11, -24, 65504.0),
    "BF16": FloatGrid(8, -133, float(np.ldexp(255.0, 120))),
    "F8_E4M3": FloatGrid(4, -9, 448.0),  # the variant without infinities
    "F8_E5M2": FloatGrid(3, -16, 57344.0),
}


def _grid(dtype_name: str) -> FloatGrid:
    try:
        return GRIDS[dtype_name]
    except KeyError:
        raise UnsupportedDtype(
            f"no grid of representable numbers is known for {dtype_name!r}", hint=f"known: {', '.join(GRIDS)}"
        ) from None


def _significand(magnitude: FloatArray, grid: FloatGrid) -> tuple[FloatArray, NDArray[np.int32]]:
    """Return |x| in steps of the grid at its own size, and the exponent of that step."""
    exponents = np.where(magnitude == 0.0, grid.least, np.frexp(magnitude)[1])  # frexp(0) says 0
    step = np.maximum(exponents - grid.precision, grid.least).astype(np.int32)
    # 2**1074 times a subnormal is reached in two stages: 2**1074 itself is beyond float64, the product is not
    half = -step // 2
    return np.ldexp(np.ldexp(magnitude, half), -step - half), step


def on_grid(a: ArrayLike, dtype_name: str) -> FloatArray:
    """Return `a` rounded to the nearest number of the format (ties to even); beyond its range is refused."""
    values, grid = np.asarray(a, dtype=np.float64), _grid(dtype_name)
    significand, step = _significand(np.abs(values), grid)
    rounded = np.copysign(np.ldexp(np.rint(significand), step), values)
    _refuse(np.abs(rounded) > grid.largest, values.size, Text("lie beyond the range of {dtype}", dtype=dtype_name))
    return cast(FloatArray, rounded)


def ordinals(a: ArrayLike, dtype_name: str) -> IntArray:
    """Return the place of each number among all numbers of the format, counted from zero."""
    # Neighbouring numbers differ by one, −0 and +0 are both 0, and −x is at minus the place of x; so the difference of
    # two ordinals is the distance in units in the last place. Values must be exactly representable; see `on_grid`.
    values, grid = np.asarray(a, dtype=np.float64), _grid(dtype_name)
    magnitude = np.abs(values)
    # Of normal numbers and zeros, the digits of float64 less those that the format has not are the place, but for its origin.
    bits, drop, half = magnitude.view(np.int64), 53 - grid.precision, 1 << (grid.precision - 1)
    place = (bits >> drop) - (1021 + grid.precision + grid.least) * half
    exact = not (bits & ((1 << drop) - 1)).any() and bool((magnitude <= grid.largest).all())
    if exact and ((place >= half) | (bits == 0)).all():
        place = np.maximum(place, 0)
        return cast(IntArray, np.where(values < 0, -place, place))
    significand, step = _significand(magnitude, grid)
    wrong = (significand != np.rint(significand)) | ~(magnitude <= grid.largest)
    _refuse(wrong, values.size, Text("are not exactly representable in {dtype}", dtype=dtype_name))
    place = (step.astype(np.int64) - grid.least) * half + significand.astype(np.int64)
    return cast(IntArray, np.where(values < 0, -place, place))


def _refuse(wrong: NDArray[np.bool_], size: int, what: Text) -> None:
    count = int(np.count_nonzero(wrong))
    if count:
        raise DegenerateInput("ulp_distance: {n} of {m} values {what}: expected none", n=count, m=size, what=what)


def mean_steps(a: IntArray, b: IntArray) -> float:
    """Return the mean absolute difference of two arrays of ordinals, without overflow."""
    upper, lower = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
    return float(np.mean((upper - lower).astype(np.float64)))  # unsigned: exact modulo 2**64, where the result lies


@register(
    "changed_ratio",
    label="Share of elements that differ",
    higher_is_closer=False,
    bounds=(0.0, 1.0),
    invariant_to=("joint_scale", "joint_shift", "joint_permutation"),
    null="changed",
    reference="#{a ≠ b} / d",
)
def changed_ratio(a: FloatArray, b: FloatArray) -> float:
    """Share of unequal elements; coarse formats hide small changes, so read it beside `ulp_distance`."""
    return float(np.count_nonzero(a != b)) / a.size


@register(
    "ulp_distance",
    label="Mean distance in units in the last place",
    higher_is_closer=False,
    bounds=(0.0, math.inf),
    invariant_to=("joint_permutation",),
    null="ulp",
    reference="mean |ordinal(a) − ordinal(b)| on the coarser stored grid",
)
def ulp_distance(a: FloatArray, b: FloatArray, *, dtype: str = "F32") -> float:
    """Mean number of representable steps between a and b, both rounded to `dtype`, the coarser stored format."""
    return mean_steps(ordinals(on_grid(a, dtype), dtype), ordinals(on_grid(b, dtype), dtype))


@register(
    "byte_identity",
    label="Identical bytes (1 or 0)",
    higher_is_closer=True,
    bounds=(0.0, 1.0),
    invariant_to=("joint_scale", "joint_shift", "joint_permutation"),
    null="identity",
    reference="1 if dtype and every stored bit are equal, else 0",
)
def byte_identity(a: FloatArray, b: FloatArray, *, same_dtype: bool = True) -> float:
    """One if the stored bytes are equal, else zero: −0 is not +0, and a cast to another format is not identical."""
    return float(same_dtype and np.array_equal(a, b) and np.array_equal(np.signbit(a), np.signbit(b)))
