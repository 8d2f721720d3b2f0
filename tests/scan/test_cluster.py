"""The engine on a real Dask scheduler with workers in processes of their own."""

import os
import signal

import pytest

pytest.importorskip("distributed", reason="needs the extra `cluster`")

from kinprint.errors import TransferError
from kinprint.scan.cluster import DaskWorkers
from kinprint.scan.engine import Job, work_off
from kinprint.scan.frames import pack
from kinprint.scan.supervised import Limits
from support.dask_cluster import running_cluster

pytestmark = pytest.mark.slow
WORK = "support.scan_works:echo"


def test_a_cluster_answers_every_task_once_though_a_worker_is_killed(tmp_path):
    with running_cluster(tmp_path) as cluster, DaskWorkers(cluster.address, WORK, Limits(), 0.1) as workers:
        tasks = [{"do": "sleep", "seconds": 0.1} for _ in range(24)]
        tasks[3] = {"do": "refuse"}
        tasks[4] = {"do": "die"}
        tasks[20] = tasks[21] = {"do": "turn", "host": "hub.test"}
        tasks[22] = {"do": "hold", "host": "other.test", "seconds": 40.0}
        found = {}
        for number, answer in work_off((Job(n, pack({"number": n, **task})) for n, task in enumerate(tasks)), workers):
            assert number not in found
            found[number] = answer
            if len(found) == 6:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)
        assert sorted(found) == list(range(24))
        errors = {n: answer.head["error"]["class"] for n, answer in found.items() if "error" in answer.head}
        assert errors == {3: "FormatError", 4: "WorkerLost"}
        assert workers.width == 1
        assert found[22].head["wait"] == pytest.approx(40.0, abs=1.0)
        # one pace for the cluster, kept by its scheduler: both had a place in the same line
        assert all(answer.head["wait"] == 0.0 for answer in (found[20], found[21]))
        late = list(work_off((Job(n, pack({"do": "turn", "host": "hub.test"})) for n in range(40)), workers))
        assert max(answer.head["wait"] for _, answer in late) > 60.0


def test_where_no_scheduler_answers_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("kinprint.scan.cluster.CONNECT_S", 0.5)
    with pytest.raises(TransferError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        DaskWorkers("tcp://127.0.0.1:9", WORK, Limits(), None)
