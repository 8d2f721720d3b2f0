"""Round norm weights to a storage format, and measure what is left of their pattern."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.metrics.identity import GRIDS, on_grid

FORMATS = ("BF16", "F16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class KeptPattern:
    """What is left of a pattern after storing."""

    error: float  # root mean square of the change of the pattern (mean removed) over that of the pattern
    correlation: float | None  # None: nothing of the pattern is left

    @property
    def bits(self) -> float:
        """Effective bits, the logarithm of the signal-to-noise ratio: 0 if the error is as large as the pattern."""
        return math.inf if self.error == 0.0 else -math.log2(self.error)


def _apart(values: FloatArray, dtype: str) -> FloatArray:
    """γ = s·(1 + p): the mean s in float32, p in the format."""
    scale = float(np.float32(values.mean()))
    if scale == 0.0:
        raise DegenerateInput("scale and pattern apart: the mean is zero and is the scale: expected a nonzero mean")
    return scale * (1.0 + on_grid(values / scale - 1.0, dtype))


SCHEMES: dict[str, Callable[[FloatArray, str], FloatArray]] = {
    "as_is": on_grid,
    "minus_one": lambda values, dtype: on_grid(values - 1.0, dtype) + 1.0,
    "apart": _apart,
}
"""Ways to store γ: itself; γ − 1; its mean in float32 and the pattern relative to the mean."""


def kept(truth: FloatArray, stored: FloatArray) -> KeptPattern:
    """Compare the pattern of `stored` with that of `truth`; `DegenerateInput` if `truth` has none."""
    pattern = truth - truth.mean()
    spread = float(np.sqrt(np.mean(pattern * pattern)))
    if spread == 0.0 or float(np.ptp(truth)) == 0.0:
        raise DegenerateInput("the weight is constant: it has no pattern that could be lost")
    change = (stored - stored.mean()) - pattern
    error = float(np.sqrt(np.mean(change * change))) / spread
    if np.array_equal(truth, stored):
        error = 0.0  # means of equal arrays are equal, but say so without relying on rounding
    try:
        correlation: float | None = METRICS["pearson"](truth, stored)
    except DegenerateInput:
        correlation = None
    return KeptPattern(error, correlation)


def store(truth: FloatArray, dtype: str, scheme: str) -> KeptPattern:
    """Return what `scheme` in `dtype` keeps of the pattern of `truth`."""
    return kept(truth, SCHEMES[scheme](truth, dtype))


def before_rounding(values: FloatArray, dtype: str, rng: np.random.Generator) -> FloatArray:
    """Return numbers that round to `values` on the grid of `dtype`: each drawn evenly from the cell of its value.

    What a weight was before it was stored is not known; any number of the cell would have been stored as this one. Below a power
    of two the cell is half as wide.
    """
    grid, magnitude = GRIDS[dtype], np.abs(values)
    fraction, exponent = np.frexp(magnitude)
    place = np.maximum(np.where(magnitude == 0.0, grid.least, exponent - grid.precision), grid.least)
    step = np.ldexp(1.0, place)
    draw = rng.uniform(-0.5, 0.5, values.shape)
    narrow = (fraction == 0.5) & (place > grid.least) & (draw < 0.0)
    return np.asarray(np.copysign(magnitude + np.where(narrow, 0.5, 1.0) * draw * step, values))


def needs_simulation(stored: str, dtype: str) -> bool:
    """Whether storing in `dtype` changes nothing that was stored as `stored`, so that the loss has to be simulated."""
    return stored in GRIDS and GRIDS[dtype].precision >= GRIDS[stored].precision
