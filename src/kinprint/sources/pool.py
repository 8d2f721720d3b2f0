"""Run jobs on daemon threads, which never keep the program alive.

The standard pool joins its threads when the interpreter ends, so that one stalled server would hold an interrupted
program for a whole read timeout. Threads are started by `_thread`, as `threading.Thread.start` waits until the new thread
runs: 60 ms for 48 of them on a small virtual machine, and 2 ms without.
"""

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
_Job = tuple[Future[Any], Callable[[], Any]]


class DaemonPool:
    """Pool of at most `size` daemon threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.threads = 0  # that have not ended
        self._ended = threading.Condition(self._lock)
        self._closed = False

    def submit(self, function: Callable[[], R]) -> Future[R]:
        """Queue a job."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the session is closed")
            self._jobs.put((future, function))
            if not self._idle.acquire(blocking=False) and self.threads < self._size:
                _thread.start_new_thread(self._run, ())
                self.threads += 1
        return future

    def close(self, *, wait: bool) -> None:
        """Cancel what has not started, and end the threads; `wait` for those at work."""
        with self._lock:
            self._closed = True
            with suppress(Empty):
                while True:
                    if (job := self._jobs.get_nowait()) is not None:
                        job[0].cancel()
            for _ in range(self.threads):
                self._jobs.put(None)
            if wait:
                self._ended.wait_for(lambda: self.threads == 0)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                future, function = job
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(function())
                    except BaseException as error:  # noqa: BLE001  handed to whoever asks for the result
                        future.set_exception(error)
                del future, function, job
                self._idle.release()
        finally:
            with self._lock:
                self.threads -= 1
                if self.threads == 0:
                    self._ended.notify_all()
