import os

import pytest

from kinprint.scan.supervised import Limits
from kinprint.scan.workers import LocalWorkers
from kinprint.sources.pace import Pace
from support.places import ROOT


@pytest.fixture
def start_workers(monkeypatch):
    """Start worker processes on this machine, which find the works of the tests; all are ended."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))
    started = []

    def start(work, count=2, *, pace=None, **limits):
        workers = LocalWorkers(work, count, Limits(**limits), pace or Pace())
        started.append(workers)
        return workers

    yield start
    for workers in started:
        workers.close()
        assert workers.pids == []
