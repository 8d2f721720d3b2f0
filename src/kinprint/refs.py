"""Parse model references, and define the half-open byte range used everywhere inside."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kinprint._util.files import is_file, is_folder, is_there, user_path
from kinprint._util.records import dataclass
from kinprint.errors import BadReference, KinprintError, NotFound
from kinprint.text import Text

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPO = re.compile(rf"^(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[^\s@]{{1,200}}))?$")
_HF_URI = re.compile(
    rf"^hf://(?:models/)?(?P<repo>{_NAME}(?:/{_NAME})?)(?:@(?P<revision>[^\s@/]{{1,200}}))?(?:/(?P<file>[^\s@]+))?$"
)
_FORMS = "owner/name, owner/name@revision, hf://owner/name, a folder, a file of weights, or an http(s) URL"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` (inclusive) to ``end`` (exclusive) of one file. HTTP's inclusive form exists in http.py only."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a byte range: start {self.start}, end {self.end}")

    def __len__(self) -> int:
        return self.end - self.start


def join_runs(runs: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Join ascending runs that overlap or lie at most `gap` apart."""
    joined: list[tuple[int, int]] = []
    for start, stop in runs:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Where a model is. ``kind`` is one of hub, folder, file, url; the other fields belong to the kind."""

    text: str
    kind: str
    repo: str | None = None
    revision: str | None = None
    file: str | None = None
    path: Path | None = None
    url: str | None = None


def parse_ref(text: str, *, endpoint: str) -> ModelRef:
    """Read a model reference as people write it.

    A path that exists wins over a repository of the same name, as it does in the tools people already use; ``hf://``
    and an explicit ``./`` remove the doubt. A page of the hub pasted from a browser is understood as its repository.
    """
    text = text.strip()
    if text.startswith("hf://"):
        match, form = _HF_URI.match(text), "hf://owner/name[@revision][/file.safetensors]"
        if not match:
            raise BadReference(f"cannot read {quotable(text)!r}: expected {form}")
        return ModelRef(text, "hub", repo=match["repo"], revision=match["revision"], file=match["file"])
    if text.startswith(("http://", "https://")):
        if not is_address(text):
            raise BadReference(f"cannot read {quotable(text)!r}: expected http(s)://host[:port]/path")
        return _hub_page(text, endpoint) or ModelRef(shown(text), "url", url=text)
    path = user_path(text)
    if text and is_folder(path):
        return ModelRef(text, "folder", path=path)
    if text and is_file(path):
        return ModelRef(text, "file", path=path)
    looks_local = text.startswith(("/", "./", "../", "~", ".\\")) or is_weights(text) or "\\" in text
    match = _REPO.match(text)
    if match and not looks_local:
        return ModelRef(text, "hub", repo=match["repo"], revision=match["revision"])
    if looks_local or ("://" not in text and (text.count("/") > 1 or text.endswith("/"))):
        missing = Text("no such file or folder: {path}", path=quotable(text))
        raise NotFound(missing, hint=f"a model is {_FORMS}")
    hint = f"for a repository without an owner write hf://{text}" if re.fullmatch(_NAME, text) else None
    raise BadReference(f"cannot read {quotable(text)!r} as a model: expected {_FORMS}", hint=hint)


def is_repo(text: str) -> bool:
    """Whether the text is owner/name of a repository, and no more."""
    return re.fullmatch(rf"{_NAME}/{_NAME}", text) is not None


def is_owner(text: str) -> bool:
    """Whether an organisation or user of the hub can have this name."""
    return re.fullmatch(_NAME, text) is not None


def path_text(reference: str | os.PathLike[str]) -> str:
    """Return a reference as text; a path that does not exist must not be taken for the name of a repository."""
    text = os.fspath(reference)
    if isinstance(reference, str) or Path(text).is_absolute() or is_there(Path(text)):
        return text
    return os.path.join(".", text)  # noqa: PTH118 - Path drops the dot


def shown(url: str) -> str:
    """Return a URL fit for messages and reports: query strings of signed links are secrets, user names too."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # no address: what of it is secret cannot be told
        return quotable(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}{port}{parts.path}"


