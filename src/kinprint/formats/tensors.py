"""Describe where a tensor's numbers are: in a file, or made from several stored tensors when they are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinprint._util.records import dataclass
from kinprint.formats.dtypes import Array, block_of
from kinprint.refs import ByteRange

if TYPE_CHECKING:
    from kinprint.formats.plan import TensorSlice


class Made(Protocol):
    """Maker of a tensor from others: dequantises codes and scales, puts rows back in order, or adds an adapter."""

    # Rows run along the first axis. A maker that cannot give single rows asks for all of its parts.

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return what rows `start` to `stop` are made of. Pure."""

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Return those rows (stop − start, …) from the parts' values, in the order asked for."""


class Intake(Protocol):
    """Decoder of rows from bytes that come in order and are not kept."""

    def feed(self, raw: memoryview) -> None:
        """Take the next bytes."""

    def finish(self) -> list[Array]:
        """Return the rows of each interval, in the order asked for; raise if bytes are missing or wrong."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A tensor that has to be decoded from one stored one, ``packed``, from its beginning: a plan does it once for all rows."""

    packed: TensorInfo
    begin: Callable[[Sequence[tuple[int, int]]], Intake]  # starts to decode these rows


class TensorInfo(NamedTuple):
    """Where one tensor's bytes are. ``start`` and ``end`` are absolute in the file (half-open)."""

    # A tensor with ``made`` has no bytes of its own: ``start`` is 0, and ``end`` counts the bytes of all it is made of.
    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int  # position in the checkpoint's list of files
    start: int
    end: int
    made: Made | Streamed | None = None

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
_INDEXED = re.compile(r"(?P<stack>.+)\[(?P<index>0|[1-9][0-9]{0,3})\]")


class Tensors(Mapping[str, TensorInfo]):
    """Stored tensors by name. Each is made when it is asked for: a large model has 18,000, and few are looked at."""

    def __init__(self, rows: Mapping[str, Row | TensorInfo]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> TensorInfo:
        """Return a tensor, or with a name like ``X[3]`` one matrix of the stack X."""
        if (row := self._rows.get(name)) is not None:
            return TensorInfo(*row)
        from kinprint.formats.views import one_of  # which needs slices, which need tensors

        found = _INDEXED.fullmatch(name)
        stack = self._rows.get(found["stack"]) if found else None
        if found is None or stack is None or len(stack[2]) < 2 or int(found["index"]) >= stack[2][0]:
            raise KeyError(name)
        return one_of(TensorInfo(*stack), int(found["index"]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def stored(self) -> Mapping[str, Row | TensorInfo]:
        """Return the tensors as they were given."""
        return self._rows

    def size_of(self, name: str) -> tuple[str, int, int]:
        """Return number format, stored bytes and elements of one tensor, which need not be made for it."""
        _, dtype, shape, _, start, end = (self._rows.get(name) or self[name])[:6]
        return dtype, end - start, math.prod(shape)

    def elements(self) -> int:
        """Return the number of elements of all."""
        return sum(math.prod(row[2]) for row in self._rows.values())

    def nbytes(self) -> int:
        """Return the stored bytes of all."""
        return sum(row[5] - row[4] for row in self._rows.values())

    def dtypes(self) -> set[str]:
        """Return the number formats that occur."""
        return set(map(itemgetter(1), self._rows.values()))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes alone."""
        return {name: row[2] for name, row in self._rows.items()}
