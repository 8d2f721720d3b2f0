"""The engine on this machine: every task is answered once, whatever it does to the process that has it."""

import os
import signal
from functools import partial
from types import MappingProxyType

import pytest

from kinprint.scan.engine import Job, Rate, work_off
from kinprint.scan.frames import Ended, pack, read_body, unpack, write_all
from kinprint.sources.pace import Pace

WORK = "support.scan_works:echo"


@pytest.fixture
def local(start_workers):
    return partial(start_workers, WORK)


def answers(workers, tasks, parts=MappingProxyType({})):
    jobs = (Job(n, pack({"number": n, **task}, parts.get(n, ()))) for n, task in enumerate(tasks))
    found = {}
    for number, answer in work_off(jobs, workers):
        assert number not in found
        found[number] = answer
    assert sorted(found) == list(range(len(tasks)))
    return found


def test_tasks_are_answered_once_whatever_some_of_them_do(local, tmp_path):
    tasks = [{} for _ in range(12)]
    tasks[1] = {"do": "refuse"}
    tasks[2] = {"do": "bug"}
    tasks[3] = {"do": "die once", "mark": str(tmp_path / "mark")}
    tasks[5] = {"do": "print"}
    found = answers(local(2), tasks, {7: (b"\x00\x01", b"", b"x" * 3_000_000)})
    assert found[1].head["error"] == {
        "class": "FormatError",
        "message": "broken weights",
        "hint": "fetch them again",
        "expected": True,
    }
    assert (found[2].head["error"]["class"], found[2].head["error"]["expected"]) == ("KeyError", False)
    assert found[7].parts == (b"\x00\x01", b"", b"x" * 3_000_000)
    fine = [number for number in range(12) if number not in (1, 2)]
    assert [found[number].head["number"] for number in fine] == fine
    assert os.getpid() not in {found[number].head["pid"] for number in fine}


def test_a_task_that_always_kills_its_process_is_the_only_one_lost(local):
    found = answers(local(1), [{}, {"do": "die"}, {}])
    told = found[1].head["error"]
    assert (told["class"], told["message"]) == ("WorkerLost", "its worker process was ended by SIGKILL, 3 times")
    assert "error" not in found[0].head | found[2].head


def test_a_task_without_end_is_ended(local):
    found = answers(local(1, seconds=0.5), [{"do": "hang"}, {}])
    assert found[0].head["error"]["class"] == "TimedOut"
    assert "not done after 0.5 s" in found[0].head["error"]["message"]
    assert "error" not in found[1].head


def test_a_task_that_wants_too_much_memory_is_refused_it(local):
    found = answers(
        local(1, memory_bytes=256 << 20), [{"do": "eat", "bytes": 1 << 30}, {"do": "eat", "bytes": 1 << 20}]
    )
    assert found[0].head["error"]["class"] == "MemoryError"
    assert found[1].head["size"] == 1 << 20


def test_a_worker_killed_from_outside_loses_nothing(local):
    workers = local(2)
    jobs = (Job(n, pack({"number": n, "do": "sleep", "seconds": 0.05})) for n in range(20))
    found = []
    for number, answer in work_off(jobs, workers):
        found.append(number)
        assert "error" not in answer.head
        if len(found) == 4:
            os.kill(workers.pids[0], signal.SIGKILL)
    assert sorted(found) == list(range(20))


def test_jobs_are_taken_no_further_ahead_than_needed(local):
    taken = []

    def jobs():
        for number in range(50):
            taken.append(number)
            yield Job(number, pack({}))

    for done, _ in enumerate(work_off(jobs(), local(2))):
        assert len(taken) <= done + 1 + 2 * 2


def test_all_workers_keep_one_pace(local):
    now = 0.0
    pace = Pace(10.0, burst=1, clock=lambda: now)
    found = answers(local(2, pace=pace), [{"do": "turn", "host": "hub.test"} for _ in range(8)])
    waits = sorted(answer.head["wait"] for answer in found.values())
    assert waits == pytest.approx([n / 10 for n in range(8)])
    found = answers(local(2, pace=pace), [{"do": "hold", "host": "other.test", "seconds": 40.0}])
    assert found[0].head["wait"] == pytest.approx(40.0)
    assert pace.held_s("other.test") == pytest.approx(40.0)


def test_closing_ends_what_is_under_way(local):
    workers = local(2)
    under_way = work_off((Job(n, pack({"do": "hang" if n else "echo"})) for n in range(3)), workers)
    assert next(under_way)[0] == 0
    pids = workers.pids
    workers.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    "body",
    [b"", b"\x09" + bytes(7) + b"[]", b"\xff" * 20, pack({"a": 1}, (b"xy",))[8:-1], pack({"a": 1})[8:] + b"z"],
)
def test_what_is_no_message_is_refused(body):
    with pytest.raises(ValueError):
        unpack(body)


def test_a_message_of_absurd_length_is_refused_before_memory_is_taken():
    reads, writes = os.pipe()
    try:
        os.write(writes, (1 << 60).to_bytes(8, "little"))
        with pytest.raises(ValueError, match="expected at most"):
            read_body(reads)
        write_all(writes, pack({"a": 1}, (b"xy",))[:-1])
        os.close(writes)
        with pytest.raises(Ended):
            read_body(reads)
    finally:
        os.close(reads)


def test_the_rate_forgets_the_start():
    times = [0.0]
    rate = Rate(window_s=10.0, clock=lambda: times[-1])
    for now in (9.0, 9.5, 10.0):
        times.append(now)
        rate.count()
    assert rate.per_s == pytest.approx(0.3)
    times.append(20.0)
    assert rate.per_s == pytest.approx(0.1)