def public(text: str) -> str:
    """Return a reference as a report may keep it: what names the model, and no part of an address that may be secret."""
    if not text.lower().startswith(("http://", "https://")):
        return text
    return shown(text) if is_address(text) else quotable(text)


def quotable(text: str) -> str:
    """Return what the user wrote, fit for messages: of an address that cannot be taken apart no part that may be secret."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    if "@" in rest:  # without knowing where a password ends, nothing after the scheme is safe to repeat
        return f"{scheme}://…"
    kept = re.split(r"[?#]", rest, maxsplit=1)[0]
    return f"{scheme}://{kept}" + ("…" if kept != rest else "")


def is_address(url: str) -> bool:
    """Whether an address can be taken apart, and names a host."""
    try:
        parts = urlsplit(url)
        # readers of addresses disagree about where a backslash ends the host
        return bool(parts.hostname) and parts.port != 0 and "\\" not in parts.netloc
    except ValueError:
        return False


def _hub_page(url: str, endpoint: str) -> ModelRef | None:
    """Understand ``<endpoint>/owner/name[/tree|blob|resolve/revision[/file]]``, or return None for any other URL."""
    parts, base = urlsplit(url), urlsplit(endpoint)
    if (parts.scheme, parts.netloc) != (base.scheme, base.netloc):
        return None
    prefix = base.path.rstrip("/") + "/"  # a mirror may live below a path
    if not parts.path.startswith(prefix):
        return None
    bits = [unquote(bit) for bit in parts.path.removeprefix(prefix).strip("/").split("/")]
    if len(bits) < 2 or not _REPO.match("/".join(bits[:2])):
        return None
    repo, url = "/".join(bits[:2]), shown(url)  # a pasted link may carry a signature or a token in its query
    if len(bits) == 2:
        return ModelRef(url, "hub", repo=repo)
    if bits[2] == "tree" and len(bits) == 4:
        return ModelRef(url, "hub", repo=repo, revision=bits[3])
    if bits[2] in ("blob", "resolve") and len(bits) > 4:
        return ModelRef(url, "hub", repo=repo, revision=bits[3], file="/".join(bits[4:]))
    return None


_SHARDED = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[A-Za-z0-9]+)$")
MAX_SHARDS = 10_000


def shard_names(name: str) -> tuple[str, ...]:
    """Return the names of all files of the set that a file belongs to, as its own name tells, or that name alone."""
    found = _SHARDED.match(name)
    count = int(found["count"]) if found else 0
    if found is None or not 0 < count <= MAX_SHARDS:
        return (name,)
    return tuple(f"{found['stem']}-{n:05d}-of-{found['count']}{found['suffix']}" for n in range(1, count + 1))


@cache
def _formats() -> tuple[Any, ...]:
    """Return all formats of weights. Formats stand above references, so they are looked up when one is to be told."""
    return tuple(importlib.import_module("kinprint.formats.all_formats").FORMATS.values())


def is_weights(name: str) -> bool:
    """Whether a file's name ends as those of weights do, in any format."""
    return name.lower().endswith(tuple(suffix for item in _formats() for suffix in item.suffixes))


def needed_with(name: str) -> tuple[str, ...]:
    """Return the files without which a weight file is of no use: the other parts of a split GGUF; others stand alone."""
    split = any(item.split_by_name and name.lower().endswith(item.suffixes) for item in _formats())
    return shard_names(name) if split else (name,)


def leads_outside(name: str) -> bool:
    """Whether a file name, taken from a listing or an index, could lead outside its folder."""
    return ":" in name or "\0" in name or any(part in ("", ".", "..") for part in re.split(r"[/\\]", name))


def check_member_name(
    name: str, *, where: str, error: type[KinprintError] = BadReference, hint: str | None = None
) -> str:
    """Refuse a file name that could lead outside its folder."""
    if leads_outside(name):
        raise error(f"{where} names the file {name[:200]!r}, which leads outside the model's folder", hint=hint)
    return name
