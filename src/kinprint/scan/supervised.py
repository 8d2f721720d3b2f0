"""Keep one worker process: start it, give it tasks, end it when it takes too long, start it anew when it died."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from kinprint.scan.frames import Ended, Message, TooLate, pack, read_body, unpack, write_all
from kinprint.sources.pace import Gate

ATTEMPTS = 3  # processes that one task may bring down before it is the task's fault
START_S = 120.0  # for a worker to load its libraries, on a machine that starts many
LOST, LATE = "WorkerLost", "TimedOut"


@dataclass(frozen=True)
class Limits:
    """What one task may take: `memory_bytes` of its process (None: no limit), `seconds` before it is ended."""

    memory_bytes: int | None = 2 << 30
    seconds: float = 900.0


class Supervised:
    """One worker process at a time, which does `work` (MODULE:FUNCTION). Not for several threads."""

    def __init__(
        self, work: str, limits: Limits, gate: Gate, hear: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self._work, self._limits, self._gate = work, limits, gate
        self._hear = hear  # what else a task tells while it runs
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.started = 0

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None else None

    def run(self, task: bytes) -> Message:
        """Do a packed task and return its answer; what killed its process, or ran out of time, is an error in the answer."""
        died = "was stopped"
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(task)
            except TooLate:
                self.kill()
                said = f"not done after {self._limits.seconds:g} s, and ended"
                return _error(LATE, said, "give a larger --timeout")
            except (Ended, ValueError) as error:
                died = self._how_it_ended(error)
            if self._stopped:
                break
        said = f"its worker process {died}, {ATTEMPTS} times"
        return _error(LOST, said, "try this model alone: kinprint catalog add")

    def _attempt(self, task: bytes) -> Message:
        process = self._ensure()
        assert process.stdin is not None
        assert process.stdout is not None
        reads, writes = process.stdout.fileno(), process.stdin.fileno()
        write_all(writes, task)
        due = time.monotonic() + self._limits.seconds
        while True:
            told = unpack(read_body(reads, due))
            kind, host = told.head.get("kind"), str(told.head.get("host"))
            if kind == "done":
                if told.head.get("error", {}).get("class") == "MemoryError":
                    self.kill()  # it ends by itself: what is left of its memory is unknown
                return told
            if kind in ("turn", "held"):
                wait = self._gate.turn_s(host) if kind == "turn" else self._gate.held_s(host)
                due += wait  # waiting for others is not the task's time
                write_all(writes, pack({"seconds": wait}))
            elif kind == "hold":
                self._gate.hold(host, told.head.get("seconds"))
            elif self._hear is not None:
                self._hear(told.head)

    def _ensure(self) -> subprocess.Popen[bytes]:
        """Return a running process, a new one if there is none."""
        if self._process is None:
            memory = str(self._limits.memory_bytes or 0)
            command = [sys.executable, "-m", "kinprint.scan.worker", self._work, memory]
            # a session of its own: an interrupt at the terminal is the parent's to handle
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
            self.started += 1
            assert self._process.stdout is not None
            if self._stopped:
                raise Ended
            unpack(read_body(self._process.stdout.fileno(), time.monotonic() + START_S))
        return self._process

    def start(self) -> None:
        """Start the process before there is a task for it; one that does not start is tried again by the first task."""
        with suppress(Ended, TooLate, ValueError, OSError):
            self._ensure()

    def _how_it_ended(self, error: Exception) -> str:
        process = self._process
        self.kill(wait_s=1.0)
        status = process.returncode if process is not None else None
        if isinstance(error, ValueError):
            return f"sent what is no message ({error})"
        if status is not None and status < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-status).name}"
        return f"ended with exit status {status}"

    def interrupt(self) -> None:
        """End the process and take no further task; called from another thread than the one that runs tasks."""
        self._stopped = True
        process = self._process
        if process is not None:
            with suppress(OSError):
                process.kill()

    def kill(self, wait_s: float = 0.0) -> None:
        """End the process, after it had a moment to end by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        if wait_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
        _reap(process)

    def __enter__(self) -> Supervised:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _reap(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _error(name: str, said: str, hint: str) -> Message:
    head: dict[str, Any] = {"class": name, "message": said, "expected": True, "hint": hint}
    return Message({"kind": "done", "error": head})
