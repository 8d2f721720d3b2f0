"""Two repositories of 106 billion parameters compared end to end: `kinprint compare`, from names to verdict.

Three sparse repositories are written (some 560 MB each on disk): one, an unrelated one, and one derived from the first. The
hub runs in another process and adds 50 ms to each response. The command runs as a user runs it, without any cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import startup, ways
from bench.common import Cell, Goal, Report, finish, median, parser, timed
from bench.hubside import Hub, serving
from support.layouts import GlmAirReport, write_sparse_glm_air

LATENCY_MS = 50.0
BASE, UNRELATED, DERIVED = "bench/Air", "bench/Air-Unrelated", "bench/Air-Derived"
EXPECTED = {UNRELATED: ("no_evidence", 0), DERIVED: ("derived", 11)}
# Samples start at a matrix's first row, so these hold values; those of tokens start further in and read as zeros of the same
# size: they cost what they would, and tell nothing.
FILLED_ROWS = 128
MADE: dict[str, dict[str, Any]] = {
    BASE: {"seed": 1},
    UNRELATED: {"seed": 2},
    DERIVED: {"seed": 1, "perturb": (3, 0.05)},
}
TINY: dict[str, Any] = {
    "shards": 3,
    "layers": 2,
    "experts": 4,
    "hidden": 512,
    "vocab": 2048,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "intermediate": 1024,
    "moe_intermediate": 256,
}
_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR")


@dataclass(frozen=True)
class Limits:
    """What one comparison may cost, in MB."""

    received: float
    memory: float


FULL_LIMITS = Limits(200, 1000)
QUICK_LIMITS = Limits(25, 300)


@dataclass(frozen=True)
class Run:
    """One comparison, measured from outside."""

    other: str
    verdict: str
    status: int
    wall: float
    cpu: float
    peak: int
    requests: int
    received: int

    @property
    def right(self) -> bool:
        """Whether both the report and the exit status say what the repositories were made to show."""
        return (self.verdict, self.status) == EXPECTED[self.other]


# A process's peak counts that of the one it was started from until it became another program, so the command is started
# by an interpreter that holds nothing, not by this one, which holds numpy and has written models.
_LAUNCHER = """
import json, os, subprocess, sys, time
with open(sys.argv[1], "wb") as out:
    began = time.perf_counter()
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=out)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
child.returncode = os.waitstatus_to_exitcode(status)
peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([child.returncode, wall, used.ru_utime + used.ru_stime, peak]))
"""


def environment(hub: Hub, scratch: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's settings, tokens and caches is left."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"HOME": str(scratch / "home"), "HF_ENDPOINT": hub.endpoint.url, "NO_PROXY": "127.0.0.1,localhost"}


def compare_once(hub: Hub, other: str, scratch: Path) -> Run:
    """Compare the first repository with another in a new process."""
    out = scratch / "report.json"
    command = [*startup.command()[:-1], "compare", BASE, other, "--no-cache", "--format", "json", "--quiet"]
    hub.reset()
    line = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(out), *command]
    done = subprocess.run(line, env=environment(hub, scratch), capture_output=True, text=True, check=True)
    status, wall, cpu, peak = json.loads(done.stdout)
    counted = hub.stats()
    try:
        verdict = json.loads(out.read_bytes())["verdict"]["class"]
    except (ValueError, KeyError, TypeError) as error:
        said = done.stderr.strip()[-500:]
        raise SystemExit(f"verdict: no report for {other}, exit status {status}: {said}") from error
    return Run(other, verdict, status, wall, cpu, peak, counted["requests"], counted["bytes"])


def measure_floor(hub: Hub, folder: Path, times: int) -> tuple[float, int]:
    """Return the median wall of the five requests that reading one tensor takes, and how many the server counted."""
    chain = ways.make_chain(folder, "model.norm.weight")
    hub.reset()
    walls = []
    for _ in range(times):
        wall, raw = timed(lambda: ways.floor(hub.endpoint, chain, None))
        if len(raw) != chain.data[1] - chain.data[0]:
            raise SystemExit("verdict: the floor's chain did not end in a tensor")
        walls.append(wall)
    return median(walls), hub.stats()["requests"] // times


def judge(runs: list[Run], floor: tuple[float, int], made: GlmAirReport, limits: Limits) -> Report:
    """Hold the runs against the limits."""
    goals = [Goal("right verdicts, by report and exit status", sum(run.right for run in runs), ">=", len(EXPECTED), "")]
    for run in runs:
        short = run.other.rpartition("/")[2]
        goals.append(Goal(f"{short}: bytes received", run.received / 1e6, "<=", limits.received, "MB"))
        goals.append(Goal(f"{short}: peak memory", run.peak / 1e6, "<=", limits.memory, "MB"))
    wall, requests = floor
    rows: list[dict[str, Cell]] = [
        {
            "compared with": run.other,
            "verdict": run.verdict,
            "exit": run.status,
            "wall s": round(run.wall, 2),
            "÷ floor": round(run.wall / wall, 1),
            "CPU s": round(run.cpu, 2),
            "peak MB": round(run.peak / 1e6, 1),
            "requests": run.requests,
            "bytes received": run.received,
        }
        for run in runs
    ]
    title = (
        f"Verdict on two models of {made.main_parameters / 1e9:.4g} B parameters ({made.tensors:,} tensors, "
        f"{len(made.files)} shards, {made.apparent_bytes / 1e9:.3g} GB each), {LATENCY_MS:.0f} ms, plain HTTP"
    )
    floor_note = (
        f"Floor: {wall:.3f} s, the {requests} requests in a row that reading one tensor of one repository takes, as in the "
        "bench of norms; two repositories can be read side by side, so the floor of two is that of one. Computing is not "
        "in it. Wall over floor is reported, not judged."
    )
    outside = (
        "Wall, CPU and peak are those of the whole command in a new process, start-up included. The budget is the "
        "command's own; bytes are bodies as the server counts them."
    )
    facts: dict[str, Cell] = {
        "latency_ms": LATENCY_MS,
        "floor_s": wall,
        "floor_requests": requests,
        "parameters": made.main_parameters,
        "apparent_bytes": made.apparent_bytes,
    }
    return Report("verdict", title, tuple(rows), tuple(goals), (floor_note, outside), facts)


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.verdict", __doc__).parse_args(argv)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    sizes: dict[str, Any] = TINY if asked.quick else {}
    startup.compile_package()
    with tempfile.TemporaryDirectory(prefix="bench-verdict-") as name:
        scratch = Path(name)
        folders = {repo: scratch / repo for repo in MADE}
        made = [
            write_sparse_glm_air(folder, filled_rows=FILLED_ROWS, **MADE[repo], **sizes)
            for repo, folder in folders.items()
        ]
        with serving(folders, latency_ms=LATENCY_MS, tls=False, scratch=scratch) as hub:
            floor = measure_floor(hub, folders[BASE], 3 if asked.quick else 7)
            runs = [compare_once(hub, other, scratch) for other in EXPECTED]
    return finish([judge(runs, floor, made[0], QUICK_LIMITS if asked.quick else FULL_LIMITS)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
