"""Decode the number formats of GGUF files: blocks of quantised weights, a few thousand blocks at a time.

The layouts are those of ggml's own C headers (ggml-common.h, ggml-quants.c of the llama.cpp project); MXFP4 is the format of
the "OCP Microscaling Formats (MX) Specification" 1.0. Each value is computed in float32 with the operations in the order of
the reference, so that results are equal to the last bit. The IQ1, IQ2 and IQ3 types need tables of several hundred vectors:
these are decoded by the `gguf` package, which carries the tables, where it is installed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import UnsupportedDtype, imported
from kinprint.formats.dtypes import ITEM_BYTES, Array, add_block_format, fp8_table

Blocks = NDArray[Any]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Kernel = Callable[[Blocks, Floats], None]  # writes the values of blocks (n records) into a float32 array (n, elements)
CHUNK = 1 << 16  # elements decoded at a time: the steps in between then stay in the processor's cache
SUPER = 256  # elements of a K-quant's block


def _scaled(codes: NDArray[Any], scales: Floats, out: Floats) -> None:
    """Write codes times scales, the latter one for each row of codes."""
    np.copyto(out, codes)
    np.multiply(out, scales[..., None], out=out)


def _fields(packed: Bytes, bits: int) -> Bytes:
    """Split bytes (n, …, k) into fields of so many bits (n, …, 8 / bits, k), the lowest first."""
    count = 8 // bits
    found = np.empty((*packed.shape[:-1], count, packed.shape[-1]), np.uint8)
    for number in range(count):
        np.right_shift(packed, bits * number, out=found[..., number, :])
    found &= (1 << bits) - 1
    return found


def _half(stored: NDArray[Any]) -> Floats:
    return stored.astype(np.float32)


# -- 32 weights with a scale -------------------------------------------------------------------------------------------


def _centred(codes: Bytes, middle: int, blocks: Blocks, out: Floats) -> None:
    """Write codes less the middle one, times the blocks' scales."""
    signed = codes.reshape(out.shape).view(np.int8)
    signed -= middle
    _scaled(signed, _half(blocks["d"]), out)


def _raised(codes: Bytes, blocks: Blocks, out: Floats) -> None:
    """Write codes times the blocks' scales, plus their minima."""
    _scaled(codes, _half(blocks["d"]), out)
    out += _half(blocks["m"])[:, None]


def _four_bits(blocks: Blocks) -> Bytes:
    return _fields(blocks["q"], 4).reshape(-1, 32)


def _five_bits(blocks: Blocks) -> Bytes:
    codes = _four_bits(blocks)
    codes |= np.unpackbits(np.ascontiguousarray(blocks["h"]), axis=-1, bitorder="little") << 4
    return codes


# -- K-quants: 256 weights with a scale (and a minimum) for each 16 or 32 ------------------------------------------------


def _q2_k(blocks: Blocks, out: Floats) -> None:
    codes = _fields(blocks["q"], 2).reshape(-1, 16, 16)
    scales = _half(blocks["d"])[:, None] * (blocks["s"] & 15).astype(np.float32)
    least = _half(blocks["m"])[:, None] * (blocks["s"] >> 4).astype(np.float32)
    groups = out.reshape(-1, 16, 16)
    _scaled(codes, scales, groups)
    groups -= least[..., None]


def _q3_k(blocks: Blocks, out: Floats) -> None:
    codes = _fields(blocks["q"], 2).reshape(-1, 256)
    codes |= _fields(blocks["h"], 1).reshape(-1, 256) << 2  # a bit that is not set means four less
    signed = codes.view(np.int8)
    signed -= 4
    low = _fields(blocks["s"][:, :8], 4).reshape(-1, 16)
    top = _fields(blocks["s"][:, 8:], 2).reshape(-1, 16)
    steps = (low | (top << 4)).view(np.int8) - np.int8(32)
    scales = _half(blocks["d"])[:, None] * steps.astype(np.float32)
    _scaled(signed.reshape(-1, 16, 16), scales, out.reshape(-1, 16, 16))


def _six_bit_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """Unpack the eight scales and eight minima of Q4_K and Q5_K: six bits each, the last four of either in two parts."""
    scale, least, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales, minima = np.empty((2, len(packed), 8), np.float32)
    scales[:, :4] = scale & 63
    minima[:, :4] = least & 63
    scales[:, 4:] = (rest & 15) | ((scale >> 2) & 48)
    minima[:, 4:] = (rest >> 4) | ((least >> 2) & 48)
    return scales, minima


