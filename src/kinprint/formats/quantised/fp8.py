"""Numbers of 8 bits that are stored as they are, with scales beside them: FP8 and int8.

``weight`` (out × in) is F8_E4M3, F8_E5M2 or I8; a weight is (code − zero) · scale. The scales are called ``weight_scale``, or
``weight_scale_inv`` in DeepSeek-V3's files (DeepSeek-AI 2024, where blocks are 128 × 128), which multiply all the same. One
serves the whole tensor, a row, a group of columns in a row, or a block. compressed-tensors calls this "float-quantized",
"int-quantized" or "naive-quantized"; its zeros, if any, have the shape of the scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.quantised.modules import (
    SCALE_DTYPES,
    FloatArray,
    QuantisedLayer,
    chunks,
    group_size,
    made_tensor,
    unlike_shapes,
)
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

NAMES = {"F8_E4M3": "FP8 E4M3", "F8_E5M2": "FP8 E5M2", "I8": "int8"}
DEFAULT_BLOCK = (128, 128)


@dataclass(frozen=True, slots=True)
class ScaledFloats:
    """A matrix times scales, one for each block of `tall` rows and `wide` columns."""

    codes: TensorInfo
    scales: TensorInfo
    zeros: TensorInfo | None
    tall: int
    wide: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        name, (out, width) = NAMES[self.codes.dtype], self.codes.shape
        if self.scales.elements == 1:
            return Text("{name} with scales, one scale", name=name)
        if self.tall > 1:
            return Text("{name} with scales, blocks of {n} × {m}", name=name, n=min(self.tall, out), m=self.wide)
        if self.wide < width:
            return Text("{name} with scales, groups of {n}", name=name, n=self.wide)
        return Text("{name} with scales, a scale for each row", name=name)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' codes and the scales (and zeros) that touch them."""
        found = [rows(self.codes, [(start, stop)])]
        for tensor in (self.scales, self.zeros):
            if tensor is not None and tensor.elements == 1:
                found.append(whole(tensor))
            elif tensor is not None:
                found.append(rows(tensor, [(start // self.tall, -(-stop // self.tall))]))
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Scale the codes."""
        values: FloatArray = parts[0].astype(np.float32)
        with np.errstate(all="ignore"):
            for low, high in chunks(start, stop, self.codes.shape[1]):
                piece = values[low - start : high - start]
                if len(parts) > 2:
                    piece -= self._spread(parts[2], start, low, high)
                piece *= self._spread(parts[1], start, low, high)
        return values

    def _spread(self, given: Array, start: int, low: int, high: int) -> FloatArray:
        """Return what belongs to rows `low` to `high` and their columns; `given` begins with the block of row `start`."""
        found = given.astype(np.float32, copy=False)
        if found.size == 1:
            return found.reshape(1, 1)
        if found.ndim == 1:
            found = found[:, None]
        found = found[np.arange(low, high) // self.tall - start // self.tall]
        if found.shape[1] > 1:
            found = np.repeat(found, self.wide, axis=1)[:, : self.codes.shape[1]]
        return found


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer whose scales are stored beside it."""
    codes = layer.need("weight", tuple(NAMES), (2,))
    names = [name for name in ("weight_scale", "weight_scale_inv") if name in layer.parts]
    if len(names) != 1:
        raise FormatError(Text("{n} tensors of scales, expected one", n=len(names)))
    scales = layer.need(names[0], SCALE_DTYPES, (0, 1, 2))
    zeros = layer.optional("weight_zero_point", (*NAMES, *SCALE_DTYPES), (0, 1, 2))
    if zeros is not None and zeros.shape != scales.shape:
        raise FormatError(unlike_shapes("zeros", zeros, scales))
    tall, wide = _block(layer, codes.shape, scales.shape)
    made = ScaledFloats(codes, scales, zeros, tall, wide)
    return made_tensor(codes.name, f"{NAMES[codes.dtype]} scaled", codes.shape, made, codes, scales, zeros)


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
            return 1, group_size(layer.settings, width, scales[1])
    a, b = str(list(scales)), str(list(shape))
    raise FormatError(Text("scales of shape {a} fit neither rows, groups nor known blocks of {b}", a=a, b=b))
