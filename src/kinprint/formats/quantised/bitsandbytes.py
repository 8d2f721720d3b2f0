"""Read bitsandbytes weights: rows of 8-bit integers with a scale each, or blocks of 4-bit codes with a table of values.

int8 (Dettmers et al. 2022, "LLM.int8()"): ``weight`` (out × in) and ``SCB`` (out), the rows' largest magnitudes; a weight is
code · SCB / 127. ``weight_format`` says how the codes are laid out: 0 stands for rows, the others are for certain GPUs.

4-bit (Dettmers et al. 2023, "QLoRA"): ``weight`` holds two codes in a byte, the first in the high half, for the flattened matrix.
A weight is quant_map[code] · absmax[block]. With double quantisation absmax holds codes too: nested_quant_map[code] ·
nested_absmax[block] + nested_offset. Shape, block sizes and offset are in a small JSON stored as bytes
(``weight.quant_state.bitsandbytes__nf4`` or ``__fp4``).
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import orjson

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import Array
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, in_chunks
from kinprint.formats.row_maker import Select, by_element, by_row, entire, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text, Value, verbatim

STATES = {"weight.quant_state.bitsandbytes__nf4": "NF4", "weight.quant_state.bitsandbytes__fp4": "FP4"}
STATE_CAP = 4096  # bytes: the JSON has 150
MAX_AXES = 4
_LAYOUTS = {1: "col32", 2: "col_turing", 3: "col_ampere"}
_MAX_BLOCK = 1 << 16


def _decode_int8(name: str, _start: int, _stop: int, codes: Array, scales: Array, layout: Array | None) -> Array:
    number = 0 if layout is None else int(layout.reshape(-1)[0])
    if number != 0:
        raise UnsupportedDtype(
            f"{name}: bitsandbytes int8 laid out as {_LAYOUTS.get(number, number)!r}; supported: 'row'",
            hint="save the model again with a newer bitsandbytes, or compare a copy that is not quantised",
        )
    values: FloatArray = codes.astype(np.float32)
    values *= (scales.astype(np.float32) / np.float32(127))[:, None]
    return values


def describe_int8(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of an 8-bit layer."""
    codes = layer.need("weight", ("I8",), (2,))
    scales = layer.need("SCB", ("F32", "F16", "BF16"), (1, 2))
    layout = layer.optional("weight_format", ("U8", "I8", "I32", "I64"), (0, 1))
    if scales.elements != codes.shape[0]:
        raise FormatError(Text("SCB has {n} scales for {m} rows", n=scales.elements, m=codes.shape[0]))
    if layout is not None and layout.elements != 1:
        raise FormatError(Text("weight_format has {n} entries, expected one", n=layout.elements))
    decode, method = partial(_decode_int8, codes.name), verbatim("bitsandbytes int8")
    inputs = (codes, by_row), (scales, by_element), (layout, entire)
    return made_of(codes.name, method, method, codes.shape, decode, *inputs)


class QuantState(NamedTuple):
    """The JSON beside a 4-bit weight: shape, block sizes and offset."""

    shape: tuple[int, ...]
    block: int
    nested_block: int
    offset: float


def read_state(raw: Array, name: str) -> QuantState:
    """Parse the JSON and check its types; the caller checks that it fits the tensors."""
    try:
        value = orjson.loads(np.asarray(raw, dtype=np.uint8).tobytes())
    except orjson.JSONDecodeError as error:
        said = Text("{name}: its quant_state is not valid JSON: {why}", name=name, why=str(error))
        raise FormatError(said) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise FormatError(Text("{name}: its quant_state is a JSON {kind}, expected an object", name=name, kind=kind))
    shape, offset = value.get("shape"), value.get("nested_offset", 0.0)
    sides = shape if isinstance(shape, list) else []
    if not 0 < len(sides) <= MAX_AXES or not all(_counts(side, 1 << 40) for side in sides):
        raise FormatError(Text("{name}: its quant_state has no shape that makes sense", name=name))
    block, nested_block = value.get("blocksize"), value.get("nested_blocksize", 1)
    if not _counts(block, _MAX_BLOCK) or not _counts(nested_block, _MAX_BLOCK):
        raise FormatError(Text("{name}: its quant_state has no block size that makes sense", name=name))
    if type(offset) not in (int, float):
        raise FormatError(Text("{name}: its quant_state has a nested_offset that is no number", name=name))
    return QuantState(tuple(sides), block, nested_block, float(offset))


def _counts(value: object, most: int) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= most


