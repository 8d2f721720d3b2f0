"""bitsandbytes: rows of 8-bit integers with a scale each, or blocks of 4-bit codes with a table of values.

int8 (Dettmers et al. 2022, "LLM.int8()"): ``weight`` (out × in) and ``SCB`` (out), the rows' largest magnitudes; a weight is
code · SCB / 127. ``weight_format`` says how the codes are laid out: 0 stands for rows, the others are for certain GPUs.

4-bit (Dettmers et al. 2023, "QLoRA"): ``weight`` holds two codes in a byte, the first in the high half, for the flattened matrix.
A weight is quant_map[code] · absmax[block]. With double quantisation absmax holds codes too: nested_quant_map[code] ·
nested_absmax[block] + nested_offset. Shape, block sizes and offset are in a small JSON stored as bytes
(``weight.quant_state.bitsandbytes__nf4`` or ``__fp4``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import orjson

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import TensorSlice, rows, whole
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks, flat, made_tensor
from kinprint.formats.tensors import TensorInfo
from kinprint.text import Text, verbatim

STATES = {"weight.quant_state.bitsandbytes__nf4": "NF4", "weight.quant_state.bitsandbytes__fp4": "FP4"}
STATE_CAP = 4096  # bytes: the JSON has 150
MAX_AXES = 4
_LAYOUTS = {1: "col32", 2: "col_turing", 3: "col_ampere"}
_MAX_BLOCK = 1 << 16


# -- int8 ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Int8:
    """A matrix from integers and the rows' scales."""

    codes: TensorInfo
    scales: TensorInfo
    layout: TensorInfo | None

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        return verbatim("bitsandbytes int8")

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the rows' codes and scales, and how the codes are laid out."""
        found = [rows(self.codes, [(start, stop)]), flat(self.scales, start, stop)]
        return found if self.layout is None else [*found, whole(self.layout)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:  # noqa: ARG002 - the parts are the rows
        """Scale the codes."""
        if len(parts) > 2 and int(parts[2].reshape(-1)[0]) != 0:
            number = int(parts[2].reshape(-1)[0])
            raise UnsupportedDtype(
                f"{self.codes.name}: bitsandbytes int8 laid out as {_LAYOUTS.get(number, number)!r}; supported: 'row'",
                hint="save the model again with a newer bitsandbytes, or compare a copy that is not quantised",
            )
        with np.errstate(all="ignore"):
            values: FloatArray = parts[0].astype(np.float32)
            values *= (parts[1].astype(np.float32) / np.float32(127))[:, None]
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
    made = Int8(codes, scales, layout)
    return made_tensor(codes.name, "bitsandbytes int8", codes.shape, made, codes, scales, layout)


# -- 4-bit ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuantState:
    """What the JSON beside a 4-bit weight says."""

    shape: tuple[int, ...]
    block: int
    nested_block: int
    offset: float


def read_state(raw: Array, name: str) -> QuantState:
    """Parse the JSON and check its types; whether it fits the tensors is for the caller to see."""
    try:
        value = orjson.loads(np.asarray(raw, dtype=np.uint8).tobytes())
    except orjson.JSONDecodeError as error:
        said = Text("{name}: its quant_state is not valid JSON: {why}", name=name, why=str(error))
        raise FormatError(said) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise FormatError(Text("{name}: its quant_state is a JSON {kind}, expected an object", name=name, kind=kind))
    shape, offset = value.get("shape"), value.get("nested_offset", 0.0)
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= MAX_AXES
        or not all(_counts(side, 1 << 40) for side in shape)
    ):
        raise FormatError(Text("{name}: its quant_state has no shape that makes sense", name=name))
    block, nested_block = value.get("blocksize"), value.get("nested_blocksize", 1)
    if not _counts(block, _MAX_BLOCK) or not _counts(nested_block, _MAX_BLOCK):
        raise FormatError(Text("{name}: its quant_state has no block size that makes sense", name=name))
    if type(offset) not in (int, float):
        raise FormatError(Text("{name}: its quant_state has a nested_offset that is no number", name=name))
    return QuantState(tuple(shape), block, nested_block, float(offset))


def _counts(value: object, most: int) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= most


