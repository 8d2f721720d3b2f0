"""Find in an ONNX graph which tensors are codes, what scales them, and the parameter names that exporters dropped.

torch's exporters keep the name of a parameter that is used as it is. The weight of a linear layer is transposed for MatMul, and
then called onnx::MatMul_856 or val_49. Its module is in the node's name ("/encoder/layer.0/output/dense/MatMul"), in the
node's notes, or in the name of the bias that is added next.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from kinprint.formats.dtypes import FLOATS
from kinprint.formats.onnx.protos import Contents, GraphNode, StoredTensor

CODES = frozenset({"I8", "U8", "I4", "U4"})
_WIDE_CODES = frozenset({"I16", "I32"})  # biases, where whole layers are quantised; elsewhere these are no codes
_HOPS = 5  # from a product of codes to the sum with the bias: a cast, and one or two factors


class _OperatorInputs(NamedTuple):
    """Which inputs of an operator are the weight, its scale, its zero point, and the bias."""

    weight: int
    scale: int | None = None
    zero: int | None = None
    bias: int | None = None


PRODUCTS = {
    "MatMul": _OperatorInputs(1),
    "Gemm": _OperatorInputs(1, bias=2),
    "MatMulInteger": _OperatorInputs(1, zero=3),
    "QLinearMatMul": _OperatorInputs(3, 4, 5),
    "QGemm": _OperatorInputs(3, 4, 5, 6),
    "MatMulIntegerToFloat": _OperatorInputs(1, 3, 5, 6),
    "DynamicQuantizeMatMul": _OperatorInputs(1, 2, 3, 4),
    "MatMulNBits": _OperatorInputs(1, 2, 3, 5),
}
_TURNABLE = frozenset({"Gemm", "QGemm"})
_FUSED_BIASES = {"SkipLayerNormalization": 4, "SkipSimplifiedLayerNormalization": 3, "BiasGelu": 1, "FastGelu": 1}
"""Operators of onnxruntime that add the bias of the product before them, and which of their inputs that is."""
FUSED_ATTENTION = {"Attention": _OperatorInputs(1, bias=2), "QAttention": _OperatorInputs(1, 4, 7, 2)}
"""Operators of onnxruntime that multiply with q, k and v in one matrix, in × out."""
_MERGED = re.compile(r"_merged_[0-9]+(?=(?:_(?:quantized|scales?|zero_points?|zp))?$)")
_OUTPUT = re.compile(r"\.(?:output\.dense|out_lin|out_proj|o_proj|dense)$")
_CODED_SUFFIX = re.compile(r"_(?:quantized|q|Q[248]|int8|uint8)$")
_ANONYMOUS = re.compile(r"[^.]*[0-9]")
_IN_BY_OUT = frozenset({"c_attn", "c_proj", "c_fc", "q_attn"})  # GPT-2's own, in × out in every format
_NAMED_SCALES = ("_scale", "_scales")
_NAMED_ZEROS = ("_zero_point", "_zero_points", "_zp")


class Coding(NamedTuple):
    """The scale and zero point of codes. ``packed`` holds bits, block and columns of MatMulNBits."""

    scale: str
    zero: str | None
    axis: int
    block: int
    packed: tuple[int, int, int] | None = None


class _Derived(NamedTuple):
    """A value that is a stored tensor, or that tensor cast, transposed, or decoded."""

    base: str
    transposed: bool = False
    decoded: bool = False
    zero: str | None = None


@dataclass
class Findings:
    """Codings, names and config that a graph shows."""

    codings: dict[str, Coding] = field(default_factory=dict)  # by the stored tensor of codes
    names: dict[str, tuple[str, bool]] = field(default_factory=dict)  # of parameters, and whether stored in × out
    copies: dict[str, str] = field(default_factory=dict)  # further parameters that are the same stored tensor
    config: dict[str, object] = field(default_factory=dict)  # numbers of heads, as far as reshaping shows them


def is_anonymous(name: str) -> bool:
    """Whether an exporter made a name up: onnx::MatMul_856, val_49, val_49_q, 1234, /encoder/Constant_3_output_0."""
    name = _CODED_SUFFIX.sub("", name)
    return "/" in name or "::" in name or _ANONYMOUS.fullmatch(name) is not None


def unmerged(contents: Contents) -> Contents:
    """Take off what is put behind names where two graphs of one model were merged (`decoder_model_merged.onnx`)."""
    names = {name: _MERGED.sub("", name) for name in contents.tensors if _MERGED.search(name)}
    counts = Counter(names.values())
    names = {old: new for old, new in names.items() if counts[new] == 1 and new not in contents.tensors}
    if not names:
        return contents
    tensors = {
        new: tensor._replace(name=new) for name, tensor in contents.tensors.items() for new in (names.get(name, name),)
    }
    nodes = [node._replace(inputs=tuple(names.get(name, name) for name in node.inputs)) for node in contents.nodes]
    return replace(contents, tensors=tensors, nodes=nodes)


class GraphStudy:
    """Finds codings, names and numbers of heads from the nodes."""

    def __init__(self, contents: Contents) -> None:
        self._tensors = contents.tensors
        self._nodes = contents.nodes
        concats = [node for node in reversed(contents.nodes) if node.operator == "Concat" and node.outputs]
        self._concats = {node.outputs[0]: node for node in concats}
        self._constants = contents.constants
        self._derived = {name: _Derived(name) for name in contents.tensors}
        self._found = Findings()
        self._uses: dict[str, list[GraphNode]] = {}
        for node in contents.nodes:
            for name in node.inputs:
                self._uses.setdefault(name, []).append(node)

    def run(self) -> Findings:
        """Return what the nodes show."""
        for node in self._nodes:
            self._follow(node)
        products = [node for node in self._nodes if node.operator in PRODUCTS]
        attentions = [node for node in self._nodes if node.operator in FUSED_ATTENTION]
        for node in products:
            self._scales(node, PRODUCTS[node.operator])
        for node in attentions:
            self._scales(node, FUSED_ATTENTION[node.operator])
        self._by_convention()
        for node in products:
            self._product(node)
        for node in attentions:
            self._attention(node)
        self._named_codes()
        self._copies()
        return self._found

    def _follow(self, node: GraphNode) -> None:
        source = self._derived.get(node.inputs[0]) if node.inputs else None
        out = node.outputs[0]
        if out in self._derived:
            return
        if node.operator in ("Mul", "Sub"):
            self._arithmetic(node, out)
        elif source is None:
            return
        elif node.operator in ("Identity", "Cast"):
            self._derived[out] = source
        elif node.operator == "Transpose" and len(self._tensors[source.base].shape) == 2:
            if node.attributes.get("perm", (1, 0)) == (1, 0):
                self._derived[out] = source._replace(transposed=not source.transposed)
        elif node.operator == "Gather" and self._is_code(source.base):
            self._derived[out] = source
        elif node.operator == "DequantizeLinear" and len(node.inputs) > 1 and self._is_code(source.base, wide=True):
            zero = node.inputs[2] if len(node.inputs) > 2 else None
            self._decode(source, out, node.inputs[1], zero, node.attribute("axis", 1), node.attribute("block_size", 0))

    def _arithmetic(self, node: GraphNode, out: str) -> None:
        """Follow codes that are cast, and then scaled by plain arithmetic."""
        for this, other in ((0, 1), (1, 0)):
            if len(node.inputs) != 2 or (node.operator == "Sub" and this):
                return
            source, name = self._derived.get(node.inputs[this]), node.inputs[other]
            if source is None or source.decoded or not self._is_code(source.base) or name not in self._derived:
                continue
            if node.operator == "Sub":
                self._derived[out] = source._replace(zero=self._derived[name].base)
            elif self._tensors[self._derived[name].base].dtype in FLOATS:
                self._decode(source, out, name, source.zero, -1, 0)
            return

    def _decode(self, source: _Derived, out: str, scale: str, zero: str | None, axis: int, block: int) -> None:
        if source.transposed or scale not in self._derived:
            return
        zero = self._derived[zero].base if zero in self._derived else None
        coding = Coding(self._derived[scale].base, zero, axis, block)
        self._found.codings.setdefault(source.base, coding)
        self._derived[out] = source._replace(decoded=True)

    def _is_code(self, name: str, *, wide: bool = False) -> bool:
        return self._tensors[name].dtype in (CODES | _WIDE_CODES if wide else CODES)

    def _scales(self, node: GraphNode, places: _OperatorInputs) -> None:
        source = self._derived.get(_input(node, places.weight))
        scale = self._derived.get(_input(node, places.scale))
        if source is None or scale is None or not self._is_code(source.base) or source.base in self._found.codings:
            return
        zero = self._derived.get(_input(node, places.zero))
        packed = None
        if node.operator == "MatMulNBits":
            bits = 0 if _input(node, 4) else node.attribute("bits", 4)  # an order of columns is not supported
            packed = (bits, node.attribute("block_size", 0), node.attribute("K", 0))
        self._found.codings[source.base] = Coding(scale.base, zero.base if zero else None, -1, 0, packed)

    def _product(self, node: GraphNode) -> None:
        value = _input(node, PRODUCTS[node.operator].weight)
        source = self._derived.get(value)
        if source is None or source.base in self._found.names:
            return
        base = source.base
        if len(self._tensors[base].shape) != (3 if node.operator == "MatMulNBits" else 2):
            return
        across = node.operator != "MatMulNBits" and not (node.operator in _TURNABLE and node.attribute("transB", 0))
        across = across != source.transposed
        name = self._given(base, value)
        if is_anonymous(name):
            module = self._module(node)
            if module:
                self._found.names[base] = (f"{module}.weight", across)
                self._heads(node, module, base, across)
        elif ".MatMul.weight" in name:  # the builder of onnxruntime-genai
            self._found.names[base] = (name.replace(".MatMul.weight", ".weight"), across)
        elif across and base in self._found.codings and name.split(".")[-2:][0] not in _IN_BY_OUT:
            # onnxruntime transposes a linear layer's weight before quantising, under the same name.
            self._found.names[base] = (name, True)

    def _attention(self, node: GraphNode) -> None:
        """Name q, k and v in one matrix by the module that the output of attention goes to."""
        users = self._uses.get(node.outputs[0], [])
        output = self._module(users[0]) if len(users) == 1 and users[0].operator in PRODUCTS else ""
        block = _OUTPUT.sub("", output)
        if not output or block == output:
            return
        places = FUSED_ATTENTION[node.operator]
        for place, ending in ((places.weight, "weight"), (places.bias, "bias")):
            source = self._derived.get(_input(node, place))
            sides = len(self._tensors[source.base].shape) if source is not None else 0
            if source is not None and sides == (2 if ending == "weight" else 1) and not source.transposed:
                self._found.names.setdefault(source.base, (f"{block}.qkv.{ending}", ending == "weight"))
        heads = node.attribute("num_heads", 0)
        if heads > 0:
            self._found.config.setdefault("num_attention_heads", heads)

    def _given(self, base: str, value: str) -> str:
        """Return the name that a tensor has, or that of the value it is decoded to."""
        stem = _CODED_SUFFIX.sub("", base)
        return value if is_anonymous(stem) and _is_parameter(value) else stem

    def _module(self, node: GraphNode) -> str:
        """Return the module that a product belongs to: by the node's place, or by the bias added to it."""
        path = node.module or _path(node.name)
        if path and f"{path}.bias" in self._derived:
            return path
        bias = _input(node, PRODUCTS[node.operator].bias)
        named = bias if bias in self._derived and bias.endswith(".bias") else self._added(node)
        return named.removesuffix(".bias") or path

    def _added(self, node: GraphNode) -> str:
        """Return the name of the bias that is added to the output of a node."""
        for step in self._onwards(node):
            if step.operator == "Add" or step.operator in _FUSED_BIASES:
                place = _FUSED_BIASES.get(step.operator)
                inputs = step.inputs if place is None else step.inputs[place : place + 1]
                names = [name for name in inputs if name in self._derived and name.endswith(".bias")]
                return names[0] if len(names) == 1 and not is_anonymous(names[0]) else ""
        return ""

    def _onwards(self, node: GraphNode) -> Iterator[GraphNode]:
        """Walk on from a node while its output goes to one place only."""
        for _ in range(_HOPS):
            users = self._uses.get(node.outputs[0], [])
            if len(users) != 1 or users[0].operator not in {"Cast", "Mul", "Add", "Reshape"} | _FUSED_BIASES.keys():
                return
            node = users[0]
            yield node

    def _heads(self, node: GraphNode, module: str, base: str, across: bool) -> None:
        """Learn the number of heads from the shape that queries and keys are reshaped to."""
        key = _HEAD_COUNTS.get(module.rsplit(".", 1)[-1])
        if key is None or key in self._found.config:
            return
        reshape = next((step for step in self._onwards(node) if step.operator == "Reshape"), None)
        shape = self._shape(_input(reshape, 1)) if reshape is not None else ()
        outputs = self._tensors[base].shape[1 if across else 0]
        if len(shape) == 4 and shape[3] > 0 and outputs % shape[3] == 0 and shape[2] in (-1, 0, outputs // shape[3]):
            self._found.config[key] = outputs // shape[3]

    def _shape(self, name: str) -> Sequence[int]:
        """Return the shape that a value holds; what is not constant counts as −1."""
        known = self._number(name)
        if known is not None:
            return known
        made = self._concats.get(name)
        if made is None or len(made.inputs) != 4:
            return ()
        return [(self._number(part) or (-1,))[0] for part in made.inputs]

    def _number(self, name: str) -> tuple[int, ...] | None:
        stored = self._tensors.get(name)
        return self._constants.get(name) if stored is None else stored.values

    def _by_convention(self) -> None:
        """Find scales of codes that the graph does not lead to: X_quantized, X_scale, X_zero_point."""
        for name, tensor in self._tensors.items():
            if tensor.dtype not in CODES or name in self._found.codings:
                continue
            stem = _CODED_SUFFIX.sub("", name)
            scale = next((stem + end for end in _NAMED_SCALES if stem + end in self._tensors), None)
            if scale is not None:
                zero = next((stem + end for end in _NAMED_ZEROS if stem + end in self._tensors), None)
                self._found.codings[name] = Coding(scale, zero, -1, 0)

    def _named_codes(self) -> None:
        """Give codes the name of what they stand for: that of the value they are decoded to, or their own without its end."""
        values: dict[str, str] = {}
        for value, source in self._derived.items():
            if source.decoded and not source.transposed and not is_anonymous(value):
                values.setdefault(source.base, value)
        for base in self._found.codings:
            self._found.names.setdefault(base, (self._given(base, values.get(base, "")), False))

    def _copies(self) -> None:
        """Find parameters that the exporter stored once because they are equal."""
        for node in self._nodes:
            name, source = node.outputs[0], self._derived.get(node.outputs[0])
            plain = node.operator == "Identity" and source and not (source.transposed or source.decoded)
            if plain and source and name not in self._tensors and _is_parameter(name):
                self._found.copies[name] = source.base


_HEAD_COUNTS = {
    **dict.fromkeys(("query", "q_proj", "q_lin", "q"), "num_attention_heads"),
    **dict.fromkeys(("key", "k_proj", "k_lin", "k"), "num_key_value_heads"),
}


def _input(node: GraphNode, place: int | None) -> str:
    return node.inputs[place] if place is not None and place < len(node.inputs) else ""


def _path(name: str) -> str:
    """Return the module in a node's name, "/encoder/layer.0/output/dense/MatMul"."""
    bits = name.split("/")
    return ".".join(bits[1:-1]) if len(bits) > 2 and not bits[0] and all(bits[1:]) else ""


def _is_parameter(name: str) -> bool:
    return name.endswith((".weight", ".bias")) and not is_anonymous(name)


def wrapper_of(names: Mapping[str, StoredTensor | object]) -> str:
    """Return what stands before all names of the model itself, where it was exported inside another module."""
    # Blocks and embeddings of such a model begin alike ("inner.encoder.layer.0", "inner.embeddings"). What is left must still
    # have a name before the blocks, so that the usual "model.layers.0" and "model.embed_tokens" are no wrapper.
    matches = [re.match(r"((?:[^.]+\.){1,8}?)[0-9]{1,4}\.", name) for name in names]
    heads = Counter(found[1] for found in matches if found and not found[1].rsplit(".", 2)[-2].isdecimal())
    embedding = next((name for name in names if "embed" in name), None)
    if not heads or embedding is None:
        return ""
    blocks = max(heads, key=heads.__getitem__).split(".")[:-1]
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(blocks[:-2], embedding.split("."), strict=False))
    return "".join(f"{part}." for part, _ in shared)


def scale_axis(shape: tuple[int, ...], scale: tuple[int, ...], coding: Coding) -> int | None:
    """Return the axis of codes along which scales differ, None for one scale. Raise ValueError if the scales fit no axis."""
    count, sides = math.prod(scale), len(shape)
    if count == 1:
        return None
    axis = coding.axis + sides if coding.axis < 0 else coding.axis
    if coding.block:
        blocks = tuple(-(-side // coding.block) if at == axis else side for at, side in enumerate(shape))
        if 0 <= axis < sides and scale == blocks:
            return axis
    elif len(scale) == 1 and 0 <= axis < sides and shape[axis] == count:
        return axis
    elif len(scale) == sides and [side for side in scale if side != 1] == [count]:
        axis = scale.index(count)
        if shape[axis] == count:
            return axis
    raise ValueError(f"scales of shape {scale} for codes of shape {shape}")
