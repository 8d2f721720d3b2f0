"""Read GPTQ and AWQ weights: integers in 32-bit words, with scales and zeros for groups of inputs.

A weight is scale · (code − zero).

GPTQ (Frantar et al. 2022) packs 2, 3, 4 or 8 bits along the input axis, as AutoGPTQ's QuantLinear.pack and GPTQModel do:
``qweight`` (in·bits/32 × out), ``qzeros`` (groups × out·bits/32), ``scales`` (groups × out), ``g_idx`` (in). The first version of
the format stores zero − 1, ``gptq_v2`` the zero itself.

AWQ (Lin et al. 2023) packs 4 bits along the output axis, in the order of packing_utils of AutoAWQ's GEMM version: ``qweight``
(in × out/8), ``qzeros`` (groups × out/8), ``scales`` (groups × out). The eight integers of a word, from its lowest bits, belong
to the outputs 0, 2, 4, 6, 1, 3, 5, 7.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.modules import WORD_BITS, QuantisedLayer, unpack_words
from kinprint.formats.row_maker import entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

GPTQ_BITS = (2, 3, 4, 8)
AWQ_PER_WORD = 8
_AWQ_PLACES = np.array([0, 4, 1, 5, 2, 6, 3, 7], dtype=np.uint32)  # of outputs 0 to 7, in words of 4 bits
_GPTQ_LAYOUTS = {"gptq": 1, "gptq_v2": 0}  # by checkpoint_format: what is added to a stored zero
Columns = Callable[[Array, int, int], Array]  # ``(words, low, high)``: unpack columns `low` to `high`


@lru_cache
def _gptq_columns(bits: int, added: int) -> tuple[Columns, Columns]:
    """Return functions that unpack codes and zeros; `added` corrects stored zeros."""
    columns = math.lcm(bits, WORD_BITS) // bits  # the least that begin with a word and end with one
    each = columns * bits // WORD_BITS

    def zeros(words: Array, low: int, high: int) -> Array:
        first, last = low // columns, -(-high // columns)
        values = unpack_words(words[:, first * each : last * each].T, bits).T
        return values[:, low - first * columns : high - first * columns].astype(np.float32) + np.float32(added)

    return lambda words, low, high: unpack_words(words[:, low:high], bits), zeros


def _awq_columns(words: Array, low: int, high: int) -> npt.NDArray[np.uint8]:
    first, last = low // AWQ_PER_WORD, -(-high // AWQ_PER_WORD)
    taken = np.ascontiguousarray(words[:, first:last]).view(np.uint32)
    values = ((taken[:, :, None] >> (4 * _AWQ_PLACES)) & np.uint32(15)).astype(np.uint8)
    return values.reshape(len(words), -1)[:, low - first * AWQ_PER_WORD : high - first * AWQ_PER_WORD]


@lru_cache  # large models have 36,000 layers of few shapes
def _decoder(width: int, size: int, unpack: tuple[Columns, Columns]) -> Callable[..., Array]:
    """Return a function that dequantises columns of the stored tensors, which are rows of the weight."""

    def decode(
        name: str, start: int, stop: int, codes: Array, zeros: Array, scales: Array, order: Array | None
    ) -> Array:
        groups = modules.group_numbers(order, width, len(scales), size, name)

        def piece(low: int, high: int) -> Array:
            values = unpack[0](codes, low, high).astype(np.float32)
            values -= unpack[1](zeros, low, high).astype(np.float32, copy=False)[groups]
            values *= scales[groups, low:high].astype(np.float32, copy=False)
            return values.T

        return modules.in_chunks(start, stop, width, piece, AWQ_PER_WORD)

    return decode


def _weight(
    layer: QuantisedLayer, name: str, bits: int, width: int, unpack: tuple[Columns, Columns], *parts: TensorInfo | None
) -> TensorInfo:
    """Describe a matrix out × in. Any row needs all of the stored tensors."""
    (groups, out), stem = layer.parts["scales"].shape, layer.stem
    size = modules.group_size(layer.settings, width, groups)
    decode = partial(_decoder(width, size, unpack), f"{stem}.qweight")
    method = Text("{name} {bits}-bit, groups of {n}", name=name, bits=bits, n=size)
    inputs = [(part, entire) for part in parts]
    return made_of(f"{stem}.weight", f"{name} {bits}-bit", method, (out, width), decode, *inputs)


def describe_gptq(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in GPTQ's form."""
    codes, zeros, scales = _parts(layer)
    order = layer.optional("g_idx", modules.INDEX_DTYPES, (1,))
    groups, out = scales.shape
    bits, rest = divmod(WORD_BITS * zeros.shape[1], out)
    if rest or bits not in GPTQ_BITS:
        n, known = zeros.shape[1], str(GPTQ_BITS)
        raise FormatError(
            Text("qzeros with {n} words for {m} columns: no width of {bits} bits fits", n=n, m=out, bits=known)
        )
    if codes.shape[1] != out or codes.shape[0] % (bits if bits == 3 else 1) or zeros.shape[0] != groups:
        raise _unfitting_shapes(codes, zeros, scales)
    width = codes.shape[0] * WORD_BITS // bits
    if order is not None and order.shape != (width,):
        raise FormatError(Text("g_idx of shape {shape} for {n} inputs", shape=modules.shape_of(order), n=width))
    layout = (layer.settings.layout or "gptq").lower()
    if layer.settings.method in ("auto-round", "intel/auto-round") and "auto_gptq" in layout:
        layout = "gptq"  # "auto_round:auto_gptq", its packing_format
    if layout not in _GPTQ_LAYOUTS:
        raise _unknown_layout("GPTQ", layout, ", ".join(_GPTQ_LAYOUTS))
    unpack = _gptq_columns(bits, _GPTQ_LAYOUTS[layout])
    return _weight(layer, "GPTQ", bits, width, unpack, codes, zeros, scales, order)


def describe_awq(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in AWQ's form."""
    codes, zeros, scales = _parts(layer)
    layout = (layer.settings.layout or "gemm").lower()
    if layout != "gemm" and not (layout.startswith("auto_round") and "awq" in layout):
        raise _unknown_layout("AWQ", layout, "gemm")
    if layer.settings.bits and 4 not in layer.settings.bits:
        raise FormatError(Text("{name} with {n} bits; known: {known}", name="AWQ", n=layer.settings.bits[0], known="4"))
    (width, words), groups = codes.shape, scales.shape[0]
    if scales.shape[1] != words * AWQ_PER_WORD or zeros.shape != (groups, words):
        raise _unfitting_shapes(codes, zeros, scales)
    return _weight(layer, "AWQ", 4, width, (_awq_columns, _awq_columns), codes, zeros, scales, None)


def _parts(layer: QuantisedLayer) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    words = [layer.need(suffix, ("I32",), (2,)) for suffix in ("qweight", "qzeros")]
    return words[0], words[1], layer.need("scales", modules.SCALE_DTYPES, (2,))


def _unfitting_shapes(*parts: TensorInfo) -> FormatError:
    shapes = tuple(map(modules.shape_of, parts))
    return FormatError(Text("qweight, qzeros and scales of shapes {shapes:and} do not belong together", shapes=shapes))


def _unknown_layout(name: str, layout: str, known: str) -> FormatError:
    shown = repr(layout[:40])
    return FormatError(Text("{name} in the layout {layout}; known: {known}", name=name, layout=shown, known=known))
