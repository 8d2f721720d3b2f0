"""Do independent work on all cores: in threads, where numpy lets go of the interpreter, or in forks of the command."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from typing import NoReturn, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_inside: ContextVar[bool] = ContextVar("inside", default=False)
_forks = False  # whether this process may fork
_LENGTH = 8  # bytes that say how long a fork's answer is


def allow_forks() -> None:
    """Let `aside` fork from now on: for the command, whose other threads are its own and hold no lock that a fork would need."""
    global _forks  # said once, by the command line
    _forks = sys.platform == "linux" and cores() > 1


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
    """Begin pure work, on what is in memory, in a fork; what is returned waits for its answer. Without forks it works then.

    Narrow arrays make threads wait for the interpreter, which a process of its own does not. The answer comes as bytes, which
    `write` makes and `read` reads. A fork that ends without one (killed, out of memory) leaves the work to the process that asked.
    """
    if not _forks:
        return work
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # no memory or no process left: it works here as well
        os.close(reading)
        os.close(writing)
        return work
    if child == 0:
        _answer(lambda: write(work()), reading, writing)
    os.close(writing)

    def wait() -> T:
        with os.fdopen(reading, "rb") as answers:
            length, answer = int.from_bytes(answers.read(_LENGTH)), answers.read()
        with suppress(
            ChildProcessError
        ):  # reaped already, where the process that started this one ignores its children
            os.waitpid(child, 0)
        return read(answer) if answer and len(answer) == length else work()

    return wait


def _answer(work: Callable[[], bytes], reading: int, writing: int) -> NoReturn:
    """Do the work of a fork, and end it; of an error nothing is written, so that it is met again where it can be told."""
    global _forks  # no forks of forks
    try:
        _forks = False
        os.close(reading)
        answer = work()
        with os.fdopen(writing, "wb") as answers:
            answers.write(len(answer).to_bytes(_LENGTH) + answer)
    finally:
        os._exit(0)  # neither the caller's clean-up nor its streams are the fork's
