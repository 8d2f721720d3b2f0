"""Take tensors out of stored ones without decoding: one expert of a stack, rows of q and k in the order of Hugging Face.

Rotary embedding turns pairs of a head's rows. Meta's own checkpoints, llama2.c and llama.cpp's conversions of several
architectures store the two rows of a pair as neighbours; Hugging Face stores the first rows of all pairs, then the second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.formats.dtypes import Array, block_of
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.row_maker import RowMaker
from kinprint.formats.tensors import TensorInfo

MAX_ROWS_IN_ORDER = 1 << 20  # of q, in all heads: the largest models have 2**15, and each row costs an index


def one_of(stack: TensorInfo, index: int) -> TensorInfo:
    """Return the matrix at `index` along the first axis: a piece of the stack's bytes if that has bytes of its own."""
    size = stack.width
    name, shape = f"{stack.name}[{index}]", stack.shape[1:]
    if stack.made is None and size % block_of(stack.dtype, tensor=stack.name)[0] == 0:
        span = stack.span(index * size, (index + 1) * size)
        return TensorInfo(name, stack.dtype, shape, stack.file, span.start, span.end)
    # else the stack is itself made of other tensors, or its blocks run across its matrices
    first, width = index * size, size // max(1, shape[0])

    def select(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
        return TensorSlice(stored, ((first + start * width, first + stop * width),), (stop - start, *shape[1:]))

    made = RowMaker(None, shape, (stack,), (select,), lambda _start, _stop, values: values)
    return TensorInfo(name, stack.dtype, shape, stack.file, 0, stack.nbytes // stack.shape[0], made)


def in_hugging_face_order(stored: TensorInfo, heads: int) -> TensorInfo:
    """Return q or k with its rows in the order of Hugging Face."""
    return stored._replace(start=0, end=stored.nbytes, made=ReorderedRotaryRows(stored, stored.shape[0] // heads))


@dataclass(frozen=True, slots=True)
class ReorderedRotaryRows:
    """Rows of q or k: the first rows of all pairs of a head, then the second."""

    stored: TensorInfo  # the tensor in the file, in which the two rows of a pair are neighbours
    head_dim: int  # rows of a head

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the stored rows that rows `start` to `stop` are."""
        wanted = np.sort(self._stored_rows(start, stop))
        if not wanted.size:
            return [rows(self.stored, [(0, 0)])]
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        firsts = wanted[np.concatenate(([0], breaks + 1))].tolist()
        lasts = wanted[np.concatenate((breaks, [wanted.size - 1]))].tolist()
        return [rows(self.stored, [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)])]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Put the stored rows in order."""
        (values,) = parts
        built = np.empty_like(values)
        built[np.argsort(self._stored_rows(start, stop))] = values
        return built

    def _stored_rows(self, start: int, stop: int) -> Array:
        head, within = np.divmod(np.arange(start, stop), self.head_dim)
        second, pair = np.divmod(within, self.head_dim // 2)
        stored: Array = head * self.head_dim + 2 * pair + second
        return stored
