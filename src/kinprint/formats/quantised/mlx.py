"""MLX: codes in 32-bit words along the input axis, with scales (and biases) for groups of inputs.

``weight`` (out × in·bits/32, U32) is one stream of bits for each row, the lowest bits first: with 3, 5 or 6 bits a code may lie
in two words. ``scales`` and, in the mode "affine", ``biases`` are out × groups; a weight is scale · code + bias. The other modes
are floats without biases: "mxfp4" and "mxfp8" (groups of 32, scales E8M0), "nvfp4" (groups of 16, scales E4M3), with the scales'
bits stored as U8. Bits and group size cannot be told from the shapes, so they are taken from the config (``quantization``), which
may name a layer. MLX rounds what it computes to the type of the scales; here nothing is rounded.

Reference: mlx.core.quantize; the packing was held against mlx 0.32 for every width and mode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import Array, e8m0_table, fp8_table
from kinprint.formats.expert_stacks import one_of
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.quantised.modules import (
    SCALE_DTYPES,
    WORD_BITS,
    FloatArray,
    QuantisedLayer,
    chunks,
    made_tensor,
    unlike_shapes,
    unpack_words,
)
from kinprint.formats.quantised.mxfp4 import scaled
from kinprint.formats.tensors import Made, TensorInfo
from kinprint.text import Text, verbatim

BITS = (2, 3, 4, 5, 6, 8)
MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # floats: bits and group size
MAX_EXPERTS = 4096
_EXPERTS = re.compile(r"(?P<stem>.+)\.switch_mlp\.(?P<which>gate_proj|up_proj|down_proj)")


@dataclass(frozen=True, slots=True)
class Affine:
    """A matrix from integers, scales and biases."""

    codes: TensorInfo
    scales: TensorInfo
    biases: TensorInfo
    bits: int
    size: int

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return Text("{name} {bits}-bit, groups of {n}", name="MLX", bits=self.bits, n=self.size)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' words, scales and biases."""
        return [rows(tensor, [(start, stop)]) for tensor in (self.codes, self.scales, self.biases)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Unpack the codes and scale them."""
        codes, scales, biases = parts
        count, groups = stop - start, self.scales.shape[1]
        built: FloatArray = np.empty((count, groups, self.size), np.float32)
        with np.errstate(all="ignore"):
            for low, high in chunks(0, count, groups * self.size):
                values = unpack_words(codes[low:high].T, self.bits).T.reshape(high - low, groups, self.size)
                np.multiply(values, scales[low:high, :, None], out=built[low:high], dtype=np.float32, casting="unsafe")
                built[low:high] += biases[low:high, :, None].astype(np.float32, copy=False)
        return built.reshape(count, groups * self.size)


@dataclass(frozen=True, slots=True)
class Floats:
    """A matrix from small floats and scales."""

    codes: TensorInfo
    scales: TensorInfo
    mode: str

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return verbatim("MLX " + self.mode.upper())

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' words and scales."""
        return [rows(tensor, [(start, stop)]) for tensor in (self.codes, self.scales)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Look the codes up and scale them."""
        words, bits = parts
        size = MODES[self.mode][1]
        scales = (fp8_table(4, 3) if self.mode == "nvfp4" else e8m0_table())[bits]
        codes = np.ascontiguousarray(words).view(np.uint8).reshape(stop - start, self.codes.shape[1] * 4)
        if self.mode != "mxfp8":
            return scaled(codes, scales, size)
        built: FloatArray = np.empty((stop - start, self.scales.shape[1], size), np.float32)
        with np.errstate(all="ignore"):
            for low, high in chunks(0, stop - start, codes.shape[1]):
                values = fp8_table(4, 3)[codes[low:high]].reshape(high - low, -1, size)
                np.multiply(values, scales[low:high, :, None], out=built[low:high])
        return built.reshape(codes.shape)


@dataclass(frozen=True, slots=True)
class Sealed:
    """Packed codes that there is no reader for: they have a place and a shape, and no numbers."""

    stored: TensorInfo
    reason: str

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return what would have to be read."""
        return [rows(self.stored, [(start, stop)])]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:  # noqa: ARG002 - there is nothing to build
        """Refuse."""
        raise UnsupportedDtype(
            f"tensor {self.stored.name[:200]!r} holds packed codes that cannot be dequantised: {self.reason}",
            hint="compare a copy of the model that is not quantised, or quantised in another way",
        )


def sealed(layer: QuantisedLayer, reason: str) -> TensorInfo | None:
    """Return the packed codes of a layer as a tensor that says, when it is read, why it cannot be."""
    codes = layer.parts.get("weight")
    if codes is None or codes.dtype != "U32" or not codes.shape:
        return None
    return codes._replace(start=0, end=codes.nbytes, made=Sealed(codes, reason))


def describe(layer: QuantisedLayer) -> TensorInfo | list[TensorInfo]:
    """Describe the weight of a layer in MLX's form, or its experts one by one."""
    codes = layer.need("weight", ("U32",), (2, 3))
    if len(codes.shape) == 2:
        return _matrix(layer)
    found = _EXPERTS.fullmatch(layer.stem)
    count = codes.shape[0]
    if found is None or count > MAX_EXPERTS or any(part.shape[:1] != (count,) for part in layer.parts.values()):
        shape = str(list(codes.shape))
        raise FormatError(Text("MLX codes of shape {shape} that are not the experts of a switch_mlp", shape=shape))
    experts = []
    for number in range(count):
        parts = {suffix: one_of(part, number) for suffix, part in layer.parts.items()}
        tensor = _matrix(replace(layer, parts=parts))
        experts.append(tensor._replace(name=f"{found['stem']}.experts.{number}.{found['which']}.weight"))
    return experts


def _matrix(layer: QuantisedLayer) -> TensorInfo:
    codes = layer.need("weight", ("U32",), (2,))
    stated = layer.settings.layers.get(layer.stem) or layer.settings.layers.get("")
    if stated is None:
        why = Text("packed codes as MLX has them, and no config that says how many bits and which group size")
        raise FormatError(why)
    bits, size, mode = stated
    name = f"{layer.stem}.weight"
    if mode in MODES:
        scales = layer.need("scales", ("U8",), (2,))
        if "biases" in layer.parts:
            raise FormatError(Text("MLX in the mode {mode} has no biases", mode=repr(mode)))
        width = _width(codes, scales, *MODES[mode])
        made: Made = Floats(codes, scales, mode)
        return made_tensor(name, f"MLX {mode.upper()}", (codes.shape[0], width), made, codes, scales)
    if mode != "affine":
        known = ", ".join(("affine", *MODES))
        raise FormatError(Text("MLX in the mode {mode}; known: {known}", mode=repr(mode[:40]), known=known))
    if bits not in BITS:
        known = ", ".join(map(str, BITS))
        raise FormatError(Text("{name} with {n} bits; known: {known}", name="MLX", n=bits, known=known))
    scales, biases = (layer.need(suffix, SCALE_DTYPES, (2,)) for suffix in ("scales", "biases"))
    width = _width(codes, scales, bits, size)
    if biases.shape != scales.shape:
        raise FormatError(unlike_shapes("biases", biases, scales))
    made = Affine(codes, scales, biases, bits, size)
    return made_tensor(name, f"MLX {bits}-bit", (codes.shape[0], width), made, codes, scales, biases)


def _width(codes: TensorInfo, scales: TensorInfo, bits: int, size: int) -> int:
    """Return the columns that the codes have."""
    (out, words), (tall, groups) = codes.shape, scales.shape
    if tall != out or groups * size * bits != words * WORD_BITS:
        raise FormatError(
            Text(
                "MLX {bits}-bit in groups of {n}: codes of shape {a} do not fit scales of shape {b}",
                bits=bits,
                n=size,
                a=str(list(codes.shape)),
                b=str(list(scales.shape)),
            )
        )
    return groups * size
