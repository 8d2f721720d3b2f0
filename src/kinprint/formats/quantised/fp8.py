"""Read FP8 and int8 weights, stored as plain 8-bit numbers with scales beside them.

``weight`` (out × in) is F8_E4M3, F8_E5M2 or I8; a weight is (code − zero) · scale. The scales are called ``weight_scale``, or
``weight_scale_inv`` in DeepSeek-V3's files (DeepSeek-AI 2024, where blocks are 128 × 128), which multiply all the same. One
serves the whole tensor, a row, a group of columns in a row, or a block. compressed-tensors calls this "float-quantized",
"int-quantized" or "naive-quantized"; its zeros, if any, have the shape of the scales.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.modules import SCALE_DTYPES, FloatArray, QuantisedLayer, unlike_shapes
from kinprint.formats.row_maker import by_block, by_row, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

NAMES = {"F8_E4M3": "FP8 E4M3", "F8_E5M2": "FP8 E5M2", "I8": "int8"}
DEFAULT_BLOCK = (128, 128)


@lru_cache  # a large model has 45,000 layers of few shapes
def _decoder(tall: int, wide: int, width: int) -> Callable[..., Array]:
    """Return a function that scales codes, with one scale for each block of `tall` rows and `wide` of `width` columns."""

    def spread(given: Array, start: int, low: int, high: int) -> FloatArray:
        """Return the scale of each element of rows `low` to `high`; `given` begins with the block of row `start`."""
        found = given.astype(np.float32, copy=False)
        if found.size == 1:
            return found.reshape(1, 1)
        found = found.reshape(len(found), -1)[np.arange(low, high) // tall - start // tall]
        return np.repeat(found, wide, axis=1)[:, :width] if found.shape[1] > 1 else found

    def decode(start: int, stop: int, stored: Array, scales: Array, zeros: Array | None) -> Array:
        values: FloatArray = stored.astype(np.float32)
        for low, high in modules.chunks(start, stop, width):
            piece = values[low - start : high - start]
            if zeros is not None:
                piece -= spread(zeros, start, low, high)
            piece *= spread(scales, start, low, high)
        return values

    return decode


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer whose scales are stored beside it."""
    codes = layer.need("weight", tuple(NAMES), (2,))
    names = [name for name in ("weight_scale", "weight_scale_inv") if name in layer.parts]
    if len(names) != 1:
        raise FormatError(Text("{n} tensors of scales, expected one", n=len(names)))
    scales = layer.need(names[0], SCALE_DTYPES, (0, 1, 2))
    zeros = layer.optional("weight_zero_point", (*NAMES, *SCALE_DTYPES), (0, 1, 2))
    if zeros is not None and zeros.shape != scales.shape:
        raise unlike_shapes("zeros", zeros, scales)
    tall, wide = _block(layer, codes.shape, scales.shape)
    (out, width), by_scale, name = codes.shape, by_block(tall), NAMES[codes.dtype]
    if scales.elements == 1:
        method = Text("{name} with scales, one scale", name=name)
    elif tall > 1:
        method = Text("{name} with scales, blocks of {n} × {m}", name=name, n=min(tall, out), m=wide)
    elif wide < width:
        method = Text("{name} with scales, groups of {n}", name=name, n=wide)
    else:
        method = Text("{name} with scales, a scale for each row", name=name)
    inputs = (codes, by_row), (scales, by_scale), (zeros, by_scale)
    return made_of(codes.name, f"{name} scaled", method, codes.shape, _decoder(tall, wide, width), *inputs)


def _block(layer: QuantisedLayer, shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns that share a scale."""
    out, width = shape
    if all(side == 1 for side in scales):
        return out, width
    if scales[0] == out and (len(scales) == 1 or scales[1] == 1):
        return 1, width
    if len(scales) == 2:
        for tall, wide in (*layer.settings.blocks, DEFAULT_BLOCK):
            if scales == (-(-out // tall), -(-width // wide)):
                return tall, wide
        if scales[0] == out:
            return 1, modules.group_size(layer.settings, width, scales[1])
    a, b = str(list(scales)), str(list(shape))
    raise FormatError(Text("scales of shape {a} fit neither rows, groups nor known blocks of {b}", a=a, b=b))
