"""Tensors that ONNX stores in another form than the model has them: transposed, as codes with scales, as varints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array, add_block_format, decode
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

WHOLE_BYTES = 64 << 20  # a transposed tensor of up to this size is read whole: one request instead of one for each row


def _halves(raw: memoryview) -> Array:
    """Return 4-bit numbers, the lower half of a byte first."""
    packed = np.frombuffer(raw, dtype=np.uint8)
    found = np.empty(2 * packed.size, dtype=np.uint8)
    found[0::2], found[1::2] = packed & 15, packed >> 4
    return found


def _signed_halves(raw: memoryview) -> Array:
    return (_halves(raw).astype(np.int8) ^ 8) - 8


add_block_format("U4", 2, 1, _halves)
add_block_format("I4", 2, 1, _signed_halves)


def columns(tensor: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select columns of a matrix; all of them, where the others lie so near that they would be read anyway."""
    height, width = tensor.shape
    if stop - start == width or tensor.nbytes <= WHOLE_BYTES:
        return whole(tensor)
    runs = tuple((row * width + start, row * width + stop) for row in range(height if stop > start else 0))
    return TensorSlice(tensor, runs, (len(runs), stop - start))


def transposed(values: Array, start: int, stop: int) -> Array:
    """Return what `columns` selected as rows."""
    if values.shape[1] != stop - start:
        values = values[:, start:stop]
    return values.T


def flat(tensor: TensorInfo) -> TensorInfo:
    """Return a stored tensor as a vector."""
    made = tensor.made
    if isinstance(made, Varints):
        made = Varints(made.stored, made.dtype, made.count, 1)
    return tensor._replace(shape=(tensor.elements,), made=made)


@dataclass(frozen=True, slots=True)
class Transposed:
    """A matrix that is stored in × out."""

    stored: TensorInfo

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the stored columns that rows `start` to `stop` are."""
        return [columns(self.stored, start, stop)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Transpose them."""
        return transposed(parts[0], start, stop)


