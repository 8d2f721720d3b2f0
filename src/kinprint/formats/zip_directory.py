"""Read zip archives by range: the directory at the end, and where each member's bytes are.

Only what writers of weights do is understood, and anything a second reader could understand differently is refused: comments,
gaps, members that overlap or share a name. Otherwise one file could show kinprint one model and its users another.

Only a member's own header says how long it is itself. Reading those of 300 members of a remote file would take 300 requests, so
the length is predicted (members follow each other), and checked together with the bytes taken from the member (`placed_tensor`).

Reference: PKWARE, .ZIP File Format Specification (APPNOTE.TXT) 6.3.10, sections 4.3 and 4.5.3.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kinprint.errors import FormatError
from kinprint.formats.checks import DAMAGED, damaged
from kinprint.formats.dtypes import Array, item_bytes
from kinprint.formats.plan import MAX_GAP_BYTES, TensorSlice
from kinprint.formats.row_maker import RowMaker, entire
from kinprint.formats.tensors import TensorInfo
from kinprint.refs import ByteRange, join_runs
from kinprint.sources.base import Source
from kinprint.sources.pool import DaemonPool
from kinprint.sources.session import Session

ZIP_MAGIC = b"PK\x03\x04"
STORED, DEFLATED = 0, 8
LOCAL_BYTES = 30
DIRECTORY_CAP = 16 << 20  # 18,000 tensors take 1.5 MB
WHOLE_BYTES = 8 << 20  # a view of no more than this is read in one piece, whatever its strides
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_TAIL_BYTES = _END64.size + _LOCATOR.size + _END.size
_FULL32, _FULL16 = 0xFFFFFFFF, 0xFFFF
_ENCRYPTED, _DESCRIBED_AFTER = 0x0001, 0x0008
_UNREADABLE = 0x2061  # encrypted, patched, strongly encrypted, masked
_DESCRIPTORS = (16, 24, 12, 20)  # with and without a signature, for sizes of four and of eight bytes
_ALIGNMENT = 64  # where torch's writer lets every member begin
_READERS = 8
_MAX_MEMBERS = 100_000  # a parsed entry takes 450 bytes of memory
_TRUST = "no writer of weights makes such an archive; fetch the file again, from a source you trust"


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in an archive, as the directory describes it."""

    name: str
    name_bytes: int
    offset: int  # where its own header begins
    limit: int  # where the next member begins, or the directory
    size: int  # bytes of the content
    stored: int  # bytes of the archive that hold it
    method: int
    flags: int
    crc: int

    @property
    def is_stored(self) -> bool:
        """Whether the content is not compressed."""
        return self.method == STORED

    @property
    def least_start(self) -> int:
        """The first byte that could be content."""
        return self.offset + LOCAL_BYTES + self.name_bytes

    def expected_start(self) -> int | None:
        """Return where the content begins if members follow each other without a gap; None if that cannot be told."""
        # What may stand between the content and the next member is a descriptor, in one of four lengths; torch's writer, which
        # adds them, aligns the content, so that one length fits at most.
        described = self.flags & _DESCRIBED_AFTER and self.size
        ends, step = (_DESCRIPTORS, _ALIGNMENT) if described else ((0,), 1)
        starts = [start for after in ends if (start := self.limit - self.stored - after) % step == 0]
        fitting = [start for start in starts if self.least_start <= start <= self.least_start + _FULL16]
        return fitting[0] if len(fitting) == 1 else None

    def start_told_by(self, header: bytes | memoryview, label: str) -> int:
        """Check the member's own header against the directory; return where it says that the content begins."""
        wrong = f"{label}: the header of {self.name[:200]!r} at byte {self.offset}"
        if len(header) < LOCAL_BYTES + self.name_bytes:
            raise damaged(f"{wrong} is cut off")
        signature, _, flags, method, _, _, _, _, _, name_bytes, extra = _LOCAL.unpack(header[:LOCAL_BYTES])
        if signature != ZIP_MAGIC:
            raise damaged(f"{wrong} begins with {signature!r}, expected {ZIP_MAGIC!r}")
        raw = bytes(header[LOCAL_BYTES : LOCAL_BYTES + self.name_bytes])
        same = (method, flags & _UNREADABLE, name_bytes) == (self.method, 0, self.name_bytes)
        if not same or _text(raw, flags) != self.name:
            raise FormatError(f"{wrong} does not say what the archive's directory says of it", hint=_TRUST)
        start: int = self.least_start + extra
        if start + self.stored > self.limit:
            said = f"{wrong} puts its {self.stored} bytes at byte {start}, beyond the next member at {self.limit}"
            raise FormatError(said, hint=_TRUST)
        return start


