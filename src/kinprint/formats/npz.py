"""Read NumPy's archives (.npz): a zip of arrays, each with a short header of its own.

Headers are read when the archive is opened, arrays by range. Compressed ones are inflated as they are read, once for all that is
wanted of them; what they claim to hold is bounded, so that a small archive cannot ask for a large array.

Reference: NumPy Enhancement Proposal 1, "A Simple File Format for NumPy Arrays".
"""

from __future__ import annotations

import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats import zip_directory
from kinprint.formats.checks import MAX_SIDES, damaged, too_large
from kinprint.formats.dtypes import Array, decode, item_bytes
from kinprint.formats.format import FIRST_READ, Shard
from kinprint.formats.tensors import Streamed, TensorInfo
from kinprint.formats.zip_directory import DEFLATED, STORED, Reader, ZipMember
from kinprint.refs import ByteRange, join_runs
from kinprint.sources.base import Folder, Source
from kinprint.sources.session import Session
from kinprint.text import Text

HEADER_CAP = 4096  # numpy writes 128 bytes
INFLATED_FREE = 64 << 20  # inflated size that is always allowed, for masks and zeros
INFLATED_RATIO = 32  # beyond that, inflated bytes to a compressed byte; trained weights have 1.1
MAX_ARRAYS = 50_000
_FIRST_BYTES = 256  # of a member after its name: the rest of its zip header, and numpy's
_CHUNK, _PACKED_CHUNK = 1 << 18, 1 << 16
_MAGIC = b"\x93NUMPY"
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
    """The header of an array, and how many bytes it takes."""

    dtype: str
    fortran: bool
    shape: tuple[int, ...]
    length: int


def parse_array_header(raw: bytes | memoryview, *, name: str, label: str) -> ArrayHeader | None:
    """Read the header that a .npy file begins with; None if `raw` does not hold all of it."""
    where = f"{label}: array {name[:200]!r}"
    if len(raw) < 12:
        return None
    if bytes(raw[:6]) != _MAGIC or raw[6] not in (1, 2, 3) or raw[7] != 0:
        raise damaged(f"{where} begins with {bytes(raw[:8])!r}; expected a NumPy header of version 1 to 3")
    width = 2 if raw[6] == 1 else 4
    length = 8 + width + int.from_bytes(raw[8 : 8 + width], "little")
    if length > HEADER_CAP:
        said = f"{where} has a header of {length} bytes, more than the {HEADER_CAP} that a plain array needs"
        raise FormatError(said, hint="store arrays of numbers without named fields")
    if length > len(raw):
        return None
    dtype, fortran, shape = _fields(bytes(raw[8 + width : length]).decode("latin-1"), where)
    return ArrayHeader(_dtype(dtype, where), fortran, shape, length)


def _fields(text: str, where: str) -> tuple[str, bool, tuple[int, ...]]:
    """Parse ``{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`` and nothing else."""
    found: dict[str, re.Match[str]] = {}
    at = 1
    while text[:1] == "{" and (field := _FIELD.match(text, at)):
        if field["other"] is not None:
            raise UnsupportedDtype(f"{where} has named fields; expected plain numbers", hint="store one array for each")
        if field["key"] in found:
            raise damaged(f"{where} has a header with {field['key']!r} twice")
        found[field["key"]] = field
        at = field.end()
    kinds = {"descr": "text", "fortran_order": "flag", "shape": "sides"}
    fine = set(found) == set(kinds) and all(field[kinds[key]] is not None for key, field in found.items())
    if not fine or text[at:].strip() != "}":
        raise damaged(f"{where} has the header {text[:120]!r}; expected descr, fortran_order and shape")
    return found["descr"]["text"], found["fortran_order"]["flag"] == "True", _sides(found["shape"]["sides"], where)


