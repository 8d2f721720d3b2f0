"""NumPy's archives (.npz): a zip of arrays, each with a short header of its own.

The headers are read when the archive is opened (near ones together, distant ones at the same time); arrays are then read by
range. Compressed arrays are inflated as they are read, once for all that is wanted of them, so that memory is that of the
rows asked for; what they claim to hold is bounded, so that a small archive cannot ask for a large array.

Reference: NumPy Enhancement Proposal 1, "A Simple File Format for NumPy Arrays".
"""

from __future__ import annotations

import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import Array, decode, item_bytes
from kinprint.formats.format import FIRST_READ, Format, Shard
from kinprint.formats.plan import TensorSlice, whole
from kinprint.formats.tensors import Row, Streamed, TensorInfo
from kinprint.formats.zip_directory import (
    DEFLATED,
    STORED,
    Placed,
    Reader,
    ZipMember,
    contiguous_strides,
    is_contiguous,
    placed_tensor,
    read_directory,
)
from kinprint.refs import ByteRange
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

HEADER_CAP = 4096  # numpy writes 128 bytes
INFLATED_FREE = 64 << 20  # a compressed array may have this size whatever it takes, for masks and zeros
INFLATED_RATIO = 32  # and beyond that, this many times what it takes; trained weights have 1.1
MAX_ARRAYS = 50_000
MAX_SIDES = 64
MAX_COUNT = 1 << 59
_FIRST_BYTES = 256  # of a member after its name: the rest of its zip header, and numpy's
_CHUNK, _PACKED_CHUNK = 1 << 18, 1 << 16
_MAGIC = b"\x93NUMPY"
_AGAIN = "the file is damaged; fetch it again"
_DTYPES = {
    "<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "<i2": "I16", "|i1": "I8",
    "|u1": "U8", "|b1": "BOOL", "<u2": "U16", "<u4": "U32", "<u8": "U64", "<c8": "C64", "<c16": "C128",
}  # fmt: skip
_FIELD = re.compile(
    r"\s*'(?P<key>descr|fortran_order|shape)'\s*:\s*"
    r"(?:'(?P<text>[^'\\]{1,40})'|(?P<flag>True|False)|\((?P<sides>[0-9, ]*)\)|(?P<other>\[.*))\s*(?P<end>,|(?=\}))"
)


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """What an array's header says, and how many bytes it takes."""

    dtype: str
    fortran: bool
    shape: tuple[int, ...]
    length: int


def parse_array_header(raw: bytes | memoryview, *, name: str, label: str) -> ArrayHeader | None:
    """Read the header that a .npy file begins with; None if `raw` does not hold all of it.

    Raise FormatError if it is no such header, or describes what is no plain array of numbers.
    """
    where = f"{label}: array {name[:200]!r}"
    if len(raw) < 12:
        return None
    if bytes(raw[:6]) != _MAGIC or raw[6] not in (1, 2, 3) or raw[7] != 0:
        said = f"{where} begins with {bytes(raw[:8])!r}; expected a NumPy header of version 1 to 3"
        raise FormatError(said, hint=_AGAIN)
    width = 2 if raw[6] == 1 else 4
    length = 8 + width + int.from_bytes(raw[8 : 8 + width], "little")
    if length > HEADER_CAP:
        said = f"{where} has a header of {length} bytes, more than the {HEADER_CAP} that a plain array needs"
        raise FormatError(said, hint="store arrays of numbers without named fields")
    if length > len(raw):
        return None
    text = bytes(raw[8 + width : length]).decode("latin-1")
    dtype, fortran, shape = _fields(text, where)
    return ArrayHeader(_dtype(dtype, where), fortran, shape, length)


