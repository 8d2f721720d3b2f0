"""Check untrusted files for impossible shapes, Git LFS pointers, damage and malformed JSON, the same for all formats."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import orjson

from kinprint._util.strange_json import parse_json
from kinprint.errors import FormatError
from kinprint.refs import ModelRef
from kinprint.sources.base import SMALL_FILE_CAP, Folder
from kinprint.sources.session import Session

CONFIG_NAME = "config.json"
MAX_SIDES = 64  # numpy's limit
MAX_COUNT = 1 << 59  # numpy counts bytes in 63 bits, whichever sides are zero
DAMAGED = "the file is truncated or damaged; fetch it again"
_LFS_POINTER = b"version https://git-lfs"


def damaged(message: str) -> FormatError:
    """Return the error for a file that contradicts itself or ends too early."""
    return FormatError(message, hint=DAMAGED)


def too_large(shape: Sequence[int]) -> bool:
    """Whether a shape has more axes or elements than an array can have."""
    return len(shape) > MAX_SIDES or math.prod(max(side, 1) for side in shape) > MAX_COUNT


def refuse_lfs_pointer(head: bytes | memoryview, label: str) -> None:
    """Refuse the short text that Git LFS leaves in place of a file that it has not fetched."""
    if bytes(head[: len(_LFS_POINTER)]) == _LFS_POINTER:
        said = f"{label}: a Git LFS pointer instead of the weights"
        raise FormatError(said, hint="fetch the weights themselves: git lfs pull")


def read_json_of(session: Session, folder: Folder, name: str, *, cap: int = SMALL_FILE_CAP) -> dict[str, object] | None:
    """Return a small JSON file of a folder within the budget, or None if it has none."""
    raw = session.read_small(folder, name, cap)
    if raw is None:
        return None
    where, again = f"{folder.provenance.reference}: {name}", f"fetch {name} again, or correct it"
    try:
        value = _python_json(raw) if name == CONFIG_NAME else parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not valid JSON: {error}", hint=again) from error
    if not isinstance(value, dict):
        raise FormatError(f"{where} holds a JSON {type(value).__name__}, expected an object", hint=again)
    return value


def _python_json(raw: bytes) -> object:
    """Parse JSON as Python writes it, with NaN and Infinity, which the standard forbids and configs hold all the same."""
    try:
        return parse_json(raw)
    except orjson.JSONDecodeError:
        value: object = json.loads(raw.decode())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be written into a report
        return value


FOLDERS = re.compile(r"0_\w+|transformer|unet|prior|text_encoder|onnx|original")
"""Folders below a model's own in which weights lie: sentence-transformers, diffusers, Transformers.js, Meta; best first."""


def read_above(session: Session, folder: Folder, name: str, cap: int) -> dict[str, object] | None:
    """Return a JSON file from above a folder that is known to lie in a model's own, or None."""
    kind, location = folder.provenance.kind, folder.provenance.location
    if kind in ("url-file", "url-folder"):
        here = location.rsplit("/", 1)[0] if kind == "url-file" else location.rstrip("/")
        parent, _, last = here.rpartition("/")
        above = ModelRef(parent, "url", url=parent)
    elif kind in ("file", "folder"):
        path = Path(location).parent if kind == "file" else Path(location)
        last = path.absolute().name
        # The path as written, so that a recording can be read on another machine.
        path = path.parent if path.name else path / ".."
        above = ModelRef(str(path), "folder", path=path)
    else:
        return None
    return read_json_of(session, session.open_folder(above), name, cap=cap) if FOLDERS.fullmatch(last) else None