def _sides(text: str, where: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if words[-1] == "":
        words.pop()
    elif len(words) == 1:
        raise damaged(f"{where} has the shape ({text[:80]}), which is a number and no list")
    if len(words) > MAX_SIDES or not all(word.isdigit() and len(word) < 20 for word in words):
        raise damaged(f"{where} has the shape ({text[:80]}); expected up to {MAX_SIDES} numbers")
    shape = tuple(map(int, words))
    if too_large(shape):
        raise damaged(f"{where} has the shape ({text[:80]}), more than an array can have")
    return shape


def _dtype(text: str, where: str) -> str:
    if text in _DTYPES:
        return _DTYPES[text]
    what = f"numbers of type {text!r} in big-endian order" if text.startswith(">") else f"the type {text!r}"
    if "O" in text:
        what = "Python objects, which are pickled and never read"
    raise UnsupportedDtype(f"{where} holds {what}; supported: {', '.join(_DTYPES)}", hint="store it as one of these")


class _Inflating:
    """The inflating of one array, of whose header `skip` bytes come first; only the intervals that are wanted are kept."""

    def __init__(
        self, member: ZipMember, skip: int, dtype: str, label: str, intervals: Sequence[tuple[int, int]]
    ) -> None:
        self._member, self._skip, self._dtype, self._label = member, skip, dtype, label
        self._intervals, self._item = intervals, item_bytes(dtype, tensor=_name(member))
        runs = join_runs(sorted((start, stop) for start, stop in intervals if start < stop))
        self._starts, self._stops = [start for start, _ in runs], [stop for _, stop in runs]
        self._places = list(accumulate((stop - start for start, stop in runs), initial=0))
        self._out = np.empty(self._places[-1] * self._item, dtype=np.uint8)
        self._end = skip + self._stops[-1] * self._item if self._stops else 0
        self._at = self._checksum = 0
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)

    def feed(self, raw: memoryview) -> None:
        try:
            for piece in _inflate(self._engine, raw, self._end - self._at):
                self._checksum = zlib.crc32(piece, self._checksum)
                self._keep(np.frombuffer(piece, dtype=np.uint8))
                self._at += len(piece)
        except zlib.error as error:
            raise self._wrong("nothing, being damaged") from error

    def _keep(self, piece: npt.NDArray[np.uint8]) -> None:
        skip, item = self._skip, self._item
        first = bisect_right(self._stops, (self._at - skip) // item)
        for number in range(max(first, 0), len(self._starts)):
            start, stop = skip + self._starts[number] * item, skip + self._stops[number] * item
            low, high = max(self._at, start), min(self._at + len(piece), stop)
            if low >= self._at + len(piece):
                return
            target = self._places[number] * item - start
            self._out[target + low : target + high] = piece[low - self._at : high - self._at]

    def finish(self) -> list[Array]:
        if self._at < self._end:
            raise self._wrong(f"{self._at} bytes")
        if self._end == self._member.size and self._checksum != self._member.crc:
            raise self._wrong("something else than what its checksum says")
        values = decode(self._out.data, self._dtype, tensor=_name(self._member))
        found = []
        for start, stop in self._intervals:
            number = max(bisect_right(self._starts, start) - 1, 0)
            first = self._places[number] + start - self._starts[number] if start < stop else 0
            found.append(values[first : first + stop - start])
        return found

    def _wrong(self, what: str) -> FormatError:
        name, size = self._member.name[:200], self._member.size
        return damaged(f"{self._label}: member {name!r} inflates to {what}; expected {size} bytes")


def _inflate(engine: zlib._Decompress, packed: memoryview, stop: int) -> Iterator[bytes]:
    """Inflate piece by piece, `stop` bytes at most. Raises zlib.error."""
    # Chunks are short because each step copies the rest of one.
    for at in range(0, len(packed) + 1, _PACKED_CHUNK):
        rest: bytes | memoryview = packed[at : at + _PACKED_CHUNK]
        while stop > 0:
            piece = engine.decompress(rest, min(stop, _CHUNK))
            if not piece:
                break
            yield piece
            stop -= len(piece)
            rest = engine.unconsumed_tail


def _refuse_bomb(arrays: Sequence[ZipMember], label: str) -> None:
    """Refuse arrays that claim to inflate to far more than trained weights do, one by one and all together."""
    packed = [member for member in arrays if member.method == DEFLATED]
    total, inflated = sum(member.stored for member in packed), sum(member.size for member in packed)
    claims = [("the archive", total, inflated, INFLATED_FREE + INFLATED_RATIO * total)]
    claims += [(m.name[:200], m.stored, m.size, max(INFLATED_FREE, INFLATED_RATIO * m.stored)) for m in packed]
    for name, stored, size, most in claims:
        if size > most:
            raise FormatError(
                f"{label}: {name!r} claims to inflate from {stored} to {size} bytes; expected at most {most}",
                hint="no trained weights are so uniform; store arrays without compression if it is meant",
            )


def _headers(reader: Reader, arrays: Sequence[ZipMember]) -> list[tuple[ArrayHeader, int]]:
    spans = [ByteRange(m.offset, min(m.limit, m.least_start + _FIRST_BYTES)) for m in arrays]
    first = reader.read_many(spans)
    starts = [member.start_told_by(raw, reader.label) for member, raw in zip(arrays, first, strict=True)]
    heads = zip(arrays, first, starts, strict=True)
    found = [_header(member, raw[start - member.offset :], reader.label) for member, raw, start in heads]
    short = [number for number, header in enumerate(found) if header is None]
    more = [ByteRange(starts[n], starts[n] + min(arrays[n].stored, HEADER_CAP)) for n in short]
    for number, raw in zip(short, reader.read_many(more), strict=True):
        found[number] = _header(arrays[number], raw, reader.label)
    complete = []
    for member, header, start in zip(arrays, found, starts, strict=True):
        if header is None:
            raise damaged(f"{reader.label}: array {_name(member)[:200]!r} ends within its header")
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
            raise damaged(f"{label}: array {_name(member)[:200]!r} is badly compressed") from error
    return parse_array_header(first, name=_name(member), label=label)


def _name(member: ZipMember) -> str:
    return member.name.removesuffix(".npy")


def _row(member: ZipMember, header: ArrayHeader, start: int, number: int, label: str) -> TensorInfo:
    name, dtype, shape = _name(member), header.dtype, header.shape
    count = math.prod(shape)
    needed = header.length + count * item_bytes(dtype, tensor=name, label=label)
    if needed != member.size:
        raise damaged(
            f"{label}: array {name[:200]!r} of {count} elements of type {dtype} needs {needed} bytes, has {member.size}"
        )
    turned = -1 if header.fortran else 1
    strides = zip_directory.contiguous_strides(shape[::turned])[::turned]
    first, last = start + header.length, start + member.stored
    if not count:
        return TensorInfo(name, dtype, shape, number, start, start)
    flat = TensorInfo(name, dtype, (count,), number, first, last)
    if not member.is_stored:
        packed = TensorInfo(name, "U8", (member.stored,), number, start, last)
        inflated = Streamed(packed, partial(_Inflating, member, header.length, dtype, label))
        flat = flat._replace(start=0, end=member.stored, made=inflated)
    elif zip_directory.is_contiguous(shape, strides):
        return flat._replace(shape=shape)
    return zip_directory.placed_tensor(flat, shape, strides, None, member, label)


def load(session: Session, _folder: Folder, source: Source, number: int, guess: int) -> Shard:
    """Read an archive's directory and the header of each array."""
    reader = Reader(session, source)
    label = reader.label
    members = zip_directory.read_directory(reader, min(guess, FIRST_READ))
    arrays = [member for name, member in members.items() if name.endswith(".npy")]
    if not arrays or len(arrays) > MAX_ARRAYS:
        said = f"{label}: the archive has {len(arrays)} arrays; expected 1 to {MAX_ARRAYS}"
        raise FormatError(said, hint="name a file of weights")
    for member in arrays:
        if member.method not in (STORED, DEFLATED):
            said = f"{label}: member {member.name[:200]!r} is compressed by method {member.method}; expected none or deflate"
            raise FormatError(said, hint="numpy.load it and numpy.savez it again")
    _refuse_bomb(arrays, label)
    headers = _headers(reader, arrays)
    rows = {_name(m): _row(m, *found, number, label) for m, found in zip(arrays, headers, strict=True)}
    notes = []
    if packed := sum(member.method == DEFLATED for member in arrays):
        notes.append(Text("{n} arrays are compressed: each is read whole, whatever is needed of it", n=packed))
    if others := len(members) - len(arrays):
        notes.append(Text("{n} members of the archive are no arrays, and are not read", n=others))
    return Shard(source, reader.size, reader.bytes_read, rows, notes=tuple(notes))
