"""Read the header, the metadata and the table of tensors of a GGUF file (llama.cpp's format), which is untrusted.

Format, versions 2 and 3 (ggml's docs/gguf.md): the magic bytes, the version, the numbers of tensors and of metadata entries;
the entries (name, type, value); the tensors (name, sides with the shortest stride first, type, offset); then the data, aligned.
A header has several megabytes (the vocabulary), and its end is found only by walking over it: it is read in growing pieces.
"""

import math
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

from kinprint.errors import FormatError
from kinprint.formats.checks import DAMAGED, damaged, refuse_lfs_pointer, too_large
from kinprint.formats.format import ORIGIN, Shard
from kinprint.formats.gguf.blocks import type_of
from kinprint.formats.gguf.metadata import FIXED, STRING, Metadata, MetadataValue
from kinprint.formats.gguf.model_info import config_of, in_original_order, origin_of, tokenizer_of, unstacked
from kinprint.formats.gguf.splits import PART, check_parts, part_of
from kinprint.formats.tensors import TensorInfo
from kinprint.refs import ByteRange
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_CAP = 128 << 20  # a vocabulary of 262,000 tokens with its merges makes 15 MB
MAX_ENTRIES = 1 << 16  # a model has about fifty
MAX_TENSORS = 1 << 16  # the largest has some two thousand
MAX_STEPS = 1 << 22  # strings of an array: tokens, merges; the largest vocabularies have half a million of either
MAX_NAME = (1 << 16) - 1  # what the format allows a key
MAX_SIDES = 4
MAX_ALIGNMENT = 1 << 20
LEAST_GROWTH = 1 << 18

_ARRAY = 9
_TOKENS = "tokenizer.ggml.tokens"
_HEADS = ".attention.head_count"
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_TableRow = tuple[tuple[int, ...], int, int]  # of a tensor: shape, type, offset
_START = struct.Struct("<4sIQQ")
_PLACES = tuple(struct.Struct(f"<{sides}QIQ") for sides in range(MAX_SIDES + 1))
_LEAST_ENTRY = 14  # a name of one letter and a byte
_LEAST_TENSOR = 24
_REST_OF_TOKENIZER = 8  # bytes for each token that follow the tokens: scores and kinds
_MERGES = 17  # and those of a byte-pair tokenizer's merges
_TENSOR_ENTRY = 80


class Head:
    """The beginning of a file, as far as it has been read."""

    def __init__(self, session: Session, source: Source, first: int) -> None:
        self._session, self._source = session, source
        self.size, self.label = source.size, source.label
        self.data = b""
        self._extend(min(session.on_a_guess(first, _START.size), self.size))

    def _extend(self, end: int) -> None:
        self.data += bytes(self._session.read_here(self._source, ByteRange(len(self.data), end)))

    def reach(self, end: int, wish: int = 0) -> None:
        """Read on, at least to byte `end`, and to `wish` where the session allows a guess."""
        if end <= len(self.data):
            return
        if end > self.size:
            raise damaged(f"{self.label}: the header goes on to byte {end}, the file ends at {self.size}")
        if end > HEADER_CAP:
            raise damaged(f"{self.label}: the header goes on to byte {end}, more than the cap of {HEADER_CAP}")
        have = len(self.data)
        target = have + self._session.on_a_guess(max(wish - have, have, LEAST_GROWTH))
        self._extend(min(max(end, target), self.size, HEADER_CAP))

    def text(self, at: int, what: str) -> tuple[str, int]:
        """Return the name at a place, and where it ends."""
        self.reach(at + 8)
        length = _U64.unpack_from(self.data, at)[0]
        if not 0 < length <= MAX_NAME:
            raise damaged(f"{self.label}: {what} has a name of {length} bytes, expected 1 to {MAX_NAME}")
        self.reach(at + 8 + length)
        try:
            return self.data[at + 8 : at + 8 + length].decode(), at + 8 + length
        except UnicodeDecodeError as error:
            raise damaged(f"{self.label}: the name of {what} is not UTF-8: {error.reason}") from None


class Start(NamedTuple):
    """The counts at the beginning of a file."""

    tensors: int
    entries: int


def read_start(head: Head) -> Start:
    """Check the magic bytes, the version, and that the counts fit the size of the file."""
    label, size = head.label, head.size
    if size < _START.size:
        raise damaged(f"{label}: {size} bytes, too short to be a GGUF file")
    head.reach(_START.size)
    magic, version, tensors, entries = _START.unpack_from(head.data)
    if magic != MAGIC:
        refuse_lfs_pointer(head.data, label)
        said = f"{label}: not a GGUF file: it begins with {magic!r}, expected {MAGIC!r}"
        raise FormatError(said, hint="check that this is the GGUF file itself")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in (1, *VERSIONS):
            raise FormatError(
                f"{label}: a big-endian GGUF file of version {swapped}; only little-endian ones are read",
                hint="convert it with gguf_convert_endian.py of llama.cpp, or fetch a little-endian copy",
            )
        hint = "files of version 1 date from August 2023; fetch a newer copy" if version == 1 else DAMAGED
        raise FormatError(f"{label}: GGUF version {version}; versions 2 and 3 are read", hint=hint)
    for what, count, most, least in (
        ("tensors", tensors, MAX_TENSORS, _LEAST_TENSOR),
        ("metadata entries", entries, MAX_ENTRIES, _LEAST_ENTRY),
    ):
        if count > most or count * least > size:
            raise damaged(f"{label}: claims {count} {what} in {size} bytes, expected at most {most}")
    return Start(tensors, entries)


