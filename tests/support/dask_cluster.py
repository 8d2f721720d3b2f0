"""A Dask scheduler and workers on loopback, in processes of their own, for tests and benches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.places import ROOT

START_S = 60.0


@dataclass
class DaskCluster:
    """The address of a scheduler, and the processes of its workers."""

    address: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)


def _start(module: str, *arguments: str, scratch: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "false",
        "OPENBLAS_NUM_THREADS": "1",
    }
    log = (scratch / f"{module}-{time.monotonic_ns()}.log").open("wb")
    command = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.{module}", *arguments]
    with log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=scratch)


@contextmanager
def running_cluster(scratch: Path, workers: int = 2) -> Iterator[DaskCluster]:
    """Run a scheduler and so many workers of one thread each; all are ended at the end."""
    known = scratch / "scheduler.json"
    on_loopback = ("--host", "127.0.0.1", "--no-dashboard")
    processes = [_start("dask_scheduler", *on_loopback, "--port", "0", "--scheduler-file", str(known), scratch=scratch)]
    try:
        cluster = DaskCluster(_address(known, processes[0]))
        alone = (*on_loopback, "--nthreads", "1", "--no-nanny", "--local-directory", str(scratch))
        for _ in range(workers):
            cluster.workers.append(_start("dask_worker", cluster.address, *alone, scratch=scratch))
        processes += cluster.workers
        yield cluster
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _address(known: Path, scheduler: subprocess.Popen[bytes]) -> str:
    due = time.monotonic() + START_S
    while time.monotonic() < due and scheduler.poll() is None:
        try:
            return str(json.loads(known.read_text(encoding="utf-8"))["address"])
        except (FileNotFoundError, ValueError):
            time.sleep(0.05)
    raise RuntimeError("the Dask scheduler did not start; its log lies beside the scheduler file")
