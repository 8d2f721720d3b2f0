"""Train members in worker processes that report their steps and end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kinprint._util.progress import Progress
from kinprint.errors import KinprintError
from kinprint.lab.zoo.members import Training, ZooMember

_ENDING_SECONDS = 5
# Matrix products of this size gain nothing from a second thread, and two workers would fight for the cores.
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Task:
    """A member to train, its key, how many steps that takes, and which tasks must be done before."""

    name: str
    key: str
    steps: int
    waits_for: frozenset[str]


def run_tasks(
    tasks: list[Task], folder: Path, members: Mapping[str, ZooMember], *, workers: int, progress: Progress
) -> None:
    """Train and store every task's member. Raise KinprintError, all workers ended, if one ends before its work is done."""
    pool = _Pool(min(workers, len(tasks)), folder, members)
    try:
        _drive(pool, tasks, progress)
    finally:
        pool.end()


def _drive(pool: _Pool, tasks: list[Task], progress: Progress) -> None:
    waiting, total = list(tasks), sum(task.steps for task in tasks)
    done: set[str] = set()
    steps: dict[str, int] = {}
    names = {task.name for task in tasks}
    while len(done) < len(tasks):
        for channel in pool.idle():
            ready = next((task for task in waiting if not (task.waits_for & names) - done), None)
            if ready is None:
                break
            waiting.remove(ready)
            pool.start(channel, ready)
        for name, count in pool.listen():
            if count is None:
                done.add(name)
                count = next(task.steps for task in tasks if task.name == name)
            steps[name] = count
            progress("train", sum(steps.values()), total)


class _Pool:
    """The worker processes and the tasks they are at."""

    def __init__(self, count: int, folder: Path, members: Mapping[str, ZooMember]) -> None:
        context = multiprocessing.get_context("spawn")  # a forked torch may hang, and threads are set at its import
        self._processes: list[BaseProcess] = []
        self._busy: dict[Connection, Task | None] = {}
        before = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update(_THREADS)
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, folder, dict(members)), daemon=True)
                process.start()
                theirs.close()
                self._processes.append(process)
                self._busy[ours] = None
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def idle(self) -> list[Connection]:
        return [channel for channel, task in self._busy.items() if task is None]

    def start(self, channel: Connection, task: Task) -> None:
        self._busy[channel] = task
        channel.send((task.name, task.key))

    def listen(self) -> list[tuple[str, int | None]]:
        """Wait for news: steps done of a member, or None where it is finished."""
        news: list[tuple[str, int | None]] = []
        for channel in wait(list(self._busy)):
            assert isinstance(channel, Connection)
            task = self._busy[channel]
            try:
                name, count = channel.recv()
            except (EOFError, ConnectionResetError) as error:
                at = f"training {task.name}" if task else "waiting"
                said = f"a worker ended while {at}; its own message stands above"
                raise KinprintError(said, hint="build again: what is done is kept") from error
            if count is None:
                self._busy[channel] = None
            news.append((name, count))
        return news

    def end(self) -> None:
        """End the workers, at work or not."""
        for channel in self._busy:
            channel.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_ENDING_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


def _work(channel: Any, folder: Path, members: Mapping[str, ZooMember]) -> None:
    """Train what is asked for until the other side hangs up."""
    # An interrupt from the keyboard reaches every process; the one that started us ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from kinprint.lab.zoo.build import FILES, MODELS, store_member
    from kinprint.lab.zoo.relations import Record
    from kinprint.lab.zoo.store import Zoo
    from kinprint.lab.zoo.training import train_member

    places: dict[str, tuple[str, Mapping[str, str]]] = {
        name: (f"{MODELS}/{name}", dict.fromkeys(FILES, ""))
        for name, m in members.items()
        if isinstance(m.how, Training)
    }
    zoo = Zoo(folder, Record("", "", {}, members, places))
    try:
        while True:
            name, key = channel.recv()
            member = members[name]
            assert isinstance(member.how, Training)
            parents = [zoo.load(parent) for parent in member.parents]
            teacher = zoo.load(member.teacher) if member.teacher else None
            told = partial(_tell, channel, name)
            model, measured = train_member(member.how, parents, teacher, report=told)
            store_member(folder, name, key, model, measured)
            channel.send((name, None))
    except (EOFError, BrokenPipeError):
        return


def _tell(channel: Any, name: str, step: int, loss: float) -> None:  # noqa: ARG001 - the signature of reports
    channel.send((name, step))
