"""Keep byte ranges in a disk cache that survives concurrent processes, kill -9 and damaged files.

Layout: ``<root>/v1/<2 hex>/<key>/<start>-<end>`` with one ``about.json`` beside the ranges of a file. The key hashes
what pins the content (endpoint, repository, commit and path, or URL and entity tag), so a changed file has another
key. Each range is written to a temporary name and renamed, and carries a SHA-256 over key, offsets and payload: a reader
sees a whole range of that very file and place, or none. Failure to write (disk full) switches the cache off for the run and
is reported; a comparison never fails for it.
"""

import errno
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import orjson

from kinprint._util.records import dataclass
from kinprint.errors import StorageError
from kinprint.refs import ByteRange
from kinprint.text import Text

_MAGIC = b"kprange2"
_HEAD = len(_MAGIC) + 32
_SHELF_NAME = re.compile(r"^[0-9a-f]{2}$")
_KEY_NAME = re.compile(r"^[0-9a-f]{64}$")
_RANGE_NAME = re.compile(r"^([0-9]{1,19})-([0-9]{1,19})$")
_ABOUT_NAME = "about.json"
_TEMPORARY = ".tmp-"
_ABOUT_CAP = 1 << 20
_STALE_S = 3600.0  # a temporary file this old belongs to a process that died


@dataclass(frozen=True, slots=True)
class CachedFile:
    """One line of ``kinprint cache``: a remote file and what is kept of it."""

    about: dict[str, object]
    ranges: int
    stored_bytes: int
    last_used: float