HELD = 64  # ranges kept while a directory is read


class Reader:
    """Reads pieces of a file within the session's budget, and keeps the latest for further reads."""

    def __init__(self, session: Session, source: Source) -> None:
        self.session, self.source = session, source
        self.label, self.size = source.label, source.size
        self.bytes_read = 0
        self._held: list[tuple[ByteRange, memoryview]] = []

    def read(self, start: int, end: int) -> memoryview:
        """Return bytes `start` to `end`, from memory if one piece that is kept holds them."""
        held = self._find(start, end)
        if held is None:
            held = self.session.read_here(self.source, ByteRange(start, end))
            self.bytes_read += end - start
            self._held.append((ByteRange(start, end), held))
            del self._held[:-HELD]  # what is looked for again was read a moment ago
        return held

    def read_many(self, spans: Sequence[ByteRange]) -> list[memoryview]:
        """Return several pieces: near ones by one read, distant ones at the same time."""
        unread = [(span.start, span.end) for span in spans if self._find(span.start, span.end) is None]
        missing = [ByteRange(*run) for run in join_runs(sorted(unread), MAX_GAP_BYTES)]
        fresh = list(zip(missing, self._fetch(missing), strict=True))
        self.bytes_read += sum(len(span) for span in missing)
        pieces, at = {}, 0
        for span in sorted(spans, key=lambda item: item.start):
            while at < len(fresh) and fresh[at][0].end < span.end:
                at += 1
            inside = at < len(fresh) and fresh[at][0].start <= span.start
            begin = span.start - fresh[at][0].start if inside else 0
            pieces[span] = fresh[at][1][begin : begin + len(span)] if inside else self.read(span.start, span.end)
        return [pieces[span] for span in spans]

    def _fetch(self, spans: Sequence[ByteRange]) -> list[memoryview]:
        if len(spans) < 2:
            return [self.session.read_here(self.source, span) for span in spans]
        pool = DaemonPool(_READERS)  # not the session's: the caller may hold one of its threads, and wait for itself
        try:
            jobs = [pool.submit(partial(self.session.read_here, self.source, span)) for span in spans]
            return [job.result() for job in jobs]
        finally:
            pool.close(wait=False)

    def _find(self, start: int, end: int) -> memoryview | None:
        for span, data in self._held:
            if span.start <= start and end <= span.end:
                return data[start - span.start : end - span.start]
        return None


def locate(reader: Reader, members: Sequence[ZipMember]) -> list[int]:
    """Read and check the members' own headers; return where their contents begin."""
    headers = reader.read_many([ByteRange(m.offset, min(m.limit, m.least_start)) for m in members])
    return [member.start_told_by(head, reader.label) for member, head in zip(members, headers, strict=True)]


def contents(reader: Reader, members: Sequence[ZipMember], *, cap: int) -> list[memoryview]:
    """Read small stored members whole, those that lie near each other together; refuse any that is larger than `cap`."""
    for member in members:
        if not member.is_stored or member.size > cap:
            what = f"has {member.size} bytes, more than the {cap} allowed" if member.is_stored else "is compressed"
            raise FormatError(f"{reader.label}: member {member.name[:200]!r} {what}", hint=_TRUST)
    spans = [ByteRange(m.offset, min(m.limit, m.least_start + 2 * _ALIGNMENT + m.size)) for m in members]
    found = []
    for member, span, raw in zip(members, spans, reader.read_many(spans), strict=True):
        start = member.start_told_by(raw, reader.label)
        end = start + member.size
        found.append(raw[start - span.start : end - span.start] if end <= span.end else reader.read(start, end))
    return found


