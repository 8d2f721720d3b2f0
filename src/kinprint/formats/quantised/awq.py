"""AWQ: 4-bit integers in 32-bit words along the output axis, scales and zeros for groups of inputs.

Layout of AutoAWQ's GEMM version (Lin et al. 2023, "AWQ"; the order is that of AutoAWQ's packing_utils): ``qweight`` (in × out/8),
``qzeros`` (groups × out/8), ``scales`` (groups × out). The eight integers of a word, from its lowest bits, belong to the
outputs 0, 2, 4, 6, 1, 3, 5, 7. A weight is scale · (code − zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, whole
from kinprint.formats.quantised.modules import (
    SCALE_DTYPES,
    FloatArray,
    QuantisedLayer,
    chunks,
    group_size,
    made_tensor,
    unfitting_shapes,
    unknown_layout,
)
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

PER_WORD = 8
_PLACES = np.array([0, 4, 1, 5, 2, 6, 3, 7], dtype=np.uint32)  # of outputs 0 to 7, in words of 4 bits


@dataclass(frozen=True, slots=True)
class Awq:
    """A matrix out × in from AWQ's tensors. Its rows are columns of the stored ones, so all of them are read."""

    codes: TensorInfo
    zeros: TensorInfo
    scales: TensorInfo
    size: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return Text("{name} {bits}-bit, groups of {n}", name="AWQ", bits=4, n=self.size)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return all parts, whichever rows are asked for."""
        return [whole(self.codes), whole(self.zeros), whole(self.scales)] if start < stop else []

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Dequantise the columns that are rows `start` to `stop`."""
        width = self.codes.shape[0]
        built: FloatArray = np.empty((stop - start, width), np.float32)
        if not parts:
            return built
        codes, packed_zeros, scales = parts
        groups = np.arange(width) // self.size
        with np.errstate(all="ignore"):
            for low, high in chunks(start, stop, width, PER_WORD):
                zeros = _columns(packed_zeros, low, high).astype(np.float32)
                values = _columns(codes, low, high).astype(np.float32)
                values -= zeros[groups]
                values *= scales[groups, low:high].astype(np.float32, copy=False)
                built[low - start : high - start] = values.T
        return built


def _columns(words: Array, low: int, high: int) -> npt.NDArray[np.uint8]:
    """Unpack columns `low` to `high`."""
    first, last = low // PER_WORD, -(-high // PER_WORD)
    taken = np.ascontiguousarray(words[:, first:last]).view(np.uint32)
    values = ((taken[:, :, None] >> (4 * _PLACES)) & np.uint32(15)).astype(np.uint8)
    return values.reshape(len(words), -1)[:, low - first * PER_WORD : high - first * PER_WORD]


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in AWQ's form."""
    codes = layer.need("qweight", ("I32",), (2,))
    zeros = layer.need("qzeros", ("I32",), (2,))
    scales = layer.need("scales", SCALE_DTYPES, (2,))
    layout = (layer.settings.layout or "gemm").lower()
    if layout != "gemm" and not (layout.startswith("auto_round") and "awq" in layout):
        raise FormatError(unknown_layout("AWQ", layout, "gemm"))
    if layer.settings.bits and 4 not in layer.settings.bits:
        raise FormatError(Text("{name} with {n} bits; known: {known}", name="AWQ", n=layer.settings.bits[0], known="4"))
    (width, words), groups = codes.shape, scales.shape[0]
    if scales.shape[1] != words * PER_WORD or zeros.shape != (groups, words):
        raise FormatError(unfitting_shapes(codes, zeros, scales))
    made = Awq(codes, zeros, scales, group_size(layer.settings, width, groups))
    return made_tensor(f"{layer.stem}.weight", "AWQ 4-bit", (words * PER_WORD, width), made, codes, zeros, scales)
