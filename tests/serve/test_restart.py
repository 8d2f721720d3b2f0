"""The server ends in every way: results stay, jobs are done by the next one."""

import signal

import pytest

from support.places import DEMO_MODELS
from support.serving import Server

pytestmark = pytest.mark.slow
LOCAL = ("--local", str(DEMO_MODELS))


ENDED = -signal.SIGTERM  # uvicorn ends its replies and jobs, then by the signal that it was sent


@pytest.mark.parametrize(
    ("number", "in_database"),
    [
        (signal.SIGKILL, False),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.nightly),
    ],
)
def test_no_result_is_lost_and_running_jobs_are_resumed(tmp_path, request, number, in_database):
    how = LOCAL
    if in_database:
        how += ("--state", request.getfixturevalue("postgres").url(request.getfixturevalue("database")))
    first = Server(tmp_path, *how)
    done = first.start("base", "finetune")
    assert first.ended(done)["state"] == "done"
    running, waiting = first.start("base", "grown"), first.start("base", "unrelated")
    assert first.end(number) == -number
    second = Server(tmp_path, *how)
    try:
        assert "Derived" in second.ask(f"/results/{done}?lang=en").text
        classes = [second.ended(id_)["summary"]["class"] for id_ in (running, waiting)]
        assert classes == ["derived", "no_evidence"]
    finally:
        assert second.end() == ENDED


def test_read_only_unless_told(tmp_path):
    server = Server(tmp_path, "--jobs", "nobody", *LOCAL)
    try:
        assert "starts no comparisons" in server.ask("/?lang=en").text
        assert server.ask("/compare", form={"a": "base", "b": "grown"}).status == 403
        key = {"Authorization": f"Bearer {server.key()}"}
        assert server.ask("/api/compare", {"a": "base", "b": "grown"}, **key).status == 403
        assert server.ask("/api/results").json == []
    finally:
        assert server.end() == ENDED


@pytest.mark.parametrize(
    ("limit", "error"),
    [(("--memory", "120MiB"), "WorkerLost"), pytest.param(("--deadline", "1"), "TimedOut", marks=pytest.mark.nightly)],
)
def test_a_job_that_dies_is_reported_and_its_place_freed(tmp_path, limit, error):
    server = Server(tmp_path, *LOCAL, *limit)
    try:
        first, second = server.start("base", "grown"), server.start("base", "unrelated")
        assert [server.ended(id_)["error"]["class"] for id_ in (first, second)] == [error, error]
        assert 'id="failed"' in server.ask(f"/jobs/{first}").text
    finally:
        assert server.end() == ENDED
