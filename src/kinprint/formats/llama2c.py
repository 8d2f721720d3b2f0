"""Models of llama2.c: a short header, and then the tensors of a Llama in a fixed order, without names.

Version 0 begins with seven numbers and nothing else, so a file counts as one only if they make sense and imply its exact
size. Versions 1 (float32) and 2 (int8 in groups) begin with a magic number. All three keep the rows of q and k as Meta's own
checkpoints have them, the two rows of a rotated pair next to each other.

Reference: export.py and runq.c of llama2.c. The version 2 of its first days, with all scales at the end, is told apart and refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.dtypes import Array
from kinprint.formats.format import Format, Shard
from kinprint.formats.plan import TensorSlice, rows
from kinprint.formats.rotary_order import MAX_ROWS_IN_ORDER, in_hugging_face_order
from kinprint.formats.tensors import TensorInfo
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
_AGAIN = "the file is truncated or damaged; fetch it again"


class Header(NamedTuple):
    """What a file says about its model."""

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
    """A tensor of the fixed order: its role's name, how often it comes, its shape, whether it is coded in version 2."""

    name: str
    layers: int
    shape: tuple[int, ...]
    coded: bool


def _order(header: Header) -> list[_OrderedTensor]:
    """Return what a file holds, in order; an empty name for what is no parameter."""
    width, neurons, layers = header.width, header.neurons, header.layers
    keys = width // header.heads * header.kv_heads
    embedding = _OrderedTensor("model.embed_tokens.weight", 0, (header.tokens, width), True)
    final = _OrderedTensor("model.norm.weight", 0, (width,), False)
    input_norm = _OrderedTensor("input_layernorm.weight", layers, (width,), False)
    second_norm = _OrderedTensor("post_attention_layernorm.weight", layers, (width,), False)
    attention = [
        _OrderedTensor("self_attn.q_proj.weight", layers, (width, width), True),
        _OrderedTensor("self_attn.k_proj.weight", layers, (keys, width), True),
        _OrderedTensor("self_attn.v_proj.weight", layers, (keys, width), True),
        _OrderedTensor("self_attn.o_proj.weight", layers, (width, width), True),
    ]
    mlp = [
        _OrderedTensor("mlp.gate_proj.weight", layers, (neurons, width), True),
        _OrderedTensor("mlp.down_proj.weight", layers, (width, neurons), True),
        _OrderedTensor("mlp.up_proj.weight", layers, (neurons, width), True),
    ]
    head = [] if header.tied else [_OrderedTensor("lm_head.weight", 0, (header.tokens, width), True)]
    if header.version:
        return [input_norm, second_norm, final, embedding, *attention, *mlp, *head]
    angles = _OrderedTensor("", 0, (2, header.positions, width // header.heads // 2), False)
    return [embedding, input_norm, *attention, second_norm, *mlp, final, angles, *head]


def _tensors(header: Header, file: int) -> Iterator[TensorInfo]:
    """Return the tensors where they must be."""
    at = HEADER_BYTES if header.version else _SIZES.size
    for part in _order(header):
        count = math.prod(part.shape)
        for layer in range(part.layers or 1):
            name = f"model.layers.{layer}.{part.name}" if part.layers else part.name
            if header.group and part.coded:
                end = at + count + count // header.group * 4
                codes = TensorInfo(name, "I8", part.shape, file, at, at + count)
                scales = TensorInfo(name, "F32", (count // header.group,), file, at + count, end)
                made = Grouped(codes, scales, header.group)
                tensor = TensorInfo(name, "int8 with scales", part.shape, file, 0, end - at, made)
            else:
                end = at + 4 * count
                tensor = TensorInfo(name, "F32", part.shape, file, at, end)
            yield tensor
            at = end


@dataclass(frozen=True, slots=True)
class Grouped:
    """Codes times scales, one for each group of so many neighbours, in the order of storage."""

    codes: TensorInfo
    scales: TensorInfo
    group: int

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Return the codes of rows `start` to `stop`, and the scales of the groups they are in."""
        width = self.codes.width
        groups = (start * width // self.group, -(-stop * width // self.group))
        return [rows(self.codes, [(start, stop)]), rows(self.scales, [groups])]

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Put them together; a group may begin before the first row."""
        codes, scales = parts
        width = self.codes.width
        before = start * width % self.group
        each = np.repeat(scales, self.group)[before : before + (stop - start) * width]
        with np.errstate(all="ignore"):  # a damaged scale may be anything
            values: Array = codes.astype(np.float32) * each.reshape(codes.shape)
        return values


def load(session: Session, _folder: Folder, source: Source, number: int, _first_read: int) -> Shard:
    """Read the header; all else follows from it."""
    size, label = source.size, source.label
    header = parse_header(bytes(session.read_here(source, ByteRange(0, min(HEADER_BYTES, size)))))
    if header is None:
        said = f"{label}: does not begin like a model of llama2.c"
        raise FormatError(said, hint="check that this is the file of weights itself")
    _check(header, label)
    implied = _implied_size(header)
    if implied != size:
        raise FormatError(f"{label}: its header means a file of {implied} bytes, it has {size}", hint=_AGAIN)
    tensors = list(_tensors(header, number))
    if header.group:
        _check_scales(session, source, tensors)
    found = {}
    for tensor in tensors:
        if not tensor.name:
            continue
        heads = {"q_proj": header.heads, "k_proj": header.kv_heads}.get(tensor.name.split(".")[-2])
        if heads is not None:
            tensor = in_hugging_face_order(tensor, heads)
        found[tensor.name] = tensor
    note = Text("int8 with scales: groups of {n}; decoded when read", n=header.group)
    return Shard(
        source, size, min(HEADER_BYTES, size), found, config=_config(header), notes=(note,) if header.group else ()
    )


def _check(header: Header, label: str) -> None:
    if header.version not in (0, 1, 2):
        raise FormatError(f"{label}: version {header.version} of llama2.c's format; known: 0, 1, 2")
    if not header.is_sound:
        raise FormatError(f"{label}: no model has the sizes of its header, {header._asdict()}", hint=_AGAIN)
    coded = [math.prod(part.shape) for part in _order(header) if part.coded]
    if header.version == 2 and (header.group <= 0 or any(count % header.group for count in coded)):
        raise FormatError(f"{label}: groups of {header.group} do not divide its tensors", hint=_AGAIN)


def _implied_size(header: Header) -> int:
    size = HEADER_BYTES if header.version else _SIZES.size
    for part in _order(header):
        count = max(1, part.layers) * math.prod(part.shape)
        size += count + count // header.group * 4 if header.group and part.coded else 4 * count
    return size


def _check_scales(session: Session, source: Source, tensors: Sequence[TensorInfo]) -> None:
    """Refuse a file whose scales are not where they should be, as in the first version 2, which says nothing of it."""
    made = next(tensor.made for tensor in tensors if isinstance(tensor.made, Grouped))
    start = made.scales.start
    raw = session.read_here(source, ByteRange(start, start + 4 * min(_SCALES_LOOKED_AT, made.scales.elements)))
    scales = np.frombuffer(raw, dtype="<f4")
    if not (np.all(np.isfinite(scales)) and np.all(scales >= 0) and np.all(scales < 1e6)):
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


LLAMA2C = Format(name="llama2.c", suffixes=(".bin",), load=load, accepts=lambda head: parse_header(head) is not None)
