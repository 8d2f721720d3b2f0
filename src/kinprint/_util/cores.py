"""Do independent work on all cores: in threads, where numpy lets go of the interpreter, or in forks of the command."""

import gc
import os
import select
import signal
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from io import FileIO
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_inside: ContextVar[bool] = ContextVar("inside", default=False)
_forks = False  # whether this process may fork
_LENGTH = 8  # bytes that say how long a fork's answer is


def allow_forks() -> None:
    """Let `aside` fork from now on: for the command, whose other threads are its own and hold no lock that a fork would need."""
    global _forks  # said once, by the command line
    _forks = sys.platform == "linux" and hasattr(os, "memfd_create") and cores() > 1


def may_fork() -> bool:
    """Whether work aside runs in a fork."""
    return _forks


@cache
def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(work: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Return `work` of each item, in their order; one after the other where this is part of such work already."""
    given = list(items)
    threads = min(len(given), cores())
    if threads < 2 or _inside.get():
        return [work(item) for item in given]
    token = _inside.set(True)
    from concurrent.futures import ThreadPoolExecutor  # late, as below: `kinprint --help` must not wait for it

    try:
        with ThreadPoolExecutor(threads) as workers:
            return [task.result() for task in [workers.submit(copy_context().run, work, item) for item in given]]
    finally:
        _inside.reset(token)


def in_a_thread(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work in a thread; what is returned waits for it."""
    from concurrent.futures import ThreadPoolExecutor

    worker = ThreadPoolExecutor(1)
    running = worker.submit(work)
    worker.shutdown(wait=False)
    return running.result


def one_thread_for_products() -> AbstractContextManager[object]:
    """Let numpy use one thread for each matrix product while this lasts, and afterwards as many as before.

    Its other threads wait in a loop: beside anything else that runs, a comparison of small models took 9 s of CPU instead of 0.9.
    The command line says so before numpy loads; in a notebook numpy is there first.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return nullcontext()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


def aside(work: Callable[[], T], write: Callable[[T], bytes], read: Callable[[bytes], T]) -> Callable[[], T]:
    """Let pure work, on what is in memory, be done in a fork; what is returned waits for its answer. Without forks it works then.

    Narrow arrays make threads wait for the interpreter, which a process of its own does not. The answer comes as bytes, which
    `write` makes and `read` reads. A fork begins as soon as there is a core for it: each holds memory of its own. Work that has not
    begun when its answer is asked for is done by who asks, and so is that of a fork that ends without one (killed, out of memory).
    """
    if not _forks:
        return work
    turn = _Turn(work, write, read)
    _waiting.append(weakref.ref(turn))
    take_turns()
    return turn.answer


def take_turns() -> None:
    """Begin what waits for its turn, while forks and their caller together are fewer than the cores."""
    if not _forks:
        return
    _at_work[:] = [fork for fork in _at_work if not fork.ended]
    while _waiting and len(_at_work) < cores() - 1:
        if (turn := _waiting.popleft()()) is not None:
            turn.begin()


class _Fork:
    """A fork at work, with the file in memory that it writes its answer to; it leaves nobody waiting for a reader."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        with ExitStack() as opened:
            self._file = opened.enter_context(os.fdopen(os.memfd_create("answer"), "r+b", buffering=0))
            reading, writing = os.pipe()  # nobody writes to it: it is closed when the fork ends, however it does
            self._alive = opened.enter_context(os.fdopen(reading, "rb", buffering=0))
            gc.freeze()  # or the next search for cycles would mark every object, and copy every page that both have
            with os.fdopen(writing, "wb"):
                self._child = os.fork()
                if self._child == 0:
                    _answer(work, self._file)
            opened.pop_all()

    @property
    def ended(self) -> bool:
        """Whether it has, without waiting for it."""
        if self._alive.closed:
            return True
        asked = select.poll()
        asked.register(self._alive)
        return bool(asked.poll(0))

    def wait(self) -> bytes:
        """Return its answer; nothing if it ended without one."""
        self._alive.read()
        self._file.seek(0)
        length, answer = int.from_bytes(self._file.read(_LENGTH)), self._file.readall()
        self._let_go()
        return answer if len(answer) == length else b""

    def end(self) -> None:
        """End it, as nobody waits for it any more: it would hold its memory for as long as the command lives."""
        if not _forks:  # a fork's copy of this: the others are its caller's
            return
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        self._let_go()

    def _let_go(self) -> None:
        self._alive.close()
        self._file.close()
        with suppress(ChildProcessError):  # reaped already, where the caller of this process ignores its children
            os.waitpid(self._child, 0)


class _Turn(Generic[T]):
    """Work that waits for a fork to be done in."""

    def __init__(self, work: Callable[[], T], write: Callable[[T], bytes], read: Callable[[bytes], T]) -> None:
        self._work, self._write, self._read = work, write, read
        self._fork: _Fork | None = None

    def begin(self) -> None:
        """Begin it in a fork; where there can be none (no memory, too many files or processes), it stays for who asks."""
        with suppress(OSError):
            self._fork = _Fork(lambda: self._write(self._work()))
            _at_work.append(self._fork)
            self._unwanted = weakref.finalize(self, self._fork.end)

    def answer(self) -> T:
        """Return the answer."""
        if self._fork is None:
            with suppress(ValueError):
                _waiting.remove(weakref.ref(self))
            return self._work()
        found = self._fork.wait()
        self._unwanted.detach()
        take_turns()
        return self._read(found) if found else self._work()


_waiting: deque[weakref.ref[_Turn[Any]]] = deque()
_at_work: list[_Fork] = []


def _answer(work: Callable[[], bytes], answers: FileIO) -> NoReturn:
    """Do the work of a fork, and end it; of an error nothing is written, so that it is met again where it can be told."""
    global _forks  # no forks of forks
    try:
        _forks = False
        gc.disable()  # its marks would copy every page of objects that both have
        answer = work()
        answers.write(len(answer).to_bytes(_LENGTH))
        answers.write(answer)
    finally:
        os._exit(0)  # neither the caller's clean-up nor its streams are the fork's
