"""A catalog in PostgreSQL with pgvector, shared by many users: the same promises as the file's, kept by its transactions.

Everything stands in the schema ``kinprint`` of the database that the address names. Who may only read needs USAGE of the schema and
SELECT on its tables. An address may hold a password: no message, log or repr repeats more of it than host, port and database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from kinprint._util.cores import on_all_cores
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint.catalog.addresses import shown_address
from kinprint.catalog.checking import check_stored, fresh_vectors
from kinprint.catalog.connecting import connected
from kinprint.catalog.entry import (
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
    to_record,
    width_mark,
)
from kinprint.catalog.store import (
    Catalog,
    ambiguous,
    damaged_fingerprint,
    no_catalog,
    not_there,
    numbers_of,
    other_recall,
)
from kinprint.errors import (
    AccessDenied,
    FormatError,
    KinprintError,
    SchemaError,
    StorageError,
    TransferError,
    imported,
)
from kinprint.fingerprints.recall import FAMILIES, RECALL_VERSION

_TABLES = """
CREATE TABLE kinprint.entries (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL UNIQUE, name text NOT NULL,
  revision text NOT NULL, record bytea NOT NULL, seal text NOT NULL, UNIQUE (name, revision));
CREATE TABLE kinprint.fingerprints (id bigint PRIMARY KEY REFERENCES kinprint.entries ON DELETE CASCADE, data bytea NOT NULL);
ALTER TABLE kinprint.fingerprints ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE kinprint.failures (name text NOT NULL, revision text NOT NULL, error text NOT NULL, added text NOT NULL,
  PRIMARY KEY (name, revision));
