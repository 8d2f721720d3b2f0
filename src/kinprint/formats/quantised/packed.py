"""compressed-tensors, "pack-quantized": signed integers of up to 8 bits in 32-bit words along the input axis.

``weight_packed`` (out × words), ``weight_scale`` (out × groups), ``weight_shape`` (the two sides: the last word of a row may be
padded), perhaps ``weight_zero_point`` and ``weight_g_idx``. 32 // bits integers to a word, lowest bits first, none across
words; half the range is added before packing. Zeros come as they are (out × groups) or packed in the same way along the output
axis. A weight is (code − zero) · scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.quantised.modules import (
    INDEX_DTYPES,
    SCALE_DTYPES,
    WORD_BITS,
    FloatArray,
    QuantisedLayer,
    chunks,
    group_numbers,
    group_size,
    made_tensor,
)
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

DEFAULT_BITS = (4, 8)


@dataclass(frozen=True, slots=True)
class PackedIntegers:
    """A matrix from packed integers."""

    codes: TensorInfo
    scales: TensorInfo
    zeros: TensorInfo | None
    order: TensorInfo | None
    sides: TensorInfo
    shape: tuple[int, int]
    bits: int
    size: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        if self.scales.shape[1] == 1:
            return Text("compressed-tensors int{bits}, a scale for each row", bits=self.bits)
        return Text("compressed-tensors int{bits}, groups of {n}", bits=self.bits, n=self.size)

    @property
    def _per_word(self) -> int:
        return WORD_BITS // self.bits

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' words, scales and zeros, the sides and the order of the columns."""
        if start >= stop:
            return []
        found = [rows(self.codes, [(start, stop)]), rows(self.scales, [(start, stop)]), whole(self.sides)]
        if self.zeros is not None:
            each = self._per_word if self.zeros.dtype == "I32" else 1
            found.append(rows(self.zeros, [(start // each, -(-stop // each))]))
        return found if self.order is None else [*found, whole(self.order)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Unpack the codes and scale them."""
        width = self.shape[1]
        built: FloatArray = np.empty((stop - start, width), np.float32)
        if not parts:
            return built
        codes, scales, sides, *rest = parts
        if tuple(map(int, sides.reshape(-1))) != self.shape:
            raise FormatError(
                f"{self.codes.name}: its weight_shape is {sides.reshape(-1).tolist()}, that of a like weight {list(self.shape)}",
                hint="compare a copy of the model that is not quantised",
            )
        zeros = None if self.zeros is None else self._zeros(rest[0], start, stop)
        given = rest[-1] if self.order is not None else None
        groups = group_numbers(given, width, scales.shape[1], self.size, self.codes.name)
        scales = scales.astype(np.float32, copy=False)
        with np.errstate(all="ignore"):
            for low, high in chunks(0, stop - start, width):
                values = self._unpacked(codes[low:high])[:, :width]
                if zeros is not None:
                    values -= zeros[low:high][:, groups]
                values *= scales[low:high] if scales.shape[1] == 1 else scales[low:high][:, groups]
                built[low:high] = values
        return built

    def _unpacked(self, words: Array) -> FloatArray:
        """Return the integers of words along the second axis."""
        shifts = np.arange(self._per_word, dtype=np.uint32) * np.uint32(self.bits)
        taken = np.ascontiguousarray(words).view(np.uint32)
        values = (taken[:, :, None] >> shifts) & np.uint32((1 << self.bits) - 1)
        found: FloatArray = values.astype(np.float32).reshape(len(taken), -1)
        found -= np.float32(1 << (self.bits - 1))
        return found

    def _zeros(self, given: Array, start: int, stop: int) -> FloatArray:
        assert self.zeros is not None
        if self.zeros.dtype != "I32":
            return given.astype(np.float32)
        first = start // self._per_word * self._per_word
        return self._unpacked(given.T).T[start - first : stop - first]


def shape_tensor(layer: QuantisedLayer) -> TensorInfo | None:
    """Return the small tensor that has to be read to know the weight's shape."""
    sides = layer.parts.get("weight_shape")
    fine = sides is not None and sides.dtype in INDEX_DTYPES and sides.elements == 2
    return sides if fine else None


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in packed form."""
    codes = layer.need("weight_packed", ("I32",), (2,))
    scales = layer.need("weight_scale", SCALE_DTYPES, (1, 2))
    sides = shape_tensor(layer)
    if sides is None or layer.seen is None:
        raise FormatError(Text("no weight_shape of two integers is stored"))
    out, width = (int(side) for side in layer.seen.reshape(-1))
    bits = _bits(layer, codes.shape, (out, width))
    if len(scales.shape) == 1:
        scales = scales._replace(shape=(scales.shape[0], 1))
    if scales.shape[0] != out:
        raise FormatError(Text("scales of shape {shape} for {n} rows", shape=str(list(scales.shape)), n=out))
    zeros = layer.optional("weight_zero_point", ("I32", "I8"), (2,))
    if zeros is not None:
        tall = -(-out // (WORD_BITS // bits)) if zeros.dtype == "I32" else out
        if zeros.shape != (tall, scales.shape[1]):
            a, b = str(list(zeros.shape)), str([tall, scales.shape[1]])
            raise FormatError(Text("zeros of shape {a}, expected {b}", a=a, b=b))
    order = layer.optional("weight_g_idx", INDEX_DTYPES, (1,))
    if order is not None and order.shape != (width,):
        shape = str(list(order.shape))
        raise FormatError(Text("weight_g_idx of shape {shape} for {n} columns", shape=shape, n=width))
    size = group_size(layer.settings, width, scales.shape[1])
    made = PackedIntegers(codes, scales, zeros, order, sides, (out, width), bits, size)
    name, kind = f"{layer.stem}.weight", f"compressed-tensors int{bits}"
    return made_tensor(name, kind, (out, width), made, codes, scales, sides, zeros, order)


def _bits(layer: QuantisedLayer, words: tuple[int, ...], shape: tuple[int, int]) -> int:
    """Return the width that makes the shape fit the words: of those in the config, or else of the usual ones."""
    out, width = shape
    known = [bits for bits in layer.settings.bits if 1 <= bits <= 8] or DEFAULT_BITS
    fitting = [bits for bits in known if words == (out, -(-width // (WORD_BITS // bits)))]
    if len(set(fitting)) != 1 or width < 1:
        raise FormatError(
            Text(
                "shape {a} does not fit words of shape {b} with {bits} bits",
                a=str([out, width]),
                b=str(list(words)),
                bits=str(list(known)),
            )
        )
    return fitting[0]