def read_directory(reader: Reader, guess: int) -> dict[str, ZipMember]:
    """Return an archive's members by name, in the directory's order, mostly by one read of `guess` bytes from the end."""
    size, label = reader.size, reader.label
    if size < _END.size:
        raise damaged(f"{label}: {size} bytes, too short to be a zip archive")
    tail_bytes = min(size, reader.session.on_a_guess(max(guess, _TAIL_BYTES), _TAIL_BYTES))
    tail = reader.read(size - tail_bytes, size)
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment:
        raise damaged(
            f"{label}: the last {_END.size} bytes are no zip end record without a comment; "
            "expected the archive to end with one"
        )
    if (disk, first_disk) not in ((0, 0), (_FULL16, _FULL16), (0, _FULL16), (_FULL16, 0)) or here != count:
        raise FormatError(f"{label}: a part of a zip archive on several disks; expected one file", hint=_TRUST)
    end, count, length, start = _with_end64(reader, size - _END.size, (count, length, start))
    if start + length != end:
        said = f"{label}: the directory of {length} bytes at byte {start} does not end at the end record, byte {end}"
        raise damaged(said)
    if length > DIRECTORY_CAP or count > _MAX_MEMBERS or count * _ENTRY.size > length:
        raise damaged(
            f"{label}: the directory claims {count} members in {length} bytes; expected at most {_MAX_MEMBERS} in "
            f"{DIRECTORY_CAP}, and {_ENTRY.size} bytes or more for each"
        )
    return _entries(reader.read(start, end), count, start, label)


