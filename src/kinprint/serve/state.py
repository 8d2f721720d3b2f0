"""Keep jobs, what they told, and API keys: what is finished stays, whatever ends the server."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kinprint.errors import KinprintError, StorageError
from kinprint.serve.stores import Conflict, PostgresStore, Row, SqliteStore, Store
from kinprint.text import Text

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)
ATTEMPTS = 3  # servers that may end under one job before it is the job's fault
RECENT_S = 600.0  # what a client had in this time is held against what it asks for
KEY_PREFIX = "kin_"


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
    """One state for all threads of the server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.change():
            store.execute("INSERT INTO about VALUES ('salt', ?) ON CONFLICT DO NOTHING", secrets.token_hex(16))
        self.salt = str(store.rows("SELECT value FROM about WHERE name = 'salt'")[0]["value"])

    def claim(self) -> None:
        """Be the one server of this state; StorageError if there is another."""
        self._store.claim()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    # -- jobs ------------------------------------------------------------------------------------------------------------

    def client_of(self, address: str) -> str:
        """Return what stands for a client in the state: no address is kept."""
        return hashlib.sha256(f"{self.salt}:{address}".encode()).hexdigest()[:24]

    def add(self, kind: str, request: Mapping[str, Any], client: str, *, most: int, most_of_client: int) -> Job:
        """Queue a job; raise Busy where the queue, or this client's part of it, is full."""
        with self._store.change():
            counts = "SELECT count(*) AS n, count(*) FILTER (WHERE client = ?) AS own FROM jobs WHERE state IN (?, ?)"
            found = self._store.rows(counts, client, QUEUED, RUNNING)[0]
            count, own = found["n"], found["own"]
            if count >= most:
                raise Busy(Text("the queue is full: {n:,} jobs wait", n=count), hint=Text("try again in some minutes"))
            if own >= most_of_client:
                said = Text("{n:,} jobs of yours wait already, and no more are taken", n=own)
                raise Busy(said, hint=Text("wait until one of them is done, or cancel one"))
            id_ = secrets.token_hex(8)
            new = "INSERT INTO jobs (id, kind, request, client, state, created) VALUES (?, ?, ?, ?, ?, ?) RETURNING *"
            return _job(self._store.rows(new, id_, kind, _json(request), client, QUEUED, time.time())[0])

    def take(self) -> Job | None:
        """Start the job whose turn it is, and return it: of clients with the least under way and lately, the oldest."""
        now = time.time()
        with self._store.change():
            found = self._store.rows(
                "SELECT id FROM jobs AS j WHERE state = ? ORDER BY"
                " (SELECT count(*) FROM jobs AS o WHERE o.client = j.client AND o.state = ?),"
                " (SELECT count(*) FROM jobs AS o WHERE o.client = j.client AND o.started > ?), created LIMIT 1",
                QUEUED,
                RUNNING,
                now - RECENT_S,
            )
            if not found:
                return None
            taken = "UPDATE jobs SET state = ?, started = ? WHERE id = ? RETURNING *"
            return _job(self._store.rows(taken, RUNNING, now, found[0]["id"])[0])

    def finish(
        self,
        id_: str,
        state: str,
        *,
        error: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> bool:
        """End a job that has not ended; return whether it was this call that ended it."""
        with self._store.change():
            done = self._store.execute(
                "UPDATE jobs SET state = ?, finished = ?, error = ?, summary = ? WHERE id = ? AND state IN (?, ?)",
                *(state, time.time(), _json(error), _json(summary), id_, QUEUED, RUNNING),
            )
            if done:
                self._enter(id_, {"state": state, "error": error})
            return bool(done)

    def requeue(self, id_: str) -> None:
        """Put a running job back into the queue, at its place."""
        with self._store.change():
            back = "UPDATE jobs SET state = ?, started = NULL WHERE id = ? AND state = ?"
            self._store.execute(back, QUEUED, id_, RUNNING)
            self._enter(id_, {"state": QUEUED})

    def recover(self) -> int:
        """Queue anew what ran when the server ended; a job under which it ended `ATTEMPTS` times is marked. Return how many ran."""
        rows = self._store.rows("SELECT id, attempts FROM jobs WHERE state = ?", RUNNING)
        for row in rows:
            with self._store.change():
                self._store.execute("UPDATE jobs SET attempts = attempts + 1 WHERE id = ?", row["id"])
            if row["attempts"] + 1 >= ATTEMPTS:
                said = f"the server ended {ATTEMPTS} times while this job ran"
                self.finish(row["id"], FAILED, error={"class": "ServerEnded", "message": said, "hint": None})
            else:
                self.requeue(row["id"])
        return len(rows)

    def job(self, id_: str) -> Job | None:
        """Return a job, or None if there is no such."""
        return _first(self._store.rows("SELECT * FROM jobs WHERE id = ?", id_))

    def recent(self, count: int, kind: str | None = None) -> list[Job]:
        """Return the jobs that were done last."""
        chosen = "" if kind is None else " AND kind = ?"
        query = f"SELECT * FROM jobs WHERE state = ?{chosen} ORDER BY finished DESC LIMIT ?"  # noqa: S608 - words of ours
        return [_job(row) for row in self._store.rows(query, DONE, *([kind] if kind else []), count)]

    def latest(self, kind: str, state: str | None = None, /, **request: str) -> Job | None:
        """Return the last job of a kind with these values in its request; in a state, or whatever became of it."""
        chosen = "" if state is None else " AND state = ?"
        chosen += "".join(f" AND request ->> '{name}' = ?" for name in request)
        query = f"SELECT * FROM jobs WHERE kind = ?{chosen} ORDER BY created DESC LIMIT 1"  # noqa: S608 - names of ours
        return _first(self._store.rows(query, kind, *([state] if state else []), *request.values()))

    def about(self, model: str, count: int) -> list[Job]:
        """Return the last comparisons that a model, as references are kept, was a side of."""
        sides = "? IN (request ->> 'a', request ->> 'b')"
        query = f"SELECT * FROM jobs WHERE state = ? AND kind = 'compare' AND {sides} ORDER BY finished DESC LIMIT ?"  # noqa: S608
        return [_job(row) for row in self._store.rows(query, DONE, model, count)]

    def ahead_of(self, job: Job) -> int:
        """Return how many jobs run or wait that were there before."""
        query = "SELECT count(*) AS n FROM jobs WHERE state IN (?, ?) AND created < ?"
        return int(self._store.rows(query, QUEUED, RUNNING, job.created)[0]["n"])

    # -- what they tell --------------------------------------------------------------------------------------------------

    def tell(self, id_: str, told: Mapping[str, Any]) -> None:
        """Keep what a job tells."""
        with self._store.change():
            self._enter(id_, told)

    def _enter(self, id_: str, told: Mapping[str, Any]) -> None:
        self._store.execute(
            "INSERT INTO events SELECT ?, 1 + coalesce(max(number), 0), ?, ? FROM events WHERE job = ?",
            *(id_, time.time(), _json(told), id_),
        )

    def events(self, id_: str, after: int = 0) -> list[Event]:
        """Return what a job told after the event of this number."""
        query = "SELECT number, at, told FROM events WHERE job = ? AND number > ? ORDER BY number LIMIT 1000"
        found = self._store.rows(query, id_, after)
        return [Event(row["number"], row["at"], orjson.loads(row["told"])) for row in found]

    # -- keys ------------------------------------------------------------------------------------------------------------

    def add_key(self, name: str) -> str:
        """Make an API key and return it: only its digest is kept. 32 random bytes need no slow hash."""
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        try:
            with self._store.change():
                self._store.execute("INSERT INTO keys VALUES (?, ?, ?)", name, _digest(key), time.time())
        except Conflict as error:
            raise StorageError(
                f"there is a key named {name!r} already", hint="remove it first, or choose another name"
            ) from error
        return key

    def remove_key(self, name: str) -> bool:
        """Forget a key; return whether there was one of this name."""
        with self._store.change():
            return bool(self._store.execute("DELETE FROM keys WHERE name = ?", name))

    def all_keys(self) -> list[tuple[str, float]]:
        """Return names of keys, and when they were added."""
        return [(row["name"], row["added"]) for row in self._store.rows("SELECT name, added FROM keys ORDER BY name")]

    def key_name(self, key: str) -> str | None:
        """Return the name of a key, or None if it is none of ours."""
        if not key.startswith(KEY_PREFIX) or len(key) > 200:
            return None
        found = self._store.rows("SELECT name FROM keys WHERE digest = ?", _digest(key))
        return str(found[0]["name"]) if found else None


def open_state(folder: Path, address: str | None = None) -> State:
    """Open a server's state: the file in its folder, or the database that an address names."""
    return State(SqliteStore(folder) if address is None else PostgresStore(address))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _first(rows: Sequence[Row]) -> Job | None:
    return _job(rows[0]) if rows else None


def _job(row: Row) -> Job:
    data = dict(row)
    for name in ("request", "error", "summary"):
        data[name] = orjson.loads(data[name]) if isinstance(data[name], str) else data[name]
    return Job(**data)
