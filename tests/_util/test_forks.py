"""Work aside: a fork answers, one that ends without an answer changes nothing, and no figure hangs on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kinprint._util import cores

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="only the command on Linux forks")


def run(script: str) -> str:
    """Run a script in a process of its own: forks of a test runner would carry its threads and files."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


BEGIN = """
import os
from kinprint._util import cores
cores._forks = True
def number(raw): return int(raw)
def text(found): return str(found).encode()
"""


def test_without_leave_nothing_forks_and_work_is_done_when_it_is_waited_for() -> None:
    """A library's caller has threads and locks of its own."""
    assert not cores.may_fork()
    done: list[int] = []
    wait = cores.aside(lambda: done.append(1), lambda _: b"", lambda _: None)
    assert done == []
    wait()
    assert done == [1]


@linux
def test_a_fork_answers() -> None:
    """The answer is that of another process, and no process is left."""
    said = run(
        BEGIN
        + """
wait = cores.aside(os.getpid, text, number)
assert wait() != os.getpid()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("none left")
"""
    )
    assert said == "none left\n"


@linux
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "1 / 0", "raise KeyboardInterrupt"])
def test_a_fork_that_ends_without_an_answer_leaves_the_work_to_its_caller(end: str) -> None:
    """Out of memory, killed, an error: the work is done again where it can be told."""
    script = f"""
here = os.getpid()
def work():
    if os.getpid() != here:
        {end}
    return 7
print(cores.aside(work, text, number)())
"""
    assert run(BEGIN + script) == "7\n"


@linux
def test_a_fork_does_not_fork() -> None:
    """What runs aside runs its own work aside in place."""
    assert run(BEGIN + "print(cores.aside(lambda: int(cores.may_fork()), text, number)())") == "0\n"


FIGURES = """
import json, sys
from kinprint._util import cores
from kinprint.comparison import pipeline, tensors
from kinprint.evidence import battery
tensors.WORTH_A_FORK, battery.WIDE_LAYER = 1, -1  # as if the models were large
forked = []
fork = cores.os.fork
cores.os.fork = lambda: (forked.append(1), fork())[1]
cores._forks = sys.argv[1] == "yes"
report = pipeline.compare("demo/models/base", "demo/models/finetune")
found = json.loads(report.to_json())
del found["run"]
print(json.dumps([len(forked), found]))
"""


@linux
def test_figures_are_the_same_with_forks_and_without() -> None:
    """Measurements, tests and controls that come from forks are those that would have been computed in place."""
    found = []
    for allowed in ("yes", "no"):
        line = [sys.executable, "-c", FIGURES, allowed]
        found.append(json.loads(subprocess.run(line, capture_output=True, cwd=ROOT, check=True).stdout))
    (many, with_forks), (none, without) = found
    assert many >= 3
    assert none == 0
    assert with_forks == without
