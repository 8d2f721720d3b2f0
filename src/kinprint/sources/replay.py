"""A session that answers from a ledger's record and from bytes that were kept: the same comparison once more, elsewhere."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.errors import FileTooLarge, NotRecorded, SourceError
from kinprint.refs import ByteRange, ModelRef
from kinprint.sources.base import SMALL_FILE_CAP, Folder, Request, Source, too_large
from kinprint.sources.ledger import (
    IDENTITY,
    OPEN,
    PREFETCH,
    READ,
    SIZE,
    SMALL,
    FileRecord,
    Ledger,
    ReadingRecord,
    RecordingSource,
    SourceRecord,
    Span,
)
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

READ_AGAIN = 8
"""How many times all that was recorded one read may have: ranges that overlap are recorded once, and delivered each time."""


class SharedFile:
    """An open file that several threads read at their own places."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def read_into(self, at: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `at` on, or raise."""
        done = 0
        with self._lock:
            self._file.seek(at)
            while done < len(buffer):
                got = self._file.readinto(buffer[done:])  # type: ignore[attr-defined]
                if not got:
                    raise SourceError(f"kept bytes end at {at + done}, expected {at + len(buffer)}")
                done += got

    def write(self, at: int, data: memoryview) -> None:
        """Put bytes at a place."""
        with self._lock:
            self._file.seek(at)
            self._file.write(data)


class KeptBytes:
    """What is kept of one file: some of its intervals, end to end in another file from byte `base` on."""

    def __init__(self, file: SharedFile, base: int, spans: Sequence[Span]) -> None:
        self._file, self._base = file, base
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._places = [0, *accumulate(end - start for start, end in spans)]

    @property
    def length(self) -> int:
        """Bytes in all."""
        return self._places[-1]

    def place(self, span: ByteRange) -> int | None:
        """Return where a range is, or None if not all of it is kept."""
        number = bisect_right(self._starts, span.start) - 1
        if number < 0 or span.end > self._spans[number][1]:
            return None
        return self._base + self._places[number] + span.start - self._starts[number]

    def read_into(self, span: ByteRange, buffer: memoryview) -> bool:
        """Fill `buffer`, or return False if not all of the range is kept."""
        at = self.place(span)
        if at is None:
            return False
        self._file.read_into(at, buffer[: len(span)])
        return True