def _with_minima(codes: Bytes, blocks: Blocks, out: Floats) -> None:
    scales, minima = _six_bit_scales(blocks["s"])
    scales *= _half(blocks["d"])[:, None]
    minima *= _half(blocks["m"])[:, None]
    groups = out.reshape(-1, 8, 32)
    _scaled(codes.reshape(-1, 8, 32), scales, groups)
    groups -= minima[..., None]


def _q5_k(blocks: Blocks, out: Floats) -> None:
    codes = _fields(blocks["q"], 4).reshape(-1, 8, 32)
    codes |= _fields(blocks["h"], 1) << 4
    _with_minima(codes, blocks, out)


def _q6_k(blocks: Blocks, out: Floats) -> None:
    codes = _fields(blocks["q"], 4).reshape(-1, 256)
    codes |= _fields(blocks["h"], 2).reshape(-1, 256) << 4
    signed = codes.view(np.int8)
    signed -= 32
    scales = blocks["s"].astype(np.float32)
    scales *= _half(blocks["d"])[:, None]
    _scaled(signed.reshape(-1, 16, 16), scales, out.reshape(-1, 16, 16))


# -- three values to a weight -------------------------------------------------------------------------------------------

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def _trits(packed: Bytes, count: int) -> Bytes:
    """Split bytes (n, k) into `count` digits of base three (n, count · k): a byte is a fraction of 256, its first digit on top."""
    digits = packed[:, None, :] * _POWERS[:count, None]  # what overflows are the digits before
    return ((digits.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)).astype(np.uint8).reshape(len(packed), -1)


def _tq1_0(blocks: Blocks, out: Floats) -> None:
    packed = blocks["q"]
    parts = [_trits(packed[:, :32], 5), _trits(packed[:, 32:], 5), _trits(blocks["h"], 4)]
    _centred(np.concatenate(parts, axis=1), 1, blocks, out)


# -- four bits that number the entries of a table -------------------------------------------------------------------------

_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # twice the value
# Half of the power, for the doubled values.
_HALF_E8M0 = np.ldexp(np.float32(1.0), np.arange(256) - 128).astype(np.float32)


_HALF_E4M3 = np.abs(fp8_table(4, 3)) / 2  # likewise of an FP8 scale, which has no sign here
_HALF_E4M3[[127, 255]] = 0.0, 240.0  # nor a NaN: its pattern means nothing, or what the other bits say


def _looked_up(packed: Bytes, table: Floats, scales: Floats, out: Floats) -> None:
    """Write the table's entries times scales (n, g) of bytes (n, g, k): low halves first, then the high ones."""
    groups = out.reshape(*packed.shape[:-1], 2, packed.shape[-1])
    np.take(table, _fields(packed, 4), out=groups, mode="clip")
    groups *= scales[..., None, None]


