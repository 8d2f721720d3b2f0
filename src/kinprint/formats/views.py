"""Take tensors out of stored ones without decoding: one expert of a stack, rows of q and k in the order of Hugging Face.

Rotary embedding turns pairs of a head's rows. Meta's own checkpoints, llama2.c and llama.cpp's conversions of several
architectures store the two rows of a pair as neighbours; Hugging Face stores the first rows of all pairs, then the second.
"""

import numpy as np

from kinprint.formats.dtypes import Array, block_of
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.row_maker import RowMaker, made_of
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
    """Return q or k with its rows in the order of Hugging Face: the first rows of all pairs of a head, then the second."""
    size = stored.shape[0] // heads

    def places(start: int, stop: int) -> Array:
        """Return where rows are stored."""
        head, within = np.divmod(np.arange(start, stop), size)
        second, pair = np.divmod(within, size // 2)
        stored_rows: Array = head * size + 2 * pair + second
        return stored_rows

    def select(tensor: TensorInfo, start: int, stop: int) -> TensorSlice:
        wanted = np.sort(places(start, stop))
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        firsts = wanted[np.concatenate(([0], breaks + 1))].tolist()
        lasts = wanted[np.concatenate((breaks, [wanted.size - 1]))].tolist()
        return rows(tensor, [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)])

    def decode(start: int, stop: int, values: Array) -> Array:
        built = np.empty_like(values)
        built[np.argsort(places(start, stop))] = values
        return built

    return made_of(stored.name, stored.dtype, None, stored.shape, decode, (stored, select))