def _with_end64(reader: Reader, end: int, plain: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Return where the directory must end, its count, length and start, from the 64-bit end record if there is one."""
    label = reader.label
    saturated = plain[0] == _FULL16 or _FULL32 in plain[1:]
    at = end - _LOCATOR.size
    if at < 0 or bytes(reader.read(at, at + 4)) != b"PK\x06\x07":
        if saturated:
            raise damaged(f"{label}: the archive's end record needs a 64-bit one, and there is none")
        return (end, *plain)
    _, disk, place, disks = _LOCATOR.unpack(reader.read(at, end))
    if disk or disks != 1 or place + _END64.size != at:
        there = f"byte {place} of disk {disk}; expected {at - _END64.size}"
        hint = DAMAGED if place < reader.size else _TRUST
        raise FormatError(f"{label}: the 64-bit end record is said to be at {there}", hint=hint)
    signature, rest, _, _, disk, first_disk, here, count, length, start = _END64.unpack(reader.read(place, at))
    fields = zip(plain, (count, length, start), (_FULL16, _FULL32, _FULL32), strict=True)
    agrees = all(small in (wide, full) for small, wide, full in fields)
    fine = signature == b"PK\x06\x06" and rest == _END64.size - 12 and not (disk or first_disk) and here == count
    if not (fine and agrees):
        raise FormatError(f"{label}: the archive's two end records do not agree", hint=_TRUST)
    return place, count, length, start


def _entries(raw: memoryview, count: int, start: int, label: str) -> dict[str, ZipMember]:
    """Parse the directory and check that its members neither overlap nor share a name."""
    members: dict[str, ZipMember] = {}
    at = 0
    for _ in range(count):
        member, at = _entry(raw, at, start, label)
        if member.name in members:
            raise FormatError(f"{label}: the archive has two members {member.name[:200]!r}", hint=_TRUST)
        members[member.name] = member
    if at != len(raw):
        raise damaged(f"{label}: {count} entries take {at} bytes of the directory, which has {len(raw)}")
    ordered = sorted(members.values(), key=lambda member: member.offset)
    limits = [*(member.offset for member in ordered[1:]), start]
    for member, limit in zip(ordered, limits, strict=False):
        if member.least_start + member.stored > limit:
            raise FormatError(
                f"{label}: member {member.name[:200]!r} of {member.stored} bytes at byte {member.offset} "
                f"overlaps what begins at byte {limit}",
                hint=_TRUST,
            )
        members[member.name] = replace(member, limit=limit)
    return members


def _entry(raw: memoryview, at: int, start: int, label: str) -> tuple[ZipMember, int]:
    where = f"{label}: the directory's entry at byte {start + at}"
    if at + _ENTRY.size > len(raw):
        raise damaged(f"{where} is cut off")
    fields = _ENTRY.unpack(raw[at : at + _ENTRY.size])
    signature, _, _, flags, method, _, _, crc, stored, size, named, extra, comment, disk, _, _, offset = fields
    if signature != b"PK\x01\x02":
        raise damaged(f"{where} begins with {signature!r}, expected b'PK\\x01\\x02'")
    at += _ENTRY.size
    end = at + named + extra + comment
    if end > len(raw):
        raise damaged(f"{where} is cut off")
    name = _text(bytes(raw[at : at + named]), flags)
    if name is None or not name or "\0" in name:
        raise FormatError(f"{where} has a name that is not text", hint=_TRUST)
    if flags & _UNREADABLE:
        what = "encrypted" if flags & _ENCRYPTED else "stored in a way that is not supported"
        raise FormatError(f"{label}: member {name[:200]!r} is {what}", hint="store it as it is")
    more = raw[at + named : at + named + extra]
    size, stored, offset, disk = _wide(more, size, stored, offset, disk, where)
    if disk or (method == STORED and size != stored):
        raise damaged(
            f"{where}: member {name[:200]!r} of {size} bytes takes {stored} on disk {disk}; expected as many, on disk 0"
        )
    return ZipMember(name, named, offset, 0, size, stored, method, flags, crc), end


def _wide(extra: memoryview, size: int, stored: int, offset: int, disk: int, where: str) -> tuple[int, int, int, int]:
    """Replace saturated fields by the 64-bit ones of the extra field."""
    fields = [(size, _FULL32, 8), (stored, _FULL32, 8), (offset, _FULL32, 8), (disk, _FULL16, 4)]
    if all(value != full for value, full, _ in fields):
        return size, stored, offset, disk
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<2H", extra[at : at + 4])
        at += 4
        if kind == 1:
            values, end = [], min(at + length, len(extra))
            for value, full, width in fields:
                wide = value == full
                values.append(int.from_bytes(extra[at : at + width], "little") if wide else value)
                at += width if wide else 0
            if at <= end:
                return values[0], values[1], values[2], values[3]
            break
        at += length
    raise damaged(f"{where} needs 64-bit sizes, and does not have them")


def _text(raw: bytes, flags: int) -> str | None:
    """Return a name as text: UTF-8 if it says so, else ASCII, for which all code pages agree."""
    try:
        return raw.decode("utf-8" if flags & 0x0800 else "ascii")
    except UnicodeDecodeError:
        return None


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array whose last axis runs fastest."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements lie from an array's first to its last, both counted."""
    return 1 + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements follow each other in the file; the stride of an axis of one element says nothing."""
    if 0 in shape:
        return True
    natural = contiguous_strides(shape)
    return all(side == 1 or own == other for side, own, other in zip(shape, strides, natural, strict=True))


def placed_tensor(
    flat: TensorInfo,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    header: TensorInfo | None,
    member: ZipMember,
    label: str,
) -> TensorInfo:
    """Describe a tensor in a member of the file `label`, whose rows are made once the member's own header has been checked.

    `flat` are the elements from the tensor's first to its last, as one axis, and `strides` count them, none negative. `header` are
    the bytes before the member's content, read with every slice; None if they were checked before.
    """
    contiguous = is_contiguous(shape, strides)

    def decode(start: int, stop: int, values: Array, head: Array | None) -> Array:
        told = member.start_told_by(memoryview(head.tobytes()), label) if head is not None else None
        if header is not None and told != header.end:
            raise FormatError(
                f"{label}: the header of {member.name[:200]!r} puts its content at byte {told}; "
                f"expected {header.end} from where the next member begins",
                hint=_TRUST,
            )
        form = (stop - start, *shape[1:])
        if values.ndim > 1:
            return np.ascontiguousarray(values.T)
        if contiguous or 0 in form:
            return values.reshape(form)
        steps = tuple(stride * values.itemsize for stride in strides)
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(values, form, steps, writeable=False))

    def select(flat: TensorInfo, start: int, stop: int) -> TensorSlice:
        """Select the elements that rows `start` to `stop` lie among."""
        width, rows = math.prod(shape[1:]), stop - start
        if contiguous or not rows * width:
            return TensorSlice(flat, ((start * width, stop * width),), (rows * width,))
        if len(shape) == 2 and strides[0] == 1 and flat.elements * item > WHOLE_BYTES:
            pitch, columns = strides[1], shape[1]
            # A large transposed matrix: its columns' pieces, one by one; what is streamed need not be kept between them.
            if (pitch - rows) * item > MAX_GAP_BYTES or flat.made is not None:
                runs = tuple((pitch * column + start, pitch * column + stop) for column in range(columns))
                return TensorSlice(flat, runs, (columns, rows))
        first = start * strides[0]
        end = first + extent((rows, *shape[1:]), strides)
        return TensorSlice(flat, ((first, end),), (end - first,))

    item = item_bytes(flat.dtype, tensor=flat.name)
    stored = math.prod(shape) * item if flat.made is None else flat.nbytes
    made = RowMaker(None, shape, (flat, header), (select, entire), decode)
    return TensorInfo(flat.name, flat.dtype, shape, flat.file, 0, stored, made)
