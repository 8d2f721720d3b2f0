"""Read from an ONNX file, without its tensors' data, where these data are and which nodes use them.

Field numbers are those of onnx.proto (ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto).
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.checks import MAX_SIDES, too_large
from kinprint.formats.onnx.protobuf import LENGTH, VARINT, Field, Window, signed
from kinprint.text import Text

MAX_TENSORS = 1 << 15  # a mixture of experts taken apart has 18,000
MAX_NODES = 1 << 16  # of the kinds that are looked at; a large language model has 10,000
MAX_INPUTS = 12
MAX_DEPTH = 8  # graphs inside nodes inside graphs
SMALL = 64  # bytes of an integer constant that is read: a shape
LEAST_WEIGHT = 64  # elements of a constant inside a node that counts as a weight
OPERATORS = frozenset({
    "MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "MatMulNBits", "Add", "Cast", "Mul", "Sub", "Identity", "Transpose",
    "DequantizeLinear", "Gather", "Reshape", "Concat", "Constant", "Attention", "QAttention", "BiasGelu", "FastGelu",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
})  # fmt: skip
DTYPES = {
    1: "F32", 2: "U8", 3: "I8", 5: "I16", 6: "I32", 7: "I64", 9: "BOOL", 10: "F16", 11: "F64", 16: "BF16",
    17: "F8_E4M3", 19: "F8_E5M2", 21: "U4", 22: "I4",
}  # fmt: skip
_NAMES = [
    "undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16",
    "double", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz",
    "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2",
]  # fmt: skip
_TEXT, _UNSIGNED = 8, frozenset({4, 12, 13})
LEAST_CODES = 4096  # elements of an integer tensor that may be weights
_FLOAT_DATA, _INT32_DATA, _INT64_DATA, _RAW_DATA, _DOUBLE_DATA = 4, 5, 7, 9, 10
_PLAIN = {_FLOAT_DATA: "F32", _DOUBLE_DATA: "F64"}  # stored as in memory; the other lists are of varints
_NOT_IN_VARINTS = ("F32", "F64", "U4", "I4")
_MOST_NUMBERS = 16 * MAX_SIDES  # bytes
_SCOPES = "pkg.torch.onnx.name_scopes"
_Numbers = dict[str, tuple[int, ...]]


def dtype_name(code: int) -> str:
    """Return ONNX's name of a number format."""
    return _NAMES[code] if 0 < code < len(_NAMES) else f"type {code}"


class StoredTensor(NamedTuple):
    """A tensor: its data from byte `start` to `end` of the file, as varints or not, or in another file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    varints: bool
    outside: Mapping[str, str] | None
    values: tuple[int, ...] | None  # of small integer tensors

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class GraphNode(NamedTuple):
    """A node of the graph: operator, name, names of inputs and outputs, integer attributes, and the module it is in."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[int, ...]]
    module: str

    def attribute(self, name: str, default: int) -> int:
        """Return an attribute that is one number."""
        return self.attributes.get(name, (default,))[0]


@dataclass
class Contents:
    """Tensors, nodes and constants of a file."""

    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    nodes: list[GraphNode] = field(default_factory=list)
    constants: dict[str, tuple[int, ...]] = field(default_factory=dict)
    left_out: dict[Text, int] = field(default_factory=dict)  # kinds of tensors that are not read, with their counts
    graphs: int = 0

    def skip(self, what: Text) -> None:
        """Count a kind of tensor that is not read."""
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def count(self, have: int, most: int, what: str, label: str) -> None:
        """Refuse more tensors, nodes or constants than any model has."""
        if have >= most:
            raise FormatError(f"{label}: more than {most} {what}; no model has so many")


def read_model(window: Window) -> Contents:
    """Read the graph of a file."""
    found = Contents()
    for item in window.fields(0, window.size):
        if item.number == 7:
            window.expect(item, LENGTH, "the graph")
            if found.graphs:
                raise FormatError(f"{window.label}: has two graphs, expected one", hint="the file is damaged")
            _graph(window, item, found, 0)
    if not found.graphs:
        said = f"{window.label}: holds no graph, so it is no ONNX model"
        raise FormatError(said, hint="check that this is the .onnx file itself")
    return found


