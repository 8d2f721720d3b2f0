"""Walk over protobuf messages in a file that is read by range, without reading the fields that are skipped.

Wire format: a message is a row of fields, each a varint key (number << 3 | type) and a value: a varint, 4 or 8 bytes, or a
length and so many bytes. Groups are of an older time, and no file of weights has them.

Reference: "Encoding", in the documentation of Protocol Buffers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kinprint.errors import FormatError
from kinprint.formats.checks import damaged
from kinprint.refs import ByteRange
from kinprint.sources.base import Source
from kinprint.sources.session import Session

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
READ_CAP = 128 << 20  # what of a file is not tensors; a large graph with its notes has 20 MB
MAX_FIELDS = 2_000_000  # a few seconds; the graph of a large language model has 400,000
MAX_TEXT = 1 << 16
LEAST_STRETCH = 8192  # after a jump over a tensor: the next one's description, and what small ones follow
MOST_STRETCH = 1 << 18
_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field: its number and type, and where its value is; of a varint, the value itself is `start`."""

    number: int
    kind: int
    start: int
    end: int


class Window:
    """One stretch of a file's bytes at a time, longer after each one that was read without a jump; `first` bytes at first."""

    def __init__(self, session: Session, source: Source, first: int) -> None:
        self.label, self.size = source.label, source.size
        self.bytes_read = 0
        self._session, self._source = session, source
        self._begin, self._data = 0, b""
        self._stretch = max(first, LEAST_STRETCH) // 2  # doubled for the first stretch
        self._fields = 0

    def take(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, which the caller has bounded."""
        if start < self._begin or end > self._begin + len(self._data):
            self._fetch(start, end)
        return self._data[start - self._begin : end - self._begin]

    def text(self, field: Field, what: str) -> str:
        """Return a field's text."""
        self.expect(field, LENGTH, what)
        if field.end - field.start > MAX_TEXT:
            raise FormatError(f"{self.label}: {what} has {field.end - field.start} bytes, expected at most {MAX_TEXT}")
        try:
            return self.take(field.start, field.end).decode()
        except UnicodeDecodeError as error:
            raise damaged(f"{self.label}: {what} at byte {field.start} is not UTF-8") from error

    def expect(self, field: Field, kind: int, what: str) -> None:
        """Refuse a field of another type."""
        if field.kind != kind:
            said = f"{self.label}: {what} has wire type {field.kind}, expected {kind}"
            raise FormatError(said, hint="this is not the kind of file its name says")

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Walk over the fields of the message from `start` to `end`, reading keys and lengths only."""
        at = start
        while at < end:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise FormatError(f"{self.label}: more than {MAX_FIELDS} fields; no graph of a model has so many")
            key, at = self._varint(at, end)
            number, kind = key >> 3, key & 7
            if number == 0 or kind not in (VARINT, FIXED64, LENGTH, FIXED32):
                raise damaged(
                    f"{self.label}: field {number} of wire type {kind} before byte {at}; no such thing is written today"
                )
            if kind == VARINT:
                value, at = self._varint(at, end)
                yield Field(number, kind, value, at)
                continue
            length = 8 if kind == FIXED64 else 4
            if kind == LENGTH:
                length, at = self._varint(at, end)
            if length > end - at:
                said = f"{self.label}: field {number} at byte {at} has {length} bytes, but its message ends after {end - at}"
                raise damaged(said)
            yield Field(number, kind, at, at + length)
            at += length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        offset = at - self._begin
        if 0 <= offset < len(self._data) and at < end and self._data[offset] < 0x80:  # most are of one byte
            return self._data[offset], at + 1
        if offset < 0 or offset + _VARINT_BYTES > len(self._data):
            self.take(at, min(end, at + _VARINT_BYTES))
            offset = at - self._begin
        data, value, shift = self._data, 0, 0
        for place in range(offset, offset + min(_VARINT_BYTES, end - at)):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1 + self._begin
            shift += 7
        raise damaged(f"{self.label}: the number at byte {at} does not end")

    def _fetch(self, start: int, end: int) -> None:
        if end > self.size:
            raise damaged(f"{self.label}: ends at byte {self.size}, expected at least {end}")
        known = self._begin + len(self._data)
        near = self._begin <= start <= known + self._stretch
        self._stretch = min(2 * self._stretch, max(MOST_STRETCH, self._stretch)) if near else LEAST_STRETCH
        kept = self._data[start - self._begin :] if self._begin <= start < known else b""
        origin = start + len(kept)
        upto = min(self.size, max(end, origin + self._session.on_a_guess(self._stretch, _VARINT_BYTES)))
        if self.bytes_read + upto - origin > READ_CAP:
            said = f"{self.label}: more than {READ_CAP} bytes that are not tensors; no graph of a model has so many"
            raise FormatError(said)
        fresh = self._session.read_here(self._source, ByteRange(origin, upto))
        self.bytes_read += upto - origin
        self._begin, self._data = start, kept + bytes(fresh)


def signed(value: int) -> int:
    """Return a varint as the signed 64-bit number it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value