class RecordedFile:
    """A file as a ledger recorded it. What was not read then is not there now."""

    at_hand = True

    def __init__(self, record: FileRecord, kept: KeptBytes | None, missing: list[str]) -> None:
        self._record, self._kept, self._missing = record, kept, missing
        self.label = record.label

    @property
    def size(self) -> int:
        """Length in bytes, as recorded."""
        if self._record.size is None:
            self.fail(SIZE)
            raise self.not_recorded("the size")
        return self._record.size

    @property
    def identity(self) -> str:
        """What tells the content from any other, as recorded."""
        if self._record.identity is None:
            self.fail(IDENTITY)
            raise self.not_recorded("the identity")
        return self._record.identity

    def prefetch(self) -> None:
        """Fail if it failed then."""
        self.fail(PREFETCH)

    def require(self, span: ByteRange) -> None:
        """Raise what reading the range would raise, before room is made for it."""
        if len(span) and (self._kept is None or self._kept.place(span) is None):
            self.fail(READ)
            raise self.not_recorded(f"bytes {span.start} to {span.end}")

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` with a range that was read then, or a part of one."""
        self.require(span)
        if self._kept is not None and len(span):
            self._kept.read_into(span, buffer)

    def whole(self, cap: int) -> bytes:
        """Return the content, if all of it was read."""
        size = self._record.size
        at_hand = size == 0 or (
            size is not None and self._kept is not None and self._kept.place(ByteRange(0, size)) is not None
        )
        if size is None or not at_hand:
            self.fail(SMALL)
            raise self.not_recorded("the whole file")
        if size > cap:
            self.fail(SMALL)
            raise FileTooLarge(too_large(self.label, size, cap))
        buffer = bytearray(size)
        self.read_into(ByteRange(0, size), memoryview(buffer))
        return bytes(buffer)

    def fail(self, asked: str) -> None:
        """Raise what the same question raised then, if it did."""
        for failure in self._record.failures:
            if failure.asked == asked:
                raise failure.again()

    def not_recorded(self, what: str) -> NotRecorded:
        """Return the error for a question that was not asked then, and note it."""
        self._missing.append(f"{what} of {printable(self.label)}")
        return NotRecorded(f"{printable(self.label)}: {what} was not read when this was recorded")


class RecordedFolder:
    """A model's files as a ledger recorded them."""

    def __init__(self, record: SourceRecord, kept: Mapping[str, KeptBytes], missing: list[str]) -> None:
        assert record.provenance is not None
        self.provenance = record.provenance
        self.names = None if record.names is None else frozenset(record.names)
        self._files = {file.name: file for file in record.files}
        self._kept, self._missing = kept, missing

    def open(self, name: str) -> Source:
        """Return a file that was opened then."""
        found = self._file(name)
        found.fail(OPEN)
        return found

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a file that was read whole then, or None if it was not there."""
        record = self._files.get(name)
        return None if record is not None and record.absent else self._file(name).whole(cap)

    def _file(self, name: str) -> RecordedFile:
        record = self._files.get(name)
        if record is None:
            label = f"{self.provenance.reference}/{name}"
            record = FileRecord(name, label, None, None, False, (), ())
            raise RecordedFile(record, None, self._missing).not_recorded("anything")
        return RecordedFile(record, self._kept.get(name), self._missing)


def _require(source: Source, span: ByteRange) -> None:
    inner = source.inner if isinstance(source, RecordingSource) else source
    if isinstance(inner, RecordedFile):
        inner.require(span)


class ReplaySession(Session):
    """Answers what a ledger recorded, and nothing else: no disk but for the bytes kept, no network.

    Parameters
    ----------
    record : what a ledger holds.
    kept : the bytes, by number of the source and name of the file.

    `missing` lists what was asked for and is not in the record.
    """

    def __init__(self, record: ReadingRecord, kept: Mapping[tuple[int, str], KeptBytes]) -> None:
        super().__init__(Settings(offline=True), ledger=Ledger())
        self.missing: list[str] = []
        self._delivered = record.delivered_before
        self._lookups = {item.what: item for item in record.lookups}
        self._sources = record.sources
        self._kept = kept
        self._at_once = READ_AGAIN * sum(store.length for store in kept.values())

    def admit(self, count: int) -> None:
        """Refuse to plan a read of more than was ever read: no sound record leads to one, and a false one could name any size."""
        if count > self._at_once:
            said = f"a read of {format_size(count)} at once"
            self.missing.append(said)
            raise NotRecorded(f"{said}, more than was ever read when this was recorded")
        super().admit(count)

    def read_here(self, source: Source, span: ByteRange) -> memoryview:
        """Read a range that is there."""
        _require(source, span)
        return super().read_here(source, span)

    def read(self, requests: Sequence[tuple[Source, ByteRange]]) -> list[memoryview]:
        """Read ranges that are there."""
        for source, span in requests:
            _require(source, span)
        return super().read(requests)

    def read_through(self, requests: Sequence[Request]) -> None:
        """Read ranges that are there, each into its sink."""
        for source, span, _ in requests:
            _require(source, span)
        super().read_through(requests)

    def look_up(self, what: str, look: Callable[[], ModelRef]) -> ModelRef:  # noqa: ARG002 - would look at this machine
        """Return what a name stood for then."""
        return super().look_up(what, partial(self._recorded, what))

    def _recorded(self, what: str) -> ModelRef:
        found = self._lookups.get(what)
        if found is not None and found.failure is not None:
            raise found.failure.again()
        # an address is looked up by what is shown of it, and was by what could be quoted
        source = next((item for item in self._sources if item.text == what), None)
        if found is not None and found.source is not None:
            source = self._sources[found.source]
        if source is None:
            raise self._not_recorded(what)
        place = source.provenance.location if source.provenance else source.text
        local = source.kind in ("folder", "file")
        return ModelRef(
            source.text,
            source.kind,
            repo=source.repo,
            revision=source.revision,
            file=source.file,
            path=Path(place) if local else None,
            url=place if source.kind == "url" else None,
        )

    def _open(self, ref: ModelRef) -> Folder:
        wanted = (ref.text, ref.kind, ref.revision)
        for number, source in enumerate(self._sources):
            if (source.text, source.kind, source.revision) == wanted:
                if source.provenance is None:
                    raise source.failure.again() if source.failure else self._not_recorded(ref.text)
                kept = {name: store for (owner, name), store in self._kept.items() if owner == number}
                return RecordedFolder(source, kept, self.missing)
        raise self._not_recorded(ref.text)

    def _not_recorded(self, what: str) -> NotRecorded:
        self.missing.append(printable(what))
        return NotRecorded(f"{printable(what)} was not opened when this was recorded")
