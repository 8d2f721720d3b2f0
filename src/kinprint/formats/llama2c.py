"""Read models of llama2.c: a short header, then the tensors of a Llama in a fixed order, without names.

Version 0 begins with seven numbers and nothing else, so a file counts as one only if they imply its exact size, or, where more
follows (a vocabulary that was appended), if its rotary tables begin as they must: with cosines of one and sines of zero. Versions
1 (float32) and 2 (int8 in groups) begin with a magic number. All keep the two rows of a rotated pair of q and k together.

Reference: export.py and runq.c of llama2.c. The version 2 of its first days, with all scales at the end, is told apart and refused.
"""

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.checks import damaged
from kinprint.formats.dtypes import Array
from kinprint.formats.format import Shard
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.row_maker import RowMaker, by_row, made_of
from kinprint.formats.tensors import TensorInfo
from kinprint.formats.views import MAX_ROWS_IN_ORDER, in_hugging_face_order
from kinprint.refs import ByteRange
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

MAGIC = 0x616B3432  # "ak42"
HEADER_BYTES = 256  # of versions 1 and 2
MAX_SIDE = MAX_ROWS_IN_ORDER
MAX_LAYERS = 9_999
_SCALES_LOOKED_AT = 16
_SIZES = struct.Struct("<7i")
_START = struct.Struct("<Ii7iB")  # magic, version, sizes, whether the head is the embedding
_GROUP = struct.Struct("<i")


class Header(NamedTuple):
    """The sizes of the model, as the header of a file states them."""

    version: int
    width: int
    neurons: int
    layers: int
    heads: int
    kv_heads: int
    tokens: int
    positions: int
    tied: bool
    group: int

    @property
    def length(self) -> int:
        """Bytes of the header."""
        return HEADER_BYTES if self.version else _SIZES.size

    @property
    def is_sound(self) -> bool:
        """Whether a model can have these sizes."""
        sides = (self.width, self.neurons, self.heads, self.kv_heads, self.tokens, self.positions)
        if not all(0 < side <= MAX_SIDE for side in sides) or not 0 < self.layers <= MAX_LAYERS:
            return False
        return self.width % (2 * self.heads) == 0 and self.heads % self.kv_heads == 0


def parse_header(raw: bytes) -> Header | None:
    """Return the header at the beginning of a file, None if there is none."""
    if len(raw) >= _START.size + _GROUP.size:
        magic, version, *sizes, tied = _START.unpack_from(raw)
        if magic == MAGIC:
            group = _GROUP.unpack_from(raw, _START.size)[0] if version == 2 else 0
            return Header._make((version, *sizes, bool(tied), group))
    if len(raw) < _SIZES.size:
        return None
    *sizes, tokens, positions = _SIZES.unpack_from(raw)
    header = Header._make((0, *sizes, abs(tokens), positions, tokens > 0, 0))
    return header if header.is_sound else None


class _OrderedTensor(NamedTuple):
    """A tensor of the fixed order, stored once or for each layer; its name is empty if it holds no parameter."""

    name: str
    shape: tuple[int, ...]
    in_layers: bool = True
    coded: bool = True  # as int8 in version 2


