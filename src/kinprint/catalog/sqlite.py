"""A catalog in one SQLite file: records, fingerprints and recall vectors; a side file of arrays makes recall fast.

A rollback journal, not a write-ahead log: between two writes the catalog is one file that can be copied, and a folder
without write permission will do.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import numpy as np

from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint.catalog.arrays import Ids, Part, joined_part, nearest_rows, part_of, positions
from kinprint.catalog.checking import check_stored, fresh_vectors
from kinprint.catalog.entry import (
    RECORD_CAP,
    Candidate,
    Failure,
    Item,
    Problem,
    Stats,
    Stored,
    Vectors,
    as_bytes,
    check_item,
    check_name,
    key_of,
    packed,
    seal,
    stored_row,
    to_record,
    width_mark,
)
from kinprint.catalog.file import APPLICATION, DAMAGED, PATH_CHARS, SCHEMA, SIDE, VERSION, prepare_place, told
from kinprint.catalog.side_file import BLOCK, SideFile, ids_near, read_side_file, write_side_file
from kinprint.catalog.store import Catalog, ambiguous, damaged_fingerprint, not_there, numbers_of, other_recall
from kinprint.errors import FormatError, KinprintError, SchemaError, StorageError
from kinprint.fingerprints.file import FILE_CAP
from kinprint.fingerprints.recall import FAMILIES, RECALL_VERSION
from kinprint.text import Text

_STORED = "key, name, revision, record"  # columns of an entry, as `Stored` has them
_WAIT_S = 60.0  # for another process that writes; one import of a large catalog takes seconds
_TAIL = 8192  # entries beyond the side file that are read from the database; more of them make a new side file


class SqliteCatalog(Catalog):
    """A catalog in a file."""

    def __init__(self, path: Path, *, read_only: bool = False, make: bool = True, wait_s: float = _WAIT_S) -> None:
        self.path, self.read_only = path, read_only
        self.place = printable(str(path), PATH_CHARS)
        self._side: SideFile | None = None
        self._tail: dict[str, Part] = {}
        self._tail_last = 0
        self._grown = False
        prepare_place(path, make=make and not read_only)
        with self._telling():
            self._db = self._connect(wait_s)
        try:
            with self._telling():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        # A reader, too, opens for writing where it may: what a killed writer left half done can be undone by it.
        there = os.path.exists(self.path)  # noqa: PTH110 - a name may be longer than any file's
        may_write = not there or os.access(self.path, os.W_OK)
        mode = "ro" if self.read_only and not may_write else "rw" if there else "rwc"
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        opened = sqlite3.connect(address, uri=True, timeout=wait_s, isolation_level=None)
        # A file may be a stranger's: nothing in its schema is run, and no value is larger than ours can be.
        opened.text_factory = lambda raw: raw.decode("utf-8", "replace")  # of a damaged file; what differs is named
        opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, FILE_CAP + RECORD_CAP)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "foreign_keys=ON", "synchronous=FULL"):
            opened.execute(f"PRAGMA {pragma}")
        return opened

    def _prepare(self) -> None:
        if not self.read_only and self._pragma("user_version") == 0 and not self._tables():
            with self._writing():
                if not self._tables():  # another process may have been faster
                    self._create()
        self._require_ours()
        if self.read_only:
            self._db.execute("PRAGMA query_only=ON")

    def _create(self) -> None:
        for statement in SCHEMA.values():
            self._db.execute(statement)
        self._db.execute("INSERT INTO about VALUES ('recall_version', ?)", (str(RECALL_VERSION),))
        self._db.execute(f"PRAGMA application_id={APPLICATION}")
        self._db.execute(f"PRAGMA user_version={VERSION}")

    def _require_ours(self) -> None:
        hint = "name another file with --catalog; kinprint catalog add makes it"
        if self._pragma("application_id") != APPLICATION:
            raise FormatError(f"{self.place} is not a catalog of kinprint", hint=hint)
        version = self._pragma("user_version")
        if version > VERSION:
            said = f"{self.place} is a catalog of version {version}; this program knows up to {VERSION}"
            raise SchemaError(said, hint="use the newer kinprint that wrote it")
        if self._tables() != SCHEMA:
            said = f"{self.place}: its tables are not those of a catalog of version {version}"
            raise FormatError(said, hint="restore it from an export; do not open a stranger's file, import it")

    def _tables(self) -> dict[str, str]:
        rows = self._db.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
        return dict(rows.fetchall())

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what the database's errors mean, and what to do."""
        try:
            yield
        except UnicodeDecodeError as error:  # of names in a damaged schema, which the library's message repeats
            raise FormatError(f"{self.place}: what it says of its tables is no text", hint=DAMAGED) from error
        except sqlite3.Error as error:
            raise told(error, self.place) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the write lock: all that happens inside is kept together, or not at all."""
        if self.read_only:
            raise StorageError(f"{self.place} was opened for reading only", hint="open it for writing")
        with self._telling():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk ends the transaction by itself
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _all(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with self._telling():
            return self._db.execute(query, values).fetchall()

    def _about(self, name: str) -> str:
        rows = self._all("SELECT value FROM about WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def add_all(self, items: Iterable[Item], *, replace: bool = False) -> int:
        """Store many models in one transaction."""
        with self._writing():
            self._require_recall()
            added = sum(self._put(item, replace) for item in items)
        self._grown |= added > 0
        return added

    def _put(self, item: Item, replace: bool) -> bool:
        entry, key = item.entry, item.entry.key
        check_item(item, entry.name)
        same = (entry.name, entry.revision or "")
        standing = self._db.execute("SELECT id FROM entries WHERE (name, revision) = (?, ?) OR key = ?", (*same, key))
        old = [row[0] for row in standing]
        if old and not replace:
            return False
        for number in old:
            self._drop(number)
        record = to_record(entry)
        row = (key, *same, record, seal(record, item.vectors))
        number = self._db.execute(
            "INSERT INTO entries (key, name, revision, record, seal) VALUES (?, ?, ?, ?, ?)", row
        ).lastrowid
        self._db.execute("INSERT INTO fingerprints VALUES (?, ?)", (number, item.fingerprint))
        self._put_vectors(number, item.vectors)
        self._db.execute("DELETE FROM failures WHERE name = ? AND revision IN (?, '')", same)
        return True

    def _put_vectors(self, number: int | None, vectors: Vectors) -> None:
        rows = [(family, number, packed(vector)) for family, vector in vectors.items()]
        self._db.executemany("INSERT INTO vectors VALUES (?, ?, ?)", rows)

    def _drop(self, number: int) -> None:
        for table in ("vectors", "fingerprints", "entries"):
            self._db.execute(f"DELETE FROM {table} WHERE id = ?", (number,))  # noqa: S608 - the names are ours
        self._db.execute("INSERT OR IGNORE INTO gone VALUES (?)", (number,))

    def fail(self, failure: Failure) -> None:
        """Note a model that could not be entered."""
        check_name(failure.name, failure.revision, "a failure")
        row = (failure.name, failure.revision or "", failure.error, failure.added)
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", row)

    def forget(self, name: str, revision: str | None = None) -> None:
        """Delete what is noted of a name."""
        with self._writing():
            self._db.execute("DELETE FROM failures WHERE name = ? AND revision IN (?, '')", (name, revision or ""))

    def failures(self) -> list[Failure]:
        """Return what is noted."""
        rows = self._all("SELECT name, revision, error, added FROM failures ORDER BY name, revision")
        return [
            Failure(str(name), str(revision) or None, str(error), str(added)) for name, revision, error, added in rows
        ]

    def all_stored(self, contains: str = "") -> Iterator[Stored]:
        """Yield what is stored of entries, in the order they were added."""
        last = 0
        while True:  # in pages: no reader may keep a writer waiting for as long as somebody looks at a list
            rows = self._all(f"SELECT {_STORED}, id FROM entries WHERE id > ? ORDER BY id LIMIT 1000", last)  # noqa: S608
            if not rows:
                return
            for row in rows:
                last = int(str(row[4]))
                if contains.lower() in str(row[1]).lower():
                    yield stored_row(row)

    def count(self) -> int:
        """Return the number of entries."""
        return int(str(self._all("SELECT count(*) FROM entries")[0][0]))

    def stored_as(self, key: str) -> Stored:
        """Return what is stored of an entry, by its key or by how that begins."""
        rows = self._all(f"SELECT {_STORED} FROM entries WHERE key >= ? AND key < ? LIMIT 3", key, key + "g")  # noqa: S608
        if not rows:
            raise not_there(key, self.place)
        if len(rows) > 1:
            raise ambiguous(key, [str(row[0]) for row in rows])
        return stored_row(rows[0])

    def stored(self, name: str, revision: str | None = None, *, any_case: bool = False) -> Stored | None:
        """Return what is stored of a name and revision, or of the newest of a name."""
        newest = f"SELECT {_STORED} FROM entries WHERE {{}} ORDER BY id DESC LIMIT 1"  # noqa: S608
        wanted, values = ("name = ? AND revision = ?", (name, revision)) if revision else ("name = ?", (name,))
        rows = self._all(newest.format(wanted), *values)
        if any_case and not rows:  # no index helps here: all names are read
            rows = self._all(newest.format("name = ? COLLATE NOCASE"), name)
        return stored_row(rows[0]) if rows else None

    def fingerprint(self, key: str) -> bytes:
        """Return a fingerprint file."""
        number = self._id(key)
        rows = self._all("SELECT data FROM fingerprints WHERE id = ?", number)
        data = as_bytes(rows[0][0]) if rows else b""
        if key_of(data) != key:
            raise damaged_fingerprint(key, self.place)
        return data

    def _id(self, key: str) -> int:
        rows = self._all("SELECT id FROM entries WHERE key = ?", key)
        if not rows:
            raise not_there(key, self.place)
        return int(str(rows[0][0]))

    def remove(self, key: str) -> None:
        """Delete an entry."""
        with self._writing():
            self._drop(self._id(key))

    def nearest(self, vectors: Vectors, k: int, *, exclude: Collection[str] = ()) -> list[Candidate]:
        """Return the k nearest of each family, exactly."""
        self._require_recall()
        self._load_arrays()
        skipped = self._skipped(exclude)
        found: list[Candidate] = []
        for family, vector in vectors.items():
            query = np.ascontiguousarray(vector, np.float32)
            parts = [self._tail[family]] if family in self._tail else []
            if self._side is not None:
                parts.append(self._stored(family, ids_near(self._side.families.get(family, ()), query, k, skipped)))
            best = [pair for part in parts for pair in nearest_rows(part, query, k, skipped)]
            best.sort(key=lambda pair: (-pair[0], pair[1]))
            keys = self._keys([number for _, number in best[:k]])
            found += [Candidate(keys[number], family, cosine) for cosine, number in best[:k] if number in keys]
        return found

    def _stored(self, family: str, ids: Ids) -> Part:
        """Return the vectors of some entries; of those that went meanwhile none."""
        wanted = "SELECT id, data FROM vectors WHERE family = ? AND id = ? AND typeof(data) = 'blob'"
        rows = (row for number in np.sort(ids).tolist() for row in self._all(wanted, family, number))
        return part_of(((int(str(number)), as_bytes(data)) for number, data in rows), FAMILIES[family])

    def _skipped(self, exclude: Collection[str]) -> Ids:
        gone = [int(str(row[0])) for row in self._all("SELECT id FROM gone")]
        for key in exclude:
            gone += [int(str(row[0])) for row in self._all("SELECT id FROM entries WHERE key = ?", key)]
        return np.array(gone, np.int64)

    def _keys(self, numbers: Collection[int]) -> dict[int, str]:
        found = {}
        for number in numbers:
            for row in self._all("SELECT key FROM entries WHERE id = ?", number):
                found[number] = str(row[0])
        return found

    def _require_recall(self) -> None:
        stored = self._about("recall_version")
        if stored != str(RECALL_VERSION):
            raise other_recall(stored, RECALL_VERSION, self.place)

    def _load_arrays(self) -> None:
        """Open the side file that the database knows, or make one if many entries are beyond it; read the others."""
        for _ in range(2):  # another process may put a new one there between looking and opening
            token = self._about("side_file")
            if self._side is None or self._side.token != token:
                self._side, self._tail, self._tail_last = read_side_file(self._side_path, token), {}, 0
            if self._side is not None or not token:
                break
        covered = self._side.last_id if self._side else 0
        beyond = int(str(self._all("SELECT count(*) FROM entries WHERE id > ?", covered)[0][0]))
        rows = sum(self._side.count(family, np.empty(0, np.int64)) for family in FAMILIES) if self._side else 0
        if beyond > max(_TAIL, rows // 8) and not self.read_only and os.access(self.path.parent, os.W_OK):
            self._make_side_file()
            covered = self._side.last_id if self._side else 0
        self._read_tail(max(covered, self._tail_last))

    def _read_tail(self, after: int) -> None:
        last = after
        for family, width in FAMILIES.items():
            found = part_of(self._vectors(family, after), width)
            if found.ids.size:
                own = [self._tail[family]] if family in self._tail else []
                self._tail[family] = joined_part([*own, found], width)
                last = max(last, int(found.ids[-1]))
        self._tail_last = last

    def _vectors(self, family: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        with self._telling():
            # a column may hold any type, whatever its schema says
            query = (
                "SELECT id, data FROM vectors WHERE family = ? AND id > ?"
                " AND typeof(id) = 'integer' AND typeof(data) = 'blob' ORDER BY id"
            )
            yield from self._db.execute(query, (family, after))

    @property
    def _side_path(self) -> Path:
        return self.path.with_name(self.path.name + SIDE)

    def _make_side_file(self) -> None:
        """Write all vectors into arrays beside the catalog, under the write lock: file and token change together."""
        self._side, self._tail, self._tail_last = None, {}, 0
        try:
            with self._writing():
                last = int(str(self._all("SELECT coalesce(max(id), 0) FROM entries")[0][0]))
                token = write_side_file(self._side_path, last, {family: self._parts(family) for family in FAMILIES})
                self._db.execute("INSERT OR REPLACE INTO about VALUES ('side_file', ?)", (token,))
        except StorageError:  # a full disk, a busy catalog: recall works without, from the database
            return
        self._side = read_side_file(self._side_path, token)

    def _parts(self, family: str) -> Iterator[Part]:
        """Yield all vectors of a family in parts of BLOCK, the last of fewer."""
        held = part_of((), FAMILIES[family])
        rows = self._vectors(family)
        while batch := list(islice(rows, BLOCK)):
            held = joined_part([held, part_of(batch, FAMILIES[family])], FAMILIES[family])
            if held.ids.size >= BLOCK:
                yield Part(held.ids[:BLOCK], held.rows[:BLOCK])
                held = Part(held.ids[BLOCK:], held.rows[BLOCK:])
        if held.ids.size:
            yield held

    def reindex(self, tell: Progress = quiet) -> tuple[int, list[Problem]]:
        """Compute all recall vectors anew."""
        done, problems = 0, list[Problem]()
        with self._writing():
            numbers = self._numbers()  # of what no other process adds to or removes from now on
            self._db.execute("DELETE FROM vectors")
            for at, number in enumerate(numbers):
                tell("recall vectors", at, len(numbers))
                stored = "SELECT key, name, data, record FROM entries LEFT JOIN fingerprints USING (id) WHERE id = ?"
                key, name, data, record = self._db.execute(stored, (number,)).fetchone()
                vectors = fresh_vectors(key, name, data, problems)
                self._put_vectors(number, vectors)
                sealed = seal(as_bytes(record), vectors)
                self._db.execute("UPDATE entries SET seal = ? WHERE id = ?", (sealed, number))
                done += bool(vectors)
            self._db.execute("INSERT OR REPLACE INTO about VALUES ('recall_version', ?)", (str(RECALL_VERSION),))
            self._db.execute("INSERT OR REPLACE INTO about VALUES ('side_file', ?)", (secrets.token_hex(8),))
        self._side, self._tail, self._tail_last = None, {}, 0
        return done, problems

    def _numbers(self) -> list[int]:
        return [int(str(row[0])) for row in self._all("SELECT id FROM entries ORDER BY id")]

    def has_width(self, hidden: int, *, besides: Collection[str] = ()) -> bool:
        """Whether any other entry is of a width."""
        rows = self._all("SELECT key FROM entries WHERE instr(record, ?) LIMIT ?", width_mark(hidden), len(besides) + 1)
        return any(str(row[0]) not in besides for row in rows)

    def lacking(self, families: Sequence[str], count: int, *, besides: Collection[str] = ()) -> tuple[int, list[str]]:
        """Return how many other entries have a recall vector of none of these families that can be used, and the first."""
        self._load_arrays()
        ids = [self._tail[family].ids for family in families if family in self._tail]
        blocks = self._side.families if self._side is not None else {}
        ids += [block.ids for family in families for block in blocks.get(family, ())]
        others = np.setdiff1d(np.concatenate([*ids, self._skipped(besides)]), self._skipped(()))
        left = max(0, self.count() - others.size)
        with self._telling():
            rows = self._db.execute("SELECT id, name FROM entries ORDER BY id")
            beside = (str(name) for number, name in rows if not positions(others, np.array([number])).size)
            return left, list(islice(beside, min(count, left)))

    def stats(self) -> Stats:
        """Return what the catalog holds, in numbers."""
        size = self._all("SELECT coalesce(sum(length(data)), 0) FROM fingerprints")[0][0]
        return numbers_of(self, fingerprint_bytes=int(str(size)), stored_bytes=self.path.stat().st_size)

    def families(self) -> list[tuple[str, int]]:
        """Return for every family of recall vectors how many entries have one."""
        if self.recall_version != RECALL_VERSION:
            counts = self._all("SELECT family, count(*) FROM vectors GROUP BY family ORDER BY family")
            return [(str(family), int(str(count))) for family, count in counts]
        # Arrays know it: of a million entries the table is a gigabyte, read whole; and it does not know which vectors are sound.
        self._load_arrays()
        gone, found = self._skipped(()), {}
        for family in sorted(FAMILIES):
            beyond = self._tail[family].ids if family in self._tail else np.empty(0, np.int64)
            stored = self._side.count(family, gone) if self._side is not None else 0
            found[family] = stored + beyond.size - positions(beyond, gone).size
        return [(family, count) for family, count in found.items() if count]

    @property
    def recall_version(self) -> int:
        """The version of the recall vectors stored."""
        stored = self._about("recall_version")[:9]  # which may hold anything
        return int(stored) if stored.isdecimal() else 0

    def index(self, tell: Progress = quiet) -> None:
        """Write the vectors into arrays beside the catalog; a small one is read from the database."""
        tell("arrays", 0, 1)
        self._require_recall()
        if self.count() > _TAIL:
            self._make_side_file()

    def check(self, tell: Progress = quiet) -> Iterator[Problem]:
        """Read everything and yield what is damaged."""
        yield from self._structure()
        try:
            numbers = self._numbers()
        except FormatError as error:
            yield Problem(None, None, Text("the list of entries cannot be read: {why}", why=error.message), file=True)
            return
        for at, number in enumerate(numbers):
            tell("entries", at, len(numbers))
            yield from self._check_one(number)
        tell("entries", len(numbers), len(numbers))
        token = self._about("side_file")
        side = read_side_file(self._side_path, token) if token else None
        if side is not None and not side.sound():
            yield Problem(
                None, None, Text("the side file {name} is damaged; delete it", name=printable(self._side_path.name))
            )

    def _structure(self) -> Iterator[Problem]:
        """Yield what SQLite itself finds wrong with its pages."""
        try:
            rows = self._all("PRAGMA integrity_check(20)")
        except FormatError as error:
            rows = [(error.message,)]
        for line in (line for (said,) in rows for line in str(said).splitlines()):
            if line != "ok" and not line.startswith("***"):  # of several lines the first names the database
                yield Problem(None, None, Text("the file is damaged: {said}", said=printable(line, 300)), file=True)

    def _check_one(self, number: int) -> Iterator[Problem]:
        """Hold one entry against its digests; each part is read by itself, as a damaged page may hold any of them."""

        def read(query: str) -> list[tuple[object, ...]]:
            return self._all(query, number)

        yield from check_stored(
            lambda: _first(read, "SELECT key, name, revision, record, seal FROM entries WHERE id = ?"),
            lambda: _first(read, "SELECT data FROM fingerprints WHERE id = ?"),
            lambda: read("SELECT family, data FROM vectors WHERE id = ? ORDER BY family"),
            number,
        )

    def close(self) -> None:
        """Close the file; where many were added, the side file is made for those who search, and may not be able to write."""
        if self._grown:
            with suppress(KinprintError):
                self._load_arrays()
        self._side, self._tail = None, {}
        self._db.close()


def _first(read: Callable[[str], list[tuple[object, ...]]], query: str) -> tuple[object, ...]:
    rows = read(query)
    return rows[0] if rows else ()
