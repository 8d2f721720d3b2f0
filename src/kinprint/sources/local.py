"""Read files on this machine, and folders of them."""

import os
import stat
import threading
from pathlib import Path

from kinprint._util.files import remember_read
from kinprint.errors import NotFound, SourceChanged, SourceError
from kinprint.refs import ByteRange, check_member_name, needed_with
from kinprint.sources.base import COMPANIONS, SMALL_FILE_CAP, Provenance, Traffic, read_whole
from kinprint.text import Text

# Not blocking: opening a pipe that an index names as a shard would otherwise wait for its writer for ever.
_OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK"))


_MOST_FOLDERS = 64  # in a folder of models rather than a model's there may be thousands


class LocalFile:
    """One file on disk, read with pread into the caller's buffer. A file that changes while it is read is an error."""

    at_hand = True

    def __init__(self, path: Path, label: str, traffic: Traffic) -> None:
        self.label = label
        self._traffic = traffic
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            raise NotFound(Text("{label}: no such file", label=label)) from None
        except OSError as error:
            raise SourceError(Text("{label}: cannot be opened: {why}", label=label, why=error.strerror)) from error
        self._stat = os.fstat(self._fd)
        if not stat.S_ISREG(self._stat.st_mode):
            os.close(self._fd)
            self._fd = -1
            raise SourceError(Text("{label}: is not a regular file", label=label))
        self.size = self._stat.st_size
        # hashing would read the whole file, and a time would tell copies of one file apart
        self.identity = f"size:{self.size}"

    def prefetch(self) -> None:
        """Do nothing: the file is open."""

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` with `span`; a file that shrank or was rewritten since it was opened is an error."""
        done = 0
        while done < len(span):
            try:
                got = self._pread(buffer[done : len(span)], span.start + done)
            except OSError as error:
                said = Text("{label}: cannot be read: {why}", label=self.label, why=error.strerror)
                raise SourceError(said) from error
            if got == 0:
                end = span.start + done
                said = Text("{label}: ends at byte {n}, expected at least {m}", label=self.label, n=end, m=span.end)
                raise SourceError(said)
            done += got
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            said = Text("{label}: the file changed while it was read", label=self.label)
            raise SourceChanged(said, hint="run it again")
        self._traffic.add(local_bytes=done)

    def _pread(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._fd, [view], offset)
        with self._lock:  # no positional read on this system: one reader at a time
            os.lseek(self._fd, offset, os.SEEK_SET)
            chunk = os.read(self._fd, len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file; a link that leads to itself is none."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _files_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if _is_file(entry)]
    except OSError:  # one that may not be listed holds nothing for us
        return []


class LocalFolder:
    """A folder in the hub's layout, or one weight file of it with the config and tokenizer that lie beside it."""

    def __init__(self, reference: str, root: Path, traffic: Traffic, *, only: str | None = None) -> None:
        self._root = root
        self._traffic = traffic
        self._only = only
        location = root / only if only else root
        self.provenance = Provenance(reference=reference, kind="file" if only else "folder", location=str(location))

    @property
    def names(self) -> frozenset[str]:
        """The files in the folder, and those one level below, where some layouts keep the weights (`onnx/model.onnx`)."""
        try:
            entries = list(os.scandir(self._root))
        except OSError as error:
            said = Text("{label}: cannot be read: {why}", label=str(self._root), why=error.strerror)
            raise SourceError(said, hint="check who owns the folder") from error
        found = frozenset(entry.name for entry in entries if _is_file(entry))
        if self._only:
            return found & {*needed_with(self._only), *COMPANIONS}
        # a link to a folder could lead anywhere
        below = sorted(entry.name for entry in entries if entry.name[0] != "." and entry.is_dir(follow_symlinks=False))
        return found | {f"{name}/{file}" for name in below[:_MOST_FOLDERS] for file in _files_in(self._root / name)}

    def open(self, name: str) -> LocalFile:
        """Open a member for reading by range."""
        check_member_name(name, where=str(self._root))
        if name != self._only:  # the file itself is the user's choice, wherever it lies
            self._refuse_outside(name)
        remember_read(self._root / name)
        return LocalFile(self._root / name, str(self._root / name), self._traffic)

    def _refuse_outside(self, name: str) -> None:
        """Refuse a link out of the folder: whoever packed the model could have any file of this machine read as part of it."""
        root, real = Path(os.path.realpath(self._root)), Path(os.path.realpath(self._root / name))
        # the hub's own cache, and folders that its client fills from there, hold links to blobs
        blob = real.parent.name == "blobs" and real.parent.parent.name.startswith("models--")
        if not blob and not real.is_relative_to(root):
            said = Text(
                "{label}: is a link that leads outside the model's folder, and is not followed",
                label=str(self._root / name),
            )
            raise SourceError(said, hint="put the file itself there, or name the folder that holds it")

    def read_small(self, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file, or None if there is none."""
        if name not in self.names:
            return None
        return read_whole(self.open(name), cap)
