"""Compare the numbers of two stored tensors: equal outright, or after a cast."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint._util.records import dataclass
from kinprint.edits.rounding import is_float
from kinprint.errors import DegenerateInput
from kinprint.metrics.identity import GRIDS, IntArray, mean_steps, on_grid, ordinals

SAMPLE = 1 << 14  # elements whose distance in units in the last place is averaged


@dataclass(frozen=True)
class TensorIdentity:
    """How far two stored tensors are the same."""

    # `cast` names the change of format ("F32 to BF16") if the finer side, cast to the coarser one's format, equals it; a cast
    # without loss counts. `mean_ulps` is over at most `SAMPLE` evenly spaced elements, on the coarser grid, and None where a
    # side is stored as integers or out of the coarser range. `through` is the coarser format through which one side went, where
    # both are stored in one.
    dtype_parent: str
    dtype_child: str
    changed_share: float
    byte_identical: bool
    cast: str | None
    mean_ulps: float | None
    through: str | None = None

    @property
    def same_values(self) -> bool:
        """Whether every number is equal, whatever the format and the sign of a zero."""
        return self.changed_share == 0.0


def identity_of(stored_a: NDArray[Any], stored_b: NDArray[Any], dtype_a: str, dtype_b: str) -> TensorIdentity:
    """Compare a parent's stored numbers with a child's; arrays are as `kinprint.formats.dtypes.decode` gives them."""
    if stored_a.shape != stored_b.shape or stored_a.size == 0:
        raise DegenerateInput(f"identity_of: shapes {stored_a.shape} and {stored_b.shape}: expected equal, not empty")
    changed = int(np.count_nonzero(stored_a != stored_b))
    through = _through(stored_a, stored_b, dtype_a, dtype_b) if changed else None
    signs = changed == 0 and np.array_equal(np.signbit(stored_a), np.signbit(stored_b))
    return TensorIdentity(
        dtype_parent=dtype_a,
        dtype_child=dtype_b,
        changed_share=changed / stored_a.size,
        byte_identical=bool(signs) and dtype_a == dtype_b,
        cast=f"{dtype_a} to {through}" if through else _cast(stored_a, stored_b, dtype_a, dtype_b, same=changed == 0),
        mean_ulps=0.0 if changed == 0 else _mean_ulps(stored_a, stored_b, dtype_a, dtype_b),
        through=through,
    )


def _strided(values: NDArray[Any], limit: int) -> NDArray[Any]:
    flat = values.ravel()
    return flat[:: max(1, -(-flat.size // limit))]


def _cast(a: NDArray[Any], b: NDArray[Any], dtype_a: str, dtype_b: str, *, same: bool) -> str | None:
    if dtype_a == dtype_b or not (is_float(dtype_a) and is_float(dtype_b)):
        return None
    if same or _rounds_to(a, b, dtype_b) or _rounds_to(b, a, dtype_a):
        return f"{dtype_a} to {dtype_b}"
    return None


def _through(a: NDArray[Any], b: NDArray[Any], dtype_a: str, dtype_b: str) -> str | None:
    """Return the format that one side was cast to, and back: F16 takes small numbers of BF16 their last digits."""
    if dtype_a != dtype_b or not is_float(dtype_a):
        return None
    return next((x for x in ("F16", "BF16") if x != dtype_a and (_rounds_to(a, b, x) or _rounds_to(b, a, x))), None)


def _rounds_to(finer: NDArray[Any], coarser: NDArray[Any], dtype: str) -> bool:
    """Whether `finer` on the grid of `dtype` is `coarser`; a sample refutes almost every pair that is not."""
    # A number halfway between two of the grid may have gone to either: hardware rounds it to even, many converters away
    # from zero (one element in 16,000 of a real F16 copy tells).
    for limit in (4096, finer.size):
        exact, given = _strided(finer, limit).astype(np.float64), _strided(coarser, limit)
        try:
            nearest = on_grid(exact, dtype)
        except DegenerateInput:  # beyond the range of the format
            return False
        if not np.array_equal(np.abs(exact - nearest), np.abs(exact - given)):
            return False
    return True


def _mean_ulps(a: NDArray[Any], b: NDArray[Any], dtype_a: str, dtype_b: str) -> float | None:
    if not (is_float(dtype_a) and is_float(dtype_b)):
        return None
    coarser = min(dtype_a, dtype_b, key=lambda dtype: GRIDS[dtype].precision)
    try:
        return mean_steps(*(_ordinals(_strided(x, SAMPLE), coarser) for x in (a, b)))
    except DegenerateInput:
        return None


def _ordinals(values: NDArray[Any], dtype: str) -> IntArray:
    """Return the places of values on a grid; most are on it, so that nothing has to be rounded first."""
    try:
        return ordinals(values, dtype)
    except DegenerateInput:
        return ordinals(on_grid(values, dtype), dtype)