def _fields(text: str, where: str) -> tuple[str, bool, tuple[int, ...]]:
    """Parse ``{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`` and nothing else."""
    found: dict[str, re.Match[str]] = {}
    at = 1
    while text[:1] == "{" and (field := _FIELD.match(text, at)):
        if field["other"] is not None:
            raise UnsupportedDtype(f"{where} has named fields; expected plain numbers", hint="store one array for each")
        if field["key"] in found:
            raise FormatError(f"{where} has a header with {field['key']!r} twice", hint=_AGAIN)
        found[field["key"]] = field
        at = field.end()
    kinds = {"descr": "text", "fortran_order": "flag", "shape": "sides"}
    fine = set(found) == set(kinds) and all(field[kinds[key]] is not None for key, field in found.items())
    if not fine or text[at:].strip() != "}":
        said = f"{where} has the header {text[:120]!r}; expected descr, fortran_order and shape"
        raise FormatError(said, hint=_AGAIN)
    return found["descr"]["text"], found["fortran_order"]["flag"] == "True", _sides(found["shape"]["sides"], where)


def _sides(text: str, where: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if words[-1] == "":
        words.pop()
    elif len(words) == 1:
        raise FormatError(f"{where} has the shape ({text[:80]}), which is a number and no list", hint=_AGAIN)
    if len(words) > MAX_SIDES or not all(word.isdigit() and len(word) < 20 for word in words):
        raise FormatError(f"{where} has the shape ({text[:80]}); expected up to {MAX_SIDES} numbers", hint=_AGAIN)
    shape = tuple(map(int, words))
    if math.prod(max(side, 1) for side in shape) > MAX_COUNT:
        raise FormatError(f"{where} has the shape ({text[:80]}), more than an array can have", hint=_AGAIN)
    return shape


def _dtype(text: str, where: str) -> str:
    if text in _DTYPES:
        return _DTYPES[text]
    if "O" in text:
        what = "Python objects, which are pickled and never read"
    elif text.startswith(">"):
        what = f"numbers of type {text!r} in big-endian order"
    else:
        what = f"the type {text!r}"
    raise UnsupportedDtype(f"{where} holds {what}; supported: {', '.join(_DTYPES)}", hint="store it as one of these")


# ---- members ----


@dataclass(frozen=True, slots=True)
class Inflated(Streamed):
    """The elements of a compressed array, along one axis. One needs all bytes before it, and keeps none of them."""

    packed: TensorInfo  # the compressed bytes
    member: ZipMember
    skip: int  # bytes of the array's header
    dtype: str
    label: str

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:  # noqa: ARG002 - whatever is wanted, all is needed
        """Return the compressed bytes."""
        return (whole(self.packed),)

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Inflate up to the last element that is wanted."""
        intake = self.begin([(start, stop)])
        intake.feed(np.ascontiguousarray(parts[0]).data)
        return intake.finish()[0]

    def begin(self, intervals: Sequence[tuple[int, int]]) -> Inflating:
        """Start to inflate, up to the last element that is wanted."""
        return Inflating(self, intervals)

    def wrong(self, what: str) -> FormatError:
        """Say what the member holds instead of an array."""
        said = f"{self.label}: member {self.member.name[:200]!r} inflates to {what}; expected {self.member.size} bytes"
        return FormatError(said, hint=_AGAIN)


class Inflating:
    """A compressed array on its way: only what is wanted of it is kept."""

    def __init__(self, array: Inflated, intervals: Sequence[tuple[int, int]]) -> None:
        self._array, self._intervals = array, intervals
        self._item = item_bytes(array.dtype, tensor=array.packed.name)
        self._starts: list[int] = []  # of the intervals in the array, ascending and joined where they overlap
        self._stops: list[int] = []
        for start, stop in sorted(interval for interval in intervals if interval[0] < interval[1]):
            if self._stops and start <= self._stops[-1]:
                self._stops[-1] = max(self._stops[-1], stop)
            else:
                self._starts.append(start)
                self._stops.append(stop)
        lengths = [stop - start for start, stop in zip(self._starts, self._stops, strict=True)]
        self._places = list(accumulate(lengths, initial=0))
        self._out = np.empty(self._places[-1] * self._item, dtype=np.uint8)
        self._end = array.skip + self._stops[-1] * self._item if self._stops else 0
        self._at = self._checksum = 0
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)

    def feed(self, raw: memoryview) -> None:
        """Inflate these bytes, as far as anything is wanted of them."""
        try:
            for piece in _inflate(self._engine, raw, self._end - self._at):
                self._checksum = zlib.crc32(piece, self._checksum)
                self._keep(np.frombuffer(piece, dtype=np.uint8))
                self._at += len(piece)
        except zlib.error as error:
            raise self._array.wrong("nothing, being damaged") from error

    def _keep(self, piece: npt.NDArray[np.uint8]) -> None:
        skip, item = self._array.skip, self._item
        first = bisect_right(self._stops, (self._at - skip) // item)
        for number in range(max(first, 0), len(self._starts)):
            start, stop = skip + self._starts[number] * item, skip + self._stops[number] * item
            low, high = max(self._at, start), min(self._at + len(piece), stop)
            if low >= self._at + len(piece):
                return
            target = self._places[number] * item - start
            self._out[target + low : target + high] = piece[low - self._at : high - self._at]

    def finish(self) -> list[Array]:
        """Return the elements of each interval."""
        member = self._array.member
        if self._at < self._end:
            raise self._array.wrong(f"{self._at} bytes")
        if self._end == member.size and self._checksum != member.crc:
            raise self._array.wrong("something else than what its checksum says")
        values = decode(self._out.data, self._array.dtype, tensor=self._array.packed.name)
        found = []
        for start, stop in self._intervals:
            number = max(bisect_right(self._starts, start) - 1, 0)
            first = self._places[number] + start - self._starts[number] if start < stop else 0
            found.append(values[first : first + stop - start])
        return found


def _inflate(engine: zlib._Decompress, packed: memoryview, stop: int) -> Iterator[bytes]:
    """Inflate piece by piece, `stop` bytes at most. Raises zlib.error."""
    # What is left of a chunk is copied at each step, so it is short.
    for at in range(0, len(packed) + 1, _PACKED_CHUNK):
        rest: bytes | memoryview = packed[at : at + _PACKED_CHUNK]
        while stop > 0:
            piece = engine.decompress(rest, min(stop, _CHUNK))
            if not piece:
                break
            yield piece
            stop -= len(piece)
            rest = engine.unconsumed_tail


def _refuse_bomb(member: ZipMember, label: str) -> None:
    if member.size > max(INFLATED_FREE, INFLATED_RATIO * member.stored):
        raise FormatError(
            f"{label}: member {member.name[:200]!r} claims to inflate from {member.stored} to {member.size} bytes; "
            f"expected at most {INFLATED_RATIO} times as many, or {INFLATED_FREE}",
            hint="no trained weights are so uniform; store the array without compression if it is meant",
        )


def _headers(reader: Reader, arrays: Sequence[ZipMember]) -> list[tuple[ArrayHeader, int]]:
    """Return the arrays' headers, and where the contents of their members begin."""
    spans = [ByteRange(m.offset, min(m.limit, m.least_start + _FIRST_BYTES)) for m in arrays]
    first = reader.read_many(spans)
    starts = [member.start_told_by(raw, reader.label) for member, raw in zip(arrays, first, strict=True)]
    found = [
        _header(member, raw[start - member.offset :], reader.label)
        for member, raw, start in zip(arrays, first, starts, strict=True)
    ]
    short = [number for number, header in enumerate(found) if header is None]
    more = [ByteRange(starts[n], starts[n] + min(arrays[n].stored, HEADER_CAP)) for n in short]
    for number, raw in zip(short, reader.read_many(more), strict=True):
        found[number] = _header(arrays[number], raw, reader.label)
    complete = []
    for member, header, start in zip(arrays, found, starts, strict=True):
        if header is None:
            raise FormatError(f"{reader.label}: array {_name(member)[:200]!r} ends within its header", hint=_AGAIN)
        complete.append((header, start))
    return complete


def _header(member: ZipMember, have: memoryview, label: str) -> ArrayHeader | None:
    """Return an array's header from the first bytes of its member's content; None if they are not enough."""
    first = have[: member.stored]
    if member.method == DEFLATED:
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            first = memoryview(b"".join(_inflate(engine, first, min(member.size, HEADER_CAP))))
        except zlib.error as error:
            raise FormatError(f"{label}: array {_name(member)[:200]!r} is badly compressed", hint=_AGAIN) from error
    return parse_array_header(first, name=_name(member), label=label)


def _name(member: ZipMember) -> str:
    return member.name.removesuffix(".npy")


def _row(member: ZipMember, header: ArrayHeader, start: int, number: int, label: str) -> TensorInfo:
    name, dtype, shape = _name(member), header.dtype, header.shape
    count = math.prod(shape)
    needed = header.length + count * item_bytes(dtype, tensor=name, label=label)
    if needed != member.size:
        said = (
            f"{label}: array {name[:200]!r} of {count} elements of type {dtype} needs {needed} bytes, has {member.size}"
        )
        raise FormatError(said, hint=_AGAIN)
    strides = contiguous_strides(shape[::-1])[::-1] if header.fortran else contiguous_strides(shape)
    first, last = start + header.length, start + member.stored
    if not count:
        return TensorInfo(name, dtype, shape, number, start, start)
    if member.is_stored:
        if is_contiguous(shape, strides):
            return TensorInfo(name, dtype, shape, number, first, last)
        flat = TensorInfo(name, dtype, (count,), number, first, last)
        return placed_tensor(Placed(flat, shape, strides, None, member, label))
    packed = TensorInfo(name, "U8", (member.stored,), number, start, last)
    inflated = Inflated(packed, member, header.length, dtype, label)
    flat = TensorInfo(name, dtype, (count,), number, 0, member.stored, inflated)
    return placed_tensor(Placed(flat, shape, strides, None, member, label))


def load(session: Session, _folder: Folder, source: Source, number: int, guess: int) -> Shard:
    """Read an archive's directory and the header of each array."""
    reader = Reader(session, source)
    label = reader.label
    members = read_directory(reader, min(guess, FIRST_READ)).members
    arrays = [member for name, member in members.items() if name.endswith(".npy")]
    if not arrays or len(arrays) > MAX_ARRAYS:
        said = f"{label}: the archive has {len(arrays)} arrays; expected 1 to {MAX_ARRAYS}"
        raise FormatError(said, hint="name a file of weights")
    for member in arrays:
        if member.method not in (STORED, DEFLATED):
            said = f"{label}: member {member.name[:200]!r} is compressed by method {member.method}; expected none or deflate"
            raise FormatError(said, hint="numpy.load it and numpy.savez it again")
        _refuse_bomb(member, label)
    packed_bytes = sum(member.stored for member in arrays if member.method == DEFLATED)
    inflated = sum(member.size for member in arrays if member.method == DEFLATED)
    if inflated > INFLATED_FREE + INFLATED_RATIO * packed_bytes:
        raise FormatError(
            f"{label}: the archive claims to inflate from {packed_bytes} to {inflated} bytes in all; expected at most "
            f"{INFLATED_RATIO} times as many, and {INFLATED_FREE} more",
            hint="no trained weights are so uniform; store the arrays without compression if it is meant",
        )
    rows: dict[str, Row | TensorInfo] = {}
    for member, (header, start) in zip(arrays, _headers(reader, arrays), strict=True):
        row = _row(member, header, start, number, label)
        rows[row.name] = row
    packed = sum(1 for member in arrays if member.method == DEFLATED)
    notes = (
        [Text("{n} arrays are compressed: each is read whole, whatever is needed of it", n=packed)] if packed else []
    )
    if len(arrays) < len(members):
        others = len(members) - len(arrays)
        notes.append(Text("{n} members of the archive are no arrays, and are not read", n=others))
    return Shard(source, reader.size, reader.bytes_read, rows, notes=tuple(notes))


NUMPY = Format(
    name="NumPy", suffixes=(".npz",), load=load, single_names=("model.npz", "weights.npz", "pytorch_model.npz")
)
