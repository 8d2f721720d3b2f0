"""GPTQ: integers of 2, 3, 4 or 8 bits in 32-bit words along the input axis, scales and zeros for groups of inputs.

Layout as AutoGPTQ and GPTQModel store it (Frantar et al. 2022, "GPTQ"; the layout is that of AutoGPTQ's QuantLinear.pack):
``qweight`` (in·bits/32 × out), ``qzeros`` (groups × out·bits/32), ``scales`` (groups × out), ``g_idx`` (in). A weight is
scale · (code − zero). The first version of the format stores zero − 1, ``gptq_v2`` the zero itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, whole
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
    unfitting_shapes,
    unknown_layout,
    unpack_words,
)
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

BITS = (2, 3, 4, 8)
_LAYOUTS = {"gptq": 1, "gptq_v2": 0}  # by checkpoint_format: what is added to a stored zero


@dataclass(frozen=True, slots=True)
class Gptq:
    """A matrix out × in from GPTQ's tensors. Its rows are columns of the stored ones, so all of them are read."""

    codes: TensorInfo
    zeros: TensorInfo
    scales: TensorInfo
    order: TensorInfo | None
    bits: int
    size: int
    added: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return Text("{name} {bits}-bit, groups of {n}", name="GPTQ", bits=self.bits, n=self.size)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return all parts, whichever rows are asked for."""
        if start >= stop:
            return []
        found = [whole(self.codes), whole(self.zeros), whole(self.scales)]
        return found if self.order is None else [*found, whole(self.order)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Dequantise the columns that are rows `start` to `stop`."""
        width = self.codes.shape[0] * WORD_BITS // self.bits
        built: FloatArray = np.empty((stop - start, width), np.float32)
        if not parts:
            return built
        codes, packed_zeros, scales = parts[:3]
        given = parts[3] if len(parts) > 3 else None
        groups = group_numbers(given, width, len(scales), self.size, self.codes.name)
        with np.errstate(all="ignore"):
            for low, high in chunks(start, stop, width):
                values = unpack_words(codes[:, low:high], self.bits).astype(np.float32)
                values -= self._zeros(packed_zeros, low, high)[groups]
                values *= scales[groups, low:high].astype(np.float32, copy=False)
                built[low - start : high - start] = values.T
        return built

    def _zeros(self, packed: Array, low: int, high: int) -> FloatArray:
        """Return the zeros of columns `low` to `high`."""
        columns = math.lcm(self.bits, WORD_BITS) // self.bits  # the least that begin with a word and end with one
        words = columns * self.bits // WORD_BITS
        first, last = low // columns, -(-high // columns)
        values = unpack_words(packed[:, first * words : last * words].T, self.bits).T
        found: FloatArray = values[:, low - first * columns : high - first * columns].astype(np.float32)
        return found + np.float32(self.added)


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in GPTQ's form."""
    codes = layer.need("qweight", ("I32",), (2,))
    zeros = layer.need("qzeros", ("I32",), (2,))
    scales = layer.need("scales", SCALE_DTYPES, (2,))
    order = layer.optional("g_idx", INDEX_DTYPES, (1,))
    groups, out = scales.shape
    bits, rest = divmod(WORD_BITS * zeros.shape[1], out)
    if rest or bits not in BITS:
        n, known = zeros.shape[1], str(BITS)
        said = Text("qzeros with {n} words for {m} columns: no width of {bits} bits fits", n=n, m=out, bits=known)
        raise FormatError(said)
    if codes.shape[1] != out or codes.shape[0] % (bits if bits == 3 else 1) or zeros.shape[0] != groups:
        raise FormatError(unfitting_shapes(codes, zeros, scales))
    width = codes.shape[0] * WORD_BITS // bits
    if order is not None and order.shape != (width,):
        raise FormatError(Text("g_idx of shape {shape} for {n} inputs", shape=str(list(order.shape)), n=width))
    size = group_size(layer.settings, width, groups)
    made = Gptq(codes, zeros, scales, order, bits, size, _added(layer))
    return made_tensor(f"{layer.stem}.weight", f"GPTQ {bits}-bit", (out, width), made, codes, zeros, scales, order)


def _added(layer: QuantisedLayer) -> int:
    """Return what is added to stored zeros, by the version of the format."""
    layout = (layer.settings.layout or "gptq").lower()
    if layer.settings.method in ("auto-round", "intel/auto-round") and "auto_gptq" in layout:
        return 1  # "auto_round:auto_gptq", its packing_format
    if layout not in _LAYOUTS:
        raise FormatError(unknown_layout("GPTQ", layout, ", ".join(_LAYOUTS)))
    return _LAYOUTS[layout]
