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


LEFT = """
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none left")
"""


@linux
@pytest.mark.parametrize("work", ["os.getpid", "lambda: time.sleep(600)", "lambda: 'x' * 10**7"])
def test_a_fork_that_nobody_waits_for_ends(work: str) -> None:
    """Done, at work or with a long answer: it holds neither memory nor a file."""
    script = f"""
import time
files = len(os.listdir("/proc/self/fd"))
def work():
    return ({work})()
wait = cores.aside(work, text, number)
del wait
assert len(os.listdir("/proc/self/fd")) == files
"""
    assert run(BEGIN + script + LEFT) == "none left\n"


@linux
def test_a_command_and_its_forks_are_as_many_as_the_cores() -> None:
    """Each holds memory of its own. The others begin as room is made for them, or are done by who asks for the answer."""
    script = """
import time
cores.cores = lambda: 3
most = 2  # and their caller
def work():
    time.sleep(0.05)
    return os.getpid()
def alive(child):
    with open(f"/proc/{child}/stat") as told:
        return told.read().rpartition(")")[2].split()[0] != "Z"
def forks():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as told:
        return sum(map(alive, told.read().split()))
waits = [cores.aside(work, text, number) for _ in range(most + 3)]
seen, last = [forks()], waits.pop()
where = [last() == os.getpid()]  # its turn has not come
for wait in waits:
    seen.append(forks())
    where.append(wait() == os.getpid())
assert seen[0] == most and max(seen) <= most, seen
assert where == [True] + [False] * (most + 2), where
assert not cores._waiting
"""
    run(BEGIN + script + LEFT)


@linux
def test_a_fork_holds_no_memory_until_its_answer_is_read() -> None:
    """A long answer stays in a file of memory; its process ends, and makes room for the next."""
    script = """
import time
wait = cores.aside(lambda: "7" * 2_000_000, str.encode, bytes.decode)
for _ in range(2_000):
    if cores._at_work[0].ended:
        break
    time.sleep(0.01)
assert cores._at_work[0].ended
cores.take_turns()
assert not cores._at_work
assert wait() == "7" * 2_000_000
"""
    run(BEGIN + script + LEFT)


@linux
def test_no_fork_is_left_by_a_comparison_that_ends_in_an_error() -> None:
    """As of one pair among many in a tree or a search, which goes on with the others."""
    script = """
from kinprint.comparison import pipeline, tensors
from kinprint.errors import KinprintError
from kinprint.evidence import examine, probe
tensors.WORTH_A_FORK, probe.WIDE_LAYER = 1, -1
def refuse(*_):
    raise KinprintError("as asked")
examine.search = refuse
try:
    pipeline.compare("demo/models/base", "demo/models/finetune")
except KinprintError as error:
    print(error)
"""
    assert run(BEGIN + script + LEFT) == "as asked\nnone left\n"


@linux
def test_what_breaks_in_a_fork_is_noted_by_who_waits() -> None:
    """A test that could not run must not look as if it had found nothing."""
    script = """
from kinprint._util.records import dataclass
from kinprint.evidence.attempts import beside, note, noting
from kinprint.text import Text
@dataclass(frozen=True)
class Found:
    process: int
def work():
    note([Text("this broke")])
    return Found(os.getpid())
with noting() as broken:
    wait = beside(work, Found)
    assert broken == []
    assert wait().process != os.getpid()
print(*broken)
"""
    assert run(BEGIN + script) == "this broke\n"


FIGURES = """
import json, sys
from kinprint._util import cores
from kinprint.comparison import pipeline, tensors
from kinprint.evidence import attempts, controls, editing, probe
tensors.WORTH_A_FORK, probe.WIDE_LAYER = 1, -1  # as if the models were large
here, forked = cores.os.getpid(), []
aside = cores.aside
def watched(work, write, read):
    def here_too():
        if cores.os.getpid() == here:
            forked.append("again, in place")
        return work()
    forked.append(work.__qualname__ if hasattr(work, "__qualname__") else work.func.__qualname__)
    return aside(here_too if cores._forks else work, write, read)
for module in (tensors, attempts, controls, editing):
    module.aside = watched
kinds = []
beside = attempts.between_forks
attempts.between_forks = lambda kind: (kinds.append(kind.__name__), beside(kind))[1]
cores._forks = sys.argv[1] == "yes"
cores.cores = lambda: 99  # room for all at once
report = pipeline.compare(*sys.argv[2:])
found = json.loads(report.to_json())
del found["run"]
print(json.dumps([forked, kinds, found]))
"""


def forked_and_not(*models: object) -> tuple[list[str], set[str]]:
    """Compare with forks and without, which must give the same report; return what was forked, and what was forked as evidence."""
    found = []
    for allowed in ("yes", "no"):
        line = [sys.executable, "-c", FIGURES, allowed, *map(str, models)]
        found.append(json.loads(subprocess.run(line, capture_output=True, cwd=ROOT, check=True).stdout))
    (forked, kinds, with_forks), (_, _, without) = found
    assert with_forks == without
    assert "again, in place" not in forked  # each fork has answered
    return forked, set(kinds)


@linux
def test_figures_are_the_same_with_forks_and_without() -> None:
    """Measurements, tests, grids, edits and controls that come from forks are those that would have been computed in place."""
    forked, kinds = forked_and_not("demo/models/base", "demo/models/finetune")
    assert kinds >= {"_Found", "_Grids"}
    assert len(forked) >= 6  # measuring, two controls, edits, half of the battery, grids


@linux
def test_experts_are_matched_in_a_fork() -> None:
    """A mixture against a dense model."""
    _, kinds = forked_and_not("tests/family/indep", "tests/family/upcycled")
    assert kinds >= {"_Found", "_Grids", "_Experts"}