@lru_cache
def _blocks(width: int, size: int) -> Select:
    """Select the elements of a vector that has one for each `size` elements of a matrix of so many columns."""
    return lambda stored, start, stop: by_element(stored, start * width // size, -(-stop * width // size))


@lru_cache
def _decoder(expected: QuantState) -> Callable[..., Array]:
    """Return a function that looks 4-bit codes up and scales them. Blocks run through rows."""
    width = math.prod(expected.shape[1:])

    def decode(
        name: str, start: int, stop: int, codes: Array, absmax: Array, table: Array, raw: Array, *nested: Array | None
    ) -> Array:
        state = read_state(raw, name)
        if state._replace(offset=expected.offset) != expected:
            raise FormatError(
                f"{name}: its quant_state says shape {list(state.shape)} in blocks of {state.block}, that of a "
                f"like weight says {list(expected.shape)} in blocks of {expected.block}",
                hint="compare a copy of the model that is not quantised",
            )
        low, skipped = start * width // state.block, start * width // 2
        scales, (nested_absmax, nested_table) = absmax, nested
        if nested_absmax is not None and nested_table is not None:
            blocks = np.arange(low, low + scales.size) // state.nested_block - low // state.nested_block
            scales = nested_table.astype(np.float32)[scales] * nested_absmax[blocks] + np.float32(state.offset)
        values_of_code = table.astype(np.float32)
        pairs = np.stack([np.repeat(values_of_code, 16), np.tile(values_of_code, 16)], axis=1)  # of each byte

        def piece(at: int, end: int) -> Array:
            begin, finish = at * width, end * width
            values = pairs[codes[begin // 2 - skipped : -(-finish // 2) - skipped]].reshape(-1)
            values = values[begin % 2 : begin % 2 + finish - begin]
            values *= _spread(scales, begin, finish, state.block, low)
            return values.reshape(-1, width)

        return in_chunks(start, stop, width, piece).reshape(stop - start, *expected.shape[1:])

    return decode


def _spread(scales: Array, begin: int, finish: int, block: int, low: int) -> npt.NDArray[np.float32]:
    """Return the scale of each element from `begin` to `finish`; `scales` begins with block number `low`."""
    first, last = begin // block, -(-finish // block)
    wide = np.repeat(scales[first - low : last - low].astype(np.float32, copy=False), block)
    return wide[begin - first * block : finish - first * block]


def state_tensor(layer: QuantisedLayer) -> TensorInfo | None:
    """Return the small tensor that has to be read to know a 4-bit weight's shape."""
    found = [layer.parts[suffix] for suffix in STATES if suffix in layer.parts]
    fine = len(found) == 1 and found[0].dtype == "U8" and 0 < found[0].elements <= STATE_CAP
    return found[0] if fine else None


def describe_4bit(layer: QuantisedLayer) -> TensorInfo:
    """Describe the weight of a 4-bit layer."""
    codes = layer.parts.get("weight")
    if codes is None:
        raise FormatError(Text("no {name} is stored", name="weight"))
    if codes.made is None:
        codes = codes._replace(dtype="U8", shape=(codes.nbytes,))  # the stored type is arbitrary
    elif codes.dtype != "U8":  # values of an archive are decoded, which codes of another type do not survive
        raise FormatError(Text("4-bit codes stored as {dtype} in an archive; known: U8", dtype=codes.dtype))
    state_bytes = state_tensor(layer)
    if state_bytes is None or layer.seen is None:
        raise FormatError(Text("no quant_state of up to {n} bytes is stored", n=STATE_CAP))
    kind = next(name for suffix, name in STATES.items() if suffix in layer.parts)
    absmax = layer.need("weight.absmax", ("U8", "F32"), (1, 2))
    table = layer.need("weight.quant_map", ("F32", "F16", "BF16"), (1,))
    nested_absmax = nested_table = None
    if absmax.dtype == "U8":
        nested_absmax = layer.need("weight.nested_absmax", ("F32",), (1,))
        nested_table = layer.need("weight.nested_quant_map", ("F32", "F16", "BF16"), (1,))
    state = read_state(layer.seen, codes.name)
    elements = math.prod(state.shape)
    blocks = -(-elements // state.block)
    fits = -(-elements // 2) == codes.nbytes and absmax.elements == blocks and table.elements == 16
    if nested_absmax is not None and nested_table is not None:
        fits = fits and nested_absmax.elements == -(-blocks // state.nested_block) and nested_table.elements == 256
    if not fits:
        n, m, k = state.block, codes.nbytes, absmax.elements
        own: dict[str, Value] = {"shape": str(list(state.shape)), "n": n, "m": m, "k": k}
        raise FormatError(Text("shape {shape} in blocks of {n} does not fit {m} bytes of codes with {k} scales", **own))
    method = Text("bitsandbytes {kind}, blocks of {n}", kind=kind, n=state.block)
    if nested_absmax is not None:
        method = Text("bitsandbytes {kind}, blocks of {n}, scales quantised too", kind=kind, n=state.block)
    width = math.prod(state.shape[1:])
    nested = (nested_absmax, _blocks(width, state.block * state.nested_block)), (nested_table, entire)
    inputs = (codes, _blocks(width, 2)), (absmax, _blocks(width, state.block)), (table, entire), (state_bytes, entire)
    decode = partial(_decoder(state), codes.name)
    return made_of(codes.name, f"bitsandbytes {kind}", method, state.shape, decode, *inputs, *nested)
