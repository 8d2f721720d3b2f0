"""Work tasks off on a Dask cluster: each worker keeps a supervised process, the scheduler keeps the pace for all."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from kinprint._util.plain import printable
from kinprint._version import __version__
from kinprint.errors import NotFound, TransferError, imported
from kinprint.refs import quotable
from kinprint.scan.frames import LENGTH, Message, pack, unpack
from kinprint.scan.supervised import LOST, Limits, Supervised
from kinprint.scan.workers import Workers

CONNECT_S = 20.0
HANDLER = "kinprint_pace"
_children: dict[tuple[str, int], Supervised] = {}  # on a Dask worker: of each run and thread
_lock = threading.Lock()


class SchedulersPace:
    """The gate of a worker: it asks the scheduler."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def _ask(self, ask: str, host: str, seconds: float | None = None) -> float:
        from distributed.utils import sync

        function = getattr(self._worker.scheduler, HANDLER)
        return float(sync(self._worker.loop, function, ask=ask, host=host, seconds=seconds))

    def turn_s(self, host: str) -> float:
        """Take a place in the line to a host; return the seconds until its turn."""
        return self._ask("turn", host)

    def held_s(self, host: str) -> float:
        """Return for how many seconds more the host wants no requests."""
        return self._ask("held", host)

    def hold(self, host: str, seconds: float | None) -> None:
        """Keep everybody's requests back."""
        self._ask("hold", host, seconds)


def run_task(run: str, work: str, limits: Limits, task: bytes) -> bytes:
    """Do one task on a Dask worker, in this thread's supervised process; called by Dask."""
    from distributed import get_worker

    at = run, threading.get_ident()
    with _lock:
        if at not in _children:
            _children[at] = Supervised(work, limits, SchedulersPace(get_worker()))
        child = _children[at]
    done = child.run(task)
    return pack(done.head, done.parts)


def end_run(run: str) -> None:
    """End the processes of a run on a Dask worker; called by Dask."""
    with _lock:
        ended = [_children.pop(at) for at in list(_children) if at[0] == run]
    for child in ended:
        child.interrupt()
        child.kill()


def version() -> str:
    """Return the version of kinprint on a Dask worker; called by Dask."""
    return __version__


class DaskWorkers(Workers):
    """The workers of a Dask cluster."""

    def __init__(self, address: str, work: str, limits: Limits, per_s: float | None) -> None:
        distributed = imported("distributed", "scanning on a cluster", extra="cluster")
        self.where = quotable(address)
        try:
            self._client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            said = f"no Dask scheduler answers at {printable(self.where, 200)}: {printable(str(error), 200)}"
            raise TransferError(said, hint="start one with: dask scheduler; or leave out --scheduler") from error
        self._run = uuid4().hex
        self._work, self._limits = work, limits
        self._done: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._futures: dict[int, Any] = {}
        try:
            self._prepare(per_s)
        except BaseException:
            self._client.close()
            raise

    def _prepare(self, per_s: float | None) -> None:
        from kinprint.scan.pace_keeper import PaceKeeper

        self._client.register_plugin(PaceKeeper(per_s), name=f"kinprint-pace-{self._run}")
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            said = f"the Dask scheduler at {printable(self.where, 200)} has no workers"
            raise TransferError(said, hint="start some with: dask worker ADDRESS") from error
        for place, found in self._client.run(version).items():
            if found != __version__:
                got = f"has kinprint {printable(str(found), 40)}, expected {__version__}"
                said = f"the worker {printable(place, 100)} {got}"
                raise NotFound(said, hint="install the same kinprint on all machines of the cluster")

    @property
    def width(self) -> int:
        """How many threads the cluster's workers have now."""
        return sum(self._client.nthreads().values())

    def submit(self, number: int, task: bytes) -> None:
        """Queue a packed task under a number."""
        key = f"kinprint-{self._run}-{number}"
        future = self._client.submit(run_task, self._run, self._work, self._limits, task, key=key, pure=False)
        self._futures[number] = future
        future.add_done_callback(lambda done: self._take(number, done))

    def _take(self, number: int, future: Any) -> None:
        """Put an answer into the line; called by Dask, in a thread of its own."""
        if future.status == "cancelled":
            return
        try:
            answer = unpack(future.result()[LENGTH:])
        except Exception as error:  # noqa: BLE001 - whatever Dask raises: killed workers, an answer lost on the way
            said = printable(f"{type(error).__name__}: {error}", 500)
            told = {"class": LOST, "message": said, "expected": True, "hint": None}
            answer = Message({"kind": "done", "error": told})
        self._done.put((number, answer))

    def next_done(self, timeout_s: float) -> tuple[int, Message] | None:
        """Return the number and answer of a task that is done, or None if none is in time."""
        try:
            number, answer = self._done.get(timeout=timeout_s)
        except Empty:
            if self._client.status in ("closing", "closed"):
                said = f"the Dask scheduler at {printable(self.where, 200)} went away"
                hint = "what is done is in the catalog: run the same command again"
                raise TransferError(said, hint=hint) from None
            return None
        self._futures.pop(number, None)  # the last one to hold it: Dask forgets the answer
        return number, answer

    def close(self) -> None:
        """End what is under way, and all processes of this run; the cluster stays."""
        with suppress(Exception):  # a cluster that is gone has ended them by itself
            self._client.cancel(list(self._futures.values()), force=True)
            self._client.run(end_run, self._run)
            self._client.unregister_scheduler_plugin(f"kinprint-pace-{self._run}")
        self._futures.clear()
        self._client.close()
