"""Make rows of a tensor from stored ones: codes, scales and zero points of a quantised one, the factors of a product."""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from kinprint._util.records import dataclass
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

Select = Callable[[TensorInfo, int, int], TensorSlice]
"""``(stored, start, stop)``: select what rows `start` to `stop` of the result need of a stored tensor."""
Input = tuple[TensorInfo | None, Select]
Shared = TypeVar("Shared", bound=Hashable)


def by_row(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select the same rows."""
    return rows(stored, [(start, stop)])


def by_element(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select the same elements of a tensor, whatever its shape."""
    return TensorSlice(stored, ((start, stop),), (stop - start,))


def entire(stored: TensorInfo, start: int, stop: int) -> TensorSlice:  # noqa: ARG001 - whichever rows are wanted
    """Select the whole tensor."""
    return whole(stored)


@lru_cache
def by_block(height: int) -> Select:
    """Select the rows of a tensor that has one row for each `height` rows of the result, or one element for all."""
    return lambda stored, start, stop: (
        whole(stored) if stored.elements == 1 else rows(stored, [(start // height, -(-stop // height))])
    )


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes rows of a tensor from stored ones."""

    method: Text | None  # of quantisation, for the report: "GPTQ 4-bit, groups of 128"
    shape: tuple[int, ...]
    inputs: tuple[TensorInfo | None, ...]  # the stored tensors, None for one that is absent
    selects: tuple[Select, ...]  # what rows of the result need of each
    decode: Callable[..., Array]  # (start, stop, *values): the rows from what was selected of each input

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Select what rows `start` to `stop` are made of."""
        if start >= stop:
            return []
        needed = zip(self.inputs, self.selects, strict=True)
        return [select(tensor, start, stop) for tensor, select in needed if tensor is not None]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Decode the rows. A damaged scale may be anything, and then shows in the values."""
        if start >= stop:
            return np.empty((0, *self.shape[1:]), np.float32)
        given = iter(parts)
        with np.errstate(all="ignore"):
            return self.decode(start, stop, *(None if tensor is None else next(given) for tensor in self.inputs))


def made_of(
    name: str, dtype: str, method: Text | None, shape: tuple[int, ...], decode: Callable[..., Array], *inputs: Input
) -> TensorInfo:
    """Describe a tensor that is made when it is read; the first input holds its codes, if it is quantised by a `method`."""
    stored, selects = tuple(tensor for tensor, _ in inputs), tuple(select for _, select in inputs)
    size, file = sum(tensor.nbytes for tensor in stored if tensor), stored[0].file if stored[0] else 0
    made = RowMaker(_shared(method), shape, stored, _shared(selects), decode)
    return TensorInfo(name, dtype, shape, file, 0, size, made)


@lru_cache
def _shared(value: Shared) -> Shared:
    """Return one object for equal values: a large model has 45,000 quantised layers, and few methods."""
    return value
