"""Record what a comparison reads: every range with its SHA-256, and every answer that decides what is read next.

A session with a ledger wraps the folders that it opens. The ledger then holds all answers that the same comparison needs once
more (`kinprint.sources.replay`), and is stored in evidence bundles.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import IO, Any

from kinprint import errors
from kinprint._util.plain import printable
from kinprint._util.records import dataclass
from kinprint.errors import KinprintError, SourceChanged, StorageError
from kinprint.refs import ByteRange, ModelRef, join_runs
from kinprint.results.context import FileReads
from kinprint.sources.base import SMALL_FILE_CAP, Folder, Provenance, Source
from kinprint.text import Text

Span = tuple[int, int]

CHUNK_BYTES = 1 << 19
"""Ranges are hashed in chunks of this size, counted from where a range begins: files on this machine are read in pieces of
it, remote ones whole, and both give the same list."""

OPEN, SIZE, IDENTITY, PREFETCH, READ, SMALL = "open", "size", "identity", "prefetch", "read", "small"


@dataclass(frozen=True)
class Failure:
    """An error instead of an answer, by the name of its class in `kinprint.errors`. ``asked`` says which question failed."""

    asked: str
    error: str
    message: Text
    hint: str | None = None

    def again(self) -> KinprintError:
        """Return the error, to be raised once more."""
        kind = getattr(errors, self.error, None)
        kind = kind if isinstance(kind, type) and issubclass(kind, KinprintError) else KinprintError
        made = kind.__new__(kind)
        KinprintError.__init__(made, self.message, hint=self.hint)
        return made


@dataclass(frozen=True)
class RangeRead(ByteRange):
    """A range that was read of a file, and the SHA-256 of its bytes."""

    sha256: str


@dataclass(frozen=True)
class FileRecord:
    """One file of a model: what was asked of it, and what the answers were. None means that it was not asked."""

    name: str
    label: str
    size: int | None
    identity: str | None
    absent: bool  # asked for whole, and not there
    failures: tuple[Failure, ...]
    ranges: tuple[RangeRead, ...]  # by offset

    @property
    def spans(self) -> tuple[Span, ...]:
        """The intervals that the ranges cover together."""
        return tuple(join_runs(sorted((item.start, item.end) for item in self.ranges)))


@dataclass(frozen=True)
class SourceRecord:
    """One model, or another folder that was looked into, as it was found."""

    text: str  # as the user named it, without what may be secret
    kind: str
    repo: str | None
    revision: str | None
    file: str | None
    signed: bool  # the address had a part that is not kept here
    provenance: Provenance | None
    names: tuple[str, ...] | None  # the listing; None where there is none
    failure: Failure | None  # why it could not be opened
    files: tuple[FileRecord, ...]

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Name, kind and revision, which tell the sources of one record apart."""
        return self.text, self.kind, self.revision

    @property
    def location(self) -> str:
        """Path or address, as far as is known."""
        return self.provenance.location if self.provenance is not None else self.text


@dataclass(frozen=True)
class Lookup:
    """Answer to what a name stands for: the number of a source, or a failure."""

    what: str
    source: int | None
    failure: Failure | None


@dataclass(frozen=True)
class ReadingRecord:
    """All that a ledger holds, in an order that does not depend on threads."""

    sources: tuple[SourceRecord, ...]
    lookups: tuple[Lookup, ...]
    delivered_before: int  # bytes that the session's budget had already spent

    def files(self) -> Iterator[tuple[int, SourceRecord, FileRecord]]:
        """Yield every file of every source, with the number of the source."""
        return ((number, source, file) for number, source in enumerate(self.sources) for file in source.files)


@dataclass
class _OpenedFile:
    label: str | None = None
    size: int | None = None
    identity: str | None = None
    absent: bool = False
    failures: dict[str, Failure] = field(default_factory=dict)
    ranges: dict[Span, bytes] = field(default_factory=dict)
    kept: dict[Span, int] = field(default_factory=dict)  # where the bytes are in the spool


@dataclass
class _Opened:
    ref: ModelRef
    signed: bool
    provenance: Provenance | None = None
    names: tuple[str, ...] | None = None
    failures: dict[str, Failure] = field(default_factory=dict)
    files: dict[str, _OpenedFile] = field(default_factory=dict)


_Key = tuple[str, str, str, str]


def _key(ref: ModelRef) -> _Key:
    # one address may stand for many files told apart by a query, which may be secret
    signed = ref.url is not None and ref.url.rstrip("/") != ref.text.rstrip("/")
    secret = hashlib.sha256((ref.url or "").encode("utf-8", "surrogatepass")).hexdigest() if signed else ""
    return ref.text, ref.kind, ref.revision or "", secret


