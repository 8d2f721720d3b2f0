"""Scans of a local hub: complete, each model once, resumable, and stopped by no model."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from kinprint.catalog.store import open_catalog
from kinprint.errors import BadReference, FormatError, NotFound
from kinprint.results.scan import ScanReport
from kinprint.scan.fingerprinting import WORK
from kinprint.scan.frames import LENGTH, Message, unpack
from kinprint.scan.run import exit_code, scan
from kinprint.scan.wanted import Wanted, wanted, wanted_of
from kinprint.scan.workers import LocalWorkers
from support.hub import Fault, HubServer
from support.places import ROOT
from support.tiny_models import write_tiny

pytestmark = pytest.mark.slow
COUNT = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    return [write_tiny(root / f"m{n}", n) for n in range(COUNT)]


@pytest.fixture
def tiny_hub(folders, monkeypatch):
    with HubServer(page_size=3) as server:
        server.commits = {f"kin/{folder.name}": server.add_repo(f"kin/{folder.name}", folder) for folder in folders}
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def catalog(tmp_path):
    with open_catalog(tmp_path / "catalog.db") as opened:
        yield opened


def contents(catalog):
    """All that a catalog holds, but for when it was entered."""
    return sorted((entry.name, entry.revision, entry.key, entry.licence) for entry in catalog.entries())


def test_a_scan_enters_every_model_once_and_a_second_one_asks_for_the_commits_only(
    tiny_hub, start_workers, catalog, session_for
):
    workers = start_workers(WORK)
    models = [Wanted(name) for name in tiny_hub.commits]
    report = scan(models, catalog, workers)
    assert (report.wanted, report.added, report.known, report.failed) == (COUNT, COUNT, 0, ())
    assert {entry.name: entry.revision for entry in catalog.entries()} == tiny_hub.commits
    assert {entry.licence for entry in catalog.entries()} == {"mit"}
    assert report.requests == len(tiny_hub.requests)
    assert report.network_bytes > 0
    assert ScanReport.from_json(report.to_json()) == report

    tiny_hub.reset()
    report = scan(models, catalog, workers)
    assert (report.added, report.known, len(tiny_hub.requests)) == (0, COUNT, COUNT)

    tiny_hub.reset()  # the listing tells the commits: nothing more is asked for
    report = scan(wanted_of(["kin"], session_for(tiny_hub)), catalog, workers)
    assert (report.added, report.known) == (0, COUNT)
    assert {request.path for request in tiny_hub.requests} == {"/api/models"}


def test_what_is_no_fault_of_the_model_is_not_noted(tiny_hub, start_workers, catalog):
    """As `catalog add` has it: --offline says nothing of a model."""
    name = next(iter(tiny_hub.commits))
    report = scan([Wanted(name)], catalog, start_workers(WORK), offline=True)
    assert [item.error.partition(":")[0] for item in report.failed] == ["OfflineError"]
    assert catalog.failures() == []


def test_another_file_of_a_repository_is_another_model(tiny_hub, start_workers, catalog, folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "two")
    shutil.copy(folders[1] / "model.safetensors", tmp_path / "two" / "other.safetensors")
    tiny_hub.add_repo("kin/two", tmp_path / "two")
    workers = start_workers(WORK)
    other = [Wanted("hf://kin/two@main/other.safetensors")]
    assert scan([Wanted("kin/two")], catalog, workers).added == 1
    assert scan(other, catalog, workers).added == 1
    assert scan(other, catalog, workers).known == 1
    assert {entry.name for entry in catalog.entries()} == {"kin/two", "kin/two/other.safetensors"}


def test_a_tag_of_a_commit_that_is_entered_costs_one_request_however_it_is_written(tiny_hub, start_workers, catalog):
    workers = start_workers(WORK, 1)
    models = [Wanted("kin/m0@main"), Wanted("hf://kin/m1"), Wanted("hf://kin/m2@main")]
    assert scan(models, catalog, workers).added == 3
    tiny_hub.reset()
    assert scan(models, catalog, workers).known == len(tiny_hub.requests) == 3


def test_a_new_commit_is_entered_beside_the_old_one(tiny_hub, start_workers, catalog, folders):
    workers = start_workers(WORK, 1)
    scan([Wanted("kin/m0")], catalog, workers)
    new = tiny_hub.add_revision("kin/m0", "main", folders[1])
    report = scan([Wanted("kin/m0")], catalog, workers)
    assert report.added == 1
    assert {entry.revision for entry in catalog.entries()} == {tiny_hub.commits["kin/m0"], new}


def test_models_that_fail_are_noted_and_stop_nobody(tiny_hub, start_workers, catalog, folders, tmp_path):
    broken = tmp_path / "broken"
    write_tiny(broken, 1)
    (broken / "model.safetensors").write_bytes(b"\xff" * 64)
    commit = tiny_hub.add_repo("kin/broken", broken)
    tiny_hub.add_repo("kin/gated", folders[0], gated=True)
    models = [
        Wanted("kin/m0"),
        Wanted("kin/broken", commit),
        Wanted("kin/gated"),
        Wanted("kin/nowhere"),
        Wanted("a b c"),
    ]
    workers = start_workers(WORK)
    report = scan([*models, Wanted("kin/m1")], catalog, workers)
    assert report.added == 2
    classes = {failure.name: failure.error.partition(":")[0] for failure in report.failed}
    assert classes == {
        "kin/broken": "FormatError",
        "kin/gated": "AccessDenied",
        "kin/nowhere": "NotFound",
        "a b c": "BadReference",
    }
    assert {item.name for item in catalog.failures()} == set(classes)
    assert exit_code(report) in (3, 4, 6)

    report = scan([Wanted("kin/broken", commit)], catalog, workers)  # the same commit fails again: not read
    assert (report.failed_before, report.failed, report.requests) == (1, (), 0)
    report = scan([Wanted("kin/broken", commit)], catalog, workers, retry_failed=True)
    assert len(report.failed) == 1
    tiny_hub.add_revision("kin/broken", "main", folders[2])
    assert scan([Wanted("kin/broken")], catalog, workers).added == 1


@pytest.fixture
def broken(tmp_path):
    """A folder whose weights cannot be read."""
    folder = write_tiny(tmp_path / "broken" / "half", 1)
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    return folder


def test_a_broken_repository_of_a_plain_list_costs_one_request_when_it_is_scanned_again(
    tiny_hub, start_workers, catalog, broken, session_for
):
    commit = tiny_hub.add_repo("kin/bad", broken)
    workers = start_workers(WORK, 1)
    models = [Wanted("kin/bad")]
    report = scan(models, catalog, workers)
    assert [(item.name, item.revision) for item in report.failed] == [("kin/bad", commit)]
    assert [(item.name, item.revision) for item in catalog.failures()] == [("kin/bad", commit)]
    tiny_hub.reset()
    report = scan(models, catalog, workers)
    assert (report.failed_before, report.failed, len(tiny_hub.requests)) == (1, (), 1)
    report = scan(
        [model for model in wanted_of(["kin"], session_for(tiny_hub)) if "bad" in model.model], catalog, workers
    )
    assert (report.failed_before, report.requests) == (1, 0)
    assert len(scan(models, catalog, workers, retry_failed=True).failed) == 1
    assert len(scan(models, catalog, workers, again=True).failed) == 1
    assert len(catalog.failures()) == 1
    new = tiny_hub.add_revision("kin/bad", "main", broken, commit="b" * 40)
    assert scan(models, catalog, workers).failed[0].revision == new  # another commit may be another model


def test_what_was_noted_without_a_commit_is_told_better_by_one_that_is_known(tiny_hub, start_workers, catalog, broken):
    workers = start_workers(WORK, 1)
    tiny_hub.add_repo("kin/late", broken, gated=True)
    assert scan([Wanted("kin/late")], catalog, workers).failed[0].error.startswith("AccessDenied")
    commit = tiny_hub.add_repo("kin/late", broken)
    scan([Wanted("kin/late")], catalog, workers)
    assert [(item.name, item.revision) for item in catalog.failures()] == [("kin/late", commit)]


def test_the_note_of_a_folder_goes_when_it_is_mended(start_workers, catalog, broken):
    workers = start_workers(WORK, 1)
    models = [Wanted(str(broken))]
    assert len(scan(models, catalog, workers).failed) == len(catalog.failures()) == 1
    write_tiny(broken, 1)
    assert scan(models, catalog, workers).added == 1
    assert [entry.name for entry in catalog.entries()] == ["half"]
    assert catalog.failures() == []


class Backwards:
    """Workers that refuse what comes last first."""

    width, where = 2, "here"

    def __init__(self, errors):
        self._errors, self._waiting = errors, []

    def submit(self, number, task):
        self._waiting.append((number, unpack(task[LENGTH:]).head["model"]))

    def next_done(self, _wait_s):
        number, model = self._waiting.pop()
        return number, Message({"error": {"class": self._errors[model], "message": "no"}})


def test_failures_are_told_in_the_order_of_the_list_and_the_first_gives_the_exit_code(catalog):
    errors = {"a/bad": "FormatError", "b/nowhere": "NotFound"}
    for names, code in ((["a/bad", "b/nowhere"], 6), (["b/nowhere", "a/bad"], 3)):
        report = scan([Wanted(name) for name in names], catalog, Backwards(errors))
        assert [failure.name for failure in report.failed] == names
        assert exit_code(report) == code


def test_a_budget_holds_for_each_model(tiny_hub, start_workers, catalog):
    from kinprint.results.options import Options

    report = scan([Wanted("kin/m0")], catalog, start_workers(WORK, 1), options=Options(budget_bytes=2000))
    assert report.failed[0].error.startswith("BudgetExceeded")
    assert report.bytes_read <= 2000


def test_a_host_that_has_enough_is_left_alone_by_all_workers(tiny_hub, start_workers, catalog):
    from kinprint.sources.pace import Pace

    class Kept(Pace):
        def __init__(self):
            super().__init__(clock=count(0.0, 0.01).__next__)  # a busy machine would let the hold pass by itself
            self.held = []

        def hold(self, host, seconds):
            self.held.append((host, seconds))
            super().hold(host, seconds)

    pace = Kept()
    tiny_hub.add_fault(Fault(kind="status", value=429, retry_after=0.3, times=2))
    report = scan([Wanted(name) for name in tiny_hub.commits], catalog, start_workers(WORK, 2, pace=pace))
    assert (report.added, report.retries) == (COUNT, 2)
    assert pace.held == [("127.0.0.1", 0.3)] * 2
    assert pace.waited_s > 0.0  # the others waited too


def test_two_folders_of_one_name_are_told_apart(start_workers, catalog, folders, tmp_path):
    workers = start_workers(WORK, 1)
    other = write_tiny(tmp_path / "m0", 99)
    report = scan(wanted([str(folders[0]), str(other)], io.StringIO()), catalog, workers)
    assert report.added == 1
    assert "another model is entered as 'm0'" in report.failed[0].error
    assert scan([Wanted(str(folders[0]))], catalog, workers, again=True).added == 1
    both = scan([Wanted(str(folders[0])), Wanted(str(other)), Wanted(f"{folders[0]}/")], catalog, workers, again=True)
    assert (both.added, both.known, len(both.failed), catalog.count()) == (1, 1, 1, 1)  # neither undoes the other


def test_lists_name_models_in_every_way(tmp_path, folders):
    commit = "0123456789" * 4
    listed = tmp_path / "list.txt"
    listed.write_text(f"# models\nkin/a\n\nkin/a  # again\nkin/b@{commit}\nhf://kin/c@{commit}\nkin/d@v1\n")
    stdin = io.StringIO("kin/e\n./folder\n")
    found = wanted([str(listed), "-", "kin/f", str(folders[0]), str(folders[0].parent)], stdin)
    names = [model.reference for model in found]
    assert names[:7] == ["kin/a", f"kin/b@{commit}", f"kin/c@{commit}", "kin/d@v1", "kin/e", "./folder", "kin/f"]
    assert sorted(names[7:]) == sorted(map(str, folders))
    assert found[1] == Wanted("kin/b", commit)
    with pytest.raises(NotFound, match="holds a file of weights"):
        wanted([str(tmp_path)], stdin)
    listed.write_text("x" * 5000)
    with pytest.raises(BadReference, match="line 1: more than 4096 letters"):
        wanted([str(listed)], stdin)
    listed.write_bytes(b"kin/a\n\xff\xfe\n")
    with pytest.raises(BadReference, match="not UTF-8"):
        wanted([str(listed)], stdin)


def test_a_folder_that_may_not_be_looked_into_stops_no_other(tmp_path, folders, monkeypatch):
    """It may hold a model; who reads it is told why not."""
    (folders[0].parent / "secret").mkdir(exist_ok=True)
    listed = Path.iterdir

    def refusing(path):
        if path.name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)
    found = wanted([str(folders[0].parent)], io.StringIO())
    assert {Path(model.model).name for model in found} == {"secret", *(path.name for path in folders)}


RUN = """
import sys
from kinprint.catalog.store import open_catalog
from kinprint.scan.fingerprinting import WORK
from kinprint.scan.run import scan
from kinprint.scan.supervised import Limits
from kinprint.scan.wanted import wanted
from kinprint.scan.workers import LocalWorkers
from kinprint.sources.pace import Pace
with open_catalog(sys.argv[1]) as catalog, LocalWorkers(WORK, 2, Limits(), Pace()) as workers:
    scan(wanted(["-"], sys.stdin), catalog, workers)
