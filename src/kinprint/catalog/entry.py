"""What a catalog holds of one model, and the limits that every entry is held against, whoever made it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinprint._util.plain import printable
from kinprint._util.strange_json import parse_json
from kinprint.errors import FormatError
from kinprint.fingerprints.file import FILE_CAP
from kinprint.fingerprints.recall import FAMILIES
from kinprint.model.cards import MOST as MOST_BASES
from kinprint.refs import MAX_SHARDS
from kinprint.results.plain_json import build, write_json
from kinprint.text import Text

Vectors = Mapping[str, NDArray[np.float32]]

NAME_CHARS, SHORT_CHARS, ERROR_CHARS = 300, 200, 1000
RECORD_CAP = 4 << 20  # bytes of an entry as JSON: 10,000 files with their digests take 1.5 MB
MOST_LAYERS, MOST_WIDTH, MOST_PARAMETERS = 9_999, 1 << 24, 10**16
UNIT_WITHIN = 1e-3  # a vector of float32 is of unit length to 1e-6; a stranger's may have been stored with fewer bits
_KEY = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Entry:
    """One model: where it was read, and what its card declares. ``key`` is the SHA-256 of its fingerprint file."""

    key: str
    name: str  # hub repository, or the label of a local model
    revision: str | None  # commit, where the source has one
    architecture: str
    layers: int
    hidden: int
    parameters: int
    files: tuple[tuple[str, str], ...]  # name and identity of every weight file
    licence: str | None
    declared_bases: tuple[str, ...]
    added: str  # UTC, 2026-11-18T07:00:00Z
    made_by: str  # kinprint 0.1.0


@dataclass(frozen=True)
class Failure:
    """A model that could not be entered, with the class of the error and its message."""

    name: str
    revision: str | None
    error: str
    added: str


class Item(NamedTuple):
    """Everything that is stored of one model."""

    entry: Entry
    fingerprint: bytes
    vectors: Vectors


class Stored(NamedTuple):
    """An entry as a store holds it; its record may be damaged, and what stands beside it still says which it is."""

    key: str
    name: str
    revision: str  # "" for none
    record: bytes


@dataclass(frozen=True)
class Candidate:
    """An entry that is near in one family of recall vectors. Near is no relation: stage two tests that."""

    key: str
    family: str
    cosine: float


@dataclass(frozen=True)
class Problem:
    """What `check` found: of one entry, or with no key of the catalog as a whole."""

    key: str | None
    name: str | None
    what: Text
    file: bool = False  # the file itself is damaged, and may refuse every change


@dataclass(frozen=True)
class Stats:
    """What a catalog holds, in numbers."""

    place: str
    entries: int
    failures: int
    fingerprint_bytes: int
    stored_bytes: int
    recall_version: int
    families: tuple[tuple[str, int], ...]  # how many entries have a vector
    architectures: tuple[tuple[str, int], ...]
    licences: tuple[tuple[str, int], ...]  # "" for none stated


def key_of(fingerprint: bytes) -> str:
    """Return the key of an entry with this fingerprint file."""
    return hashlib.sha256(fingerprint).hexdigest()


def to_record(entry: Entry) -> bytes:
    """Return an entry as the JSON that stores hold."""
    return write_json(entry, indent=False)


def from_record(raw: bytes, where: str) -> Entry:
    """Read an entry, hostile or damaged; FormatError names `where` it stands."""
    if len(raw) > RECORD_CAP:
        raise FormatError(f"{where}: a record of {len(raw)} bytes, expected at most {RECORD_CAP}")
    try:
        entry = build(Entry, parse_json(raw))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where}: the record of an entry cannot be read: {error!s:.200}") from error
    check_entry(entry, where)
    return entry


def stored_row(row: Sequence[object]) -> Stored:
    """Return a row of a file's table; a stranger's file may hold any type."""
    return Stored(str(row[0]), str(row[1]), str(row[2]), as_bytes(row[3]))


def entry_of(stored: Stored, place: str) -> Entry:
    """Read the record of a stored entry; FormatError if it is damaged, or another's."""
    where = f"{place}, {printable(stored.name)} {printable(stored.key, 12)}"
    hint = f"kinprint catalog remove {printable(stored.key)}, then add the model again"
    try:
        entry = from_record(stored.record, where)
    except FormatError as error:
        raise FormatError(error.message, hint=hint) from error
    if (entry.key, entry.name, entry.revision or "") != stored[:3]:
        raise FormatError(f"{where}: its record belongs to another entry, {entry.name}", hint=hint)
    return entry