class Ledger(AbstractContextManager["Ledger"]):
    """Record of what is read, for one comparison; with `keep` the bytes too, until it is closed. Thread-safe."""

    def __init__(self, *, keep: bool = False) -> None:
        self.delivered_before = 0
        self._lock = threading.Lock()
        self._opened: dict[_Key, _Opened] = {}
        self._lookups: dict[str, _Key | Failure] = {}
        self._spool: IO[bytes] | None = tempfile.TemporaryFile(prefix="kinprint-") if keep else None  # noqa: SIM115
        self._spooled = 0

    @property
    def keeps(self) -> bool:
        """Whether bytes are kept too."""
        return self._spool is not None

    def look_up(self, what: str, look: Callable[[], ModelRef]) -> ModelRef:
        """Find out what a name stands for, and record the answer."""
        with self.recording_failure(self._lookups, OPEN, what):
            ref = look()
        with self._lock:
            self._lookups.setdefault(what, self._enter(ref))
        return ref

    def open(self, ref: ModelRef, opener: Callable[[ModelRef], Folder]) -> RecordingFolder:
        """Open a folder and record where it is; what is read of it from now on is entered."""
        with self._lock:
            opened = self._opened[self._enter(ref)]
        with self.recording_failure(opened.failures, OPEN):
            folder = opener(ref)
        with self._lock:
            before, now = opened.provenance, folder.provenance
            if before is not None and before != now:
                said = f"{printable(ref.text)}: was commit {before.commit}, is now {now.commit}"
                raise SourceChanged(said, hint="run it again")
            opened.provenance = now
        return RecordingFolder(folder, self, opened)

    def _enter(self, ref: ModelRef) -> _Key:
        key = _key(ref)
        self._opened.setdefault(key, _Opened(ref, signed=bool(key[3])))
        return key

    def file(self, opened: _Opened, name: str) -> _OpenedFile:
        """Return the entry of a file, made if need be."""
        with self._lock:
            return opened.files.setdefault(name, _OpenedFile())

    @contextmanager
    def recording_failure(self, answers: dict[str, Any], asked: str, key: str | None = None) -> Iterator[None]:
        """Enter the first failure of a question among its answers."""
        try:
            yield
        except KinprintError as error:
            failure = Failure(asked, type(error).__name__, error.reason, error.hint)
            with self._lock:
                answers.setdefault(asked if key is None else key, failure)
            raise

    def enter(self, entry: _OpenedFile, label: str, start: int, data: memoryview) -> None:
        """Enter bytes that were delivered; bytes that differ from those read there before are an error."""
        for at in range(0, len(data), CHUNK_BYTES):
            piece = data[at : at + CHUNK_BYTES]
            span = (start + at, start + at + len(piece))
            digest = hashlib.sha256(piece).digest()  # outside the interpreter's lock, as it is not short
            with self._lock:
                known = entry.ranges.setdefault(span, digest)
                if known == digest and self._spool is not None and span not in entry.kept:
                    entry.kept[span] = self._store(piece)
            if known != digest:
                said = f"{label}: bytes {span[0]} to {span[1]} were read twice and differ"
                raise SourceChanged(said, hint="run it again")

    def _store(self, piece: memoryview) -> int:
        assert self._spool is not None
        at = self._spooled
        try:
            self._spool.seek(at)
            self._spool.write(piece)
        except OSError as error:
            hint = "free space in the folder for temporary files, or make the bundle without bytes"
            raise StorageError(f"cannot keep what was read: {error.strerror}", hint=hint) from error
        self._spooled += len(piece)
        return at

    def record(self) -> ReadingRecord:
        """Return everything, sorted."""
        with self._lock:
            keys = sorted(self._opened)
            numbers = {key: number for number, key in enumerate(keys)}
            found = [
                Lookup(what, None, answer) if isinstance(answer, Failure) else Lookup(what, numbers[answer], None)
                for what, answer in sorted(self._lookups.items())
            ]
            return ReadingRecord(tuple(_frozen(self._opened[key]) for key in keys), tuple(found), self.delivered_before)

    def summary(self) -> tuple[FileReads, ...]:
        """Return what was read, file by file, as a report holds it."""
        return summary_of(self.record())

    def contents(self, source: int, name: str) -> Iterator[bytes]:
        """Yield the bytes kept of a file: its merged spans, one after the other."""
        with self._lock:
            entry = self._opened[sorted(self._opened)[source]].files[name]
            kept = sorted(entry.kept.items())
        assert self._spool is not None
        done = 0
        for (start, end), place in kept:
            first = max(start, done)
            if first < end:  # else an earlier chunk had all of it
                with self._lock:
                    self._spool.seek(place + first - start)
                    data = self._spool.read(end - first)
                yield data
                done = end

    def close(self) -> None:
        """Delete the bytes that were kept."""
        if self._spool is not None:
            self._spool.close()

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_spool", None) is not None:
            self.close()


