"""Keep jobs, what they told, and API keys in one SQLite file: what is finished stays, whatever ends the server."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kinprint.errors import KinprintError, SchemaError, StorageError
from kinprint.text import Text

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)
ATTEMPTS = 3  # servers that may end under one job before it is the job's fault
VERSION = 1
BUSY_S = 10.0
RECENT_S = 600.0  # what a client had in this time is held against what it asks for
KEY_PREFIX = "kin_"

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE jobs (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, request TEXT NOT NULL, client TEXT NOT NULL, state TEXT NOT NULL,
  created REAL NOT NULL, started REAL, finished REAL, attempts INTEGER NOT NULL DEFAULT 0, error TEXT, summary TEXT
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE INDEX jobs_by_client ON jobs (client, started);
CREATE TABLE events (
  job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, told TEXT NOT NULL, PRIMARY KEY (job, number)
) STRICT;
CREATE TABLE keys (name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, added REAL NOT NULL) STRICT;
"""


class Busy(KinprintError):
    """The queue, or a client's part of it, is full."""


@dataclass(frozen=True)
class Job:
    """One comparison, search or verification that somebody asked for."""

    id: str
    kind: str
    request: dict[str, Any]
    client: str
    state: str
    created: float
    started: float | None
    finished: float | None
    attempts: int
    error: dict[str, Any] | None  # class, message, hint
    summary: dict[str, Any] | None  # of its result

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state in ENDED


@dataclass(frozen=True)
class Event:
    """What a job told at some time, numbered from 1."""

    number: int
    at: float
    told: dict[str, Any]


