"""Read MXFP4 and NVFP4 weights: 4-bit floats (E2M1) with a scale for each short run of a row.

Two codes lie in a byte, the first in the low half. MXFP4 (OCP Microscaling Formats, version 1.0): 32 numbers share a scale that
is a power of two, stored as its exponent plus 127 (E8M0; 255 is NaN). NVFP4: 16 numbers share a scale in FP8 E4M3, and a number
for the whole tensor multiplies (ModelOpt's ``weight_scale_2``) or divides (compressed-tensors' ``weight_global_scale``).

gpt-oss stores the experts of a layer together: ``gate_up_proj_blocks`` (experts × out × in/32 × 16 bytes) and
``gate_up_proj_scales`` (experts × out × in/32). Its gate and up rows alternate. Here they appear one by one, under the
names that other mixtures give them.
"""

from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array, e8m0_table
from kinprint.formats.plan import TensorSlice
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, in_chunks, shape_of, unlike_shapes
from kinprint.formats.row_maker import RowMaker, Select, by_row, entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text, Value, verbatim

MX_GROUP, NV_GROUP = 32, 16
MAX_EXPERTS = 4096
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@cache
def pairs() -> npt.NDArray[np.float32]:
    """Return both values of every byte, that of the low half first."""
    values = np.array([*_MAGNITUDES, *(-value for value in _MAGNITUDES)], np.float32)
    return np.stack([np.tile(values, 16), np.repeat(values, 16)], axis=1)


def scaled(codes: Array, scales: FloatArray, group: int) -> FloatArray:
    """Return rows of numbers from rows of bytes and of scales."""

    def piece(low: int, high: int) -> Array:
        values = pairs()[codes[low:high]].reshape(high - low, -1, group)
        values *= scales[low:high, :, None]
        return values.reshape(high - low, -1)

    return in_chunks(0, len(codes), codes.shape[1] * 2, piece)


def _every(step: int, first: int) -> Select:
    """Select every `step`-th row of all experts' from `first` on; rows between are read too: ranges would cost more."""

    def select(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
        low, high = first + start * step, first + (stop - 1) * step + 1
        width = stored.elements // (stored.shape[0] * stored.shape[1])
        return TensorSlice(stored, ((low * width, high * width),), (high - low, width))

    return select


def describe_experts(layer: QuantisedLayer) -> list[TensorInfo]:
    """Describe the experts that are stored as blocks, one by one."""
    codes = layer.need("blocks", ("U8",), (4,))
    scales = layer.need("scales", ("U8",), (3,))
    count, out, groups, size = codes.shape
    if size != MX_GROUP // 2 or scales.shape != (count, out, groups) or count > MAX_EXPERTS:
        raise unlike_shapes("blocks", codes, scales)
    stem, _, which = layer.stem.rpartition(".")
    names = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(which)
    if names is None or not stem.endswith("experts") or out % len(names):
        raise FormatError(Text("these are not the gate_up_proj or down_proj of gpt-oss's experts"))
    step = len(names)
    share = (codes.nbytes + scales.nbytes) // (count * step)
    shape, method = (out // step, groups * MX_GROUP), verbatim("MXFP4")

    def decode(_start: int, _stop: int, codes: Array, scales: Array) -> Array:
        return scaled(codes[::step], e8m0_table()[scales[::step]], MX_GROUP)

    found = []
    for expert, (at, name) in product(range(count), enumerate(names)):
        select = _every(step, expert * out + at)
        made = RowMaker(method, shape, (codes, scales), (select, select), decode)
        found.append(TensorInfo(f"{stem}.{expert}.{name}.weight", "MXFP4", shape, codes.file, 0, share, made))
    return found


def describe(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a layer in MXFP4 or NVFP4."""
    divides = "weight_packed" in layer.parts
    codes = layer.need("weight_packed" if divides else "weight", ("U8",), (2,))
    scales = layer.need("weight_scale", ("U8", "F8_E8M0", "F8_E4M3"), (2,))
    group, common = MX_GROUP, None
    if scales.dtype == "F8_E4M3":
        group = NV_GROUP
        common = layer.need("weight_global_scale" if divides else "weight_scale_2", ("F32",), (0, 1))
        if common.elements != 1:
            raise FormatError(Text("{n} common scales, expected one", n=common.elements))
    out, width = codes.shape[0], codes.shape[1] * 2
    if scales.shape != (out, width // group) or width % group:
        found: dict[str, Value] = {"shape": shape_of(scales), "n": out, "m": width, "k": group}
        raise FormatError(Text("scales of shape {shape} for {n} rows of {m} in groups of {k}", **found))

    def decode(_start: int, _stop: int, codes: Array, scales: Array, common: Array | None) -> Array:
        factors: FloatArray = e8m0_table()[scales] if scales.dtype == np.uint8 else scales.astype(np.float32)
        if common is not None:
            factor = common.astype(np.float32).reshape(-1)[0]
            factors = factors / factor if divides else factors * factor
        return scaled(codes, factors, group)

    method = verbatim("MXFP4" if group == MX_GROUP else "NVFP4")
    inputs = (codes, by_row), (scales, by_row), (common, entire)
    return made_of(f"{layer.stem}.weight", method, method, (out, width), decode, *inputs)