def _order(header: Header) -> list[_OrderedTensor]:
    width, neurons = header.width, header.neurons
    square, up, down = (width, width), (neurons, width), (width, neurons)
    keys = (width // header.heads * header.kv_heads, width)
    embedding = _OrderedTensor("model.embed_tokens.weight", (header.tokens, width), in_layers=False)
    final = _OrderedTensor("model.norm.weight", (width,), in_layers=False, coded=False)
    input_norm = _OrderedTensor("input_layernorm.weight", (width,), coded=False)
    second_norm = _OrderedTensor("post_attention_layernorm.weight", (width,), coded=False)
    heads = (("q", square), ("k", keys), ("v", keys), ("o", square))
    attention = [_OrderedTensor(f"self_attn.{which}_proj.weight", shape) for which, shape in heads]
    sides = (("gate", up), ("down", down), ("up", up))
    mlp = [_OrderedTensor(f"mlp.{which}_proj.weight", shape) for which, shape in sides]
    head = [] if header.tied else [embedding._replace(name="lm_head.weight")]
    if header.version:
        return [input_norm, second_norm, final, embedding, *attention, *mlp, *head]
    angles = _OrderedTensor("", (2, header.positions, width // header.heads // 2), in_layers=False, coded=False)
    return [embedding, input_norm, *attention, second_norm, *mlp, final, angles, *head]


def _file_bytes(header: Header) -> int:
    """Return the size of the file that a header means."""
    total = header.length
    for part in _order(header):
        count = math.prod(part.shape)
        own = count + 4 * (count // header.group) if header.group and part.coded else 4 * count
        total += own * (header.layers if part.in_layers else 1)
    return total


def _tensors(header: Header, file: int) -> Iterator[TensorInfo]:
    """Return the tensors at the places that the fixed order gives them."""
    at = header.length
    for part in _order(header):
        count = math.prod(part.shape)
        for layer in range(header.layers if part.in_layers else 1):
            name = f"model.layers.{layer}.{part.name}" if part.in_layers else part.name
            if header.group and part.coded:
                codes, groups = TensorInfo(name, "I8", part.shape, file, at, at + count), count // header.group
                scales = TensorInfo(name, "F32", (groups,), file, codes.end, codes.end + 4 * groups)
                tensor = _dequantised(codes, scales, header.group)
            else:
                tensor = TensorInfo(name, "F32", part.shape, file, at, at + 4 * count)
            yield tensor
            at += tensor.nbytes


def _dequantised(codes: TensorInfo, scales: TensorInfo, group: int) -> TensorInfo:
    """Describe codes times scales, one for each `group` neighbours in the order of storage; a group may span rows."""
    width = codes.width

    def groups(stored: TensorInfo, start: int, stop: int) -> TensorSlice:
        return rows(stored, [(start * width // group, -(-stop * width // group))])

    def decode(start: int, stop: int, codes: Array, scales: Array) -> Array:
        before = start * width % group
        each = np.repeat(scales, group)[before : before + (stop - start) * width]
        values: Array = codes.astype(np.float32) * each.reshape(codes.shape)
        return values

    method = Text("int8 with scales: groups of {n}; decoded when read", n=group)
    return made_of(codes.name, "int8 with scales", method, codes.shape, decode, (codes, by_row), (scales, groups))


def load(session: Session, _folder: Folder, source: Source, number: int, _first_read: int) -> Shard:
    """Read the header, from which names, shapes and places of all tensors follow."""
    size, label = source.size, source.label
    header = parse_header(bytes(session.read_here(source, ByteRange(0, min(HEADER_BYTES, size)))))
    if header is None:
        what = "does not begin like a model of llama2.c"
        raise FormatError(f"{label}: {what}", hint="check that this is the file of weights itself")
    _check(header, label)
    implied = _file_bytes(header)
    said = f"{label}: its header means a file of {implied} bytes, it has {size}"
    if implied > size:  # before anything is made for each layer
        raise damaged(said)
    tensors = list(_tensors(header, number))
    if (behind := size - implied) and not header.version and not _turns(session, source, tensors, header):
        raise damaged(said)
    notes = [Text("{n} bytes behind the model's data are not read", n=behind)] if behind else []
    scales = next((maker.inputs[1] for tensor in tensors if isinstance(maker := tensor.made, RowMaker)), None)
    if scales is not None:
        _check_scales(session, source, scales)
        notes.append(Text("int8 with scales: groups of {n}; decoded when read", n=header.group))
    found = {tensor.name: tensor for tensor in tensors if tensor.name}
    for name, tensor in found.items():
        heads = {"q_proj": header.heads, "k_proj": header.kv_heads}.get(name.split(".")[-2])
        if heads is not None:
            found[name] = in_hugging_face_order(tensor, heads)
    return Shard(source, size, min(HEADER_BYTES, size), found, config=_config(header), notes=tuple(notes))


def _turns(session: Session, source: Source, tensors: list[TensorInfo], header: Header) -> bool:
    """Whether rotary tables stand where the sizes of a header put them: at the first position nothing is turned."""
    table = next(tensor for tensor in tensors if not tensor.name)
    pairs = header.width // header.heads // 2
    if table.end > source.size:
        return False
    spans = (table.span(at, at + pairs) for at in (0, table.elements // 2))
    cosines, sines = (np.frombuffer(session.read_here(source, span), dtype="<f4") for span in spans)
    return bool(np.all(cosines == 1.0) and np.all(sines == 0.0))


def _check(header: Header, label: str) -> None:
    if header.version not in (0, 1, 2):
        raise FormatError(f"{label}: version {header.version} of llama2.c's format; known: 0, 1, 2")
    if not header.is_sound:
        raise damaged(f"{label}: no model has the sizes of its header, {header._asdict()}")
    coded = [math.prod(part.shape) for part in _order(header) if part.coded]
    if header.version == 2 and (header.group <= 0 or any(count % header.group for count in coded)):
        raise damaged(f"{label}: groups of {header.group} do not divide its tensors")


def _check_scales(session: Session, source: Source, stored: TensorInfo) -> None:
    """Refuse a file whose scales are elsewhere, as in the first version 2, which has the same version number."""
    raw = session.read_here(source, stored.span(0, min(_SCALES_LOOKED_AT, stored.elements)))
    scales = np.frombuffer(raw, dtype="<f4")
    if not np.all((scales >= 0) & (scales < 1e6)):
        start = stored.start
        said = f"{source.label}: what stands at byte {start} are no scales; files of August 2023 kept them elsewhere"
        raise FormatError(said, hint="export the model again with the present export.py of llama2.c")


def _config(header: Header) -> dict[str, object]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": header.width,
        "intermediate_size": header.neurons,
        "num_hidden_layers": header.layers,
        "num_attention_heads": header.heads,
        "num_key_value_heads": header.kv_heads,
        "vocab_size": header.tokens,
        "max_position_embeddings": header.positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": header.tied,
    }