class State:
    """One file for all threads of the server."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.RLock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._open(folder / "state.sqlite3")
        except (OSError, sqlite3.Error) as error:
            said = f"cannot keep the server's state in {folder}: {error}"
            raise StorageError(said, hint="name another folder with --folder") from error
        self.salt = self._about("salt")

    def _open(self, file: Path) -> None:
        self._db = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
            self._db.execute(f"PRAGMA {pragma}")
        with self._change():
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO about VALUES ('salt', ?)", (secrets.token_hex(16),))
                self._db.execute(f"PRAGMA user_version = {VERSION}")
            elif found != VERSION:
                said = f"{file} is of version {found}, and this program knows version {VERSION}"
                raise SchemaError(said, hint="use the program that made it, or another --folder")

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for one change: all of it or nothing."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk ends the transaction by itself
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _about(self, name: str) -> str:
        with self._lock:
            return str(self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # -- jobs ------------------------------------------------------------------------------------------------------------

    def client_of(self, address: str) -> str:
        """Return what stands for a client in the state: no address is kept."""
        return hashlib.sha256(f"{self.salt}:{address}".encode()).hexdigest()[:24]

    def add(self, kind: str, request: Mapping[str, Any], client: str, *, most: int, most_of_client: int) -> Job:
        """Queue a job; raise Busy where the queue, or this client's part of it, is full."""
        with self._change() as db:
            count, own = db.execute(
                "SELECT count(*), coalesce(sum(client = ?), 0) FROM jobs WHERE state IN (?, ?)",
                (client, QUEUED, RUNNING),
            ).fetchone()
            if count >= most:
                raise Busy(Text("the queue is full: {n:,} jobs wait", n=count), hint="try again in some minutes")
            if own >= most_of_client:
                said = Text("{n:,} jobs of yours wait already, and no more are taken", n=own)
                raise Busy(said, hint="wait until one of them is done, or cancel one")
            id_ = secrets.token_hex(8)
            db.execute(
                "INSERT INTO jobs (id, kind, request, client, state, created) VALUES (?, ?, ?, ?, ?, ?)",
                (id_, kind, _json(request), client, QUEUED, time.time()),
            )
        found = self.job(id_)
        assert found is not None
        return found

    def take(self) -> Job | None:
        """Start the job whose turn it is, and return it: of clients with the least under way and lately, the oldest."""
        now = time.time()
        with self._change() as db:
            row = db.execute(
                "SELECT id FROM jobs AS j WHERE state = ? ORDER BY"
                " (SELECT count(*) FROM jobs AS o WHERE o.client = j.client AND o.state = ?),"
                " (SELECT count(*) FROM jobs AS o WHERE o.client = j.client AND o.started > ?), created LIMIT 1",
                (QUEUED, RUNNING, now - RECENT_S),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE jobs SET state = ?, started = ? WHERE id = ?", (RUNNING, now, row["id"]))
        return self.job(row["id"])

    def finish(
        self,
        id_: str,
        state: str,
        *,
        error: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> bool:
        """End a job that has not ended; return whether it was this call that ended it."""
        with self._change() as db:
            done = db.execute(
                "UPDATE jobs SET state = ?, finished = ?, error = ?, summary = ? WHERE id = ? AND state IN (?, ?)",
                (state, time.time(), _json(error), _json(summary), id_, QUEUED, RUNNING),
            )
            if done.rowcount:
                self._enter(id_, {"state": state, "error": error})
            return bool(done.rowcount)

    def requeue(self, id_: str) -> None:
        """Put a running job back into the queue, at its place."""
        with self._change() as db:
            db.execute("UPDATE jobs SET state = ?, started = NULL WHERE id = ? AND state = ?", (QUEUED, id_, RUNNING))
            self._enter(id_, {"state": QUEUED})

    def recover(self) -> int:
        """Queue anew what ran when the server ended; a job under which it ended `ATTEMPTS` times is marked. Return how many ran."""
        with self._lock:
            rows = self._db.execute("SELECT id, attempts FROM jobs WHERE state = ?", (RUNNING,)).fetchall()
        for row in rows:
            with self._change() as db:
                db.execute("UPDATE jobs SET attempts = attempts + 1 WHERE id = ?", (row["id"],))
            if row["attempts"] + 1 >= ATTEMPTS:
                said = f"the server ended {ATTEMPTS} times while this job ran"
                self.finish(row["id"], FAILED, error={"class": "ServerEnded", "message": said, "hint": None})
            else:
                self.requeue(row["id"])
        return len(rows)

    def job(self, id_: str) -> Job | None:
        """Return a job, or None if there is no such."""
        with self._lock:
            row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (id_,)).fetchone()
        return None if row is None else _job(row)

    def recent(self, count: int, kind: str | None = None) -> list[Job]:
        """Return the jobs that were done last."""
        with self._lock:
            rows = self._db.execute(
                "SELECT * FROM jobs WHERE state = ? AND (? IS NULL OR kind = ?) ORDER BY finished DESC LIMIT ?",
                (DONE, kind, kind, count),
            ).fetchall()
        return [_job(row) for row in rows]

    def latest(self, kind: str, state: str | None = None, /, **request: str) -> Job | None:
        """Return the last job of a kind with these values in its request; in a state, or whatever became of it."""
        conditions = "".join(f" AND request ->> '$.{name}' = ?" for name in request)
        with self._lock:
            row = self._db.execute(
                f"SELECT * FROM jobs WHERE kind = ? AND (? IS NULL OR state = ?){conditions} ORDER BY created DESC LIMIT 1",  # noqa: S608 - names of ours
                (kind, state, state, *request.values()),
            ).fetchone()
        return None if row is None else _job(row)

    def about(self, model: str, count: int) -> list[Job]:
        """Return the last comparisons that a model, as references are kept, was a side of."""
        with self._lock:
            rows = self._db.execute(
                "SELECT * FROM jobs WHERE state = ? AND kind = 'compare' AND ? IN (request ->> '$.a', request ->> '$.b')"
                " ORDER BY finished DESC LIMIT ?",
                (DONE, model, count),
            ).fetchall()
        return [_job(row) for row in rows]

    def ahead_of(self, job: Job) -> int:
        """Return how many jobs run or wait that were there before."""
        with self._lock:
            return int(
                self._db.execute(
                    "SELECT count(*) FROM jobs WHERE state IN (?, ?) AND created < ?", (QUEUED, RUNNING, job.created)
                ).fetchone()[0]
            )

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are in each state."""
        with self._lock:
            rows = self._db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {row[0]: row[1] for row in rows}

    # -- what they tell --------------------------------------------------------------------------------------------------

    def tell(self, id_: str, told: Mapping[str, Any]) -> None:
        """Keep what a job tells."""
        with self._change():
            self._enter(id_, told)

    def _enter(self, id_: str, told: Mapping[str, Any]) -> None:
        self._db.execute(
            "INSERT INTO events SELECT ?, 1 + coalesce(max(number), 0), ?, ? FROM events WHERE job = ?",
            (id_, time.time(), _json(told), id_),
        )

    def events(self, id_: str, after: int = 0) -> list[Event]:
        """Return what a job told after the event of this number."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, at, told FROM events WHERE job = ? AND number > ? ORDER BY number LIMIT 1000",
                (id_, after),
            ).fetchall()
        return [Event(row["number"], row["at"], orjson.loads(row["told"])) for row in rows]

    # -- keys ------------------------------------------------------------------------------------------------------------

    def add_key(self, name: str) -> str:
        """Make an API key and return it: only its digest is kept. 32 random bytes need no slow hash."""
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        try:
            with self._change() as db:
                db.execute("INSERT INTO keys VALUES (?, ?, ?)", (name, _digest(key), time.time()))
        except sqlite3.IntegrityError as error:
            raise StorageError(
                f"there is a key named {name!r} already", hint="remove it first, or choose another name"
            ) from error
        return key

    def remove_key(self, name: str) -> bool:
        """Forget a key; return whether there was one of this name."""
        with self._change() as db:
            return bool(db.execute("DELETE FROM keys WHERE name = ?", (name,)).rowcount)

    def all_keys(self) -> list[tuple[str, float]]:
        """Return names of keys, and when they were added."""
        with self._lock:
            return [tuple(row) for row in self._db.execute("SELECT name, added FROM keys ORDER BY name")]

    def key_name(self, key: str) -> str | None:
        """Return the name of a key, or None if it is none of ours."""
        if not key.startswith(KEY_PREFIX) or len(key) > 200:
            return None
        with self._lock:
            row = self._db.execute("SELECT name FROM keys WHERE digest = ?", (_digest(key),)).fetchone()
        return None if row is None else str(row[0])


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _job(row: sqlite3.Row) -> Job:
    data = dict(row)
    for name in ("request", "error", "summary"):
        data[name] = None if data[name] is None else orjson.loads(data[name])
    return Job(**data)
