"""Define the interface between bytes and formats: a Source is one file, a Folder is the set of files of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from kinprint._util.records import dataclass
from kinprint.errors import FileTooLarge
from kinprint.refs import ByteRange
from kinprint.text import Text

# Parsed JSON takes many times its size in memory, so what a stranger may hand over is bounded by the kind of file.
SMALL_FILE_CAP = 64 << 20  # tokenizer.json of a 250k vocabulary is about 35 MB, an index of 20,000 tensors 2 MB
CONFIG_CAP = 4 << 20
# what is read beside a single weight file
COMPANIONS = ("config.json", "tokenizer.json", "tokenizer_config.json", "adapter_config.json")


def too_large(label: str, size: int | None, cap: int) -> Text:
    """Say that a file is larger than its kind, or the rest of a budget, allows."""
    return Text("{label}: {n} bytes, more than the {m} allowed here", label=label, n=size, m=cap)


def not_here(name: str) -> Text:
    """Say that a file would have to be fetched, which being offline forbids."""
    return Text("offline, and {name} is not on this machine", name=name)


class Source(Protocol):
    """One file that can be read by range. Implementations are safe to call from several threads."""

    @property
    def label(self) -> str:
        """Name for messages: model and file."""

    @property
    def size(self) -> int:
        """Length in bytes. May cost a request the first time."""

    @property
    def identity(self) -> str:
        """Entity tag of the content; the size where there is no tag, as of a local file."""

    @property
    def at_hand(self) -> bool:
        """Whether reading is work rather than waiting: the bytes are on this machine, most likely in memory."""

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` with exactly the bytes of `span`, or raise."""

    def prefetch(self) -> None:
        """Do what a first read would have to do anyway (find out where the bytes are), without reading."""


class Sink(Protocol):
    """Receiver of the bytes of a range: in pieces, in any order, from several threads."""

    @property
    def works(self) -> bool:
        """Whether taking the bytes is work that several cores may share; one core alone reads as fast as memory allows."""

    def room(self, at: int, length: int) -> memoryview:
        """Return where to put `length` bytes, the first of which is the sink's byte `at`."""

    def filled(self, at: int, room: memoryview) -> None:
        """Take the bytes that were put there. The room may be used again afterwards."""


class Buffer:
    """A sink that keeps the bytes as they are."""

    works = False

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory

    def room(self, at: int, length: int) -> memoryview:
        """Return the part of the memory that keeps these bytes."""
        return self.memory[at : at + length]

    def filled(self, at: int, room: memoryview) -> None:
        """Do nothing: the bytes are where they stay."""


Request = tuple["Source", ByteRange, Sink, int]  # and the byte of the sink that the range begins at


def read_whole(source: Source, cap: int = SMALL_FILE_CAP) -> bytes:
    """Return all bytes of a source; FileTooLarge if there are more than `cap`."""
    if source.size > cap:
        raise FileTooLarge(too_large(source.label, source.size, cap))
    data = bytearray(source.size)
    source.read_into(ByteRange(0, len(data)), memoryview(data))
    return bytes(data)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Location of a model's files, as recorded in the report."""

    reference: str
    kind: str
    location: str
    revision: str | None = None
    commit: str | None = None


class Folder(Protocol):
    """A model's files. ``names`` is None where nothing lists them (a plain web folder)."""

    provenance: Provenance

    @property
    def names(self) -> frozenset[str] | None:
        """All files, if something lists them."""

    def open(self, name: str) -> Source:
        """Return the file as a Source; NotFound if it is not there (possibly only at the first read)."""

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, or None if the folder has no such file."""


class Traffic:
    """Count what a run reads, and from where. Thread-safe."""

    def __init__(self, on_change: Callable[[Traffic], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._on_change = on_change
        self.requests = 0
        self.retries = 0
        self.network_bytes = 0
        self.cache_bytes = 0
        self.local_bytes = 0
        self.expected_bytes = 0  # announced before a batch is read, for progress

    def add(self, **counts: int) -> None:
        """Add to the named counters."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
        if self._on_change is not None:
            self._on_change(self)

    @property
    def bytes_read(self) -> int:
        """Bytes delivered, wherever they came from: the figure a budget is measured against."""
        return self.network_bytes + self.cache_bytes + self.local_bytes
