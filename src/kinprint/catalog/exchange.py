"""Write a catalog to one file that can be published, and merge such a file, a stranger's, into a catalog.

Format: a first line of JSON (schema, version, maker); for each entry a line of JSON (its record, and the size of its fingerprint)
and the fingerprint file; a last line of JSON with the number of entries, the SHA-256 of everything before it and, where the maker
signed, an Ed25519 signature of that digest. Recall vectors are not in it: who imports computes them from the fingerprints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from kinprint._util.files import refuse_in_use, replacing
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint._util.strange_json import parse_json
from kinprint._version import __version__
from kinprint.catalog.checking import disagreements
from kinprint.catalog.entry import RECORD_CAP, Entry, Item, Problem, from_record, key_of, to_record
from kinprint.catalog.file import PATH_CHARS
from kinprint.catalog.signing import signer, verify
from kinprint.catalog.store import Catalog
from kinprint.errors import FormatError, NotFound, SchemaError
from kinprint.fingerprints.file import FILE_CAP, from_bytes
from kinprint.fingerprints.recall import recall_vectors
from kinprint.text import Text

SCHEMA, SCHEMA_VERSION = "kinprint.catalog", 1
_DAMAGED = "fetch the file again from its maker; nothing of it was imported"


@dataclass(frozen=True)
class Exported:
    """What was written: ``digest`` is what to publish beside the file; ``signed`` tells whether a key vouches for it.

    ``skipped`` are the entries that are not in it, because their records or fingerprints cannot be read.
    """

    file: str
    entries: int
    bytes: int
    digest: str
    signed: bool
    skipped: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Imported:
    """What was merged. ``signature`` is "valid" only if a key was given and fits; "not checked", "none" vouch for nobody."""

    file: str
    entries: int
    added: int
    digest: str
    signature: str
    made_by: str


class _Hashed:
    """A file whose bytes are hashed as they pass."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash, self.at = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self._pass(data)

    def line(self, most: int) -> bytes:
        """Read a line without hashing it: the last one is not part of the digest."""
        return self.file.readline(most)

    def read(self, count: int) -> bytes:
        data = self.file.read(count)
        self._pass(data)
        return data

    def _pass(self, data: bytes) -> None:
        self.hash.update(data)
        self.at += len(data)

    take = _pass