def width_mark(hidden: int) -> bytes:
    """Return what stands in the record of every entry of a width, and in no other: quotes inside a text have a backslash."""
    return f'"hidden":{hidden},'.encode()


def seal(record: bytes, vectors: Vectors) -> str:
    """Return the digest over a record and its vectors, by which `check` finds what changed in storage; no signature."""
    total = hashlib.sha256(record)
    for family in sorted(vectors):
        total.update(b"\0" + family.encode() + b"\0")
        total.update(packed(vectors[family]))
    return total.hexdigest()


def as_bytes(value: object) -> bytes:
    """Return a stored value as bytes; a stranger's file may hold any type."""
    return value if isinstance(value, bytes) else str(value).encode()


def packed(vector: NDArray[np.float32]) -> bytes:
    """Return a vector as stored: float32, little-endian."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def unpacked(raw: bytes, family: str) -> NDArray[np.float32]:
    """Return a stored vector; FormatError for another width than the family has."""
    width = FAMILIES.get(family)
    if width is None or len(raw) != 4 * width:
        raise FormatError(f"a recall vector {family[:40]!r} of {len(raw)} bytes, expected {_widths()}")
    return np.frombuffer(raw, dtype="<f4")


def check_item(item: Item, where: str) -> None:
    """Refuse an item that no store may hold: wrong key, absurd values, vectors of other widths or lengths."""
    check_entry(item.entry, where)
    size = len(item.fingerprint)
    if not 0 < size <= FILE_CAP:
        raise FormatError(f"{where}: a fingerprint of {size} bytes, expected 1 to {FILE_CAP}")
    found = key_of(item.fingerprint)
    if found != item.entry.key:
        said = f"{where}: the fingerprint has the SHA-256 {found}, and the entry names {item.entry.key}"
        raise FormatError(said, hint="the fingerprint was changed; fetch it again, or make it again")
    for family, vector in item.vectors.items():
        if vector.ndim != 1 or FAMILIES.get(family) != vector.size:
            shape = "×".join(map(str, vector.shape))
            raise FormatError(f"{where}: a recall vector {family[:40]!r} of {shape} values, expected {_widths()}")
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if not abs(length - 1.0) <= UNIT_WITHIN:  # NaN fails too
            raise FormatError(f"{where}: the recall vector {family} has length {length:.6g}, expected 1")


def check_entry(entry: Entry, where: str) -> None:
    """Refuse a record that no model has: names that steer a terminal, sizes beyond all reason."""
    if not _KEY.fullmatch(entry.key):
        raise FormatError(f"{where}: the key {entry.key[:80]!r} is no SHA-256 in hexadecimal")
    check_name(entry.name, entry.revision, where)
    if not _TIME.fullmatch(entry.added):
        raise FormatError(f"{where}: added {entry.added[:40]!r}, expected a time such as 2026-11-18T07:00:00Z")
    numbers = (("layers", MOST_LAYERS), ("hidden", MOST_WIDTH), ("parameters", MOST_PARAMETERS))
    for name, most in numbers:
        value = getattr(entry, name)
        if not 0 <= value <= most:
            raise FormatError(f"{where}: {name} is {value}, expected 0 to {most}")
    if len(entry.files) > MAX_SHARDS or len(entry.declared_bases) > MOST_BASES:
        counts = f"{len(entry.files)} files and {len(entry.declared_bases)} base models"
        raise FormatError(f"{where}: {counts}, expected at most {MAX_SHARDS} and {MOST_BASES}")
    texts = [entry.architecture, entry.licence or "", entry.made_by, *entry.declared_bases]
    for text in (*texts, *(part for file in entry.files for part in file)):
        if not _plain(text, NAME_CHARS):
            raise FormatError(f"{where}: {text[:80]!r} holds what cannot be shown, or more than {NAME_CHARS} letters")


def check_name(name: str, revision: str | None, where: str) -> None:
    """Refuse names and revisions that cannot be shown."""
    if not name.strip() or not _plain(name, NAME_CHARS):
        raise FormatError(f"{where}: the name {name[:80]!r}: expected 1 to {NAME_CHARS} letters that can be shown")
    if revision is not None and (not revision or not _plain(revision, SHORT_CHARS)):
        raise FormatError(f"{where}: the revision {revision[:80]!r}: expected 1 to {SHORT_CHARS} letters")


def _plain(text: str, most: int) -> bool:
    return len(text) <= most and text.isprintable()


def _widths() -> str:
    return ", ".join(f"{name} {width}" for name, width in FAMILIES.items())


def as_plain(value: Any) -> dict[str, Any]:
    """Return an entry, a failure or numbers as plain data for JSON output."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