@dataclass(frozen=True, slots=True)
class FourBit:
    """A matrix from 4-bit codes in blocks. Blocks run through rows; those that touch the rows asked for are read."""

    codes: TensorInfo  # as bytes
    absmax: TensorInfo
    table: TensorInfo
    nested_absmax: TensorInfo | None
    nested_table: TensorInfo | None
    state_bytes: TensorInfo
    state: QuantState
    kind: str

    @property
    def method(self) -> Text:
        """What is done, for the report."""
        kind, block = self.kind, self.state.block
        if self.nested_absmax is None:
            return Text("bitsandbytes {kind}, blocks of {n}", kind=kind, n=block)
        return Text("bitsandbytes {kind}, blocks of {n}, scales quantised too", kind=kind, n=block)

    def _spans(self, start: int, stop: int) -> tuple[int, int, int, int]:
        """Return the elements of some rows, and the blocks that hold them."""
        width = math.prod(self.state.shape[1:])
        first, last = start * width, stop * width
        return first, last, first // self.state.block, -(-last // self.state.block)

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the bytes and blocks of the rows, the tables, and the state."""
        if start >= stop:
            return []
        first, last, low, high = self._spans(start, stop)
        found = [flat(self.codes, first // 2, -(-last // 2)), flat(self.absmax, low, high), whole(self.table)]
        if self.nested_absmax is not None and self.nested_table is not None:
            size = self.state.nested_block
            found += [flat(self.nested_absmax, low // size, -(-high // size)), whole(self.nested_table)]
        return [*found, whole(self.state_bytes)]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Look the codes up and scale them."""
        width = math.prod(self.state.shape[1:])
        built: FloatArray = np.empty((stop - start, width), np.float32)
        if not parts:
            return built
        state = read_state(parts[-1], self.codes.name)
        if replace(state, offset=self.state.offset) != self.state:
            raise FormatError(
                f"{self.codes.name}: its quant_state says shape {list(state.shape)} in blocks of {state.block}, that of a "
                f"like weight says {list(self.state.shape)} in blocks of {self.state.block}",
                hint="compare a copy of the model that is not quantised",
            )
        codes, scales, table = parts[0], parts[1], parts[2].astype(np.float32)
        first, _, low, _ = self._spans(start, stop)
        with np.errstate(all="ignore"):
            if self.nested_absmax is not None:
                blocks = np.arange(low, low + scales.size) // state.nested_block - low // state.nested_block
                scales = parts[4].astype(np.float32)[scales] * parts[3][blocks] + np.float32(state.offset)
            pairs = np.stack([np.repeat(table, 16), np.tile(table, 16)], axis=1)  # both values of each byte
            for at, end in chunks(start, stop, width):
                begin, finish = at * width, end * width
                skipped = first // 2
                values = pairs[codes[begin // 2 - skipped : -(-finish // 2) - skipped]].reshape(-1)
                values = values[begin % 2 : begin % 2 + finish - begin]
                values *= _spread(scales, begin, finish, state.block, low)
                built[at - start : end - start] = values.reshape(-1, width)
        return built.reshape(stop - start, *self.state.shape[1:])


def _spread(scales: Array, begin: int, finish: int, block: int, low: int) -> npt.NDArray[np.float32]:
    """Return the scale of each element from `begin` to `finish`; `scales` begins with block number `low`."""
    first, last = begin // block, -(-finish // block)
    wide = np.repeat(scales[first - low : last - low].astype(np.float32, copy=False), block)
    found: npt.NDArray[np.float32] = wide[begin - first * block : finish - first * block]
    return found


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
        codes = codes._replace(dtype="U8", shape=(codes.nbytes,))  # it may be stored as any type; its bytes count
    elif codes.dtype != "U8":  # in an archive: its bytes come decoded, which codes of another type do not survive
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
        raise FormatError(
            Text(
                "shape {shape} in blocks of {n} does not fit {m} bytes of codes with {k} scales",
                shape=str(list(state.shape)),
                n=state.block,
                m=codes.nbytes,
                k=absmax.elements,
            )
        )
    made = FourBit(codes, absmax, table, nested_absmax, nested_table, state_bytes, state, kind)
    others = absmax, table, nested_absmax, nested_table, state_bytes
    return made_tensor(codes.name, f"bitsandbytes {kind}", state.shape, made, codes, *others)