def export_catalog(
    catalog: Catalog, target: Path, *, contains: str = "", key: Path | None = None, tell: Progress = quiet
) -> Exported:
    """Write a catalog, or the entries whose names hold `contains`, to a file, whole or not at all; `key` signs it.

    Entries whose records or fingerprints are damaged are left out and named.
    """
    total, count = catalog.count(), 0
    skipped: list[Problem] = []
    sign = None if key is None else signer(key)
    refuse_in_use(target)
    with replacing(target) as temporary, temporary.open("wb") as file:
        out = _Hashed(file)
        out.write(_line({"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "made_by": f"kinprint {__version__}"}))
        for entry in catalog.entries(contains=contains, problems=skipped):
            tell("entries", count + len(skipped), total)
            try:
                data = catalog.fingerprint(entry.key)
            except NotFound:  # removed meanwhile
                continue
            except FormatError as error:
                why = Text("its fingerprint cannot be read: {why}", why=error.message)
                skipped.append(Problem(entry.key, entry.name, why))
                continue
            out.write(_line({"bytes": len(data), "record": orjson.Fragment(to_record(entry))}))
            out.write(data)
            count += 1
        digest = out.hash.hexdigest()
        signature = None if sign is None else sign(digest)
        out.write(_line({"entries": count, "sha256": digest, "signature": signature}))
    return Exported(printable(str(target), PATH_CHARS), count, out.at, digest, signature is not None, tuple(skipped))


def _line(data: dict[str, Any]) -> bytes:
    return orjson.dumps(data) + b"\n"


def import_catalog(
    catalog: Catalog,
    file: Path,
    *,
    replace: bool = False,
    key: Path | None = None,
    digest: str | None = None,
    tell: Progress = quiet,
) -> Imported:
    """Merge a published file into a catalog, in one transaction: all of it, or nothing if any part is not as it should be.

    Parameters
    ----------
    replace : take entries of the same name and revision from the file; else those of the catalog stay.
    key : public key of the maker; the file must carry its signature.
    digest : SHA-256 that the maker published elsewhere; the file must have it.
    """
    with _opened(file) as reader:
        size = max(1, file.stat().st_size)
        seen: list[Entry] = []

        def items() -> Iterator[Item]:
            for item in reader.items():
                tell("importing", reader.file.at, size)
                seen.append(item.entry)
                yield item
            reader.finish(key=key, digest=digest)  # inside the transaction: what is not vouched for is not stored

        added = catalog.add_all(items(), replace=replace)
    return Imported(printable(str(file), PATH_CHARS), len(seen), added, reader.digest, reader.signature, reader.made_by)


def check_export(file: Path, *, key: Path | None = None, digest: str | None = None, tell: Progress = quiet) -> None:
    """Read a published file and store nothing; what `import_catalog` would refuse is refused."""
    with _opened(file) as reader:
        size = max(1, file.stat().st_size)
        for _ in reader.items():
            tell("checking", reader.file.at, size)
        reader.finish(key=key, digest=digest)


@contextmanager
def _opened(file: Path) -> Iterator[_Reader]:
    label, hint = printable(file.name), "name a file that kinprint catalog export wrote"
    try:
        opened = file.open("rb")
    except IsADirectoryError as error:
        raise NotFound(f"{label} is a folder", hint=hint) from error
    except FileNotFoundError as error:
        raise NotFound(f"{label}: no such file", hint=hint) from error
    except OSError as error:
        raise NotFound(f"cannot read {label}: {error.strerror}", hint=hint) from error
    with opened:
        yield _Reader(_Hashed(opened), label)


class _Reader:
    """Reads an export, hostile or not: sizes are checked before memory is taken, keys against the bytes."""

    def __init__(self, file: _Hashed, label: str) -> None:
        self.file, self.label = file, label
        self.count, self.last = 0, b""
        self.digest, self.signature = "", "none"
        head = file.line(1 << 16)
        file.take(head)
        told = self._json(head, "the first line")
        if told.get("schema") != SCHEMA:
            raise FormatError(f"{label} is no export of a catalog", hint="kinprint catalog export writes one")
        if told.get("schema_version") != SCHEMA_VERSION:
            found = printable(str(told.get("schema_version")), 40)
            said = f"{label}: an export of version {found}, expected {SCHEMA_VERSION}"
            raise SchemaError(said, hint="use the version of kinprint that wrote it")
        self.made_by = printable(str(told.get("made_by")), 80)

    def items(self) -> Iterator[Item]:
        """Yield all entries; what stands behind the last one is kept for `finish`."""
        while True:
            line = self.file.line(RECORD_CAP + 4096)
            told = self._json(line, f"the line of entry {self.count + 1}")
            if "entries" in told:
                self.last = line
                return
            self.file.take(line)
            self.count += 1
            yield self._item(told)

    def _item(self, told: dict[str, Any]) -> Item:
        where = f"{self.label}, entry {self.count}"
        size, record = told.get("bytes"), told.get("record")
        if type(size) is not int or not 0 < size <= FILE_CAP or not isinstance(record, dict):
            shown = printable(repr(size), 40)
            raise FormatError(f"{where}: a fingerprint of {shown} bytes, expected 1 to {FILE_CAP}", hint=_DAMAGED)
        entry = from_record(orjson.dumps(record), where)
        data = self.file.read(size)
        if key_of(data) != entry.key:
            said = f"{where}, {entry.name}: the fingerprint's SHA-256 is not the key in its record"
            raise FormatError(said, hint=_DAMAGED)
        found = from_bytes(data, f"{where}, {entry.name}")
        for problem in disagreements(entry, found):
            raise FormatError(f"{where}, {entry.name}: {problem.what}", hint=_DAMAGED)
        return Item(entry, data, recall_vectors(found))

    def finish(self, *, key: Path | None, digest: str | None) -> None:
        """Hold the whole file against its last line, a published digest and a key."""
        told, found = self._json(self.last, "the last line"), self.file.hash.hexdigest()
        self.digest = found
        if told.get("sha256") != found or told.get("entries") != self.count or self.file.file.read(1):
            said = f"{self.label}: the digest or the number of entries in its last line is not that of the file"
            raise FormatError(said, hint=_DAMAGED)
        if digest is not None and digest.lower().removeprefix("sha256:") != found:
            raise FormatError(f"{self.label}: its digest is {found}, expected {printable(digest, 80)}", hint=_DAMAGED)
        signature = told.get("signature")
        if key is not None:
            if not isinstance(signature, str):
                raise FormatError(f"{self.label} is not signed, and a key was given", hint="ask its maker to sign it")
            verify(found, signature, key, self.label)
            self.signature = "valid"
        elif signature is not None:
            self.signature = "not checked"

    def _json(self, line: bytes, what: str) -> dict[str, Any]:
        if not line.endswith(b"\n"):
            said = f"{self.label}: {what} is missing, or longer than any entry's: the file is truncated or no export"
            raise FormatError(said, hint=_DAMAGED)
        try:
            told = parse_json(line)
        except ValueError as error:
            raise FormatError(f"{self.label}: {what} is not JSON: {error!s:.100}", hint=_DAMAGED) from error
        if not isinstance(told, dict):
            raise FormatError(f"{self.label}: {what} is not an object", hint=_DAMAGED)
        return told
