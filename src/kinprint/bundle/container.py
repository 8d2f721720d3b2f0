"""Open the archive of an evidence bundle as hostile input: nothing is unpacked by name, nor beyond its allowed size."""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.bundle.members import BYTES, CAPS, NEEDED
from kinprint.errors import FormatError, NotFound
from kinprint.formats.zip_directory import DEFLATED, Reader, ZipMember, locate, read_directory
from kinprint.sources.local import LocalFile
from kinprint.sources.replay import SharedFile
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

DEFAULT_MAX_BYTES = 4 << 30  # what a bundle may have in all when unpacked, unless the user allows more
MOST_MEMBERS = 10_000
MOST_RATIO = 200  # times that a member may shrink; reports shrink ten times, and deflate could a thousand
_FIRST_READ = 1 << 16
_STEP = 1 << 20
_ZIP = b"PK"  # every archive begins so
_WRITE = "kinprint compare A B --bundle FILE writes a bundle"
_TRUST = "no kinprint wrote this; do not trust it"


class Container:
    """An open bundle: its members by name, and where the content of each begins."""

    def __init__(self, file: SharedFile, members: Mapping[str, ZipMember], starts: Sequence[int], label: str) -> None:
        self.file, self.members, self._label = file, members, label
        self.starts = dict(zip(members, starts, strict=True))

    def read(self, name: str) -> bytes:
        """Return a member that is text; FormatError if it is damaged."""
        member = self.members[name]
        raw = bytearray(member.stored)
        self.file.read_into(self.starts[name], memoryview(raw))
        data = bytes(raw)
        if member.method == DEFLATED:
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                data = unpacker.decompress(data, member.size + 1)
            except zlib.error as error:
                raise self._damaged(name, str(error)) from error
            if not unpacker.eof or unpacker.unused_data:
                raise self._damaged(name, "the packed data do not end where they should")
        if len(data) != member.size:
            raise self._damaged(name, f"has {len(data)} bytes, expected {member.size}")
        if zlib.crc32(data) != member.crc:
            raise self._damaged(name, "its checksum is wrong")
        return data

    def digest(self, name: str) -> tuple[str, bool]:
        """Return the SHA-256 of a stored member, without holding it, and whether the archive's own checksum fits."""
        member, made, crc = self.members[name], hashlib.sha256(), 0
        buffer = memoryview(bytearray(min(_STEP, member.size)))
        for at in range(0, member.size, _STEP):
            piece = buffer[: min(_STEP, member.size - at)]
            self.file.read_into(self.starts[name] + at, piece)
            made.update(piece)
            crc = zlib.crc32(piece, crc)
        return made.hexdigest(), crc == member.crc

    def _damaged(self, name: str, why: str) -> FormatError:
        return FormatError(f"{self._label}: {name} is damaged: {why}", hint="fetch or copy the bundle again")


@contextmanager
def open_container(path: Path, max_bytes: int | None = DEFAULT_MAX_BYTES) -> Iterator[Container]:
    """Open a bundle and check its directory; FormatError if the archive cannot be one: truncated, too large, other members."""
    label = printable(str(path))
    with Session(Settings(offline=True)) as session:
        try:
            source = LocalFile(path, label, session.traffic)
        except NotFound as error:
            raise NotFound(error.message, hint=_WRITE) from None
        reader = Reader(session, source)
        try:
            members = read_directory(reader, _FIRST_READ)
        except FormatError as error:
            if source.size < len(_ZIP) or bytes(reader.read(0, len(_ZIP))) != _ZIP:
                said = f"{label}: is no zip archive, which begins with {_ZIP.decode()}; so this is no evidence bundle"
                raise FormatError(said, hint=_WRITE) from error
            raise FormatError(f"{error.message}; so this is no evidence bundle", hint=error.hint) from error
        _check(members, label, max_bytes)
        starts = locate(reader, list(members.values()))
    try:
        with path.open("rb") as file:
            yield Container(SharedFile(file), members, starts, label)
    except FileNotFoundError:
        raise NotFound(f"{label}: no such file", hint=_WRITE) from None


def _check(members: Mapping[str, ZipMember], label: str, max_bytes: int | None) -> None:
    if len(members) > MOST_MEMBERS:
        raise FormatError(f"{label}: {len(members)} members, expected at most {MOST_MEMBERS}", hint=_TRUST)
    missing = [name for name in NEEDED if name not in members]
    if missing:
        said = f"{label}: has no {missing[0]}, so it is no evidence bundle"
        raise FormatError(said, hint=_WRITE)
    for name, member in members.items():
        enclosed = BYTES.match(name) is not None
        where = f"{label}: member {printable(name, 200)!r}"
        if not enclosed and name not in CAPS:
            raise FormatError(f"{where} does not belong into a bundle", hint=_TRUST)
        if not (member.is_stored or (member.method == DEFLATED and not enclosed)):
            raise FormatError(f"{where} is packed by method {member.method}, which no bundle uses", hint=_TRUST)
        if not enclosed and member.size > CAPS[name]:
            raise FormatError(f"{where} has {member.size} bytes, expected at most {CAPS[name]}", hint=_TRUST)
        if member.size > MOST_RATIO * member.stored + (1 << 16):
            said = f"{where} claims to be {member.size} bytes in {member.stored}; nothing sound shrinks so much"
            raise FormatError(said, hint=_TRUST)
    total = sum(member.size for member in members.values())
    if max_bytes is not None and total > max_bytes:
        raise FormatError(
            f"{label}: {format_size(total)} when unpacked, more than the {format_size(max_bytes)} allowed",
            hint="give a larger --max-size, if you expect a bundle with so many bytes",
        )