def _iq4_xs(blocks: Blocks, out: Floats) -> None:
    low = (blocks["s"][:, :, None] >> np.array([0, 4], np.uint8)).reshape(-1, 8) & 15
    high = (blocks["h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & 3
    steps = (low | (high << 4)).view(np.int8) - np.int8(32)
    _looked_up(blocks["q"], _IQ4, _half(blocks["d"])[:, None] * steps.astype(np.float32), out)


# -- the table of all types ----------------------------------------------------------------------------------------------


class GgmlType(NamedTuple):
    """A tensor type: its name, and the elements and bytes of a block."""

    name: str
    elements: int
    size: int


class _Coded(NamedTuple):
    number: int
    name: str
    elements: int
    fields: str  # d: scale, m: minimum, s, e: scales of groups, q: codes, h: their high bits
    layout: str  # numpy's types of the fields
    kernel: Kernel


_CODED = (
    _Coded(2, "Q4_0", 32, "dq", "<f2, 16u1", lambda b, out: _centred(_four_bits(b), 8, b, out)),
    _Coded(3, "Q4_1", 32, "dmq", "<f2, <f2, 16u1", lambda b, out: _raised(_four_bits(b), b, out)),
    _Coded(6, "Q5_0", 32, "dhq", "<f2, 4u1, 16u1", lambda b, out: _centred(_five_bits(b), 16, b, out)),
    _Coded(7, "Q5_1", 32, "dmhq", "<f2, <f2, 4u1, 16u1", lambda b, out: _raised(_five_bits(b), b, out)),
    _Coded(8, "Q8_0", 32, "dq", "<f2, 32i1", lambda b, out: _scaled(b["q"], _half(b["d"]), out)),
    _Coded(10, "Q2_K", SUPER, "sqdm", "16u1, (2,32)u1, <f2, <f2", _q2_k),
    _Coded(11, "Q3_K", SUPER, "hqsd", "32u1, (2,32)u1, 12u1, <f2", _q3_k),
    _Coded(
        12, "Q4_K", SUPER, "dmsq", "<f2, <f2, 12u1, (4,32)u1", lambda b, to: _with_minima(_fields(b["q"], 4), b, to)
    ),
    _Coded(13, "Q5_K", SUPER, "dmshq", "<f2, <f2, 12u1, 32u1, (4,32)u1", _q5_k),
    _Coded(14, "Q6_K", SUPER, "qhsd", "(2,64)u1, (2,32)u1, 16i1, <f2", _q6_k),
    _Coded(20, "IQ4_NL", 32, "dq", "<f2, 16u1", lambda b, out: _looked_up(b["q"], _IQ4, _half(b["d"]), out)),
    _Coded(23, "IQ4_XS", SUPER, "dhsq", "<f2, <u2, 4u1, (8,16)u1", _iq4_xs),
    _Coded(34, "TQ1_0", SUPER, "qhd", "48u1, 4u1, <f2", _tq1_0),
    _Coded(35, "TQ2_0", SUPER, "qd", "(2,32)u1, <f2", lambda b, out: _centred(_fields(b["q"], 2), 1, b, out)),
    _Coded(39, "MXFP4", 32, "eq", "u1, 16u1", lambda b, out: _looked_up(b["q"], _E2M1, _HALF_E8M0[b["e"]], out)),
    _Coded(40, "NVFP4", 64, "sq", "4u1, (4,8)u1", lambda b, out: _looked_up(b["q"], _E2M1, _HALF_E4M3[b["s"]], out)),
)
_PLAIN = {0: "F32", 1: "F16", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 30: "BF16"}
_TABLED = {
    16: ("IQ2_XXS", 66), 17: ("IQ2_XS", 74), 18: ("IQ3_XXS", 98), 19: ("IQ1_S", 50), 21: ("IQ3_S", 110),
    22: ("IQ2_S", 82), 29: ("IQ1_M", 56),
}  # fmt: skip
_NOT_READ = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 41: "Q1_0",
}  # fmt: skip


def _decode(kernel: Kernel, layout: np.dtype[Any], elements: int, raw: memoryview) -> Array:
    blocks = np.frombuffer(raw, dtype=layout)
    out = np.empty((len(blocks), elements), np.float32)
    step = max(1, CHUNK // elements)
    with np.errstate(all="ignore"):  # a scale may be infinite or no number; the values then say so
        for start in range(0, len(blocks), step):
            kernel(blocks[start : start + step], out[start : start + step])
    return out.reshape(-1)


def _decode_by_package(name: str, size: int, raw: memoryview) -> Array:
    what = f"decoding weights stored as {name}"
    package, quants = (imported(module, what, extra="gguf") for module in ("gguf", "gguf.quants"))
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, size)
    if not len(rows):
        return np.empty(0, np.float32)
    with np.errstate(all="ignore"):
        found: Array = quants.dequantize(rows, package.GGMLQuantizationType[name])
    return found.reshape(-1)


def _register() -> dict[int, GgmlType]:
    types = {number: GgmlType(name, 1, ITEM_BYTES[name]) for number, name in _PLAIN.items()}
    for number, name, elements, fields, types_of_fields, kernel in _CODED:
        layout = np.dtype(types_of_fields)
        layout.names = tuple(fields)
        add_block_format(name, elements, layout.itemsize, partial(_decode, kernel, layout, elements))
        types[number] = GgmlType(name, elements, layout.itemsize)
    for number, (name, size) in _TABLED.items():
        add_block_format(name, SUPER, size, partial(_decode_by_package, name, size))
        types[number] = GgmlType(name, SUPER, size)
    return types


TYPES = _register()


def type_of(number: int, *, tensor: str, label: str) -> GgmlType:
    """Return the tensor type of a number in a file, or say which tensor has a type that is not read."""
    found = TYPES.get(number)
    if found is None:
        name = _NOT_READ.get(number, f"type {number}")
        raise UnsupportedDtype(
            f"{label}: tensor {tensor[:200]!r} is stored as GGML {name}; "
            f"read are {', '.join(each.name for each in TYPES.values())}",
            hint="compare a copy of the model that is stored in one of these",
        )
    return found