def read_metadata(head: Head, start: Start, *, heads_only: bool = False) -> tuple[Metadata, int]:
    """Return where each metadata value is and where they end; with `heads_only` as far as the tokenizer, which comes last."""
    at = _START.size
    found: dict[str, MetadataValue] = {}
    for _ in range(start.entries):
        key, at = head.text(at, "a metadata entry")
        if key in found:
            raise damaged(f"{head.label}: the metadata has {key[:200]!r} twice")
        if heads_only and key.startswith("tokenizer.") and any(each.endswith(_HEADS) for each in found):
            break
        head.reach(at + 4)
        kind = _U32.unpack_from(head.data, at)[0]
        at += 4
        count = 1
        is_array = kind == _ARRAY
        if is_array:
            head.reach(at + 12)
            kind, count = _U32.unpack_from(head.data, at)[0], _U64.unpack_from(head.data, at + 4)[0]
            at += 12
        entry = MetadataValue(kind, is_array, count, at)
        if kind in FIXED:
            at += count * FIXED[kind].size
            head.reach(at)
        elif kind == STRING:
            ahead = _expected_after(found, head, key, count, start) if is_array else 0
            at = _skip_strings(head, at, count, ahead)
        else:
            what = "an array of arrays" if kind == _ARRAY else f"of the unknown type {kind}"
            raise damaged(f"{head.label}: metadata entry {key[:200]!r} is {what}")
        found[key] = entry
    return Metadata(head.data, found, head.label), at


def _expected_after(found: Mapping[str, MetadataValue], head: Head, key: str, count: int, start: Start) -> int:
    """Guess how many bytes of header follow an array of strings, so that few reads get it whole."""
    tensors = start.tensors * _TENSOR_ENTRY
    if key != _TOKENS:
        return tensors
    kind = Metadata(head.data, found, head.label).text("tokenizer.ggml.model")
    return tensors + min(count, 1 << 20) * (_REST_OF_TOKENIZER + (_MERGES if kind == "gpt2" else 0))


def _skip_strings(head: Head, at: int, count: int, ahead: int) -> int:
    """Return where so many strings end. The loop is what opening a large vocabulary costs: some 130 ns a string."""
    if count > MAX_STEPS or count * 8 > head.size - at:
        raise damaged(f"{head.label}: {count} strings claimed at byte {at} of {head.size}")
    unpack, begun, left = _U64.unpack_from, at, count
    while left:
        data = head.data
        try:
            for left in range(left, 0, -1):  # noqa: B007, B020 - what is left when the bytes run out
                at += unpack(data, at)[0] + 8
        except (struct.error, OverflowError):
            mean = (at - begun) / max(1, count - left) * 1.2  # later tokens are longer
            head.reach(at + 8, int(at + left * min(mean, 64.0)) + ahead)
        else:
            left = 0
    head.reach(at)
    return at


