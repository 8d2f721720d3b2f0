"""One worker process: `python -m kinprint.scan.worker MODULE:FUNCTION` works off tasks that come by its standard input.

A stranger's model may crash it, fill its memory or never end: it has a limit of memory, holds nothing that matters, and its parent
ends and replaces it. It asks its parent before every request to a host, so that all workers together keep one pace.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kinprint._util.plain import printable
from kinprint.errors import KinprintError
from kinprint.scan.frames import Ended, Message, pack, read_body, unpack, write_all

STACK_BYTES = 1 << 20  # of each thread: readers wait, and the limit of memory counts what they could use
ERROR_CHARS = 1000
WATCH_S = 0.5


class Parent:
    """The process that hands out tasks, and the gate of requests that it keeps for all workers."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._lock = threading.Lock()
        self.aside: dict[str, Any] = {}  # told beside the answer, also if the task failed: what it took, its commit

    def task(self) -> Message:
        """Wait for the next task."""
        return unpack(read_body(self._reads))

    def tell(self, head: dict[str, Any], parts: tuple[bytes, ...] = ()) -> None:
        """Send a message that has no answer."""
        with self._lock:
            write_all(self._writes, pack(head, parts))

    def _ask(self, head: dict[str, Any]) -> float:
        with self._lock:
            write_all(self._writes, pack(head))
            return float(unpack(read_body(self._reads)).head["seconds"])

    def turn_s(self, host: str) -> float:
        """Take a place in the line to a host; return the seconds until its turn."""
        return self._ask({"kind": "turn", "host": host})

    def held_s(self, host: str) -> float:
        """Return for how many seconds more the host wants no requests."""
        return self._ask({"kind": "held", "host": host})

    def hold(self, host: str, seconds: float | None) -> None:
        """Keep everybody's requests back."""
        self.tell({"kind": "hold", "host": host, "seconds": seconds})


Work = Callable[[Message, Parent], Message]
"""What a worker does with a task. It may raise KinprintError, which becomes the task's error."""


def limit_memory(memory_bytes: int | None) -> None:
    """Let this process have at most so much memory, where the system can (Linux); more raises MemoryError."""
    threading.stack_size(STACK_BYTES)
    if memory_bytes is None:
        return
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def error_of(error: BaseException) -> dict[str, Any]:
    """Return an error as data: its class, its message, and the next step."""
    said = error.message if isinstance(error, KinprintError) else str(error)
    hint = error.hint if isinstance(error, KinprintError) else None
    told = {"class": type(error).__name__, "message": printable(said, ERROR_CHARS), "expected": _expected(error)}
    return told | {"hint": hint and printable(hint, ERROR_CHARS)}


def _expected(error: BaseException) -> bool:
    return isinstance(error, KinprintError | MemoryError | RecursionError)


def answer(work: Work, task: Message, parent: Parent) -> Message:
    """Do one task; whatever a model makes go wrong is the task's answer, and nobody else's trouble."""
    before, parent.aside = time.process_time(), {}
    try:
        done = work(task, parent)
    except Ended:
        raise
    except Exception as error:  # noqa: BLE001 - a bug on one model must not stop the other thousands; it is recorded as one
        done = Message({"error": error_of(error)})
    aside = {**parent.aside, "cpu_s": time.process_time() - before}
    return Message(done.head | {"kind": "done", **aside}, done.parts)


def find(name: str) -> Work:
    """Return the function that MODULE:FUNCTION names."""
    module, _, function = name.partition(":")
    work: Work = getattr(importlib.import_module(module), function)
    return work


def end_with(parent: int) -> None:
    """End this process when its parent is gone: nobody would take what it still works on."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Work until the parent closes its end."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    name, memory = sys.argv[1], int(sys.argv[2]) or None
    # What anything prints must not end among the messages.
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    warnings.simplefilter("ignore", RuntimeWarning)  # what numpy warns of ends in a figure's status
    parent = Parent(reads, writes)
    work = find(name)
    limit_memory(memory)
    end_with(os.getppid())
    with suppress(Ended, KeyboardInterrupt):
        parent.tell({"kind": "ready"})
        while True:
            done = answer(work, parent.task(), parent)
            parent.tell(done.head, done.parts)
            if done.head.get("error", {}).get("class") == "MemoryError":
                break  # what is left of the memory is unknown: the next task gets a new process
    os._exit(0)  # threads may sit in a read, and nothing is left to be written


if __name__ == "__main__":
    main()