@dataclass(frozen=True, slots=True)
class Varints:
    """Numbers of up to 32 or 64 bits, each in as few bytes as it needs; none can be read without those before it."""

    stored: TensorInfo  # the bytes
    dtype: str  # what the numbers are: of floats narrower than 32 bits, the bits
    # count, width: how many there are, and how many in a row.
    count: int
    width: int

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Ask for all bytes, unless for no row."""
        return [whole(self.stored) if stop > start else rows(self.stored, [(0, 0)])]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Decode the numbers and cut the rows out."""
        (raw,) = parts
        if start == stop:
            return decode(memoryview(b""), self.dtype)
        ends = np.flatnonzero(raw < 0x80)
        starts = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
        lengths = ends - starts + 1
        if ends.size != self.count or (raw.size and raw[-1] >= 0x80) or (lengths.size and lengths.max() > 10):
            said = f"tensor {self.stored.name[:200]!r} holds {ends.size} numbers, expected {self.count}"
            raise FormatError(said, hint="the file is damaged; fetch it again")
        values = np.zeros(self.count, dtype=np.uint64)
        for place in range(int(lengths.max()) if lengths.size else 0):
            more = lengths > place
            values[more] |= (raw[starts[more] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
        cut = values[start * self.width : stop * self.width]
        # The low bytes are what the type has; the sign is in them.
        return decode(memoryview(cut.astype(_BYTES.get(self.dtype, "u1")).tobytes()), self.dtype)


_BYTES = {"I64": "<u8", "I32": "<u4", "I16": "<u2", "F16": "<u2", "BF16": "<u2"}


@dataclass(frozen=True, slots=True)
class ScaledCodes:
    """Codes less a zero point, times a scale: one for all, one for each index of an axis, or one for each block of it."""

    # codes, scale, zero: as stored; scale and zero as vectors, unless there are blocks.
    codes: TensorInfo
    scale: TensorInfo
    zero: TensorInfo | None
    axis: int | None  # the stored axis along which scales differ; None for one scale
    block: int  # indices of the axis that share a scale; 0 if each has its own
    across: bool  # whether the codes are stored in × out

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        kind = kind_of(self.codes.dtype)
        if self.axis is None:
            return Text("{kind} with scales: one scale", kind=kind)
        if self.block:
            return Text("{kind} with scales: blocks of {n}", kind=kind, n=self.block)
        return Text("{kind} with scales: a scale a channel", kind=kind)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the codes of rows `start` to `stop`, and their scales and zero points."""
        if self.across:
            found = [columns(self.codes, start, stop)]
        else:
            found = [rows(self.codes, [(start, stop)]) if self.codes.shape else whole(self.codes)]
        by_row = self._by_row()
        for each in (self.scale, self.zero):
            if each is not None:
                found.append(rows(each, [(start, stop)]) if by_row and each.elements > 1 else whole(each))
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Put them together. A difference of codes is exact in float32, so that only the product is rounded."""
        codes = parts[0]
        if self.across and codes.shape[1] != stop - start:
            codes = codes[:, start:stop]
        values = codes.astype(np.float32)
        with np.errstate(all="ignore"):  # a damaged scale may be anything
            if self.zero is not None:
                values -= self._spread(parts[2], values.shape, start, stop)
            values *= self._spread(parts[1], values.shape, start, stop)
        return values.T if self.across else values

    def _by_row(self) -> bool:
        """Whether a row has its own scale, so that only the rows' own are read."""
        return not self.block and self.axis == (1 if self.across else 0)

    def _spread(self, given: Array, shape: tuple[int, ...], start: int, stop: int) -> Array:
        """Return scales or zero points in a shape that numpy spreads over the codes at hand."""
        values = given.astype(np.float32)
        if values.size == 1 or self.axis is None:
            return values.reshape(())
        row_axis = 1 if self.across else 0
        if self.block:
            at_hand = (start, stop) if self.axis == row_axis else (0, self.codes.shape[self.axis])
            if self.axis != row_axis:
                values = np.take(values, np.arange(start, stop), axis=row_axis)
            return np.take(values, np.arange(*at_hand) // self.block, axis=self.axis)
        sides = [1] * len(shape)
        sides[self.axis] = values.size
        return values.reshape(sides)


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """Weights of MatMulNBits: rows of blocks, each of so many codes packed into bytes, with a scale and maybe a zero point."""

    codes: TensorInfo  # (rows, blocks, bytes of a block)
    scale: TensorInfo  # one for each block, row by row
    # Packed like the codes, each row beginning on a byte; or a number for each block; or None for the middle code.
    zero: TensorInfo | None
    # bits, block, width: bits of a code, codes of a block, columns of the weight.
    bits: int
    block: int
    width: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return Text("{bits}-bit with scales: blocks of {n}", bits=self.bits, n=self.block)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the codes of rows `start` to `stop`, and their scales and zero points."""
        height, count, _ = self.codes.shape
        found = [rows(self.codes, [(start, stop)]), rows(self.scale, [(start * count, stop * count)])]
        if self.zero is not None:
            each = self.zero.elements // height
            found.append(rows(self.zero, [(start * each, stop * each)]))
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Put them together."""
        _, count, size = self.codes.shape
        height = stop - start
        codes = self._unpacked(parts[0].reshape(height * count, size), self.block)
        values = codes.astype(np.float32).reshape(height, count, self.block)
        with np.errstate(all="ignore"):  # a damaged scale may be anything
            if self.zero is None:
                values -= np.float32(1 << (self.bits - 1))
            elif parts[2].dtype.kind == "f":
                values -= parts[2].astype(np.float32).reshape(height, count, 1)
            else:
                packed = parts[2].reshape(height, self.zero.elements // self.codes.shape[0])
                values -= self._unpacked(packed, count).astype(np.float32).reshape(height, count, 1)
            values *= parts[1].astype(np.float32).reshape(height, count, 1)
        return values.reshape(height, count * self.block)[:, : self.width]

    def _unpacked(self, raw: Array, count: int) -> Array:
        """Return `count` codes from each row of bytes, the lowest bits first."""
        if self.bits == 8:
            return raw[:, :count]
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes: Array = (raw[:, :, None] >> shifts) & np.uint8((1 << self.bits) - 1)
        return codes.reshape(raw.shape[0], raw.shape[1] * shifts.size)[:, :count]


def kind_of(dtype: str) -> str:
    """Return what reports call a type of code."""
    return {"I8": "int8", "U8": "uint8", "I4": "int4", "U4": "uint4", "I16": "int16", "I32": "int32"}.get(dtype, dtype)
