"""Where tasks are worked off: the interface, and processes on this machine."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue

from kinprint._util.cores import cores
from kinprint.scan.frames import Message
from kinprint.scan.supervised import Limits, Supervised
from kinprint.sources.pace import Pace
from kinprint.text import Text


def usual_workers() -> int:
    """Return how many processes to run here: a model from the hub waits for about as long as it computes."""
    return 2 * cores()


class Workers(AbstractContextManager["Workers"], ABC):
    """Tasks in, answers out, in any order; each task is answered once, whatever happens to the process that has it."""

    where: str  # for reports: this machine, or the address of a scheduler

    @property
    @abstractmethod
    def width(self) -> int:
        """How many tasks can be worked on at a time, now."""

    @abstractmethod
    def submit(self, number: int, task: bytes) -> None:
        """Queue a packed task under a number."""

    @abstractmethod
    def next_done(self, timeout_s: float) -> tuple[int, Message] | None:
        """Return the number and answer of a task that is done, or None if none is in time."""

    @abstractmethod
    def close(self) -> None:
        """End what is under way, and all processes."""

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalWorkers(Workers):
    """Processes on this machine, each with a thread here that feeds it."""

    where = Text("this machine")

    def __init__(self, work: str, count: int, limits: Limits, pace: Pace) -> None:
        self._tasks: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._closed = threading.Event()
        self._workers = [Supervised(work, limits, pace) for _ in range(count)]
        self._threads = [threading.Thread(target=self._feed, args=(one,), daemon=True) for one in self._workers]
        for thread in self._threads:
            thread.start()

    @property
    def width(self) -> int:
        """How many processes there are."""
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def _feed(self, worker: Supervised) -> None:
        while not self._closed.is_set() and (job := self._tasks.get()) is not None:
            number, task = job
            answer = worker.run(task)
            self._done.put((number, answer))
        worker.kill()

    def submit(self, number: int, task: bytes) -> None:
        """Queue a packed task under a number."""
        self._tasks.put((number, task))

    def next_done(self, timeout_s: float) -> tuple[int, Message] | None:
        """Return the number and answer of a task that is done, or None if none is in time."""
        try:
            return self._done.get(timeout=timeout_s)
        except Empty:
            return None

    def close(self) -> None:
        """End what is under way, and all processes."""
        self._closed.set()
        for _ in self._threads:
            self._tasks.put(None)
        for worker in self._workers:
            worker.interrupt()
        for thread in self._threads:
            thread.join()
