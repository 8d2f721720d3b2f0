"""Do independent work on all cores: numpy lets go of the interpreter in products, decompositions and assignments."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
_inside: ContextVar[bool] = ContextVar("inside", default=False)


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
    try:
        with ThreadPoolExecutor(threads) as workers:
            return [task.result() for task in [workers.submit(copy_context().run, work, item) for item in given]]
    finally:
        _inside.reset(token)
