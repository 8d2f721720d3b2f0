"""What all quantised formats share: the tensors of one layer by their suffix, what the config says, packed integers.

A layer (``model.layers.0.mlp.up_proj``) that a quantiser has been at is several stored tensors: codes, scales and more. Each
format's module turns them into one tensor that is dequantised when it is read, or says with a FormatError why it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice
from kinprint.formats.tensors import Made, TensorInfo
from kinprint.text import Text

FloatArray = npt.NDArray[np.float32]
WORD_BITS = 32
# Unpacked at a time: a temporary takes a few bytes for each, and a slice may be a whole matrix.
CHUNK_ELEMENTS = 1 << 21
SCALE_DTYPES = ("F64", "F32", "F16", "BF16")
INDEX_DTYPES = ("I32", "I64")


@dataclass(frozen=True, slots=True)
class QuantisationSettings:
    """What a config says about quantisation. All of it is optional, and none of it is believed against the shapes."""

    method: str | None = None  # ``quant_method``, in lower case
    # ``checkpoint_format`` of GPTQ, ``version`` of AWQ, ``packing_format`` of AutoRound, ``format`` of compressed-tensors.
    layout: str | None = None
    # bits, groups, blocks: widths, group sizes and block sizes (out, in) that are named anywhere.
    bits: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    # Bits, group size and mode as MLX states them: of layers by name, and under "" of all others.
    layers: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)
    model_type: str = ""  # the model's


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    """The stored tensors of one layer, by suffix (``qweight``, ``weight.absmax``), and what was read of them at opening."""

    stem: str
    parts: Mapping[str, TensorInfo]
    settings: QuantisationSettings = field(default_factory=QuantisationSettings)
    seen: Array | None = None

    def need(self, suffix: str, dtypes: Sequence[str], axes: Sequence[int]) -> TensorInfo:
        """Return a part that has to be there, in one of these dtypes and with one of these numbers of axes."""
        tensor = self.parts.get(suffix)
        if tensor is None:
            raise FormatError(Text("no {name} is stored", name=suffix))
        return checked(tensor, suffix, dtypes, axes)

    def optional(self, suffix: str, dtypes: Sequence[str], axes: Sequence[int]) -> TensorInfo | None:
        """Return a part that may be there."""
        tensor = self.parts.get(suffix)
        return None if tensor is None else checked(tensor, suffix, dtypes, axes)


def checked(tensor: TensorInfo, suffix: str, dtypes: Sequence[str], axes: Sequence[int]) -> TensorInfo:
    """Return the tensor if it has the form expected and is not empty."""
    if tensor.dtype not in dtypes or len(tensor.shape) not in axes or not tensor.elements:
        raise FormatError(
            Text(
                "{name} is {dtype} of shape {shape}, expected {dtypes} with {axes} axes",
                name=suffix,
                dtype=tensor.dtype,
                shape=str(list(tensor.shape)),
                dtypes=" or ".join(dtypes),
                axes=" or ".join(map(str, axes)),
            )
        )
    return tensor


def unfitting_shapes(codes: TensorInfo, zeros: TensorInfo, scales: TensorInfo) -> Text:
    """Say that the parts of GPTQ's and AWQ's form do not belong together."""
    shapes = [str(list(part.shape)) for part in (codes, zeros, scales)]
    return Text("qweight, qzeros and scales of shapes {shapes:and} do not belong together", shapes=tuple(shapes))


def unknown_layout(name: str, layout: str, known: str) -> Text:
    """Say that a form of quantisation is laid out in a way that is not known."""
    return Text("{name} in the layout {layout}; known: {known}", name=name, layout=repr(layout[:40]), known=known)


def unlike_shapes(name: str, tensor: TensorInfo, scales: TensorInfo) -> Text:
    """Say that a part does not fit the scales beside it."""
    a, b = str(list(tensor.shape)), str(list(scales.shape))
    return Text("{name} of shape {a} beside scales of shape {b}", name=name, a=a, b=b)


def made_tensor(
    name: str, dtype: str, shape: tuple[int, ...], made: Made, codes: TensorInfo, *others: TensorInfo | None
) -> TensorInfo:
    """Describe a tensor that is made of codes and others, of which some may not be there."""
    size = sum(part.nbytes for part in (codes, *others) if part is not None)
    return TensorInfo(name, dtype, shape, codes.file, 0, size, made)


def flat(tensor: TensorInfo, start: int, stop: int) -> TensorSlice:
    """Select elements of a tensor, whatever its shape."""
    return TensorSlice(tensor, ((start, stop),), (stop - start,))


def group_size(settings: QuantisationSettings, width: int, groups: int) -> int:
    """Return how many columns share a scale, given the number of groups."""
    if width % groups == 0 and (groups == 1 or width // groups in settings.groups or not settings.groups):
        return width // groups
    fitting = [size for size in settings.groups if size > 0 and -(-width // size) == groups]
    if fitting:
        return fitting[0]
    if width % groups == 0:
        return width // groups
    raise FormatError(Text("{n} groups of scales do not fit {m} columns", n=groups, m=width))


def group_numbers(given: Array | None, width: int, groups: int, size: int, name: str) -> npt.NDArray[np.intp]:
    """Return the group of each column: as stored, or in order.

    An index that was never filled in (all zero, or −1) stands for the order. Columns out of order are what GPTQ's act-order
    leaves behind.
    """
    in_order = np.arange(width) // size
    if given is None:
        return in_order
    numbers = np.asarray(given).reshape(-1)
    if (numbers == -1).any() or (groups > 1 and not numbers.any()):
        return in_order
    if numbers.min() < 0 or numbers.max() >= groups:
        said = f"{name}: its g_idx runs from {numbers.min()} to {numbers.max()}, expected 0 to {groups - 1}"
        raise FormatError(said, hint="the file is damaged; fetch it again")
    return numbers.astype(np.intp)


def unpack_words(words: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Unpack unsigned integers of `bits` from 32-bit words along the first axis, the lowest bits first.

    The words are one stream of bits: with 3 bits the 11th and 22nd of 32 integers lie in two words each.
    """
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
