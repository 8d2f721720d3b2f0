"""Progress: silent when piped, a line with bytes and seconds in a terminal once a second has passed."""

import os
import pty
import re
import signal
import subprocess
import time

import pytest

from kinprint.cli import progress
from kinprint.cli.progress import ProgressLine
from kinprint.sources.base import Traffic
from support.hub import Fault


def read_terminal(descriptor, process, until, limit_s=15):
    """Collect what the terminal shows until a pattern appears or the process ends."""
    shown, deadline = "", time.monotonic() + limit_s
    os.set_blocking(descriptor, False)
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        try:
            shown += os.read(descriptor, 65536).decode()
        except (BlockingIOError, OSError):
            if ended:
                break
            time.sleep(0.02)
        if until is not None and re.search(until, shown):
            break
    return shown


@pytest.fixture
def in_terminal(environment, command, demo_hub, tmp_path):
    """Start the command with stderr on a pseudo-terminal."""
    started = []

    def start(*arguments):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*command, *arguments],
            env=environment | {"HF_ENDPOINT": demo_hub.endpoint},
            stdout=subprocess.PIPE,
            stderr=slave,
            cwd=tmp_path,
        )
        os.close(slave)
        started.append((process, master))
        return process, master

    yield start
    for process, master in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        os.close(master)


def test_a_silent_hub_shows_as_passing_time(in_terminal, demo_hub):
    demo_hub.add_fault(Fault(kind="stall", match="model.safetensors", times=None))
    process, master = in_terminal("compare", "demo/base", "demo/finetune")
    shown = read_terminal(master, process, r"opening .* · 2 s · ")
    assert re.search(r"opening \[\.{20}\] 0 % · 1 s · [0-9.]+ k?B of [0-9.]+ k?B read", shown), shown
    assert re.search(r" · 2 s · ", shown)
    process.send_signal(signal.SIGINT)
    read_terminal(master, process, None)
    assert process.wait(60) == 130


def test_a_slow_hub_ends_with_a_clean_line(in_terminal, demo_hub):
    demo_hub.latency_s = 0.4
    process, master = in_terminal("inspect", "demo/base")
    shown = read_terminal(master, process, None)
    assert process.wait(60) == 0
    assert re.search(r" · [1-9] s · [1-9][0-9.]* k?B of [0-9.]+ k?B read", shown), shown
    assert shown.endswith("\r\x1b[2K")


@pytest.mark.slow
def test_quiet_says_nothing(in_terminal, demo_hub):
    demo_hub.latency_s = 0.4
    process, master = in_terminal("inspect", "demo/base", "--quiet")
    assert read_terminal(master, process, None) == ""
    assert process.wait(60) == 0


@pytest.mark.slow
def test_nothing_when_piped(kinprint, demo_hub, tmp_path):
    demo_hub.latency_s = 0.25
    done = kinprint("inspect", "demo/base", env={"HF_ENDPOINT": demo_hub.endpoint}, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")


def test_a_quick_run_draws_nothing(capsys):
    with ProgressLine(enabled=True) as line:
        line.stage("measuring", 1, 2)
    assert capsys.readouterr().err == ""


def test_the_line_counts(monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with ProgressLine(enabled=True) as line:
        traffic = Traffic(None)
        traffic.add(network_bytes=1500, expected_bytes=4000)
        line.traffic(traffic)
        line.stage("measuring", 3, 7)
        assert line.text(120) == "measuring [###.................] 18 % · about 1 s left · 0 s · 1.5 kB of 4.0 kB read"
        time.sleep(0.3)
    shown = capsys.readouterr().err
    assert "measuring [###" in shown
    assert shown.endswith("\r\x1b[2K")


@pytest.fixture
def later(monkeypatch):
    """A line that began eight seconds ago."""
    now = iter([0.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now, 8.0))
    return ProgressLine(enabled=False)


def test_the_line_tells_share_and_time_left(later):
    later.stage("comparing pairs", 2, 10)
    assert later.text(120) == "comparing pairs [####................] 20 % · about 32 s left · 8 s · 0 B of 0 B read"


@pytest.mark.parametrize("stage", ["evidence", "comparing pairs", "methods", "drawing"])
def test_the_line_never_looks_finished(later, stage):
    """What is done with a stage is still to be put together, or the next one comes."""
    later.stage(stage, 4, 4)
    assert "#.] 99 % · about 1 s left" in later.text()


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_the_line_fits_and_loses_whole_parts(later, columns):
    later.stage("measuring", 5, 10)
    shown, whole = (later.text(width).split(" · ") for width in (columns, 200))
    assert len(" · ".join(shown)) < columns
    assert shown == whole[: len(shown)]