def _graph(window: Window, whole: Field, found: Contents, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise FormatError(f"{window.label}: graphs inside graphs, more than {MAX_DEPTH} deep")
    found.graphs += 1
    for item in window.fields(whole.start, whole.end):
        if item.number == 1:
            window.expect(item, LENGTH, "a node")
            _node(window, item, found, depth)
        elif item.number == 5:
            window.expect(item, LENGTH, "a tensor")
            stored = _tensor(window, item, found)
            if stored is not None:
                _keep(window, stored, found, depth)
        elif item.number == 15:
            found.skip(Text("sparse tensors"))


def _keep(window: Window, stored: StoredTensor, found: Contents, depth: int) -> None:
    found.count(len(found.tensors), MAX_TENSORS, "tensors", window.label)
    if stored.name in found.tensors:
        if depth:  # the two branches of a condition may each bring their own
            found.skip(Text("tensors of inner graphs whose name is taken"))
            return
        raise FormatError(f"{window.label}: names {stored.name[:200]!r} twice", hint="the file is damaged")
    if not stored.name:
        raise FormatError(f"{window.label}: a tensor has no name", hint="the file is damaged")
    found.tensors[stored.name] = stored


def _node(window: Window, whole: Field, found: Contents, depth: int) -> None:
    ends: dict[int, list[str]] = {1: [], 2: []}
    texts = {3: "", 4: "", 9: ""}
    attributes: _Numbers = {}
    tensors: list[StoredTensor] = []
    for item in window.fields(whole.start, whole.end):
        if item.number in ends:
            if len(ends[item.number]) <= MAX_INPUTS:
                ends[item.number].append(window.text(item, "a value's name"))
        elif item.number in (3, 4):
            texts[item.number] = window.text(item, "a node's name")
        elif item.number == 5:
            window.expect(item, LENGTH, "an attribute")
            _attribute(window, item, found, depth, attributes, tensors)
        elif item.number == 9:
            texts[9] = _scopes(window, item) or texts[9]
    if texts[4] not in OPERATORS or len(ends[1]) > MAX_INPUTS or not ends[2]:
        return
    if texts[4] == "Constant":
        for stored in tensors[:1]:
            _constant(window, stored._replace(name=ends[2][0]), found, depth)
        return
    found.count(len(found.nodes), MAX_NODES, "nodes", window.label)
    found.nodes.append(GraphNode(texts[4], texts[3], tuple(ends[1]), tuple(ends[2][:1]), attributes, texts[9]))


def _constant(window: Window, stored: StoredTensor, found: Contents, depth: int) -> None:
    """Keep what a node Constant holds: a shape, or weights."""
    if stored.values is not None:
        found.count(len(found.constants), MAX_NODES, "constants", window.label)
        found.constants[stored.name] = stored.values
    elif stored.elements >= LEAST_WEIGHT:
        _keep(window, stored, found, depth)


def _attribute(
    window: Window, whole: Field, found: Contents, depth: int, attributes: _Numbers, tensors: list[StoredTensor]
) -> None:
    name = ""
    numbers: list[int] = []
    for item in window.fields(whole.start, whole.end):
        if item.number == 1:
            name = window.text(item, "an attribute's name")
        elif item.number in (3, 8) and len(numbers) < MAX_INPUTS:
            numbers += _numbers(window, item)
        elif item.number == 5:
            window.expect(item, LENGTH, "a tensor")
            stored = _tensor(window, item, found)
            tensors += [stored] if stored is not None and not tensors else []
        elif item.number == 6:
            window.expect(item, LENGTH, "a graph")
            _graph(window, item, found, depth + 1)
    if numbers and name and len(attributes) < MAX_INPUTS:
        attributes[name] = tuple(numbers[:MAX_INPUTS])


def _scopes(window: Window, whole: Field) -> str:
    """Return the module that a node's notes name: the exporter of newer torch lists the scopes it is in, and then itself."""
    window.expect(whole, LENGTH, "a note")
    key = ""
    for item in window.fields(whole.start, whole.end):
        if item.number == 1:
            key = window.text(item, "a note")
        elif item.number == 2 and key == _SCOPES and item.end - item.start <= 4096:
            scopes = window.text(item, "a note").strip("[]").split(", ")
            return scopes[-2].strip("'\"") if len(scopes) > 1 else ""
    return ""


def _tensor(window: Window, whole: Field, found: Contents) -> StoredTensor | None:
    """Read a tensor's description; None for types that no weight has."""
    name, code, elsewhere = "", 0, 0
    sides: list[int] = []
    data: list[Field] = []
    outside: dict[str, str] = {}
    for item in window.fields(whole.start, whole.end):
        if item.number == 1:
            long = item.kind == LENGTH and item.end - item.start > _MOST_NUMBERS
            sides += [] if long else _numbers(window, item)
            if long or len(sides) > MAX_SIDES:
                raise FormatError(f"{window.label}: tensor {name[:200]!r} has more than {MAX_SIDES} sides")
        elif item.number == 2:
            window.expect(item, VARINT, "a type of number")
            code = item.start
        elif item.number == 8:
            name = window.text(item, "a tensor's name")
        elif item.number in (4, 5, 6, 7, 9, 10, 11) and (item.kind != LENGTH or item.end > item.start):
            data.append(item)
            if len(data) > 1:
                break
        elif item.number == 13 and len(outside) < MAX_INPUTS:
            outside |= _entry(window, item)
        elif item.number == 14:
            window.expect(item, VARINT, "a place of data")
            elsewhere = item.start
    if code == _TEXT or (code in _UNSIGNED and math.prod(sides) < LEAST_CODES):
        found.skip(Text("tensors of {dtype}", dtype=dtype_name(code)))
        return None
    return _described(window, name, code, tuple(sides), data, outside if elsewhere == 1 else None)


def _described(
    window: Window, name: str, code: int, shape: tuple[int, ...], data: list[Field], outside: Mapping[str, str] | None
) -> StoredTensor:
    where = f"{window.label}: tensor {name[:200]!r}"
    if any(side < 0 for side in shape) or too_large(shape):
        raise FormatError(f"{where} has a shape that no array can have: {str(shape)[:200]}")
    if code not in DTYPES:
        said = f"{where} is stored as {dtype_name(code)}; supported: {', '.join(dtype_name(known) for known in DTYPES)}"
        raise UnsupportedDtype(said, hint="compare a copy of the model that is stored in one of these")
    dtype = DTYPES[code]
    if len(data) > 1 or (data and data[0].kind != LENGTH):
        said = f"{where} has its data in pieces, expected them in one"
        raise FormatError(said, hint="save it anew with the onnx package")
    if outside is not None or not data:
        return StoredTensor(name, dtype, shape, 0, 0, False, outside, None)
    item = data[0]
    varints = item.number == (_INT64_DATA if dtype == "I64" else _INT32_DATA) and dtype not in _NOT_IN_VARINTS
    if not varints and item.number != _RAW_DATA and _PLAIN.get(item.number) != dtype:
        raise FormatError(f"{where} is of {dtype_name(code)}, but has its data in field {item.number}")
    values = _small(window, item, dtype, varints=varints)
    return StoredTensor(name, dtype, shape, item.start, item.end, varints, None, values)


def _small(window: Window, item: Field, dtype: str, *, varints: bool) -> tuple[int, ...] | None:
    """Return the values of a short list of integers, which is a shape or an axis."""
    size = item.end - item.start
    if dtype != "I64" or size > SMALL:
        return None
    if varints:
        return tuple(_numbers(window, item))
    raw = window.take(item.start, item.end)
    return struct.unpack(f"<{size // 8}q", raw) if size % 8 == 0 else None


def _numbers(window: Window, item: Field) -> list[int]:
    """Return the values of a repeated integer field: one of them, or several packed."""
    if item.kind == VARINT:
        return [signed(item.start)]
    window.expect(item, LENGTH, "a list of numbers")
    if item.end - item.start > _MOST_NUMBERS:
        return []  # of nothing that is looked at
    raw = window.take(item.start, item.end)
    numbers, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(signed(value & 0xFFFF_FFFF_FFFF_FFFF))
            value = shift = 0
    if shift:
        raise FormatError(f"{window.label}: the list of numbers at byte {item.start} does not end")
    return numbers


def _entry(window: Window, whole: Field) -> dict[str, str]:
    window.expect(whole, LENGTH, "an entry")
    fields = window.fields(whole.start, whole.end)
    texts = {item.number: window.text(item, "a place of data") for item in fields if item.number in (1, 2)}
    return {texts.get(1, ""): texts.get(2, "")}
