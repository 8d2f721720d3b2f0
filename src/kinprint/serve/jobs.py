"""Run queued jobs in processes of their own, some at a time: what a hostile model does to one harms no other, nor the server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinprint.errors import KinprintError
from kinprint.scan.frames import pack
from kinprint.scan.supervised import LATE, LOST, Limits, Supervised
from kinprint.serve.options import ServeOptions
from kinprint.serve.state import CANCELLED, DONE, FAILED, QUEUED, Job, State
from kinprint.serve.stores import Unreachable
from kinprint.sources.pace import Pace

WORK = "kinprint.serve.work:do"
LOOK_S = 1.0  # how often the queue is looked at when nobody says that there is something new
log = logging.getLogger("kinprint.serve")
_OURS = {
    LATE: ("it was not done in time, and was ended", "compare smaller models, or run kinprint compare yourself"),
    LOST: ("its process ended several times", "run kinprint compare yourself to see why"),
    "MemoryError": ("it needed more memory than a job may have", "run kinprint compare yourself"),
}
_BUG = ("an error in kinprint, which has been logged", "run kinprint compare yourself, and report what it says")


class Jobs:
    """The queue and its workers. `start` and `stop` them; jobs that run when they are stopped are queued again."""

    def __init__(self, state: State, options: ServeOptions) -> None:
        self.state, self.options = state, options
        self.results = options.folder / "results"
        self._empty = options.folder / "empty"  # where jobs run that may see nothing of this machine
        self.uploads = options.folder / "uploads"
        for folder in (self.results, self._empty, self.uploads):
            folder.mkdir(parents=True, exist_ok=True)
        self._pace = Pace()
        self._new = threading.Condition()
        self._stopping = False
        self._running: dict[str, Supervised] = {}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(options.limits.workers)]

    def start(self) -> None:
        """Queue what the last server left running, and begin."""
        left = self.state.recover()
        if left:
            log.warning("%d jobs ran when the last server ended", left)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the workers; their jobs go back into the queue."""
        self._stopping = True
        with self._new:
            self._new.notify_all()
        with self._lock:
            running = list(self._running.values())
        for child in running:
            child.interrupt()
        for thread in self._threads:
            thread.join(10.0)

    def add(self, kind: str, request: dict[str, Any], client: str) -> Job:
        """Queue a job; raise `kinprint.serve.state.Busy` where there is no room."""
        limits = self.options.limits
        job = self.state.add(kind, request, client, most=limits.queued, most_of_client=limits.queued_of_client)
        self.state.tell(job.id, {"state": QUEUED})
        with self._new:
            self._new.notify()
        return job

    def cancel(self, id_: str) -> bool:
        """End a job that has not ended; return whether this call did."""
        done = self.state.finish(id_, CANCELLED)
        with self._lock:
            child = self._running.get(id_)
        if done and child is not None:
            child.interrupt()
        return done

    def target(self, job: Job) -> Path:
        """Return the folder of a job's result: of a verification, that of what it verifies."""
        return self.results / str(job.request.get("result", job.id))

    # -- one worker ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        current: list[str] = []
        child = self._new_child(current)
        while not self._stopping:
            try:
                job = self.state.take()
            except Unreachable:  # it is in the log; jobs wait until the state is back
                job = None
            if job is None:
                with self._new:
                    self._new.wait(LOOK_S)
                continue
            current[:] = [job.id]
            with self._lock:
                self._running[job.id] = child
            fine = self._run(job, child)
            with self._lock:
                del self._running[job.id]
            if not fine:  # interrupted, or of unknown health
                child.kill()
                child = self._new_child(current)
        child.kill()

    def _new_child(self, current: list[str]) -> Supervised:
        limits = Limits(self.options.limits.job_memory_bytes, self.options.limits.job_s)

        def hear(head: dict[str, Any]) -> None:
            if head.get("kind") == "progress" and current:
                with suppress(Unreachable):  # the work goes on
                    self.state.tell(current[0], {"state": "running", **head["told"]})

        child = Supervised(WORK, limits, self._pace, hear)
        child.start()
        return child

    def _run(self, job: Job, child: Supervised) -> bool:
        """Run one job, and enter how it ended; return whether its process can go on."""
        with suppress(Unreachable):
            self.state.tell(job.id, {"state": "running", "stage": "starting", "share": 0.0})
        try:
            answer = child.run(pack(self._task(job)))
        except (KinprintError, OSError) as wrong:
            log.exception("job %s could not be run", job.id)
            told = _error({"class": type(wrong).__name__, "expected": False})
            self._surely(lambda: self.state.finish(job.id, FAILED, error=told))
            return False
        error: dict[str, Any] | None = answer.head.get("error")
        if error is None:
            self._surely(lambda: self.state.finish(job.id, DONE, summary=answer.head["summary"]))
            return True
        if self._stopping:
            with suppress(Unreachable):  # else the next server finds it running, and queues it
                self.state.requeue(job.id)
            return False
        if self._surely(lambda: self.state.finish(job.id, FAILED, error=_error(error))):
            log.warning("job %s failed: %s", job.id, error["class"])
        return error["class"] not in _OURS

    def _surely(self, enter: Callable[[], bool]) -> bool:
        """Enter how a job ended, as soon as the state can be reached; a server that is ended meanwhile leaves it to the next."""
        while True:
            try:
                return enter()
            except Unreachable:
                if self._stopping:
                    return False
                time.sleep(LOOK_S)

    def _task(self, job: Job) -> dict[str, Any]:
        options = self.options
        return {
            "work": job.kind,
            "id": job.id,
            "request": job.request,
            "target": str(self.target(job).resolve()),
            "local": None if options.local is None else str(options.local.resolve()),
            "empty": str(self._empty.resolve()),
            "uploads": str(self.uploads.resolve()),
            "catalog": options.catalog,
            "hub_token": options.hub_token,
            "budget_bytes": options.limits.budget_bytes,
        }


def _error(told: dict[str, Any]) -> dict[str, Any]:
    """Return an error as strangers see it: what was expected in its own words, a bug by its class alone."""
    name = str(told["class"])
    if name in _OURS or not told.get("expected"):
        message, hint = _OURS.get(name, _BUG)
        return {"class": name, "message": message, "hint": hint}
    return {"class": name, "message": told.get("message"), "hint": told.get("hint")}
