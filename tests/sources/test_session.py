"""Budget, threads, interrupts."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from kinprint.errors import BudgetExceeded, FileTooLarge, SourceError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.refs import ByteRange
from kinprint.sources.base import Traffic
from kinprint.sources.pool import DaemonPool
from kinprint.sources.session import Session
from support.hub import Fault

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"


# ---- budget ----


def test_budget_is_checked_before_reading(hub, session_for):
    session = session_for(hub, budget_bytes=20_000)
    checkpoint = open_checkpoint(REPO, session)
    before, left = session.bytes_delivered, session.remaining_bytes
    assert left == 20_000 - before
    hub.reset()
    with pytest.raises(
        BudgetExceeded, match=r"a read of 65\.5 kB was planned, but the budget of 20\.0 kB has only [0-9.]+ kB left"
    ) as caught:
        checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])
    assert "--budget" in caught.value.hint
    assert hub.requests == []
    assert session.bytes_delivered == before
    tensor = next(iter(checkpoint.tensors.values()))
    session.read([(checkpoint.sources[0], ByteRange(tensor.start, tensor.start + 100))])
    assert session.remaining_bytes == left - 100


def test_budget_counts_small_files(hub, session_for):
    session = session_for(hub, budget_bytes=5)
    session.traffic.network_bytes = 0
    folder = session_for(hub).open_folder(REPO)
    with pytest.raises(BudgetExceeded, match=r"config.json: .*but the budget of 5 B has only 5 B left"):
        session.read_small(folder, "config.json")


@pytest.mark.parametrize("where", ["official", "ranges"])
def test_budget_and_a_small_file_on_this_machine(hub, session_for, tmp_path, where):
    from huggingface_hub import snapshot_download

    if where == "official":
        snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=tmp_path / "c", token=False)
        places = {"hub_cache": tmp_path / "c"}
    else:
        places = {"range_cache": tmp_path / "c"}
        session_for(hub, **places).open_folder(REPO).read_small("config.json")
    session = session_for(hub, budget_bytes=5, offline=True, **places)
    with pytest.raises(BudgetExceeded, match=r"but the budget of 5 B"):
        session.read_small(session.open_folder(REPO), "config.json")


def test_a_file_too_large_without_a_budget_is_not_the_budgets_fault(model_folder, session_for):
    session = session_for(budget_bytes=10_000)
    with pytest.raises(FileTooLarge, match=r"more than the 7 allowed"):
        session.read_small(session.open_folder(str(model_folder)), "config.json", 7)


def test_same_bytes_from_the_cache_count_the_same(hub, session_for, tmp_path):
    counts = []
    for _ in range(2):
        session = session_for(hub, range_cache=tmp_path / "r")
        checkpoint = open_checkpoint(f"{REPO}@{hub.commit}", session)
        before = session.traffic.bytes_read
        checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])
        counts.append(session.traffic.bytes_read - before)
    assert counts[0] == counts[1] == 65_536


# ---- counting ----


def test_traffic_is_counted_and_told():
    seen = []
    traffic = Traffic(lambda now: seen.append(now.bytes_read))
    traffic.add(network_bytes=5, requests=1)
    traffic.add(cache_bytes=7)
    traffic.add(local_bytes=1, expected_bytes=100)
    assert (traffic.bytes_read, traffic.requests, traffic.expected_bytes) == (13, 1, 100)
    assert seen == [5, 12, 13]


def test_traffic_from_many_threads():
    traffic = Traffic()
    threads = [threading.Thread(target=lambda: [traffic.add(requests=1) for _ in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert traffic.requests == 16_000


# ---- threads ----


def test_map_keeps_the_order(session_for):
    session = session_for(concurrency=4)
    assert session.map(lambda n: (time.sleep(0.001 * (5 - n % 5)), n * n)[1], range(50)) == [n * n for n in range(50)]
    assert session.map(str, []) == []


def test_map_stops_at_the_first_failure(session_for):
    session = session_for(concurrency=2)
    begun = []

    def work(number):
        begun.append(number)
        if number == 1:
            raise SourceError("number one is broken")
        time.sleep(0.002)

    with pytest.raises(SourceError, match=r"number one is broken"):
        session.map(work, range(200))
    time.sleep(0.4)  # enough for all of them, had they not been cancelled
    assert len(begun) < 100
    assert session.map(str, [1, 2]) == ["1", "2"]  # still of use


def test_pool_uses_few_threads_and_ends_them():
    pool = DaemonPool(3)
    barrier = threading.Barrier(3)
    jobs = [pool.submit(lambda: barrier.wait(5)) for _ in range(6)]
    assert sorted(job.result(5) for job in jobs) == [0, 0, 1, 1, 2, 2]
    assert pool.threads == 3
    pool.close(wait=True)
    assert pool.threads == 0
    with pytest.raises(RuntimeError, match=r"closed"):
        pool.submit(str)


def test_pool_starts_a_thread_only_when_none_is_free():
    pool = DaemonPool(8)
    for _ in range(5):
        assert pool.submit(lambda: 5).result(5) == 5
        time.sleep(0.01)
    assert pool.threads == 1
    pool.close(wait=True)


def test_closing_cancels_what_waits():
    pool = DaemonPool(1)
    gate = threading.Event()
    first, second = pool.submit(gate.wait), pool.submit(str)
    while not first.running():
        time.sleep(0.001)
    pool.close(wait=False)
    gate.set()
    assert second.cancelled()
    assert first.result(5) is True


def test_session_leaves_no_threads(hub, settings_for):
    with Session(settings_for(hub)) as session:
        open_checkpoint(REPO, session)
        assert session._pool.threads > 0
    assert (session._pool.threads, session._coordinators.threads) == (0, 0)


# ---- interrupts ----

_RUN = """
import sys, time
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
try:
    with Session(Settings(endpoint=sys.argv[1], attempts=5, backoff_s=30)) as session:
        print("ready", flush=True)
        checkpoint = open_checkpoint(sys.argv[2], session)
        checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
"""


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="stall", match=r"/api/models", times=None),
        Fault(kind="stall", match=r"model-0", origin="hub", times=None),
        Fault(kind="stall", match=r"model-0", origin="cdn", times=None),
        Fault(kind="stall", match=r"model-0", origin="cdn", times=None, value=50),
        Fault(kind="status", match=r"/api/models", value=429, retry_after=60, times=None),
        Fault(kind="status", match=r"model-0", origin="cdn", value=429, retry_after=60, times=None),
        Fault(kind="drop", match=r"model-0", times=None),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.match.strip('/').partition('/')[0]}-{fault.origin}-{fault.value}",
)
def test_interrupt_ends_promptly(hub, fault):
    hub.add_fault(fault)
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, hub.endpoint, REPO], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    while not fault.fired:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)  # without the interrupt it would wait for 30 s or more
    assert (process.returncode, out) == (130, "interrupted\n"), err
