"""Write files whole, or not at all, and never over what is in use; look at paths that anybody may have written."""

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kinprint.errors import FileTooLarge, StorageError

_read: set[str] = set()  # real paths of what this process has read of models
_in_use: dict[str, str] = {}  # real paths that a catalog or a key has in this process, and what is there


def remember_read(path: Path) -> None:
    """Remember a file of a model: from now on nothing is written over it."""
    _read.add(os.path.realpath(path))


def remember_in_use(path: Path, what: str) -> None:
    """Remember a place, whether there is a file yet or not: from now on nothing that is asked for is written there."""
    _in_use[os.path.realpath(path)] = what


def refuse_in_use(target: Path) -> None:
    """Raise StorageError for a target that is in use, also through a link."""
    what = _in_use.get(os.path.realpath(target))
    if what is not None:
        raise StorageError(f"cannot write {target}: it is {what}", hint="name another file")


def user_path(text: str | os.PathLike[str]) -> Path:
    """Return a path as people write it; a ~ of nobody's stays."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


# What pathlib asks of a path raises where a name is longer than any file's; strangers write such names.
def is_there(path: Path) -> bool:
    """Whether there is something at a path."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    """Whether a path leads to a file."""
    return os.path.isfile(path)  # noqa: PTH113


def read_whole(file: Path, most: int) -> bytes:
    """Return all bytes of a file, or of whatever its name leads to; FileTooLarge if there are more than `most`."""
    with file.open("rb") as opened:
        large = os.fstat(opened.fileno()).st_size > most
        raw = b"" if large else opened.read(most + 1)  # a device has no size
    if large or len(raw) > most:
        raise FileTooLarge(f"{file}: expected at most {most} bytes, and it has more", hint="name another file")
    return raw


def write_whole(target: Path, data: bytes) -> None:
    """Write a file that was asked for; a reader sees all of it or none. StorageError if it cannot be written."""
    refuse_in_use(target)
    with replacing(target) as temporary:
        temporary.write_bytes(data)


def make_folder(folder: Path) -> bool:
    """Make a folder that the user asked for, and those above it; return whether it was missing."""
    missing = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write into {folder}: {error.strerror}", hint="name another folder") from error
    return missing


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary file to write, which replaces `target` if all goes well. StorageError if it cannot be written.

    A link stays a link, and the file behind it is replaced; what is written to a device or pipe goes through it.
    """
    through = written_through(target)
    place = Path(tempfile.gettempdir()) / "kinprint" if through else Path(os.path.realpath(target))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield temporary
        if through:
            with temporary.open("rb") as made, target.open("wb") as device:
                shutil.copyfileobj(made, device)
        else:
            temporary.replace(place)
    except OSError as error:
        above = target.parent
        if not above.exists():
            raise StorageError(f"cannot write {target}: there is no folder {above}", hint="make it first") from error
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}", hint="free some space, or name another file"
        ) from error
    finally:
        with suppress(OSError):  # renamed, or the folder may be no folder at all
            temporary.unlink()


def written_through(target: Path) -> bool:
    """Return whether a target is a device or a pipe; StorageError for what no report may replace, and files being read."""
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # a link that leads to itself, a folder that may not be entered
        raise StorageError(f"cannot write {target}: {error.strerror}", hint="name another file") from error
    if os.path.realpath(target) in _read:
        raise StorageError(f"cannot write {target}: it is a file of a model that is read", hint="name another file")
    # a name of an open file (/dev/stdout) is no place to rename to, whatever stands behind it
    opened = target.is_symlink() and target.absolute().parts[1:2] in (("dev",), ("proc",))
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or opened:
        return True
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "neither a file, a terminal nor a pipe"
        raise StorageError(f"cannot write {target}: it is {what}", hint="name a file")
    return False


def try_folder(folder: Path) -> str | None:
    """Make an empty file in a folder and remove it; return why that fails, or None."""
    temporary = folder / f".kinprint.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return None