class RangeCache:
    """Ranges of remote files, kept between runs and shared by processes."""

    def __init__(self, root: Path, cap_bytes: int) -> None:
        self.root = root
        self.cap_bytes = cap_bytes
        self.problem: Text | None = None  # set when writing failed; the run goes on without the cache
        self._base = root / "v1"
        self._written = 0
        self._lock = threading.Lock()

    def read_into(self, key: str, span: ByteRange, buffer: memoryview) -> bool:
        """Fill `buffer` from stored ranges if they cover `span` wholly. A damaged range is deleted and not used."""
        folder = self._folder(key)
        # What was asked for is mostly what was stored: then no folder has to be listed, which takes as long as the rest.
        if self._load(f"{folder}/{span.start}-{span.end}", key, span, buffer[: len(span)]) is not None:
            return True
        at = span.start
        for stored, path in self._stored(folder):
            if stored.start > at:
                break
            if stored.end <= at:
                continue
            payload = self._load(path, key, stored)
            if payload is None:
                continue
            end = min(stored.end, span.end)
            buffer[at - span.start : end - span.start] = payload[at - stored.start : end - stored.start]
            at = end
            if at == span.end:
                break
        return at == span.end

    def write(self, key: str, span: ByteRange, data: memoryview) -> None:
        """Store one range."""
        digest = _digest(key, span, data)
        self._put(self._folder(key) / f"{span.start}-{span.end}", [_MAGIC + digest, data])
        with self._lock:
            self._written += _HEAD + len(span)
        self.settle(max(self.cap_bytes // 10, 1 << 20))

    def about(self, key: str) -> dict[str, object] | None:
        """Return what was noted about a file when its first range was stored."""
        try:
            with (self._folder(key) / _ABOUT_NAME).open("rb") as file:
                noted = orjson.loads(file.read(_ABOUT_CAP))
        except (OSError, orjson.JSONDecodeError):
            return None
        facts = noted.get("facts") if isinstance(noted, dict) else None
        # A wrong size would make a sound file look damaged for ever, so these facts carry a checksum too.
        return facts if isinstance(facts, dict) and noted.get("sha256") == _seal(key, facts) else None

    def note(self, key: str, facts: dict[str, object]) -> None:
        """Record facts about a file: what it is, its size and tag."""
        if self.about(key) != facts:
            self._put(self._folder(key) / _ABOUT_NAME, [orjson.dumps({"facts": facts, "sha256": _seal(key, facts)})])

    def forget(self, key: str) -> None:
        """Drop all that is kept of one file."""
        with suppress(OSError):  # what cannot be deleted is not used either: its key or its checksum will not match
            _empty(self._folder(key))

    def files(self) -> list[CachedFile]:
        """List what is kept, most recently used first."""
        listed = []
        for folder in self._folders():
            entries = [info for path, info in _stats(folder) if _span_of(path.name) is not None]
            facts = self.about(folder.name) or {}
            if entries or facts:
                newest = max((info.st_mtime for info in entries), default=0.0)
                listed.append(CachedFile(facts, len(entries), sum(info.st_size for info in entries), newest))
        return sorted(listed, key=lambda file: -file.last_used)

    def trim(self, cap_bytes: int | None = None) -> int:
        """Delete the ranges used longest ago until 90 % of the cap is met; return the bytes freed."""
        cap = self.cap_bytes if cap_bytes is None else cap_bytes
        entries: list[tuple[float, int, Path]] = []
        for path, info in chain.from_iterable(map(_stats, self._folders())):
            if _RANGE_NAME.match(path.name):
                entries.append((info.st_mtime, info.st_size, path))
            elif path.name.startswith(_TEMPORARY) and time.time() - info.st_mtime > _STALE_S:
                _remove(path)
        total, freed = sum(size for _, size, _ in entries), 0
        for _, size, path in sorted(entries) if total > cap else ():
            if total - freed <= cap * 0.9:
                break
            freed += size if _remove(path) else 0
        return freed

    def settle(self, most: int = 0) -> None:
        """Trim once more than `most` bytes were stored; after every run that stored any, as many short runs fill a disk too."""
        with self._lock:
            due = self._written > most
            self._written = 0 if due else self._written
        if due:
            self.trim()

    def clear(self) -> int:
        """Delete all that this cache wrote, and nothing else; return the bytes freed. What other runs write meanwhile stays."""
        freed = 0
        try:
            for shelf in self._shelves():
                freed += sum(_empty(folder) for folder in _subfolders(shelf, _KEY_NAME))
                _remove_folder(shelf)
            _remove_folder(self._base)
        except OSError as error:
            said = f"cache {self.root}: cannot be cleared: {error.strerror}"
            raise StorageError(said, hint="check who owns the folder, or delete it by hand") from error
        return freed

    def _folder(self, key: str) -> Path:
        return self._base / key[:2] / key

    def _folders(self) -> Iterator[Path]:
        return (folder for shelf in self._shelves() for folder in _subfolders(shelf, _KEY_NAME))

    def _shelves(self) -> list[Path]:
        return _subfolders(self._base, _SHELF_NAME)

    def _stored(self, folder: Path) -> list[tuple[ByteRange, str]]:
        """List the ranges in a folder, by where they begin, of two the longer first."""
        try:
            names = os.listdir(folder)  # noqa: PTH208  pathlib takes ten times as long
        except OSError:
            return []
        found = [(span, f"{folder}/{name}") for name in names if (span := _span_of(name)) is not None]
        return sorted(found, key=lambda pair: (pair[0].start, -pair[0].end))

    def _load(self, path: str, key: str, stored: ByteRange, room: memoryview | None = None) -> memoryview | None:
        """Return one stored range, in `room` if that is given; None if it is not there, or damaged."""
        try:
            with open(path, "rb") as file:  # noqa: PTH123  Path.open takes as long as reading
                head = b""
                if os.fstat(file.fileno()).st_size == _HEAD + len(stored):
                    head = file.read(_HEAD)
                    room = memoryview(bytearray(len(stored))) if room is None else room
                    file.readinto(room)
            if room is None or head != _MAGIC + _digest(key, stored, room):
                Path(path).unlink(missing_ok=True)
                return None
        except OSError:  # gone meanwhile (another process trims too) or unreadable: either way it is not here
            return None
        with suppress(OSError):  # a cache that cannot be written to is still good to read
            os.utime(path)  # last use, for trimming
        return room

    def _put(self, path: Path, chunks: list[bytes | memoryview]) -> None:
        for _ in range(2):
            if self.problem:
                return
            temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(6)}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("wb") as file:
                    file.writelines(chunks)
                temporary.replace(path)
            except (FileNotFoundError, FileExistsError):
                # Somebody cleared the cache between two of these steps. A second try mostly succeeds; if not, this one
                # range is not kept, and nothing else is lost.
                _remove(temporary)
            except OSError as error:
                path_text, why = str(self.root), error.strerror or str(error)
                self.problem = Text("the range cache at {path} is off for this run: {why}", path=path_text, why=why)
                _remove(temporary)
            else:
                return


def _entries(folder: Path) -> list[Path]:
    """List a folder; one that is gone, or never was one, is empty."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _stats(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what is in a folder; another process may trim meanwhile."""
    for path in _entries(folder):
        with suppress(OSError):
            yield path, path.stat()


def _span_of(name: str) -> ByteRange | None:
    match = _RANGE_NAME.match(name)
    return ByteRange(int(match[1]), int(match[2])) if match and int(match[1]) < int(match[2]) else None


def _subfolders(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """List the real folders in `folder` whose names are like ours; a link could lead anywhere."""
    return [path for path in _entries(folder) if name.match(path.name) and path.is_dir() and not path.is_symlink()]


def _empty(folder: Path) -> int:
    """Delete what a cache wrote into one of its folders, and the folder if nothing else is left; return range bytes."""
    freed = 0
    for path in _entries(folder):
        is_range = bool(_RANGE_NAME.match(path.name))
        ours = is_range or path.name == _ABOUT_NAME or path.name.startswith(_TEMPORARY)
        if ours and not path.is_dir():
            with suppress(FileNotFoundError):  # another process clears or trims too
                size = path.lstat().st_size
                path.unlink()
                freed += size if is_range else 0
    _remove_folder(folder)
    return freed


def _remove_folder(folder: Path) -> None:
    """Delete a folder if it is empty; somebody else's file, or a range just written, keeps it."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _digest(key: str, span: ByteRange, payload: memoryview) -> bytes:
    """Return the checksum of a range: an entry under another name, or moved, does not have it."""
    found = hashlib.sha256(f"{key} {span.start}-{span.end}\n".encode())
    found.update(payload)
    return found.digest()


def _seal(key: str, facts: dict[str, object]) -> str:
    """Return the checksum of what is noted about a file, under its own key only."""
    return cache_key({"key": key, "facts": facts})


def cache_key(facts: dict[str, object]) -> str:
    """Return the folder name that stands for these pinning facts."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
