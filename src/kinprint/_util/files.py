"""Write files whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kinprint.errors import StorageError


def write_whole(target: Path, data: bytes) -> None:
    """Write a file, and the folders above it; a reader sees all of it or none. StorageError if it cannot be written."""
    with replacing(target) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary file to write, which replaces `target` if all goes well. StorageError if it cannot be written."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):  # the folder may be no folder at all
            temporary.unlink()
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}", hint="free some space, or name another file"
        ) from error


def try_folder(folder: Path) -> str | None:
    """Make an empty file in a folder and remove it; return why that fails, or None."""
    temporary = folder / f".kinprint.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return None
