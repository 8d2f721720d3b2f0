"""Work off any number of tasks: few under way at a time, answers handled one by one as they come, by the caller's thread alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from kinprint.scan.frames import Message
from kinprint.scan.workers import Workers

T = TypeVar("T")
AHEAD = 2  # tasks for each that can be worked on: a process that is done finds the next one waiting
TICK_S = 0.2


@dataclass(frozen=True)
class Job(Generic[T]):
    """What is asked for, and the packed task that asks for it."""

    what: T
    task: bytes


def work_off(
    jobs: Iterable[Job[T]], workers: Workers, tell: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[T, Message]]:
    """Yield what every job asked for with its answer, as they come; `jobs` is read no further than needed.

    `tell` hears how many are under way, some times a second, so that progress can be shown while nothing is done.
    """
    under_way: dict[int, T] = {}
    waiting = enumerate(jobs)
    more = True
    while more or under_way:
        while more and len(under_way) < max(1, AHEAD * workers.width):
            found = next(waiting, None)
            if found is None:
                more = False
                break
            number, job = found
            under_way[number] = job.what
            workers.submit(number, job.task)
        if not under_way:
            break
        tell(len(under_way))
        done = workers.next_done(TICK_S)
        if done is None or done[0] not in under_way:
            continue
        yield under_way.pop(done[0]), done[1]


class Rate:
    """How many things are done in a second, over the last while: the first ones, which start processes, are forgotten."""

    def __init__(self, window_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s, self._clock = window_s, clock
        self._began = clock()
        self._times: list[float] = []

    def count(self) -> None:
        """One more is done."""
        now = self._clock()
        self._times.append(now)
        while self._times[0] < now - self._window_s:
            del self._times[0]

    @property
    def per_s(self) -> float:
        """Things in a second."""
        now = self._clock()
        since = max(self._began, now - self._window_s)
        return len([at for at in self._times if at >= since]) / max(now - since, 1e-9)
