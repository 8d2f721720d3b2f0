"""Fuzzing of parsers: files in memory, a session without threads, spoilt bytes, and one judge of what happened.

A case is given by a seed and its number, so that a failure can be repeated by itself::

    fuzz(attempt, sound, seed=2, cases=1, first=1234)
"""

from __future__ import annotations

import resource
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import TypeVar

from kinprint.errors import FileTooLarge, KinprintError, NotFound
from kinprint.formats.checkpoint import Checkpoint, open_checkpoint
from kinprint.formats.plan import whole
from kinprint.refs import ByteRange, ModelRef
from kinprint.sources.base import SMALL_FILE_CAP, Folder, Provenance
from kinprint.sources.pool import DaemonPool
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.campaign import tried

R = TypeVar("R")
Raw = TypeVar("Raw", bound=Sized)
IN_MEMORY = "in/memory"  # names the model of a `MemorySession`, as a user would
ROOM = 64 << 20  # that a parser may allocate beyond the file's size
SECONDS = 5.0  # of computing that a case may take; twelve times as long by the clock, as machines are busy
MOST_FAILURES = 20  # before a run is given up
_TRACED = 64  # one case in so many has its allocations traced, which takes longer than the case itself
_POWERS = (5, 7, 8, 15, 16, 31, 32, 62, 63)
_EXTREMES = (0, 1, 2, 3, 7, 8, *(1 << n for n in _POWERS), *((1 << n) - 1 for n in (*_POWERS, 64)))


# -- files without a disk ----------------------------------------------------------------------------------------------


class Pieces:
    """Bytes end to end without a copy: of a file of megabytes a mutant has a few of its own."""

    def __init__(self, *parts: bytes | memoryview) -> None:
        self._parts = [memoryview(part) for part in parts]
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice) -> bytes:
        """Return a copy of some of them."""
        (start, stop, _), found = span.indices(self._size), []
        for part in self._parts:
            found.append(part[max(0, start) : max(0, stop)])
            start, stop = start - len(part), stop - len(part)
        return b"".join(found)


Files = Mapping[str, bytes | Pieces]


class MemoryFile:
    """A source in memory. One that is said to be larger than its bytes has zeros at its end."""

    identity = "memory"
    at_hand = False

    def __init__(self, data: bytes | Pieces, size: int | None = None, label: str = "memory/file") -> None:
        self.data, self.label = data, label
        self.size = len(data) if size is None else size
        self.reads: list[tuple[int, int]] = []

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Copy; what lies outside must not be asked for."""
        assert 0 <= span.start <= span.end <= self.size, f"asked for {span} of {self.size} bytes"
        self.reads.append((span.start, span.end))
        piece = self.data[span.start : span.end]
        buffer[: len(piece)] = piece
        if len(piece) < len(span):
            buffer[len(piece) :] = bytes(len(span) - len(piece))

    def prefetch(self) -> None:
        """Nothing to find out."""


class MemoryFolder:
    """A folder in memory, listed."""

    def __init__(self, files: Files, reference: str = "memory") -> None:
        self._files = files
        self.provenance = Provenance(reference=reference, kind="folder", location=reference)

    @property
    def names(self) -> frozenset[str]:
        """All files."""
        return frozenset(self._files)

    def open(self, name: str) -> MemoryFile:
        """Return a file as a source."""
        if name not in self._files:
            raise NotFound(f"{name}: no such file")
        return MemoryFile(self._files[name], label=f"{self.provenance.reference}/{name}")

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole file."""
        found = self._files.get(name)
        if found is not None and len(found) > cap:
            raise FileTooLarge(f"{name}: {len(found)} bytes, more than the {cap} allowed here")
        return found if found is None else found[:]


class _Here(DaemonPool):
    """Runs jobs as they are handed in: to change threads takes longer than to refuse a spoilt file."""

    def submit(self, function: Callable[[], R]) -> Future[R]:
        future: Future[R] = Future()
        try:
            future.set_result(function())
        except KinprintError as error:
            future.set_exception(error)
        return future


class MemorySession(Session):
    """A session without threads, in which the model called "memory" is whatever was put there."""

    def __init__(self) -> None:
        super().__init__(Settings(range_cache=None, hub_cache=None, offline=True))
        self._pool = self._coordinators = _Here(1)
        self._files: Files = {}

    def open_folder(self, reference: str | ModelRef) -> Folder:
        """Return the files in memory, or others as a session does."""
        if isinstance(reference, ModelRef) and reference.text in ("memory", IN_MEMORY):
            return MemoryFolder(self._files)
        return super().open_folder(reference)

    def put(self, files: Files) -> None:
        """Let the model be these files."""
        self._files = files

    def open_files(self, files: Mapping[str, bytes]) -> Checkpoint:
        """Open a model of these files."""
        self.put(files)
        return open_checkpoint(ModelRef("memory", "folder", path=Path("memory")), self)

    def read_everything(self, files: Mapping[str, bytes]) -> int:
        """Open a model of these files and read all tensors; return how many bytes they have."""
        checkpoint = self.open_files(files)
        return sum(
            values.nbytes for values in checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])
        )


# -- spoiling ----------------------------------------------------------------------------------------------------------