"""
# Steps from version to version, each once and in this order; one that was published is never changed, a new one is added.
MIGRATIONS: tuple[str, ...] = (_TABLES,)
_STORED = "key, name, revision, record"  # columns of an entry, as `Stored` has them
_LOCK = 0x6B696E70  # number of the advisory lock under which tables are made or changed
_LEAST_INDEXED = 20_000  # entries: below, reading all vectors takes milliseconds and finds every one of them
_INDEX_MEMORY = (
    "1GB"  # for finding the centres of a thousand lists; the server's default of 64 MB does for 20,000 entries
)
_LISTS = 1.5  # times the root of the number of entries: finer lists are searched faster, and take longer to make
_PROBES_SHARE = 0.03  # of the lists that a search looks through


_NEAR = "SELECT '{family}' AS family, id, v <#> %s::vector AS d FROM kinprint.recall_{family} ORDER BY v <#> %s::vector LIMIT %s"


class PostgresCatalog(Catalog):
    """A catalog in a database."""

    def __init__(self, address: str, *, read_only: bool = False, make: bool = True) -> None:
        self.place, self.read_only = shown_address(address), read_only
        self._psycopg: Any = imported("psycopg", "a catalog in PostgreSQL", extra="postgres")
        self._db = connected(address)
        self._connect: Callable[[], Any] | None = partial(connected, address)  # to a second connection, tried once
        self._lookers: list[Any] = [self._db]  # connections on which families are searched side by side
        self._probes: dict[Any, str] = {}  # lists that a search on each of them looks through, as last set
        try:
            with self._telling():
                self._prepare(make)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, make: bool) -> None:
        version = self._version()
        if version < len(MIGRATIONS) and not self.read_only and (make or version):
            self._migrate()
            version = self._version()
        if version == 0:
            raise no_catalog(f"in {self.place}", " --catalog …")
        if version != len(MIGRATIONS):
            said = f"{self.place} is a catalog of version {version}; this program knows {len(MIGRATIONS)}"
            hint = "use the newer kinprint that wrote it" if version > len(MIGRATIONS) else "open it for writing once"
            raise SchemaError(said, hint=hint)
        if self.read_only:
            self._db.execute("SET default_transaction_read_only = on")

    def _version(self) -> int:
        there = self._db.execute("SELECT to_regclass('kinprint.about')").fetchone()
        return int(self._about("version") or 0) if there and there[0] else 0

    def _migrate(self) -> None:
        """Make the tables, or bring them up to this version; one process does it while others wait."""
        # Locked before the transaction begins: inside it, what another process made meanwhile would not be seen.
        self._db.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            with self._db.transaction():
                if self._version() == 0:
                    self._create()
                for number in range(self._version(), len(MIGRATIONS)):
                    self._db.execute(MIGRATIONS[number])
                    self._tell("version", str(number + 1))
        finally:
            self._db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    def _create(self) -> None:
        try:
            with self._db.transaction():
                self._db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except self._psycopg.Error as error:
            said = f"{self.place} has no extension vector (pgvector), and this user cannot make it"
            raise StorageError(said, hint="as its owner: CREATE EXTENSION vector") from error
        self._db.execute("CREATE SCHEMA IF NOT EXISTS kinprint")
        self._db.execute("CREATE TABLE kinprint.about (name text PRIMARY KEY, value text NOT NULL)")
        for family, width in FAMILIES.items():
            self._create_recall(family, width)
        self._tell("recall_version", str(RECALL_VERSION))

    def _create_recall(self, family: str, width: int) -> None:
        self._db.execute(f"CREATE TABLE kinprint.recall_{family} (id bigint PRIMARY KEY, v vector({width}) NOT NULL)")

    def _empty_recall(self, family: str, width: int) -> None:
        """Empty the table of a family, or make it; one that is there stays, and with it what its readers may."""
        table = f"kinprint.recall_{family}"
        if self._all("SELECT to_regclass(%s)", table)[0][0] is None:
            self._create_recall(family, width)
            return
        self._db.execute(f"DROP INDEX IF EXISTS kinprint.lists_{family}")
        self._db.execute(f"TRUNCATE {table}")
        self._db.execute(f"ALTER TABLE {table} ALTER COLUMN v TYPE vector({width})")

    def _tell(self, name: str, value: str) -> None:
        self._db.execute(
            "INSERT INTO kinprint.about VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def _about(self, name: str) -> str:
        rows = self._all("SELECT value FROM kinprint.about WHERE name = %s", name)
        return str(rows[0][0]) if rows else ""

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what the database's errors mean, and what to do."""
        errors = self._psycopg.errors
        try:
            yield
        except errors.InsufficientPrivilege as error:
            said = f"{self.place}: this user may not do that: {self._said(error)}"
            raise AccessDenied(said, hint="ask the owner of the catalog for the right, or only read it") from error
        except (errors.DiskFull, errors.OutOfMemory, errors.ReadOnlySqlTransaction) as error:
            raise StorageError(f"{self.place}: {self._said(error)}", hint="ask who runs the server") from error
        except (errors.DataCorrupted, errors.IndexCorrupted) as error:
            raise FormatError(f"{self.place}: {self._said(error)}", hint="restore it from an export") from error
        except self._psycopg.Error as error:
            said = f"{self.place}: {self._said(error)}"
            hint = "what was confirmed is stored, the rest is not: try again when the server is back"
            raise TransferError(said, hint=hint) from error

    def _said(self, error: Any) -> str:
        """Return what the server says of a statement; of a connection that broke, no word of the library's."""
        said = error.diag.message_primary if getattr(error, "diag", None) else None
        return printable(str(said), 300) if said else "the connection to the server was lost"

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._telling():
            rows: list[tuple[Any, ...]] = self._db.execute(query, values).fetchall()
            return rows

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self.read_only:
            raise StorageError(f"{self.place} was opened for reading only", hint="open it for writing")
        with self._telling(), self._db.transaction():
            yield

    def add_all(self, items: Iterable[Item], *, replace: bool = False) -> int:
        """Store many models in one transaction."""
        with self._writing():
            self._require_recall(self._about("recall_version"))
            return sum(self._put(item, replace) for item in items)

    def _put(self, item: Item, replace: bool) -> bool:
        entry, key = item.entry, item.entry.key
        check_item(item, entry.name)
        same = (entry.name, entry.revision or "")
        record = to_record(entry)
        if replace:
            old = self._db.execute(
                "SELECT id FROM kinprint.entries WHERE (name, revision) = (%s, %s) OR key = %s FOR UPDATE", (*same, key)
            ).fetchall()
            for (number,) in old:
                self._drop(number)
        made = self._db.execute(
            "INSERT INTO kinprint.entries (key, name, revision, record, seal) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING RETURNING id",
            (key, *same, record, seal(record, item.vectors)),
        ).fetchone()
        if made is None:  # there already, or another process has just entered it
            return False
        self._db.execute("INSERT INTO kinprint.fingerprints VALUES (%s, %s)", (made[0], item.fingerprint))
        self._put_vectors(made[0], item.vectors)
        self._db.execute("DELETE FROM kinprint.failures WHERE name = %s AND revision IN (%s, '')", same)
        return True

    def _put_vectors(self, number: int, vectors: Vectors) -> None:
        for family, vector in vectors.items():
            self._db.execute(
                f"INSERT INTO kinprint.recall_{family} VALUES (%s, %s::vector)",  # noqa: S608 - a family's name is ours
                (number, _literal(vector)),
            )

    def _drop(self, number: int) -> None:
        for family in FAMILIES:
            self._db.execute(f"DELETE FROM kinprint.recall_{family} WHERE id = %s", (number,))  # noqa: S608
        self._db.execute("DELETE FROM kinprint.entries WHERE id = %s", (number,))

    def fail(self, failure: Failure) -> None:
        """Note a model that could not be entered."""
        check_name(failure.name, failure.revision, "a failure")
        row = (failure.name, failure.revision or "", failure.error.replace("\0", ""), failure.added)
        with self._writing():
            self._db.execute(
                "INSERT INTO kinprint.failures VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name, revision) DO UPDATE SET error = excluded.error, added = excluded.added",
                row,
            )

    def forget(self, name: str, revision: str | None = None) -> None:
        """Delete what is noted of a name."""
        with self._writing():
            wanted = "DELETE FROM kinprint.failures WHERE name = %s AND revision IN (%s, '')"
            self._db.execute(wanted, (name, revision or ""))

    def failures(self) -> list[Failure]:
        """Return what is noted."""
        order = 'ORDER BY name COLLATE "C", revision COLLATE "C"'
        rows = self._all(f"SELECT name, revision, error, added FROM kinprint.failures {order}")  # noqa: S608
        return [Failure(name, revision or None, error, added) for name, revision, error, added in rows]

    def all_stored(self, contains: str = "") -> Iterator[Stored]:
        """Yield what is stored of entries, in the order they were added."""
        last = 0
        wanted = "id > %s AND position(lower(%s) in lower(name)) > 0"
        while True:
            rows = self._all(
                f"SELECT {_STORED}, id FROM kinprint.entries WHERE {wanted} ORDER BY id LIMIT 1000",  # noqa: S608
                last,
                contains.replace("\0", "\N{REPLACEMENT CHARACTER}"),
            )
            if not rows:
                return
            yield from (Stored(*row[:4]) for row in rows)
            last = rows[-1][4]

    def count(self) -> int:
        """Return the number of entries."""
        return int(self._all("SELECT count(*) FROM kinprint.entries")[0][0])

    def stored_as(self, key: str) -> Stored:
        """Return what is stored of an entry, by its key or by how that begins."""
        wanted = f"SELECT {_STORED} FROM kinprint.entries WHERE starts_with(key, %s) LIMIT 3"  # noqa: S608
        rows = self._all(wanted, key.replace("\0", "?"))
        if not rows:
            raise not_there(key, self.place)
        if len(rows) > 1:
            raise ambiguous(key, [row[0] for row in rows])
        return Stored(*rows[0])

    def stored(self, name: str, revision: str | None = None, *, any_case: bool = False) -> Stored | None:
        """Return what is stored of a name and revision, or of the newest of a name."""
        newest = f"SELECT {_STORED} FROM kinprint.entries WHERE {{}} AND (%s::text IS NULL OR revision = %s) ORDER BY id DESC"  # noqa: S608
        values = name.replace("\0", "?"), revision, revision
        rows = self._all(f"{newest} LIMIT 1".format("name = %s"), *values)
        if any_case and not rows:  # no index helps here: all names are read
            rows = self._all(f"{newest} LIMIT 1".format("lower(name) = lower(%s)"), *values)
        return Stored(*rows[0]) if rows else None

    def fingerprint(self, key: str) -> bytes:
        """Return a fingerprint file."""
        rows = self._all("SELECT data FROM kinprint.fingerprints WHERE id = %s", self._id(key))
        data = as_bytes(rows[0][0]) if rows else b""
        if key_of(data) != key:
            raise damaged_fingerprint(key, self.place)
        return data

    def _id(self, key: str) -> int:
        rows = self._all("SELECT id FROM kinprint.entries WHERE key = %s", key)
        if not rows:
            raise not_there(key, self.place)
        return int(rows[0][0])

    def remove(self, key: str) -> None:
        """Delete an entry."""
        with self._writing():
            self._drop(self._id(key))

    def nearest(self, vectors: Vectors, k: int, *, exclude: Collection[str] = ()) -> list[Candidate]:
        """Return the k nearest of each family: exactly, or in a catalog that was indexed by its lists, nearly so."""
        about = dict(self._all("SELECT name, value FROM kinprint.about"))
        self._require_recall(about.get("recall_version", ""))
        if not vectors:
            return []
        hidden, probes = set(exclude), about.get("probes", "1")
        if probes != "1" and self._connect is not None:
            connect, self._connect = self._connect, None
            with suppress(KinprintError):  # a server that has no connection left is searched by the one there is
                self._lookers.append(connect())
        queries = [(family, _literal(np.ascontiguousarray(vector, np.float32))) for family, vector in vectors.items()]
        each = len(self._lookers)
        shares = [(db, queries[place::each]) for place, db in enumerate(self._lookers[: len(queries)])]
        with self._telling():
            parts = on_all_cores(lambda share: self._near(*share, probes, k + len(hidden)), shares)
        rows = [row for part in parts for row in part]
        found: list[Candidate] = []
        for family in vectors:
            near = sorted((-cosine, number, key) for own, cosine, number, key in rows if own == family)
            shown = [Candidate(key, family, -d) for d, _, key in near if key not in hidden]
            found += shown[:k]
        return found

    @property
    def recall_is_exact(self) -> bool:
        """Whether there are no lists."""
        return not self._about("probes")

    def _near(self, db: Any, queries: Sequence[tuple[str, str]], probes: str, k: int) -> list[tuple[Any, ...]]:
        """Return family, cosine, number and key of the entries nearest to some queries, by one connection."""
        if self._probes.get(db) != probes:
            db.execute("SELECT set_config('ivfflat.probes', %s, false)", (probes,))
            self._probes[db] = probes
        # One question for several families: a round trip and a plan for each would take longer than the search itself.
        asked = " UNION ALL ".join(f"({_NEAR.format(family=family)})" for family, _ in queries)
        values = [value for _, vector in queries for value in (vector, vector, k)]
        found: list[tuple[Any, ...]] = db.execute(
            f"SELECT family, -d, id, key FROM ({asked}) near JOIN kinprint.entries USING (id)",  # noqa: S608
            values,
        ).fetchall()
        return found

    def _require_recall(self, stored: str) -> None:
        if stored != str(RECALL_VERSION):
            raise other_recall(stored, RECALL_VERSION, self.place)

    def reindex(self, tell: Progress = quiet) -> tuple[int, list[Problem]]:
        """Compute all recall vectors anew, and the lists that make a search fast."""
        done, problems = 0, list[Problem]()
        with self._writing():
            self._db.execute("LOCK TABLE kinprint.entries IN SHARE ROW EXCLUSIVE MODE")
            numbers = [row[0] for row in self._db.execute("SELECT id FROM kinprint.entries ORDER BY id").fetchall()]
            for family, width in FAMILIES.items():
                self._empty_recall(family, width)
            for at, number in enumerate(numbers):
                tell("recall vectors", at, len(numbers))
                stored = (
                    "SELECT key, name, data, record FROM kinprint.entries LEFT JOIN kinprint.fingerprints USING (id)"
                )
                key, name, data, record = self._db.execute(f"{stored} WHERE id = %s", (number,)).fetchall()[0]
                vectors = fresh_vectors(key, name, data, problems)
                self._put_vectors(number, vectors)
                sealed = seal(as_bytes(record), vectors)
                self._db.execute("UPDATE kinprint.entries SET seal = %s WHERE id = %s", (sealed, number))
                done += bool(vectors)
            self._tell("recall_version", str(RECALL_VERSION))
        self.index(tell)
        return done, problems

    def index(self, tell: Progress = quiet) -> None:
        """Sort the vectors into lists (IVFFlat) around centres of this catalog's own; a small catalog is searched without."""
        count = self.count()
        with self._writing():
            self._db.execute(f"SET LOCAL maintenance_work_mem = '{_INDEX_MEMORY}'")
            for at, family in enumerate(FAMILIES):
                tell("lists", at, len(FAMILIES))
                self._db.execute(f"DROP INDEX IF EXISTS kinprint.lists_{family}")
                if count >= _LEAST_INDEXED:
                    lists = max(1, round(_LISTS * count**0.5))
                    statement = (
                        f"CREATE INDEX lists_{family} ON kinprint.recall_{family} USING ivfflat (v vector_ip_ops)"
                        f" WITH (lists = {lists})"
                    )
                    self._db.execute(statement)
                    self._tell("probes", str(max(1, round(_PROBES_SHARE * lists))))
            if count < _LEAST_INDEXED:
                self._db.execute("DELETE FROM kinprint.about WHERE name = 'probes'")

    def has_width(self, hidden: int, *, besides: Collection[str] = ()) -> bool:
        """Whether any other entry is of a width."""
        wanted = (
            "SELECT 1 FROM kinprint.entries WHERE position(%s::bytea in record) > 0 AND key <> ALL(%s::text[]) LIMIT 1"
        )
        return bool(self._all(wanted, width_mark(hidden), list(besides)))

    def lacking(self, families: Sequence[str], count: int, *, besides: Collection[str] = ()) -> tuple[int, list[str]]:
        """Return how many other entries have a recall vector of none of these families, and names of the first."""
        tables = [f"kinprint.recall_{family}" for family in families if family in FAMILIES]
        none = [f"NOT EXISTS (SELECT 1 FROM {one} r WHERE r.id = e.id)" for one in tables]  # noqa: S608
        wanted = f"kinprint.entries e WHERE {' AND '.join([*none, 'key <> ALL(%s::text[])'])}"
        left = int(self._all(f"SELECT count(*) FROM {wanted}", list(besides))[0][0])  # noqa: S608
        rows = self._all(f"SELECT name FROM {wanted} ORDER BY id LIMIT %s", list(besides), min(count, left))  # noqa: S608
        return left, [str(row[0]) for row in rows]

    def stats(self) -> Stats:
        """Return what the catalog holds, in numbers."""
        size = self._all("SELECT coalesce(sum(octet_length(data)), 0) FROM kinprint.fingerprints")[0][0]
        stored = self._all(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
            " WHERE relnamespace = 'kinprint'::regnamespace AND relkind = 'r'"
        )
        return numbers_of(self, fingerprint_bytes=int(size), stored_bytes=int(stored[0][0]))

    def families(self) -> list[tuple[str, int]]:
        """Return for every family of recall vectors how many entries have one."""
        counts = [(f, int(self._all(f"SELECT count(*) FROM kinprint.recall_{f}")[0][0])) for f in sorted(FAMILIES)]  # noqa: S608
        return [(family, count) for family, count in counts if count]

    @property
    def recall_version(self) -> int:
        """The version of the recall vectors stored."""
        return int(self._about("recall_version") or 0)

    def check(self, tell: Progress = quiet) -> Iterator[Problem]:
        """Read everything and yield what is damaged."""
        numbers = [row[0] for row in self._all("SELECT id FROM kinprint.entries ORDER BY id")]
        for at, number in enumerate(numbers):
            tell("entries", at, len(numbers))
            yield from self._check_one(number)
        tell("entries", len(numbers), len(numbers))

    def _check_one(self, number: int) -> Iterator[Problem]:
        def vectors() -> list[tuple[str, bytes]]:
            found = []
            for family in FAMILIES:
                rows = self._all(f"SELECT v::real[] FROM kinprint.recall_{family} WHERE id = %s", number)  # noqa: S608
                found += [(family, packed(np.array(row[0], np.float32))) for row in rows]
            return found

        yield from check_stored(
            lambda: (
                *self._all("SELECT key, name, revision, record, seal FROM kinprint.entries WHERE id = %s", number),
                (),
            )[0],
            lambda: (*self._all("SELECT data FROM kinprint.fingerprints WHERE id = %s", number), ())[0],
            vectors,
            number,
        )

    def close(self) -> None:
        """Close the connections."""
        for db in self._lookers:
            db.close()


def _literal(vector: np.typing.NDArray[np.float32]) -> str:
    """Return a vector as pgvector reads it; nine digits bring every float32 back as it was."""
    return "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"
