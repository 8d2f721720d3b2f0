"""Where a tensor's numbers are: in a file as they stand, or made from several stored tensors when they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinprint.formats.dtypes import Array, block_of
from kinprint.refs import ByteRange

if TYPE_CHECKING:
    from kinprint.formats.plan import TensorSlice


class Made(Protocol):
    """How a tensor is made from others: dequantised from codes and scales, its rows put back in order, an adapter added.

    Rows run along the first axis. A maker that cannot give single rows asks for all of its parts.
    """

    @property
    def method(self) -> str:
        """What is done, for the report: "GPTQ 4-bit, groups of 128"."""

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return what rows `start` to `stop` are made of. Pure."""

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Return those rows (stop − start, …) from the parts' values, in the order asked for."""


class TensorInfo(NamedTuple):
    """Where one tensor's bytes are. ``start`` and ``end`` are absolute in the file (half-open).

    A tensor with ``made`` has no bytes of its own: ``start`` is 0, and ``end`` counts the bytes of all it is made of.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int  # position in the checkpoint's list of files
    start: int
    end: int
    made: Made | None = None

    @property
    def nbytes(self) -> int:
        """Stored bytes."""
        return self.end - self.start

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])

    def span(self, start: int, stop: int) -> ByteRange:
        """Return the bytes that hold elements `start` to `stop`: whole blocks, where elements are stored in blocks."""
        elements, size = block_of(self.dtype, tensor=self.name)
        return ByteRange(self.start + start // elements * size, self.start + -(-stop // elements) * size)


Row = tuple[str, str, tuple[int, ...], int, int, int]  # the first six fields of a TensorInfo


class Tensors(Mapping[str, TensorInfo]):
    """Stored tensors by name. Each is made when it is asked for: a large model has 18,000, and few are looked at."""

    def __init__(self, rows: Mapping[str, Row | TensorInfo]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> TensorInfo:
        return TensorInfo(*self._rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes alone."""
        return {name: row[2] for name, row in self._rows.items()}
