"""The interface of every catalog, whatever holds it, and `open_catalog`, which finds the store that a name stands for."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kinprint._util.files import user_path
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint.catalog.addresses import is_database
from kinprint.catalog.entry import Candidate, Entry, Failure, Item, Problem, Stats, Stored, Vectors, entry_of
from kinprint.errors import BadSelection, FormatError, NotFound, SchemaError
from kinprint.text import Text

VARIABLE = "KINPRINT_CATALOG"
DEFAULT_NAME = "catalog.db"
LEAST_KEY = 8  # letters of a key by which an entry may be named


class Catalog(AbstractContextManager["Catalog"]):
    """Known models. An entry is there whole or not at all, and what a method confirmed is on disk when it returns.

    Use one catalog from one thread; several processes may read and write one file or database at the same time.
    """

    place: str  # for messages: a path, or an address without user and password
    read_only: bool

    def add(self, entry: Entry, fingerprint: bytes, vectors: Vectors, *, replace: bool = False) -> bool:
        """Store one model in one transaction; False if its name and revision, or its key, stand there already.

        With `replace` it takes the place of what stands there. A failure noted under the same name and revision is forgotten.
        """
        return self.add_all([Item(entry, fingerprint, vectors)], replace=replace) == 1

    @abstractmethod
    def add_all(self, items: Iterable[Item], *, replace: bool = False) -> int:
        """Store many models in one transaction, all or none; return how many were new (or replaced)."""

    @abstractmethod
    def fail(self, failure: Failure) -> None:
        """Note that a model could not be entered, in the place of an earlier note on the same name and revision."""

    @abstractmethod
    def forget(self, name: str, revision: str | None = None) -> None:
        """Delete what is noted of a name: at a revision, and without one."""

    @abstractmethod
    def failures(self) -> list[Failure]:
        """Return what is noted, by name."""

    def entries(self, *, contains: str = "", problems: list[Problem] | None = None) -> Iterator[Entry]:
        """Yield entries in the order they were added; `contains` is a part of their names, in any case of letters.

        One whose record is damaged is left out, and joins `problems`.
        """
        for stored in self.all_stored(contains) if is_text(contains) else ():
            try:
                entry = entry_of(stored, self.place)
            except FormatError as error:
                why = Text("its record cannot be read: {why}", why=error.message)
                if problems is not None:
                    problems.append(Problem(stored.key, printable(stored.name), why))
            else:
                yield entry

    @abstractmethod
    def all_stored(self, contains: str = "") -> Iterator[Stored]:
        """Yield what is stored of entries, in the order they were added; nothing of it is checked."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of entries."""

    def get(self, key: str) -> Entry:
        """Return the entry with a key, or with the one that begins so; NotFound, or BadSelection if several do."""
        return entry_of(self.stored_as(key), self.place)

    def find(self, name: str, revision: str | None = None, *, any_case: bool = False) -> Entry | None:
        """Return the entry of a name and revision, without a revision the one added last, or None.

        With `any_case`, where no entry has the name as written, one that has it in other capitals.
        """
        stored = self.stored(name, revision, any_case=any_case) if is_text(name, revision or "") else None
        return None if stored is None else entry_of(stored, self.place)

    @abstractmethod
    def stored_as(self, key: str) -> Stored:
        """Return what is stored of an entry as `get` finds it; nothing of it is checked."""

    @abstractmethod
    def stored(self, name: str, revision: str | None = None, *, any_case: bool = False) -> Stored | None:
        """Return what is stored of an entry as `find` finds it; nothing of it is checked."""

    @abstractmethod
    def fingerprint(self, key: str) -> bytes:
        """Return the fingerprint file of an entry; NotFound without one, FormatError if it was damaged."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Delete an entry; NotFound if there is none."""

    @abstractmethod
    def nearest(self, vectors: Vectors, k: int, *, exclude: Collection[str] = ()) -> list[Candidate]:
        """Return the k nearest entries of each family, best first, without those whose keys are excluded."""

    @abstractmethod
    def reindex(self, tell: Progress = quiet) -> tuple[int, list[Problem]]:
        """Compute all recall vectors anew from the stored fingerprints; return how many entries have one, and what is damaged.

        An entry whose fingerprint is damaged has none afterwards, and stops no other.
        """

    @abstractmethod
    def index(self, tell: Progress = quiet) -> None:
        """Make recall in a large catalog fast: arrays beside the file, lists in the database. Answers need it in neither."""

    @property
    def recall_is_exact(self) -> bool:
        """Whether `nearest` holds a model against all entries, and not against those of the lists that it looks through."""
        return True

    @property
    @abstractmethod
    def recall_version(self) -> int:
        """The version of the recall vectors stored."""

    @abstractmethod
    def families(self) -> list[tuple[str, int]]:
        """Return for every family of recall vectors how many entries have one; no record is read."""

    @abstractmethod
    def has_width(self, hidden: int, *, besides: Collection[str] = ()) -> bool:
        """Whether any entry, besides those with some keys, is of a width; records are looked through until one is found."""

    @abstractmethod
    def lacking(self, families: Sequence[str], count: int, *, besides: Collection[str] = ()) -> tuple[int, list[str]]:
        """Return how many entries have a recall vector of none of these families, and names of the first `count` of them.

        Entries with the keys `besides` are left out.
        """

    @abstractmethod
    def stats(self) -> Stats:
        """Return what the catalog holds, in numbers."""

    @abstractmethod
    def check(self, tell: Progress = quiet) -> Iterator[Problem]:
        """Read everything and yield what is damaged, entry by entry."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file or the connection."""

    def __exit__(self, *_: object) -> None:
        self.close()