"""


def test_a_scan_that_is_killed_and_run_again_ends_with_the_same_catalog(tiny_hub, start_workers, tmp_path):
    names = "\n".join(tiny_hub.commits)
    with open_catalog(tmp_path / "whole.db") as whole:
        scan([Wanted(name) for name in tiny_hub.commits], whole, start_workers(WORK))
        expected = contents(whole)
    tiny_hub.latency_s = 0.05
    broken = tmp_path / "broken.db"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(broken)], stdin=subprocess.PIPE)
    process.stdin.write(names.encode())
    process.stdin.close()
    due = time.monotonic() + 60
    seen = 0
    while seen < 2 and time.monotonic() < due:
        time.sleep(0.05)
        # until its tables are there it is no catalog
        with suppress(NotFound, FormatError), open_catalog(broken, read_only=True) as reading:
            seen = reading.count()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 2 <= seen < COUNT
    with open_catalog(broken) as catalog:
        before = catalog.count()
        report = scan([Wanted(name) for name in tiny_hub.commits], catalog, start_workers(WORK))
        assert (report.known, report.added) == (before, COUNT - before)
        assert contents(catalog) == expected
        assert list(catalog.check()) == []


def test_a_cluster_ends_with_the_same_catalog_though_a_worker_is_killed(tiny_hub, start_workers, tmp_path):
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    from kinprint.scan.cluster import DaskWorkers
    from kinprint.scan.supervised import Limits
    from support.dask_cluster import running_cluster

    models = [Wanted(name) for name in tiny_hub.commits]
    with open_catalog(tmp_path / "whole.db") as whole:
        scan(models, whole, start_workers(WORK))
        expected = contents(whole)
    tiny_hub.latency_s = 0.05
    with (
        running_cluster(tmp_path) as cluster,
        DaskWorkers(cluster.address, WORK, Limits(), None) as workers,
        open_catalog(tmp_path / "cluster.db") as catalog,
    ):

        def kill_one(_stage, done, _total):
            if done >= 2 and cluster.workers[0].poll() is None:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)

        report = scan(models, catalog, workers, progress=kill_one)
        assert cluster.workers[0].poll() == -signal.SIGKILL
        assert (report.added, report.failed) == (COUNT, ())
        assert contents(catalog) == expected


def test_local_workers_of_an_interrupted_scan_are_ended(tiny_hub, catalog, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    from kinprint.scan.supervised import Limits
    from kinprint.sources.pace import Pace

    def interrupt(_stage, done, _total):
        if done >= 1:
            raise KeyboardInterrupt

    with LocalWorkers(WORK, 2, Limits(), Pace()) as workers:
        report = scan([Wanted(name) for name in tiny_hub.commits], catalog, workers, progress=interrupt)
        pids = workers.pids
    assert report.interrupted
    assert 1 <= report.added == catalog.count() < COUNT
    assert exit_code(report) == 130
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