def _frozen(opened: _Opened) -> SourceRecord:
    ref, files = opened.ref, []
    for name, entry in sorted(opened.files.items()):
        told = _label(name, entry, opened), entry.size, entry.identity, entry.absent
        failures = tuple(failure for _, failure in sorted(entry.failures.items()))
        ranges = tuple(RangeRead(*span, digest.hex()) for span, digest in sorted(entry.ranges.items()))
        files.append(FileRecord(name, *told, failures, ranges))
    known = ref.text, ref.kind, ref.repo, ref.revision, ref.file, opened.signed, opened.provenance, opened.names
    return SourceRecord(*known, opened.failures.get(OPEN), tuple(files))


def _label(name: str, entry: _OpenedFile, opened: _Opened) -> str:
    """Name a file for messages; one of the hub is named so even if it was found in a cache of this machine."""
    where = opened.provenance
    if where is not None and where.kind == "hub":
        return f"{opened.ref.repo}@{(where.commit or '')[:8]}/{printable(name)}"
    return entry.label or name


def digest_of(ranges: Sequence[RangeRead]) -> str:
    """Return the digest of a list of ranges, each a line "start end sha256"."""
    return hashlib.sha256("".join(f"{item.start} {item.end} {item.sha256}\n" for item in ranges).encode()).hexdigest()


class RecordingFolder:
    """A folder of which every answer is entered in a ledger."""

    def __init__(self, inner: Folder, ledger: Ledger, opened: _Opened) -> None:
        self._inner, self._ledger, self._opened = inner, ledger, opened
        self.provenance = inner.provenance

    @property
    def names(self) -> frozenset[str] | None:
        """All files, if something lists them. Of listings that differ the first is recorded."""
        names = self._inner.names
        if names is not None and self._opened.names is None:
            self._opened.names = tuple(sorted(names))
        return names

    def open(self, name: str) -> Source:
        """Return a file whose ranges are entered as they are read."""
        entry = self._ledger.file(self._opened, name)
        with self._ledger.recording_failure(entry.failures, OPEN):
            return RecordingSource(self._inner.open(name), self._ledger, entry)

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, and enter it."""
        entry = self._ledger.file(self._opened, name)
        with self._ledger.recording_failure(entry.failures, SMALL):
            data = self._inner.read_small(name, cap)
        if data is None:
            entry.absent = True
            return None
        entry.size = len(data)
        self._ledger.enter(entry, f"{printable(self.provenance.reference)}/{printable(name)}", 0, memoryview(data))
        return data


class RecordingSource:
    """A file of which every range read is entered in a ledger."""

    def __init__(self, inner: Source, ledger: Ledger, entry: _OpenedFile) -> None:
        self.inner, self._ledger, self._entry = inner, ledger, entry
        self.label, self.at_hand = inner.label, inner.at_hand
        entry.label = inner.label

    def _asking(self, what: str) -> AbstractContextManager[None]:
        return self._ledger.recording_failure(self._entry.failures, what)

    @property
    def size(self) -> int:
        """Length in bytes."""
        with self._asking(SIZE):
            self._entry.size = size = self.inner.size
        return size

    @property
    def identity(self) -> str:
        """Entity tag of the content, or the size."""
        with self._asking(IDENTITY):
            self._entry.identity = identity = self.inner.identity
        return identity

    def prefetch(self) -> None:
        """Do what a first read would have to do anyway."""
        with self._asking(PREFETCH):
            self.inner.prefetch()

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer`, and enter what came."""
        with self._asking(READ):
            self.inner.read_into(span, buffer)
        self._ledger.enter(self._entry, self.label, span.start, buffer[: len(span)])


def summary_of(record: ReadingRecord) -> tuple[FileReads, ...]:
    """Return what a record says was read, file by file, as a report holds it."""
    read = [(source.text, file) for _, source, file in record.files() if file.ranges]
    found = []
    for model, file in sorted(read, key=lambda item: (item[0], item[1].name)):
        length = sum(end - start for start, end in file.spans)
        about = file.name, file.size, file.identity, file.spans
        found.append(FileReads(model, *about, length, digest_of(file.ranges)))
    return tuple(found)