def open_catalog(
    ref: str | Path | None = None,
    *,
    read_only: bool = False,
    make: bool = True,
    env: Mapping[str, str] | None = None,
) -> Catalog:
    """Open a catalog: a file, ``postgresql://…`` for a shared one, None for KINPRINT_CATALOG or else the user's data folder.

    One that does not exist is made, unless `read_only` or without `make`: NotFound.
    """
    place = find_catalog(ref, env=env)
    if isinstance(place, str):
        from kinprint.catalog.postgres import PostgresCatalog

        return PostgresCatalog(place, read_only=read_only, make=make)
    from kinprint.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(place, read_only=read_only, make=make)


def find_catalog(ref: str | Path | None = None, *, env: Mapping[str, str] | None = None) -> Path | str:
    """Return the file that a catalog's name stands for, or the address of a database; nothing is opened."""
    known = os.environ if env is None else env
    chosen = ref if ref is not None and str(ref) else known.get(VARIABLE) or default_path(known)
    return str(chosen) if is_database(str(chosen)) else user_path(chosen)


def default_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the catalog in the user's data folder."""
    known = os.environ if env is None else env
    data = Path(known.get("XDG_DATA_HOME") or Path.home() / ".local" / "share").expanduser()
    return data / "kinprint" / DEFAULT_NAME


def is_text(*texts: str) -> bool:
    """Whether texts can be stored; a name of a file may hold bytes that are no UTF-8, and no entry has such a name."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def chosen_entry(catalog: Catalog, text: str) -> Entry:
    """Return the entry that a user means: a name, name@revision, or a key or its first eight letters or more."""
    return entry_of(chosen(catalog, text), catalog.place)


def chosen(catalog: Catalog, text: str) -> Stored:
    """Return what is stored of the entry that a user means, damaged or not."""
    name, at, revision = text.rpartition("@")
    found = catalog.stored(text) if is_text(text) else None
    if found is None and at and is_text(text):
        found = catalog.stored(name, revision)
    if found is not None:
        return found
    if len(text) >= LEAST_KEY and set(text) <= set("0123456789abcdef"):
        return catalog.stored_as(text)
    said = f"no entry {printable(text, 200)!r} in {catalog.place}"
    raise NotFound(said, hint="kinprint catalog list shows names and keys")


def ambiguous(prefix: str, keys: Collection[str]) -> BadSelection:
    """Return the error for a key's beginning that several entries share."""
    return BadSelection(f"{len(keys)} entries or more begin with {prefix!r}", hint=f"such as {', '.join(sorted(keys))}")


def not_there(key: str, place: str) -> NotFound:
    """Return the error for a key that is not in a catalog."""
    return NotFound(
        f"no entry with the key {printable(key, 80)!r} in {place}", hint="kinprint catalog list shows names and keys"
    )


def no_catalog(place: str, more: str = "") -> NotFound:
    """Return the error where there is no catalog, and none is to be made."""
    said = f"there is no catalog {place}"
    return NotFound(
        said, hint=f"kinprint catalog add MODEL{more} makes it, kinprint scan --starter one of the bundled models"
    )


def damaged_fingerprint(key: str, place: str) -> FormatError:
    """Return the error for a fingerprint that is not the one that its key names."""
    said = f"{place}: the fingerprint of {key[:12]}… is damaged: its SHA-256 is not the entry's key"
    return FormatError(said, hint="remove the entry and add the model again; kinprint catalog check looks at all")


def other_recall(stored: str, own: int, place: str) -> SchemaError:
    """Return the error for recall vectors of another version, which must not be mixed with ours."""
    said = f"{place}: its recall vectors are of version {stored[:20]}, and this program makes {own}"
    return SchemaError(said, hint="kinprint catalog reindex makes them anew from the stored fingerprints")


def numbers_of(catalog: Catalog, *, fingerprint_bytes: int, stored_bytes: int) -> Stats:
    """Count a catalog's entries by architecture and licence, beside what its store knows of sizes.

    A damaged one counts as an entry, and of no architecture or licence.
    """
    architectures: Counter[str] = Counter()
    licences: Counter[str] = Counter()
    for entry in catalog.entries():
        architectures[entry.architecture] += 1
        licences[entry.licence or ""] += 1
    return Stats(
        place=catalog.place,
        entries=catalog.count(),
        failures=len(catalog.failures()),
        fingerprint_bytes=fingerprint_bytes,
        stored_bytes=stored_bytes,
        recall_version=catalog.recall_version,
        families=tuple(catalog.families()),
        architectures=tuple(architectures.most_common()),
        licences=tuple(licences.most_common()),
    )
