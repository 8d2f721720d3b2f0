"""Decode tensors that ONNX stores transposed, as codes with scales, or as varints."""

import math

import numpy as np

from kinprint.formats.checks import damaged
from kinprint.formats.dtypes import Array, add_block_format, decode
from kinprint.formats.plan import TensorSlice, columns, rows, whole
from kinprint.formats.row_maker import by_element, by_row, entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

WHOLE_BYTES = 64 << 20  # a transposed tensor of up to this size is read whole: one request instead of one for each row


def _halves(raw: memoryview) -> Array:
    """Return 4-bit numbers, the lower half of a byte first."""
    packed = np.frombuffer(raw, dtype=np.uint8)
    found = np.empty(2 * packed.size, dtype=np.uint8)
    found[0::2], found[1::2] = packed & 15, packed >> 4
    return found


add_block_format("U4", 2, 1, _halves)
add_block_format("I4", 2, 1, lambda raw: (_halves(raw).astype(np.int8) ^ 8) - 8)


def near_columns(tensor: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select columns of a matrix; all of them, where the others lie so near that they would be read anyway."""
    return whole(tensor) if tensor.nbytes <= WHOLE_BYTES else columns(tensor, start, stop)


def flat(tensor: TensorInfo) -> TensorInfo:
    """Return a stored tensor as a vector."""
    shape = (tensor.elements,)
    if tensor.made is None:
        return tensor._replace(shape=shape)
    return made_of(tensor.name, tensor.dtype, None, shape, lambda _start, _stop, values: values, (tensor, by_element))


def transposed(start: int, stop: int, values: Array) -> Array:
    """Return rows of a matrix that is stored in × out, from those columns or all of them."""
    return (values if values.shape[1] == stop - start else values[:, start:stop]).T


def varints(stored: TensorInfo, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    """Describe numbers of up to 32 or 64 bits, each in as few stored bytes as it needs; of narrow floats, the bits."""
    count, width = math.prod(shape), math.prod(shape[1:])

    def decode_rows(start: int, stop: int, raw: Array) -> Array:
        """Decode all numbers, as none can be read without those before it, and cut the rows out."""
        ends = np.flatnonzero(raw < 0x80)
        starts = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
        lengths = ends - starts + 1
        if ends.size != count or (raw.size and raw[-1] >= 0x80) or (lengths.size and lengths.max() > 10):
            raise damaged(f"tensor {stored.name[:200]!r} holds {ends.size} numbers, expected {count}")
        values = np.zeros(count, dtype=np.uint64)
        for place in range(int(lengths.max()) if lengths.size else 0):
            more = lengths > place
            values[more] |= (raw[starts[more] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
        cut = values[start * width : stop * width]
        # The low bytes are what the type has; the sign is in them.
        return decode(memoryview(cut.astype(_BYTES.get(dtype, "u1")).tobytes()), dtype)

    return made_of(stored.name, dtype, None, shape, decode_rows, (stored, entire))


_BYTES = {"I64": "<u8", "I32": "<u4", "I16": "<u2", "F16": "<u2", "BF16": "<u2"}


def scaled_codes(
    codes: TensorInfo, scale: TensorInfo, zero: TensorInfo | None, axis: int | None, block: int, name: str, across: bool
) -> TensorInfo:
    """Describe codes less a zero point, times a scale: one for all, or one for each index or block of a stored axis."""
    # Scale and zero point are vectors, unless there are blocks. `axis` is None for one scale; `block` counts the indices that share
    # a scale, 0 if each has its own; `across` says that the codes are stored in × out.
    row_axis = 1 if across else 0

    def spread(given: Array, sides: int, start: int, stop: int) -> Array:
        """Return scales or zero points in a shape that numpy spreads over the codes at hand."""
        values = given.astype(np.float32)
        if values.size == 1 or axis is None:
            return values.reshape(())
        if not block:
            return values.reshape([values.size if side == axis else 1 for side in range(sides)])
        at_hand = (start, stop) if axis == row_axis else (0, codes.shape[axis])
        if axis != row_axis:
            values = np.take(values, np.arange(start, stop), axis=row_axis)
        return np.take(values, np.arange(*at_hand) // block, axis=axis)

    def decode(start: int, stop: int, stored: Array, scales: Array, zeros: Array | None) -> Array:
        """Dequantise. A difference of codes is exact in float32, so that only the product is rounded."""
        values = (stored[:, start:stop] if across and stored.shape[1] != stop - start else stored).astype(np.float32)
        if zeros is not None:
            values -= spread(zeros, values.ndim, start, stop)
        values *= spread(scales, values.ndim, start, stop)
        return values.T if across else values

    kind = kind_of(codes.dtype)
    if axis is None:
        method = Text("{kind} with scales: one scale", kind=kind)
    elif block:
        method = Text("{kind} with scales: blocks of {n}", kind=kind, n=block)
    else:
        method = Text("{kind} with scales: a scale a channel", kind=kind)
    own = not block and axis == row_axis  # each row has its own scale, so that only the rows' own are read
    inputs = [(part, by_row if own and part is not None and part.elements > 1 else entire) for part in (scale, zero)]
    select = near_columns if across else by_row if codes.shape else entire
    shape = codes.shape[::-1] if across else codes.shape
    return made_of(name, f"{kind} with scales", method, shape, decode, (codes, select), *inputs)


def packed_blocks(
    codes: TensorInfo, scale: TensorInfo, zero: TensorInfo | None, bits: int, block: int, width: int, name: str
) -> TensorInfo:
    """Describe a weight of MatMulNBits: rows of blocks, each of so many codes packed into bytes, with a scale."""
    # Codes are (rows, blocks, bytes of a block). Zero points are packed like the codes, each row beginning on a byte; or there is a
    # number for each block; or none, for the middle code.
    rows_in_all, count, size = codes.shape

    def unpacked(raw: Array, count: int) -> Array:
        """Return `count` codes from each row of bytes, the lowest bits first."""
        if bits == 8:
            return raw[:, :count]
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        found: Array = (raw[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
        return found.reshape(raw.shape[0], raw.shape[1] * shifts.size)[:, :count]

    def decode(start: int, stop: int, stored: Array, scales: Array, zeros: Array | None) -> Array:
        height = stop - start
        values = unpacked(stored.reshape(height * count, size), block).astype(np.float32).reshape(height, count, block)
        if zeros is None:
            values -= np.float32(1 << (bits - 1))
        else:
            each = zeros if zeros.dtype.kind == "f" else unpacked(zeros.reshape(height, -1), count)
            values -= each.astype(np.float32).reshape(height, count, 1)
        values *= scales.astype(np.float32).reshape(height, count, 1)
        return values.reshape(height, count * block)[:, :width]

    def part_of(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
        each = stored.elements // rows_in_all
        return rows(stored, [(start * each, stop * each)])

    method = Text("{bits}-bit with scales: blocks of {n}", bits=bits, n=block)
    inputs = (codes, by_row), (scale, part_of), (zero, part_of)
    return made_of(name, f"{bits}-bit with scales", method, (rows_in_all, width), decode, *inputs)


def kind_of(dtype: str) -> str:
    """Return what reports call a type of code."""
    return {"I8": "int8", "U8": "uint8", "I4": "int4", "U4": "uint4", "I16": "int16", "I32": "int32"}.get(dtype, dtype)
