"""Read MLX weights: codes in 32-bit words along the input axis, with scales (and biases) for groups of inputs.

``weight`` (out × in·bits/32, U32) is one stream of bits for each row, the lowest bits first: with 3, 5 or 6 bits a code may lie
in two words. ``scales`` and, in the mode "affine", ``biases`` are out × groups; a weight is scale · code + bias. The other modes
are floats without biases: "mxfp4" and "mxfp8" (groups of 32, scales E8M0), "nvfp4" (groups of 16, scales E4M3), with the scales'
bits stored as U8. Bits and group size cannot be told from the shapes, so they are taken from the config (``quantization``), which
may name a layer. MLX rounds what it computes to the type of the scales; here nothing is rounded.

Reference: mlx.core.quantize; the packing was checked against mlx 0.32 for every width and mode.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import Array, e8m0_table, fp8_table
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.modules import WORD_BITS, QuantisedLayer, in_chunks, shape_of
from kinprint.formats.quantised.mxfp4 import scaled
from kinprint.formats.row_maker import by_row, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.formats.views import one_of
from kinprint.text import Text, Value, verbatim

BITS = (2, 3, 4, 5, 6, 8)
MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # floats: bits and group size
MAX_EXPERTS = 4096
_EXPERTS = re.compile(r"(?P<stem>.+)\.switch_mlp\.(?P<which>gate_proj|up_proj|down_proj)")


@lru_cache
def _affine(bits: int, size: int) -> Callable[..., Array]:
    def decode(start: int, stop: int, codes: Array, scales: Array, biases: Array) -> Array:
        def piece(low: int, high: int) -> Array:
            values = modules.unpack_words(codes[low:high].T, bits).T.reshape(high - low, -1, size)
            found: Array = np.multiply(values, scales[low:high, :, None], dtype=np.float32, casting="unsafe")
            found += biases[low:high, :, None].astype(np.float32, copy=False)
            return found.reshape(high - low, -1)

        return in_chunks(0, stop - start, scales.shape[1] * size, piece)

    return decode


@lru_cache
def _floats(mode: str) -> Callable[..., Array]:
    def decode(start: int, stop: int, words: Array, bits: Array) -> Array:
        scales = (fp8_table(4, 3) if mode == "nvfp4" else e8m0_table())[bits]
        codes = np.ascontiguousarray(words).view(np.uint8).reshape(stop - start, -1)

        def piece(low: int, high: int) -> Array:
            values = fp8_table(4, 3)[codes[low:high]].reshape(high - low, -1, MODES[mode][1])
            return np.multiply(values, scales[low:high, :, None]).reshape(high - low, -1)

        if mode == "mxfp8":
            return in_chunks(0, stop - start, codes.shape[1], piece)
        return scaled(codes, scales, MODES[mode][1])

    return decode


def unreadable(layer: QuantisedLayer, reason: str) -> dict[str, TensorInfo]:
    """Return the packed codes of a layer by name, as a tensor that refuses to be read with the reason."""
    codes = layer.parts.get("weight")
    if codes is None or codes.dtype != "U32" or not codes.shape:
        return {}
    said = f"tensor {codes.name[:200]!r} holds packed codes that cannot be dequantised: {reason}"

    def refuse(*_: object) -> Array:
        hint = "compare a copy of the model that is not quantised, or quantised in another way"
        raise UnsupportedDtype(said, hint=hint)

    return {codes.name: made_of(codes.name, codes.dtype, None, codes.shape, refuse, (codes, by_row))}


def describe(layer: QuantisedLayer) -> TensorInfo | list[TensorInfo]:
    """Describe the weight of a layer in MLX's form, or its experts one by one."""
    codes = layer.need("weight", ("U32",), (2, 3))
    if len(codes.shape) == 2:
        return _matrix(layer)
    found = _EXPERTS.fullmatch(layer.stem)
    count = codes.shape[0]
    if found is None or count > MAX_EXPERTS or any(part.shape[:1] != (count,) for part in layer.parts.values()):
        form = shape_of(codes)
        raise FormatError(Text("MLX codes of shape {shape} that are not the experts of a switch_mlp", shape=form))
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
        raise FormatError(
            Text("packed codes as MLX has them, and no config that says how many bits and which group size")
        )
    bits, size, mode = stated
    name, out = f"{layer.stem}.weight", codes.shape[0]
    if mode in MODES:
        scales = layer.need("scales", ("U8",), (2,))
        if "biases" in layer.parts:
            raise FormatError(Text("MLX in the mode {mode} has no biases", mode=repr(mode)))
        shape, method = (out, _width(codes, scales, *MODES[mode])), verbatim("MLX " + mode.upper())
        return made_of(name, method, method, shape, _floats(mode), (codes, by_row), (scales, by_row))
    if mode != "affine":
        known = ", ".join(("affine", *MODES))
        raise FormatError(Text("MLX in the mode {mode}; known: {known}", mode=repr(mode[:40]), known=known))
    if bits not in BITS:
        known = ", ".join(map(str, BITS))
        raise FormatError(Text("{name} with {n} bits; known: {known}", name="MLX", n=bits, known=known))
    scales, biases = (layer.need(suffix, modules.SCALE_DTYPES, (2,)) for suffix in ("scales", "biases"))
    shape = out, _width(codes, scales, bits, size)
    if biases.shape != scales.shape:
        raise modules.unlike_shapes("biases", biases, scales)
    method = Text("{name} {bits}-bit, groups of {n}", name="MLX", bits=bits, n=size)
    inputs = [(part, by_row) for part in (codes, scales, biases)]
    return made_of(name, f"MLX {bits}-bit", method, shape, _affine(bits, size), *inputs)


def _width(codes: TensorInfo, scales: TensorInfo, bits: int, size: int) -> int:
    """Return the number of columns; refuse codes and scales that do not fit each other."""
    (out, words), (tall, groups) = codes.shape, scales.shape
    if tall != out or groups * size * bits != words * WORD_BITS:
        found: dict[str, Value] = {"bits": bits, "n": size, "a": shape_of(codes), "b": shape_of(scales)}
        raise FormatError(
            Text("MLX {bits}-bit in groups of {n}: codes of shape {a} do not fit scales of shape {b}", **found)
        )
    return groups * size
