"""Read "pack-quantized" weights of compressed-tensors: integers of up to 8 bits in 32-bit words along the input axis.

``weight_packed`` (out × words), ``weight_scale`` (out × groups), ``weight_shape`` (the two sides: the last word of a row may be
padded), perhaps ``weight_zero_point`` and ``weight_g_idx``. 32 // bits integers to a word, lowest bits first, none across
words; half the range is added before packing. Zeros come as they are (out × groups) or packed in the same way along the output
axis. A weight is (code − zero) · scale.
"""

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.modules import INDEX_DTYPES, WORD_BITS, FloatArray, QuantisedLayer, shape_of
from kinprint.formats.row_maker import by_block, by_row, entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

DEFAULT_BITS = (4, 8)


def _unpacked(words: Array, bits: int) -> FloatArray:
    shifts = np.arange(WORD_BITS // bits, dtype=np.uint32) * np.uint32(bits)
    taken = np.ascontiguousarray(words).view(np.uint32)
    values = (taken[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)
    found: FloatArray = values.astype(np.float32).reshape(len(taken), -1)
    found -= np.float32(1 << (bits - 1))
    return found


@lru_cache
def _decoder(shape: tuple[int, int], bits: int, size: int) -> Callable[..., Array]:
    def decode(
        name: str, start: int, stop: int, codes: Array, scales: Array, sides: Array, *others: Array | None
    ) -> Array:
        zeros, order = others
        if tuple(map(int, sides.reshape(-1))) != shape:
            said = f"{name}: its weight_shape is {sides.reshape(-1).tolist()}, that of a like weight {list(shape)}"
            raise FormatError(said, hint="compare a copy of the model that is not quantised")
        if zeros is not None and zeros.dtype == np.int32:  # packed along the output axis
            zeros = _unpacked(zeros.T, bits).T[start % (WORD_BITS // bits) :]
        groups = modules.group_numbers(order, shape[1], scales.shape[1], size, name)
        factors = scales.astype(np.float32, copy=False)

        def piece(low: int, high: int) -> Array:
            values = _unpacked(codes[low:high], bits)[:, : shape[1]]
            if zeros is not None:
                values -= zeros[low:high][:, groups]
            values *= factors[low:high] if factors.shape[1] == 1 else factors[low:high][:, groups]
            return values

        return modules.in_chunks(0, stop - start, shape[1], piece)

    return decode


def shape_tensor(layer: QuantisedLayer) -> TensorInfo | None:
    """Return the small tensor that has to be read to know the weight's shape."""
    sides = layer.parts.get("weight_shape")
    fine = sides is not None and sides.dtype in INDEX_DTYPES and sides.elements == 2
    return sides if fine else None


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in packed form."""
    codes = layer.need("weight_packed", ("I32",), (2,))
    scales = layer.need("weight_scale", modules.SCALE_DTYPES, (1, 2))
    sides = shape_tensor(layer)
    if sides is None or layer.seen is None:
        raise FormatError(Text("no weight_shape of two integers is stored"))
    out, width = (int(side) for side in layer.seen.reshape(-1))
    bits = _bits(layer, codes.shape, (out, width))
    if len(scales.shape) == 1:
        scales = scales._replace(shape=(scales.shape[0], 1))
    if scales.shape[0] != out:
        raise FormatError(Text("scales of shape {shape} for {n} rows", shape=shape_of(scales), n=out))
    zeros = layer.optional("weight_zero_point", ("I32", "I8"), (2,))
    if zeros is not None:
        tall = -(-out // (WORD_BITS // bits)) if zeros.dtype == "I32" else out
        if zeros.shape != (tall, scales.shape[1]):
            a, b = shape_of(zeros), str([tall, scales.shape[1]])
            raise FormatError(Text("zeros of shape {a}, expected {b}", a=a, b=b))
    order = layer.optional("weight_g_idx", INDEX_DTYPES, (1,))
    if order is not None and order.shape != (width,):
        raise FormatError(Text("weight_g_idx of shape {shape} for {n} columns", shape=shape_of(order), n=width))
    size = modules.group_size(layer.settings, width, scales.shape[1])
    if scales.shape[1] == 1:
        method = Text("compressed-tensors int{bits}, a scale for each row", bits=bits)
    else:
        method = Text("compressed-tensors int{bits}, groups of {n}", bits=bits, n=size)
    decode = partial(_decoder((out, width), bits, size), codes.name)
    zeros_by = by_block(WORD_BITS // bits) if zeros is not None and zeros.dtype == "I32" else by_row
    inputs = (codes, by_row), (scales, by_row), (sides, entire), (zeros, zeros_by), (order, entire)
    name = f"{layer.stem}.weight"
    return made_of(name, f"compressed-tensors int{bits}", method, (out, width), decode, *inputs)


def _bits(layer: QuantisedLayer, words: tuple[int, ...], shape: tuple[int, int]) -> int:
    """Return the width that makes the shape fit the words: of those in the config, or else of the usual ones."""
    out, width = shape
    known = [bits for bits in layer.settings.bits if 1 <= bits <= 8] or DEFAULT_BITS
    fitting = [bits for bits in known if words == (out, -(-width // (WORD_BITS // bits)))]
    if len(set(fitting)) != 1 or width < 1:
        a, b, tried = str([out, width]), str(list(words)), str(list(known))
        raise FormatError(Text("shape {a} does not fit words of shape {b} with {bits} bits", a=a, b=b, bits=tried))
    return fitting[0]