def read_table(head: Head, start: Start, metadata: Metadata, at: int, file: int) -> tuple[list[TensorInfo], int]:
    """Read and check the table of tensors; return it and where the header ends."""
    label = head.label
    rows: dict[str, _TableRow] = {}
    if start.tensors:
        head.reach(at + _LEAST_TENSOR, at + start.tensors * _TENSOR_ENTRY)
    for _ in range(start.tensors):
        name, at = head.text(at, "a tensor")
        if name in rows:
            raise damaged(f"{label}: tensor {name[:200]!r} is there twice")
        head.reach(at + 4)
        sides = _U32.unpack_from(head.data, at)[0]
        if sides > MAX_SIDES:
            raise damaged(f"{label}: tensor {name[:200]!r} has {sides} sides, at most {MAX_SIDES} expected")
        place = _PLACES[sides]
        head.reach(at + 4 + place.size)
        *reversed_shape, kind, offset = place.unpack_from(head.data, at + 4)
        rows[name] = (tuple(reversed_shape[::-1]), kind, offset)
        at += 4 + place.size
    alignment = _alignment(metadata, label)
    base = -(-at // alignment) * alignment
    places = [_place(head, base, alignment, file, name, row) for name, row in rows.items()]
    stored = sorted((place.start, place.end, place.name) for place in places if place.end > place.start)
    for (_, end, first), (begins, _, second) in pairwise(stored):
        if begins < end:
            before = f"but {first[:200]!r} ends at {end}"
            raise damaged(f"{label}: tensor {second[:200]!r} begins at byte {begins}, {before}")
    return places, at


def _alignment(metadata: Metadata, label: str) -> int:
    stated = metadata.number("general.alignment")
    alignment = 32 if stated is None else stated
    if not isinstance(alignment, int) or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise damaged(f"{label}: general.alignment is {alignment}, expected a power of two up to {MAX_ALIGNMENT}")
    return alignment


def _place(head: Head, base: int, alignment: int, file: int, name: str, row: _TableRow) -> TensorInfo:
    shape, kind, offset = row
    dtype, elements, block = type_of(kind, tensor=name, label=head.label)
    where = f"{head.label}: tensor {name[:200]!r}"
    if too_large(shape):
        raise damaged(f"{where} has the shape {reprlib.repr(shape)}, more than an array can have")
    if (shape[-1] if shape else 1) % elements:
        form = f"{where} of shape {reprlib.repr(shape)} is stored as {dtype}"
        raise damaged(f"{form}; its rows are no multiple of {elements}")
    if offset % alignment:
        raise damaged(f"{where} begins at byte {offset} of the data, no multiple of {alignment}")
    start = base + offset
    end = start + math.prod(shape) // elements * block
    if end > head.size:
        raise damaged(f"{where} lies at bytes {start} to {end}, the file has {head.size}")
    return TensorInfo(name, dtype, shape, file, start, end)


def load(session: Session, folder: Folder, source: Source, number: int, guess: int) -> Shard:
    """Read and check one file's header."""
    head = Head(session, source, guess)
    start = read_start(head)
    metadata, at = read_metadata(head, start)
    places, end = read_table(head, start, metadata, at, number)
    part = part_of(metadata, start.tensors, source.label)
    rows = unstacked({place.name: place for place in places}, source.label)
    states = metadata.text("general.architecture") is not None
    notes: list[Text] = []
    described = metadata
    if part is not None and part.number > 1 and any(".attn_q." in name or ".attn_k." in name for name in rows):
        described = _of_first_part(session, folder, source, guess)
    rows = in_original_order(rows, described, notes)
    documents: dict[str, Callable[[], dict[str, object]]] = {ORIGIN: lambda: origin_of(metadata)}
    if _TOKENS in metadata:
        documents["tokenizer.json"] = lambda: tokenizer_of(metadata)
    kind = metadata.text("general.type")
    if kind not in (None, "model"):
        name = source.label.rsplit("/", 1)[-1]
        notes.append(Text("{name} calls itself {kind}, not a model", name=name, kind=repr(kind)))
    told = config_of(metadata, rows, whole=part is None) if states else None
    return Shard(
        source, head.size, end, rows, config=told, documents=documents, notes=tuple(notes), part=part, check=check_parts
    )


def _of_first_part(session: Session, folder: Folder, source: Source, guess: int) -> Metadata:
    """Return the metadata of the first part, which alone says what the model is."""
    tail = re.sub(r"-\d{5}(?=-of-\d{5}\.gguf$)", "-00001", source.label, flags=re.IGNORECASE)
    names = [name for name in folder.names or () if tail.endswith(f"/{name}")] or [tail.rsplit("/", 1)[-1]]
    first = folder.open(max(names, key=len))
    head = Head(session, first, guess)
    return read_metadata(head, read_start(head), heads_only=True)[0]


_TYPES = (
    "F64 F32 FP32 BF16 F16 FP16 Q8_K_XL Q8_K Q8_0_L Q8_0 Q8_1 Q6_K_XL Q6_K_L Q6_K Q5_K_XL Q5_K_L Q5_K_M Q5_K Q5_1 Q5_K_S Q5_0 "
    "Q4_K_XL Q4_K_L Q4_K_M Q4_K Q4_1 Q4_K_S Q4_0 MXFP4_MOE MXFP4 NVFP4 IQ4_NL IQ4_XS Q3_K_XL Q3_K_L Q3_K_M Q3_K Q3_K_S IQ3_M "
    "IQ3_S IQ3_XS IQ3_XXS Q2_K_XL Q2_K_L Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS TQ2_0 TQ1_0 IQ1_M IQ1_S"
)
_BEST_FIRST = _TYPES.split()
_RANKS = {name: rank for rank, name in enumerate(_BEST_FIRST)}
_NAMED = re.compile(rf"(?:^|[-._])({'|'.join(sorted(_BEST_FIRST, key=len, reverse=True))})(?=[-._]|$)")
_BESIDE = re.compile(r"(?:^|[-._])(?:MMPROJ|IMATRIX|LORA|ADAPTER|DRAFT|VOCAB|TOKENIZER)(?=[-._]|$)")


def rank(name: str) -> tuple[int, str]:
    """Order files from the least quantised to the most, by their names; what is no model of its own comes last."""
    stem = PART.sub("", name).rsplit("/", 1)[-1].removesuffix(".gguf").upper()
    found = _NAMED.findall(stem)
    place = 2 * (_RANKS[found[-1]] if found else len(_RANKS))
    mixed = "UD-" in stem  # another mixture of types under the same name
    return place + mixed + (10_000 if _BESIDE.search(stem) else 0), name
