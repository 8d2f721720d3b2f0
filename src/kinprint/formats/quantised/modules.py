"""Provide what readers of quantised layers share: stored tensors by suffix, groups of columns, packed integers.

The module of each method describes the one tensor that a layer's codes, scales and more stand for, which is dequantised when it is
read, or raises a FormatError with the reason.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.checks import damaged
from kinprint.formats.dtypes import Array
from kinprint.formats.quantised.settings import QuantisationSettings
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text

FloatArray = npt.NDArray[np.float32]
WORD_BITS = 32
# Unpacked at a time: a temporary takes a few bytes for each, and a slice may be a whole matrix.
CHUNK_ELEMENTS = 1 << 21
SCALE_DTYPES = ("F64", "F32", "F16", "BF16")
INDEX_DTYPES = ("I32", "I64")


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    """The stored tensors of one layer, by suffix (``qweight``, ``weight.absmax``)."""

    stem: str
    parts: Mapping[str, TensorInfo]
    settings: QuantisationSettings = field(default_factory=QuantisationSettings)
    seen: Array | None = None  # values of the small tensor that holds the weight's shape, read at opening

    def need(self, suffix: str, dtypes: Sequence[str], axes: Sequence[int]) -> TensorInfo:
        """Return a part that has to be there, in one of these dtypes and with one of these numbers of axes."""
        tensor = self.optional(suffix, dtypes, axes)
        if tensor is None:
            raise FormatError(Text("no {name} is stored", name=suffix))
        return tensor

    def optional(self, suffix: str, dtypes: Sequence[str], axes: Sequence[int]) -> TensorInfo | None:
        """Return a part that may be absent; refuse one that is empty or has another form."""
        tensor = self.parts.get(suffix)
        if tensor is None or (tensor.dtype in dtypes and len(tensor.shape) in axes and tensor.elements):
            return tensor
        own = {"name": suffix, "dtype": tensor.dtype, "shape": shape_of(tensor)}
        known = {"dtypes": " or ".join(dtypes), "axes": " or ".join(map(str, axes))}
        raise FormatError(Text("{name} is {dtype} of shape {shape}, expected {dtypes} with {axes} axes", **own | known))


def shape_of(tensor: TensorInfo) -> str:
    """Return a shape as messages show it: [64, 128]."""
    return str(list(tensor.shape))


def unlike_shapes(name: str, tensor: TensorInfo, scales: TensorInfo) -> FormatError:
    """Return the error for a part that does not fit the scales beside it."""
    a, b = shape_of(tensor), shape_of(scales)
    return FormatError(Text("{name} of shape {a} beside scales of shape {b}", name=name, a=a, b=b))


def group_size(settings: QuantisationSettings, width: int, groups: int) -> int:
    """Return how many columns share a scale, given the number of groups."""
    even = width // groups if width % groups == 0 else 0
    if even and (groups == 1 or even in settings.groups):
        return even
    fitting = [size for size in settings.groups if -(-width // size) == groups]
    if not fitting and not even:
        raise FormatError(Text("{n} groups of scales do not fit {m} columns", n=groups, m=width))
    return fitting[0] if fitting else even


def group_numbers(given: Array | None, width: int, groups: int, size: int, name: str) -> npt.NDArray[np.intp]:
    """Return the group of each column: as stored, or in order where the index was never filled in (all zero, or −1)."""
    in_order = np.arange(width) // size
    if given is None:
        return in_order
    numbers = np.asarray(given).reshape(-1)
    if (numbers == -1).any() or (groups > 1 and not numbers.any()):
        return in_order
    if numbers.min() < 0 or numbers.max() >= groups:
        raise damaged(f"{name}: its g_idx runs from {numbers.min()} to {numbers.max()}, expected 0 to {groups - 1}")
    return numbers.astype(np.intp)


def unpack_words(words: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Unpack integers of `bits` from 32-bit words along the first axis, a stream of bits: some of 3 bits lie in two words."""
    found = np.ascontiguousarray(words).view(np.uint32)
    mask = np.uint32((1 << bits) - 1)
    if WORD_BITS % bits == 0:
        shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
        shape = (1, -1, *(1,) * (found.ndim - 1))
        values = (found[:, None] >> shifts.reshape(shape)) & mask
        return values.astype(np.uint8).reshape(-1, *found.shape[1:])
    cycle = math.lcm(bits, WORD_BITS) // WORD_BITS
    found = found.reshape(-1, cycle, *found.shape[1:])
    count = cycle * WORD_BITS // bits
    unpacked = np.empty((found.shape[0], count, *found.shape[2:]), np.uint8)
    for number in range(count):
        word, shift = divmod(number * bits, WORD_BITS)
        value = found[:, word] >> np.uint32(shift)
        if shift + bits > WORD_BITS:
            value = value | (found[:, word + 1] << np.uint32(WORD_BITS - shift))
        unpacked[:, number] = value & mask
    return unpacked.reshape(-1, *found.shape[2:])


def chunks(start: int, stop: int, width: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces of bounded size that begin at multiples of `step`, but for the first."""
    size = max(1, CHUNK_ELEMENTS // max(1, width) // step) * step
    at = start
    while at < stop:
        end = min(stop, (at // step) * step + size)
        yield at, end
        at = end


def in_chunks(start: int, stop: int, width: int, piece: Callable[[int, int], Array], step: int = 1) -> FloatArray:
    """Build rows `start` to `stop` of a matrix piece by piece, so that temporaries stay small."""
    built: FloatArray = np.empty((stop - start, width), np.float32)
    for low, high in chunks(start, stop, width, step):
        built[low - start : high - start] = piece(low, high)
    return built
