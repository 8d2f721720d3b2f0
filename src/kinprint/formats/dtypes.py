"""Decode stored numbers to arrays.

Floating formats narrower than 64 bits decode to float32, which holds each of their values exactly; F64 stays as it is;
integers keep their type. Statistics convert to float64 later.
"""

import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kinprint.errors import UnsupportedDtype

Array = npt.NDArray[Any]

ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I64": 8, "I32": 4, "I16": 2,
    "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
PLAIN = frozenset({"F64", "F32", "F16", "BF16"})  # floats that stand for themselves, without codes and scales
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


def item_bytes(dtype: str, *, tensor: str, label: str = "") -> int:
    """Return the bytes per element; refuse an unknown dtype, naming the tensor and, if given, the file."""
    try:
        return ITEM_BYTES[dtype]
    except KeyError:
        where = f"{label}: tensor" if label else "tensor"
        said = f"{where} {tensor[:200]!r} is stored as {dtype[:40]!r}; supported: {', '.join(ITEM_BYTES)}"
        raise UnsupportedDtype(said, hint="compare a copy of the model that is stored in one of these") from None


_BLOCKS: dict[str, tuple[int, int]] = {}  # formats that store elements in blocks: elements and bytes of one


def add_block_format(dtype: str, elements: int, size: int, decoder: Callable[[memoryview], Array]) -> None:
    """Register a format whose elements are stored in blocks of `elements` in `size` bytes, as GGUF's quantised ones are."""
    _BLOCKS[dtype] = (elements, size)
    _DECODERS[dtype] = decoder


def block_of(dtype: str, *, tensor: str = "?") -> tuple[int, int]:
    """Return the elements and bytes of the least piece that can be decoded by itself."""
    return _BLOCKS.get(dtype) or (1, item_bytes(dtype, tensor=tensor))


def stored_bytes(dtype: str, elements: int, *, tensor: str = "?") -> int:
    """Return the bytes that so many elements take."""
    per_block, size = block_of(dtype, tensor=tensor)
    return -(-elements // per_block) * size


def decode(raw: memoryview, dtype: str, *, tensor: str = "?") -> Array:
    """Return the elements in `raw` as a flat array. The caller has checked the length against the shape."""
    block_of(dtype, tensor=tensor)
    return _DECODERS[dtype](raw)


class Landing:
    """An array that fills as its stored bytes come in: in pieces, in any order, from several threads (a `Sink`)."""

    # Only for types in `ITEM_BYTES`: no blocks. `take` allocates memory: a number of bytes in, a flat array of them out.

    def __init__(self, dtype: str, elements: int, take: Callable[[int], npt.NDArray[np.uint8]]) -> None:
        self._item = ITEM_BYTES[dtype]
        self._memory: npt.NDArray[np.uint8] | None = None
        self._halves: Array | None = None
        if dtype == "BF16":
            self._halves, self.values = _halves(take(4 * elements + 2))
        elif dtype in _PLAIN:
            self._memory = take(self._item * elements)
            self.values = self._memory.view(_PLAIN[dtype])
        else:
            self._decode = _DECODERS[dtype]
            self.values = take(4 * elements).view(np.float32)

    @property
    def works(self) -> bool:
        """Whether there is anything to decode."""
        return self._memory is None

    def room(self, at: int, length: int) -> memoryview:
        """Return the memory for the bytes from `at` on."""
        if self._memory is not None:
            return self._memory[at : at + length].data
        return _scratch(length)

    def filled(self, at: int, room: memoryview) -> None:
        """Decode the bytes that were put there."""
        if self._memory is not None:
            return
        place = slice(at // self._item, (at + len(room)) // self._item)
        if self._halves is not None:
            self._halves[place] = np.frombuffer(room, dtype="<u2")
        else:
            self.values[place] = self._decode(room)


_own = threading.local()  # memory of one thread, which stays in the cache of the core it runs on
_SCRATCH_BYTES = 2 << 20


def _scratch(length: int) -> memoryview:
    if length > _SCRATCH_BYTES:
        return np.empty(length, dtype=np.uint8).data
    memory: memoryview = getattr(_own, "memory", memoryview(b""))
    if len(memory) < length:
        memory = _own.memory = np.empty(length, dtype=np.uint8).data
    return memory[:length]


def _halves(memory: npt.NDArray[np.uint8]) -> tuple[Array, npt.NDArray[np.float32]]:
    """Return two views of 4·n + 2 bytes: n places to assign the bits of BF16 numbers to, and the numbers as float32."""
    # A BF16 number is the upper half of a float32. Assigned to an unsigned number of four bytes that begins two bytes after that
    # float32, its bits become the upper half, and the zeros that fill up the four bytes the lower half of the next. So one
    # cast does it, three times as fast as a shift.
    count = (len(memory) - 2) // 4
    memory[:2] = 0
    return memory[2:].view("<u4"), memory[: 4 * count].view("<f4")


def _bf16(raw: memoryview) -> Array:
    bits = np.frombuffer(raw, dtype="<u2")
    halves, values = _halves(np.empty(4 * len(bits) + 2, dtype=np.uint8))
    halves[:] = bits
    return values


@cache
def fp8_table(exponent_bits: int, mantissa_bits: int) -> npt.NDArray[np.float32]:
    """Return all 256 values of an OCP 8-bit float (Micikevicius et al. 2022, "FP8 formats for deep learning")."""
    # E5M2 follows IEEE 754. E4M3 has no infinity, and only the all-ones pattern is NaN, so its largest value is 448.
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    value = sign * np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    if exponent_bits == 5:
        top = exponent == 31
        value[top] = np.where(mantissa[top] == 0, sign[top] * np.inf, np.nan)
    else:
        value[(codes & 0x7F) == 0x7F] = np.nan
    return value.astype(np.float32)


@cache
def e8m0_table() -> npt.NDArray[np.float32]:
    """Return all 256 values of an OCP scale (E8M0): powers of two from 2**-127 on, and NaN."""
    found = np.exp2(np.arange(256.0) - 127)
    found[255] = np.nan
    return np.asarray(found, np.float32)


_PLAIN = {
    "F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_DECODERS: dict[str, Callable[[memoryview], Array]] = {
    **{dtype: partial(np.frombuffer, dtype=code) for dtype, code in _PLAIN.items()},
    "F16": lambda raw: np.frombuffer(raw, dtype="<f2").astype(np.float32),
    "BF16": _bf16,
    "F8_E4M3": lambda raw: fp8_table(4, 3)[np.frombuffer(raw, dtype=np.uint8)],
    "F8_E5M2": lambda raw: fp8_table(5, 2)[np.frombuffer(raw, dtype=np.uint8)],
    "F8_E8M0": lambda raw: e8m0_table()[np.frombuffer(raw, dtype=np.uint8)],
}
