"""Hold what all pages and the API share: options, state, queue, stored files; and decide what may be asked for."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from kinprint._util.files import read_whole, write_whole
from kinprint.catalog.entry import Entry
from kinprint.catalog.store import open_catalog
from kinprint.errors import BadReference, NotFound
from kinprint.fingerprints.file import SUFFIX, Fingerprint, from_bytes
from kinprint.serve.families import FamilySource
from kinprint.serve.jobs import Jobs
from kinprint.serve.options import ANYONE, ServeOptions
from kinprint.serve.references import LOCAL, reference
from kinprint.serve.state import DONE, Busy, Job, open_state
from kinprint.serve.work import BUNDLE, VERIFICATION
from kinprint.sources.settings import Settings
from kinprint.text import Text

KINDS = {
    ".json": "application/json",
    ".html": "text/html; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
    ".sarif": "application/sarif+json",
    ".zip": "application/zip",
}
COMPARED, STORED = ("compare",), ("compare", "search")
"""Kinds of jobs that have a verdict of two models, and all that have a stored page."""

COUNT_S = 10.0
MOST_UPLOADS = 1000
LARGEST = 64 << 20  # bytes of a file that is handed out from memory
KEPT = 64  # files that stay in memory
_FILE = re.compile(r"[a-z0-9.]{1,60}")


class Service:
    """One server's resources."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.state = open_state(options.folder, options.state)
        self.state.claim()
        self.jobs = Jobs(self.state, options)
        self.families = FamilySource(options)
        self.endpoint = Settings.from_env().endpoint
        self.stopping = False
        self.streams: dict[str, int] = {}  # open ones of each client
        self._counted = (float("-inf"), 0)
        self.stored = lru_cache(maxsize=KEPT)(self._stored)

    @property
    def open_to_all(self) -> bool:
        """Whether pages may start jobs."""
        return self.options.may_start == ANYONE

    def compare(self, a: str, b: str, client: str, *, deep: bool = False) -> Job:
        """Queue a comparison of two models that a stranger may name."""
        one, two = (reference(text, self.options, self.endpoint) for text in (a, b))
        if one == two:
            raise BadReference(Text("both names stand for one model"), hint=Text("name two models"))
        return self.jobs.add("compare", {"a": one, "b": two, "deep": deep}, self.state.client_of(client))

    def search(self, model: str, client: str) -> Job:
        """Queue a search for the relatives of a model."""
        self._need_catalog()
        kept = reference(model, self.options, self.endpoint)
        return self.jobs.add("search", {"model": kept}, self.state.client_of(client))

    def search_upload(self, data: bytes, client: str) -> Job:
        """Queue a search for the relatives of an uploaded fingerprint, which is kept under its digest."""
        self._need_catalog()
        name = f"{hashlib.sha256(data).hexdigest()}{SUFFIX}"
        if not (self.jobs.uploads / name).exists():
            kept = sum(1 for _ in self.jobs.uploads.iterdir())
            if kept >= MOST_UPLOADS:
                raise Busy(Text("no more fingerprint files are taken"), hint=Text("name a model of the hub"))
            write_whole(self.jobs.uploads / name, data)
        return self.jobs.add("search", {"model": f"{LOCAL}{name}"}, self.state.client_of(client))

    def last_search(self, model: str) -> Job | None:
        """Return the last search for a model's relatives that was done, or None."""
        found = self.state.latest("search", DONE, model=reference(model, self.options, self.endpoint))
        return found if found is not None and found.summary is not None else None

    def _need_catalog(self) -> None:
        if self.options.catalog is None:
            raise NotFound(Text("this server has no catalog to search"), hint=Text("it is started with --catalog"))

    def entries(self, contains: str, start: int, count: int) -> tuple[int, list[Entry]]:
        """Return how many models the catalog holds, and some of those whose names contain a text."""
        self._need_catalog()
        with open_catalog(self.options.catalog, read_only=True) as catalog:
            found = islice(catalog.entries(contains=contains), start, start + count)
            return catalog.count(), list(found)

    def catalog_count(self) -> int:
        """Return how many models the catalog holds, as it was some seconds ago at most."""
        at, count = self._counted
        if time.monotonic() - at > COUNT_S:
            count = self.entries("", 0, 0)[0]
            self._counted = (time.monotonic(), count)
        return count

    def entry(self, name: str) -> Entry | None:
        """Return what the catalog holds of a model, or None."""
        if self.options.catalog is None:
            return None
        with open_catalog(self.options.catalog, read_only=True) as catalog:
            return catalog.find(name)

    def fingerprint(self, key: str) -> Fingerprint:
        """Return the fingerprint that the catalog keeps under a key."""
        with open_catalog(self.options.catalog, read_only=True) as catalog:
            return from_bytes(catalog.fingerprint(key), key[:12])

    def nameable(self, name: str) -> bool:
        """Whether strangers may name a model here: a catalog may hold some that they may not."""
        try:
            return bool(reference(name, self.options, self.endpoint))
        except BadReference:
            return False

    def verify(self, id_: str, client: str) -> Job:
        """Queue a verification of a stored comparison; one that waits or runs already is returned."""
        self.result(id_, COMPARED)
        last = self.state.latest("verify", result=id_)
        if last is not None and not last.ended:
            return last
        return self.jobs.add("verify", {"result": id_}, self.state.client_of(client))

    def job(self, id_: str) -> Job:
        """Return a job; raise NotFound if there is no such."""
        found = self.state.job(id_)
        if found is None:
            raise NotFound(Text("there is no job {id}", id=id_))
        return found

    def result(self, id_: str, kinds: Collection[str] = STORED) -> Job:
        """Return the job of a stored result; raise NotFound if there is no such."""
        found = self.state.job(id_)
        if found is None or found.kind not in kinds or found.state != DONE or found.summary is None:
            raise NotFound(Text("there is no result {id}", id=id_))
        return found

    def file(self, id_: str, name: str) -> bytes:
        """Return a file of a stored result that is offered; raise NotFound for any other name."""
        job = self.result(id_)
        assert job.summary is not None
        if name not in job.summary["files"] or not _FILE.fullmatch(name):
            raise NotFound(Text("the result {id} has no such file", id=id_))
        return self.stored(id_, name)

    def _stored(self, id_: str, name: str) -> bytes:
        return read_whole(self.jobs.results / id_ / name, LARGEST)

    def verification(self, id_: str) -> bytes | None:
        """Return the last verification of a result, or None if there is none."""
        file: Path = self.jobs.results / id_ / VERIFICATION
        return read_whole(file, LARGEST) if file.is_file() else None

    def start(self) -> None:
        """Begin to work."""
        self.jobs.start()

    def stop(self) -> None:
        """End streams and jobs, and close the state."""
        self.stopping = True
        self.jobs.stop()
        self.state.close()


def kind_of(name: str) -> str:
    """Return the type of a file that is offered."""
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), "application/octet-stream")


def plain_job(job: Job) -> dict[str, Any]:
    """Return a job as the API shows it: nothing of who asked."""
    return {
        "id": job.id,
        "kind": job.kind,
        "request": job.request,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "finished": job.finished,
        "error": job.error,
        "summary": job.summary,
    }


__all__ = ["BUNDLE", "Service", "kind_of", "plain_job"]
