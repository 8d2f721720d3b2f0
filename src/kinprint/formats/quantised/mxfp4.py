"""Four-bit floats (E2M1) with a scale for each short run of a row: MXFP4 and NVFP4.

Two codes lie in a byte, the first in the low half. MXFP4 (OCP Microscaling Formats, version 1.0): 32 numbers share a scale that
is a power of two, stored as its exponent plus 127 (E8M0; 255 is NaN). NVFP4: 16 numbers share a scale in FP8 E4M3, and a number
for the whole tensor multiplies (ModelOpt's ``weight_scale_2``) or divides (compressed-tensors' ``weight_global_scale``).

gpt-oss stores the experts of a layer together: ``gate_up_proj_blocks`` (experts × out × in/32 × 16 bytes) and
``gate_up_proj_scales`` (experts × out × in/32). Its gate and up rows alternate. Here they appear one by one, under the
names that other mixtures give them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array, e8m0_table
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks, made_tensor, unlike_shapes
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text, verbatim

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
    built: FloatArray = np.empty((len(codes), codes.shape[1] * 2), np.float32)
    with np.errstate(all="ignore"):
        for low, high in chunks(0, len(codes), built.shape[1]):
            values = pairs()[codes[low:high]].reshape(high - low, -1, group)
            values *= scales[low:high, :, None]
            built[low:high] = values.reshape(high - low, -1)
    return built


# -- experts of gpt-oss --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Every `step`-th row from `first` on of the rows of all experts, laid end to end.

    Rows between those asked for are read too, and left out: as ranges they would cost more than as bytes.
    """

    codes: TensorInfo
    scales: TensorInfo
    first: int
    step: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return verbatim("MXFP4")

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' bytes and scales."""
        if start >= stop:
            return []
        low, high = self.first + start * self.step, self.first + (stop - 1) * self.step + 1
        found = []
        for tensor, axes in ((self.codes, 2), (self.scales, 1)):
            width = tensor.elements // (tensor.shape[0] * tensor.shape[1])
            shape = (high - low, *tensor.shape[-axes:])
            found.append(TensorSlice(tensor, ((low * width, high * width),), shape))
        return found

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Look the codes up and scale them."""
        if not parts:
            return np.empty((0, self.codes.shape[2] * MX_GROUP), np.float32)
        codes, scales = (part[:: self.step] for part in parts)
        return scaled(codes.reshape(stop - start, -1), e8m0_table()[scales], MX_GROUP)


def describe_experts(layer: QuantisedLayer) -> list[TensorInfo]:
    """Describe the experts that are stored as blocks, one by one."""
    codes = layer.need("blocks", ("U8",), (4,))
    scales = layer.need("scales", ("U8",), (3,))
    count, out, groups, size = codes.shape
    if size != MX_GROUP // 2 or scales.shape != (count, out, groups) or count > MAX_EXPERTS:
        raise FormatError(unlike_shapes("blocks", codes, scales))
    stem, _, which = layer.stem.rpartition(".")
    names = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(which)
    if names is None or not stem.endswith("experts") or out % len(names):
        raise FormatError(Text("these are not the gate_up_proj or down_proj of gpt-oss's experts"))
    step = len(names)
    share = (codes.nbytes + scales.nbytes) // (count * step)
    shape = out // step, groups * MX_GROUP
    found = []
    for expert, (at, name) in product(range(count), enumerate(names)):
        made = ExpertRows(codes, scales, expert * out + at, step)
        found.append(TensorInfo(f"{stem}.{expert}.{name}.weight", "MXFP4", shape, codes.file, 0, share, made))
    return found


# -- matrices of their own -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FourBitFloats:
    """A matrix in MXFP4 or NVFP4."""

    codes: TensorInfo
    scales: TensorInfo
    common: TensorInfo | None
    divides: bool
    group: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return verbatim("MXFP4" if self.group == MX_GROUP else "NVFP4")

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' bytes and scales, and the scale they share."""
        found = [rows(self.codes, [(start, stop)]), rows(self.scales, [(start, stop)])]
        return found if self.common is None else [*found, whole(self.common)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Look the codes up and scale them."""
        codes, scales = parts[0], parts[1]
        bits = self.scales.dtype == "U8"
        factors: FloatArray = e8m0_table()[scales] if bits else scales.astype(np.float32)
        if len(parts) > 2:
            common = parts[2].astype(np.float32).reshape(-1)[0]
            with np.errstate(all="ignore"):
                factors = factors / common if self.divides else factors * common
        return scaled(codes.reshape(stop - start, self.codes.shape[1]), factors, self.group)


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
        shape = str(list(scales.shape))
        said = Text(
            "scales of shape {shape} for {n} rows of {m} in groups of {k}", shape=shape, n=out, m=width, k=group
        )
        raise FormatError(said)
    made = FourBitFloats(codes, scales, common, divides, group)
    return made_tensor(f"{layer.stem}.weight", made.method, (out, width), made, codes, scales, common)
