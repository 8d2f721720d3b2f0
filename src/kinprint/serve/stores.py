"""Hold the tables of a server's state: one SQLite file, or a PostgreSQL database, such as the shared catalog's.

Changes come one after the other, each whole or not at all, and what was confirmed is on disk. What a database says of its troubles
goes to the log: strangers hear that there are some.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kinprint.errors import KinprintError, SchemaError, StorageError
from kinprint.text import Text

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("kinprint.serve")
VERSION = 1
BUSY_S = 10.0
CLAIM_S = 10.0  # a database takes a moment to see that the last server was killed
_CHANGES, _SERVER = 0x6B696E73, 0x6B696E74  # numbers of advisory locks: one change at a time, one server at a time
_TABLES = (
    """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE jobs (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, request TEXT NOT NULL, client TEXT NOT NULL, state TEXT NOT NULL,
  created REAL NOT NULL, started REAL, finished REAL, attempts INTEGER NOT NULL DEFAULT 0, error TEXT, summary TEXT
);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE INDEX jobs_by_client ON jobs (client, started);
CREATE TABLE events (
  job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, told TEXT NOT NULL, PRIMARY KEY (job, number)
);
CREATE TABLE keys (name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, added REAL NOT NULL);
""".strip()
    .removesuffix(";")
    .split(";")
)
Row = dict[str, Any]


class Conflict(Exception):
    """There is a row with this key already."""


class Unreachable(StorageError):
    """The state can be neither read nor kept at the moment."""


class Store(ABC):
    """The tables. Any thread may use them; `change` holds all others back until it is done."""

    place: str  # for the operator's eyes
    _db: Any

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def rows(self, query: str, *values: object) -> list[Row]:
        """Return what a query finds."""
        with self._lock, self._telling():
            return [dict(row) for row in self._run(query, values).fetchall()]

    def execute(self, query: str, *values: object) -> int:
        """Run one statement of a change; return how many rows it touched."""
        return int(self._run(query, values).rowcount)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make one change: all of it or nothing."""
        with self._lock, self._telling(), self._transaction():
            yield

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except self._conflicts as error:
            raise Conflict from error
        except self._errors as error:
            raise self._unreachable(type(error).__name__) from error

    def _unreachable(self, why: str) -> Unreachable:
        log.warning("%s: %s", self.place, why)  # the class of an error: its words may repeat an address
        return Unreachable(Text("the server's state can be neither read nor kept now"), hint=Text("try again later"))

    _conflicts: tuple[type[Exception], ...]
    _errors: tuple[type[Exception], ...]

    @abstractmethod
    def _run(self, query: str, values: Sequence[object]) -> Any: ...

    @abstractmethod
    def _transaction(self) -> Any: ...

    @abstractmethod
    def _claimed(self) -> bool: ...

    def claim(self, wait_s: float = CLAIM_S) -> None:
        """Be the one server of this state; StorageError if another one is, which would take our jobs for left over."""
        until = time.monotonic() + wait_s
        while not self._claimed():
            if time.monotonic() > until:
                said = f"another server keeps its state in {self.place}"
                raise StorageError(said, hint="end it first, or name another --folder or --state")
            time.sleep(0.1)

    def _require(self, version: int) -> None:
        if version != VERSION:
            said = f"{self.place} is of version {version}, and this program knows version {VERSION}"
            raise SchemaError(said, hint="use the program that made it, or another --folder or --state")

    def close(self) -> None:
        """Let go of the file or the connection."""
        with self._lock:
            self._db.close()


class SqliteStore(Store):
    """The tables in a file of the server's folder."""

    _conflicts = (sqlite3.IntegrityError,)
    _errors = (sqlite3.Error,)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        file = folder / "state.sqlite3"
        self.place = str(file)
        self._claim: IO[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._folder = folder
            self._db = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
                self._db.execute(f"PRAGMA {pragma}")
            with self._transaction():
                found = self._db.execute("PRAGMA user_version").fetchone()[0]
                if found == 0:
                    for statement in _TABLES:
                        strict = " STRICT" if "CREATE TABLE" in statement else ""
                        self._db.execute(statement + strict)
                    self._db.execute(f"PRAGMA user_version = {VERSION}")
                self._require(found or VERSION)
        except (OSError, sqlite3.Error) as error:
            said = f"cannot keep the server's state in {folder}: {error}"
            raise StorageError(said, hint="name another folder with --folder") from error

    def _run(self, query: str, values: Sequence[object]) -> Any:
        return self._db.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk ends the transaction by itself
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _claimed(self) -> bool:
        self._claim = self._claim or (self._folder / "server.lock").open("wb")
        try:
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the file, and let another server have it."""
        super().close()
        if self._claim is not None:
            self._claim.close()


class PostgresStore(Store):
    """The tables in the schema ``kinprint_serve`` of a database. A connection that was lost is made again by whoever asks next."""

    def __init__(self, address: str) -> None:
        super().__init__()
        from kinprint.catalog.addresses import shown_address
        from kinprint.catalog.connecting import connected

        self.place = shown_address(address)
        self._is_claimed = False
        self._connect: Callable[[], psycopg.Connection[Any]] = lambda: connected(address)
        self._db = self._connect()
        import psycopg
        from psycopg.rows import dict_row

        self._rows, self._conflicts, self._errors = dict_row, (psycopg.IntegrityError,), (psycopg.Error,)
        with self.change():
            made = self._db.execute("SELECT to_regclass('kinprint_serve.about') AS made").fetchone()
            if made is None or made[0] is None:
                self._create()
            self._db.execute("SET search_path TO kinprint_serve")
        self._require(int(self.rows("SELECT value FROM about WHERE name = 'version'")[0]["value"]))

    def _create(self) -> None:
        self._db.execute("CREATE SCHEMA IF NOT EXISTS kinprint_serve")
        self._db.execute("SET search_path TO kinprint_serve")
        for statement in _TABLES:  # REAL has four bytes here, and values of text are not looked into
            self._db.execute(statement.replace(" REAL", " double precision").replace("request TEXT", "request json"))
        self._db.execute("INSERT INTO about VALUES ('version', %s)", (str(VERSION),))

    def _run(self, query: str, values: Sequence[object]) -> Any:
        self._again()
        return self._db.cursor(row_factory=self._rows).execute(query.replace("?", "%s"), values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._again()
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_CHANGES,))
            yield

    def _again(self) -> None:
        """Connect again where the connection was lost, as the server that had claimed the state."""
        if not self._db.closed:
            return
        try:
            self._db = self._connect()
        except KinprintError as error:
            raise self._unreachable(type(error).__name__) from error
        self._db.execute("SET search_path TO kinprint_serve")
        if self._is_claimed and not self._claimed():
            self._db.close()
            raise self._unreachable("another server has claimed it")

    def _claimed(self) -> bool:
        found = self._db.execute("SELECT pg_try_advisory_lock(%s)", (_SERVER,)).fetchone()
        self._is_claimed = self._is_claimed or bool(found and found[0])
        return bool(found and found[0])