def spoil(
    raw: bytes, rng: Random, *, words: Sequence[bytes] = (), stop: int | None = None, most: int = 4, cut: float = 0.05
) -> bytes:
    """Return `raw` with one to `most` changes: of bits, bytes, numbers and digits, cuts, insertions and repetitions.

    Parameters
    ----------
    words
        What the format's own syntax is made of; these are inserted and put in the place of other bytes.
    stop
        Where what is spoilt ends: a header, say. By default the end.
    cut
        How often the end is cut off as well.
    """
    out = bytearray(raw)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(max(1, min(len(out), stop or len(out))))
        _change(out, at, rng, words)
        if not out:
            out += b"\0"
    if rng.random() < cut:
        del out[rng.randrange(len(out)) :]
    return bytes(out)


def _change(out: bytearray, at: int, rng: Random, words: Sequence[bytes]) -> None:
    match rng.randrange(8 if words else 6):
        case 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        case 1:
            out[at : at + 1] = bytes([out[at] ^ 1 << rng.randrange(8)]) if out else b"\0"
        case 2:
            width = rng.choice((1, 2, 4, 8))
            out[at : at + width] = rng.choice(_EXTREMES).to_bytes(8, rng.choice(("little", "big")))[-width:]
        case 3:
            del out[at : at + rng.choice((1, 1, 2, 8, 20, 60))]
        case 4:
            other = rng.randrange(len(out) or 1)
            out[at:at] = (
                out[other : other + rng.choice((1, 4, 40, 400))]
                if rng.random() < 0.5
                else rng.randbytes(rng.randint(1, 9))
            )
        case 5:
            digits = [place for place in range(at, min(len(out), at + 200)) if 48 <= out[place] < 58]
            if digits:
                out[rng.choice(digits)] = rng.randrange(48, 58)
        case 6:
            out[at:at] = rng.choice(words)
        case _:
            word = rng.choice(words)
            out[at : at + rng.choice((1, len(word)))] = word


# -- judging -----------------------------------------------------------------------------------------------------------


class Hang(AssertionError):
    """A case took too long."""


def fuzz(
    attempt: Callable[[Raw], object],
    mutant: Callable[[Random], Raw],
    *,
    seed: int,
    cases: int,
    first: int = 0,
    room: int = ROOM,
    part: str = "spoilt files, by the parsers of each format",
) -> int:
    """Attempt many spoilt files; return how many were refused.

    Parameters
    ----------
    attempt
        Parses a file. It may raise KinprintError and nothing else, within SECONDS and an allocation of the file's size and
        `room` beyond it.
    mutant
        Makes a spoilt file.
    part
        What the cases are counted as (`support.campaign`).

    Raises
    ------
    AssertionError
        If a case breaks a rule. This and whatever else is raised bears a note with the seed and the number of the case; the first
        such error is raised when all cases were tried.
    """
    refused, failed = 0, dict[int, tuple[Exception, int]]()
    with _resident(max(room, ROOM), part) as longest:  # whatever is loaded late and kept counts here too
        for number in range(first, first + cases):
            raw = mutant(Random(seed * 1_000_003 + number))
            longest.append(max(longest.pop(), len(raw)))
            try:
                refused += _one(attempt, raw, room, traced=number % _TRACED == 0)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                failed[number] = error, len(raw)
            tried(part, failed=number in failed)
            if len(failed) == MOST_FAILURES:
                break
    for number, (raised, length) in failed.items():
        raised.add_note(f"seed {seed}, case {number}: a file of {length} bytes; failed in all: {[*failed]}")
        raise raised
    return refused


def _one(attempt: Callable[[Raw], object], raw: Raw, room: int, *, traced: bool) -> bool:
    refused = False
    if traced:
        tracemalloc.start()
    try:
        with alarm():
            attempt(raw)
    except KinprintError:
        refused = True
    finally:
        peak = tracemalloc.get_traced_memory()[1] if traced else 0
        if traced:
            tracemalloc.stop()
    assert peak < len(raw) + room, f"allocated {peak} bytes"
    return refused


@contextmanager
def alarm() -> Iterator[None]:
    """Interrupt what hangs, where the system and the thread allow it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {SECONDS:.0f} s")

    timers = {signal.SIGALRM: (signal.ITIMER_REAL, 12 * SECONDS), signal.SIGPROF: (signal.ITIMER_PROF, SECONDS)}
    before = {number: signal.signal(number, ring) for number in timers}
    try:
        for timer, seconds in timers.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


@contextmanager
def _resident(room: int, part: str) -> Iterator[list[int]]:
    """Judge by the memory that was really used in all cases, where the system tells its peak; refuse what asks for much more."""
    longest = [0]
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        before = _told("VmHWM")
    except OSError:
        yield longest
        return
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (_told("VmData") + 4 * room + (1 << 30), limits[1]))
        yield longest
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    grown = _told("VmHWM") - before
    if grown >= longest[0] + room:
        tried(part, 0, failed=1)  # one of the cases, whichever it was
        raise AssertionError(f"{grown} bytes more were in use than before the first case")


def _told(name: str) -> int:
    """Return what the system tells of this process's memory, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))
