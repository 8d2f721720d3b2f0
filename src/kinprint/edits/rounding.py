"""Give the rounding step of a number format at each value, and the format that stored values really use."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, median
from kinprint.metrics.identity import GRIDS

SAMPLE = 1 << 16  # elements looked at where a sample tells as much as the whole
_BITS = re.compile(r"(?<!\d)[1-8](?!\d)")
_EXPONENT = np.int64(0x7FF0000000000000)

ZERO_LEVEL = 0.3
"""Share of new zeros from which a grid of four bits or more, of which zero is one level, does not account for them."""


def is_float(dtype: str) -> bool:
    """Return whether the stored dtype is a floating format whose steps are known."""
    return dtype in GRIDS


def stored_bits(dtype: str) -> int | None:
    """Return the bits of a code that its name tells (int8 with scales, Q4_K, GPTQ 4-bit); None for plain floats."""
    found = None if is_float(dtype) else _BITS.search(dtype)
    return int(found[0]) if found else None


def steps(values: FloatArray, dtype: str) -> FloatArray:
    """Return the unit in the last place of each value in a floating format; integers have the step one."""
    if not is_float(dtype):
        return np.ones_like(values)
    grid = GRIDS[dtype]
    # the exponent field alone is 2**floor(log2|x|): several times faster than frexp
    octaves = (np.ascontiguousarray(values).view(np.int64) & _EXPONENT).view(np.float64)
    octaves *= 2.0 ** (1 - grid.precision)
    return np.maximum(octaves, np.ldexp(1.0, grid.least), out=octaves)


def few_rows(rows: int, columns: int, elements: int = SAMPLE) -> NDArray[np.intp]:
    """Return evenly spaced rows that hold about so many elements; at least four rows where there are four."""
    count = min(rows, max(4, elements // max(1, columns)))
    return np.linspace(0, rows - 1, count).astype(np.intp)


def used_dtype(values: NDArray[Any], dtype: str) -> str:
    """Return the coarser of `dtype`, F16 and BF16 that holds all values: an F32 tensor may hold a BF16 one's numbers."""
    if dtype not in ("F64", "F32", "F16"):
        return dtype
    flat = np.ravel(values)
    sample = np.ascontiguousarray(flat[:: max(1, flat.size // SAMPLE)], dtype=np.float64)
    sample = sample[sample != 0.0]
    mantissas, sizes = sample.view(np.int64), np.abs(sample)
    scaled = np.ldexp(sample, 24)  # the step of F16's subnormals
    half = not np.any(mantissas & ((1 << 42) - 1)) and bool(np.all(sizes <= GRIDS["F16"].largest))
    half = half and np.array_equal(scaled, np.rint(scaled))
    if not np.any(mantissas & ((1 << 45) - 1)):
        # F16's subnormals have as few bits as BF16, but equal steps
        return "F16" if half and sample.size > 0 and median(sizes) < 2.0**-14 else "BF16"
    return "F16" if half else dtype
