"""Replay a comparison: a session that answers from the record of a ledger and from bytes that were kept."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.errors import NotRecorded, SourceError
from kinprint.refs import ByteRange, ModelRef
from kinprint.sources import ledger
from kinprint.sources.base import SMALL_FILE_CAP, Folder, Source, read_whole
from kinprint.sources.ledger import FileRecord, Ledger, ReadingRecord, RecordingSource, SourceRecord, Span
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

READ_AGAIN = 8
"""How many times all that was recorded one read may have: ranges that overlap are recorded once, and delivered each time."""


class SharedFile:
    """An open file that several threads read and write at their own offsets."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def read_into(self, at: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `at` on, or raise."""
        with self._lock:
            self._file.seek(at)
            got = self._file.readinto(buffer)  # type: ignore[attr-defined]  # buffered: all, unless the file ends
        if got < len(buffer):
            raise SourceError(f"kept bytes end at {at + got}, expected {at + len(buffer)}")

    def write(self, at: int, data: memoryview) -> None:
        """Put bytes at a place."""
        with self._lock:
            self._file.seek(at)
            self._file.write(data)


class KeptBytes:
    """Some intervals of one file, kept end to end in another file from byte `base` on: `length` bytes in all."""

    def __init__(self, file: SharedFile, base: int, spans: Sequence[Span]) -> None:
        self._file, self._spans = file, spans
        self._starts = [start for start, _ in spans]
        self._places = list(accumulate((end - start for start, end in spans), initial=base))
        self.length = self._places[-1] - base

    def place(self, span: ByteRange) -> int | None:
        """Return where a range is, or None if not all of it is kept."""
        number = bisect_right(self._starts, span.start) - 1
        if number < 0 or span.end > self._spans[number][1]:
            return None
        return self._places[number] + span.start - self._starts[number]

    def read_into(self, span: ByteRange, buffer: memoryview) -> bool:
        """Fill `buffer`, or return False if not all of the range is kept."""
        at = self.place(span)
        if at is None:
            return False
        self._file.read_into(at, buffer[: len(span)])
        return True

    def write(self, span: ByteRange, data: memoryview) -> None:
        """Put the bytes of a range that is to be kept at their place."""
        at = self.place(span)
        assert at is not None
        self._file.write(at, data)


class RecordedFile:
    """A file as a ledger recorded it; only what was read then can be read now. `missing` notes what else is asked for."""

    at_hand = True

    def __init__(self, record: FileRecord, kept: KeptBytes | None, missing: list[str]) -> None:
        self._record, self._kept, self._missing = record, kept, missing
        self.label = record.label

    @property
    def size(self) -> int:
        """Length in bytes, as recorded."""
        if self._record.size is None:
            raise self.failure(ledger.SIZE, "the size")
        return self._record.size

    @property
    def identity(self) -> str:
        """Entity tag or size, as recorded."""
        if self._record.identity is None:
            raise self.failure(ledger.IDENTITY, "the identity")
        return self._record.identity

    def prefetch(self) -> None:
        """Fail if it failed then."""
        self.fail(ledger.PREFETCH)

    def _holds(self, span: ByteRange) -> bool:
        return len(span) == 0 or (self._kept is not None and self._kept.place(span) is not None)

    def require(self, span: ByteRange) -> None:
        """Raise what reading the range would raise, before memory is taken for it."""
        if not self._holds(span):
            raise self.failure(ledger.READ, f"bytes {span.start} to {span.end}")

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` with a range that was read then, or a part of one."""
        self.require(span)
        if self._kept is not None and len(span):
            self._kept.read_into(span, buffer)

    def whole(self, cap: int) -> bytes:
        """Return the content, if all of it was read."""
        size = self._record.size
        if size is None or not self._holds(ByteRange(0, size)):
            raise self.failure(ledger.SMALL, "the whole file")
        if size > cap:
            self.fail(ledger.SMALL)
        return read_whole(self, cap)

    def fail(self, asked: str) -> None:
        """Raise what the same question raised then, if it did."""
        for failure in self._record.failures:
            if failure.asked == asked:
                raise failure.again()

    def failure(self, asked: str, what: str) -> NotRecorded:
        """Raise what the same question raised then; return the error if it was not asked then."""
        self.fail(asked)
        return _not_recorded(self._missing, self.label, what)


def _not_recorded(missing: list[str], label: str, what: str) -> NotRecorded:
    missing.append(f"{what} of {printable(label)}")
    return NotRecorded(f"{printable(label)}: {what} was not read when this was recorded")


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
        found.fail(ledger.OPEN)
        return found

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a file that was read whole then, or None if it was not there."""
        record = self._files.get(name)
        return None if record is not None and record.absent else self._file(name).whole(cap)

    def _file(self, name: str) -> RecordedFile:
        record = self._files.get(name)
        if record is None:
            raise _not_recorded(self._missing, f"{self.provenance.reference}/{name}", "anything")
        return RecordedFile(record, self._kept.get(name), self._missing)


class ReplaySession(Session):
    """Answer what a ledger recorded, and nothing else: no disk but for the bytes kept, no network.

    `kept` holds the bytes, by number of the source and name of the file; `missing` lists what was asked for and is not recorded.
    """

    def __init__(self, record: ReadingRecord, kept: Mapping[tuple[int, str], KeptBytes]) -> None:
        super().__init__(Settings(offline=True), ledger=Ledger())
        self.missing: list[str] = []
        self.bytes_delivered = record.delivered_before
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

    def require(self, source: Source, span: ByteRange) -> None:
        """Refuse a range that was not read then."""
        inner = source.inner if isinstance(source, RecordingSource) else source
        if isinstance(inner, RecordedFile):
            inner.require(span)

    def refuse_missing(self, references: Iterable[str]) -> None:
        """Refuse none: what was there is known from the record alone."""

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
        path = Path(source.location) if source.kind in ("folder", "file") else None
        url = source.location if source.kind == "url" else None
        return ModelRef(source.text, source.kind, source.repo, source.revision, source.file, path, url)

    def _open(self, ref: ModelRef) -> Folder:
        for number, source in enumerate(self._sources):
            if source.key == (ref.text, ref.kind, ref.revision):
                if source.provenance is None:
                    raise source.failure.again() if source.failure else self._not_recorded(ref.text)
                kept = {name: store for (owner, name), store in self._kept.items() if owner == number}
                return RecordedFolder(source, kept, self.missing)
        raise self._not_recorded(ref.text)

    def _not_recorded(self, what: str) -> NotRecorded:
        self.missing.append(printable(what))
        return NotRecorded(f"{printable(what)} was not opened when this was recorded")
