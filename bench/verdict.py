"""Two repositories of 106 billion parameters compared end to end, `kinprint compare` from names to verdict; and two small ones.

Three sparse repositories are written (some 560 MB each on disk): one, an unrelated one, and one derived from the first. The hub
runs in another process and adds 50 ms to each response. The command runs as a user runs it: over plain HTTP and TLS without any
cache, with a cache that holds all it needs, and on folders of this machine. The small models are those of the demo. Memory is
that of the command and its forks together, in a run of its own that is not timed. With ``--before CHECKOUT`` another version is
measured in the same run, by turns with the present one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import startup, ways
from bench.common import Cell, Goal, Report, finish, from_outside, median, parser, timed
from bench.hubside import Hub, serving
from support.layouts import GlmAirReport, write_sparse_glm_air

LATENCY_MS = 50.0
BASE, UNRELATED, DERIVED = "bench/Air", "bench/Air-Unrelated", "bench/Air-Derived"
EXPECTED = {UNRELATED: "no_evidence", DERIVED: "derived"}
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


PLAIN, TLS, WARM, LOCAL, SMALL = "plain HTTP", "TLS", "warm cache", "local", "demo models"
SMALL_PAIRS = (("base", "unrelated", "no_evidence"), ("base", "finetune", "derived"))
DEMO = Path(__file__).resolve().parents[1] / "demo" / "models"

WALL = {PLAIN: 6.0, TLS: 8.0, WARM: 4.0, LOCAL: 4.0, SMALL: 0.6}
Figures = tuple[float | None, float | None, float | None, float | None]
BEFORE: dict[tuple[str, str], Figures] = {
    (PLAIN, UNRELATED): (57.0, 70.6, 641, 107), (PLAIN, DERIVED): (40.4, 53.3, 630, 117),
    (WARM, UNRELATED): (54.0, None, None, None),
    (LOCAL, UNRELATED): (47.0, None, 591, None), (SMALL, "unrelated"): (1.6, 1.6, None, None),
}  # fmt: skip
"""Wall s, CPU s, peak MB and MB received of early November 2026, on another machine, with all metrics before every verdict; None:
not measured. ``--before`` measures that version, or any other, on this machine."""


@dataclass(frozen=True)
class Limits:
    """What one comparison may cost: MB received, MB of memory, seconds of CPU; wall seconds are `WALL`."""

    received: float
    memory: float
    cpu: float


FULL_LIMITS = Limits(110, 450, 8)
QUICK_LIMITS = Limits(25, 300, 60)
SMALL_MEMORY, QUICK_SMALL_MEMORY = 70, 85
"""The interpreter and numpy take 30 of them. Where what is imported has not been compiled yet, 8 more were seen."""


@dataclass(frozen=True)
class Run:
    """One comparison, measured from outside."""

    way: str
    other: str
    verdict: str
    right: bool
    wall: float
    cpu: float
    peak: int
    requests: int
    received: int

    @property
    def figures(self) -> Figures:
        """What goals are set for: wall s, CPU s, peak MB and MB received."""
        return self.wall, self.cpu, self.peak / 1e6, self.received / 1e6


def environment(hub: Hub | None, scratch: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's settings, tokens and caches is left."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found = kept | {"HOME": str(scratch / "home"), "NO_PROXY": "127.0.0.1,localhost"}
    if hub is None:
        return found | {"HF_HUB_OFFLINE": "1"}
    found |= {"HF_ENDPOINT": hub.endpoint.url, "KINPRINT_CACHE": str(scratch / "cache")}
    return found | ({"SSL_CERT_FILE": hub.endpoint.ca} if hub.endpoint.ca else {})


def compare_once(
    way: str,
    pair: tuple[str, str],
    expected: str,
    hub: Hub | None,
    scratch: Path,
    checkout: Path | None = None,
    *,
    look: bool = False,
) -> Run:
    """Compare two models in a new process, by this version or by that of another checkout; to time it, or to look at its memory."""
    out = scratch / "report.json"
    cache = [] if way == WARM else ["--no-cache"]
    program, found = startup.command()[:-1], environment(hub, scratch)
    if checkout is not None:
        program, found = [sys.executable, "-m", "kinprint"], found | {"PYTHONPATH": str(checkout / "src")}
    command = [*program, "compare", *pair, *cache, "--format", "json", "--quiet"]
    if hub is not None:
        hub.reset()
    cost = from_outside(command, out, found, look=look)
    counted = hub.stats() if hub is not None else {"requests": 0, "bytes": 0}
    try:
        verdict = json.loads(out.read_bytes())["verdict"]["class"]
    except (ValueError, KeyError, TypeError) as error:
        said = f"verdict: no report for {pair[1]}, exit status {cost.status}: {cost.said[-500:]}"
        raise SystemExit(said) from error
    right, traffic = verdict == expected, (counted["requests"], counted["bytes"])
    return Run(way, pair[1], verdict, right, cost.wall, cost.cpu, cost.peak, *traffic)


def best_of(runs: Sequence[Run], looked_at: Run) -> Run:
    """Return the run with the least wall time, with the memory of another: a busy moment of the machine must not decide."""
    return replace(min(runs, key=lambda found: found.wall), peak=looked_at.peak)


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


def _goals_of(run: Run, limits: Limits, earlier: Mapping[tuple[str, str], Run], *, quick: bool) -> list[Goal]:
    name = f"{run.other.rpartition('/')[2]}, {run.way}"
    told = {key: one.figures for key, one in earlier.items()} or ({} if quick else BEFORE)
    wall, cpu, peak, received = told.get((run.way, run.other), (None,) * 4)
    goals = [] if quick else [Goal(f"{name}: wall", run.wall, "<=", WALL[run.way], "s", before=wall)]
    if run.way == PLAIN:
        goals.append(Goal(f"{name}: CPU", run.cpu, "<=", limits.cpu, "s", before=cpu))
        goals.append(Goal(f"{name}: bytes received", run.received / 1e6, "<=", limits.received, "MB", before=received))
    small = QUICK_SMALL_MEMORY if quick else SMALL_MEMORY
    memory = small if run.way == SMALL else limits.memory
    return [*goals, Goal(f"{name}: peak memory", run.peak / 1e6, "<=", memory, "MB", before=peak)]


def judge(
    runs: list[Run],
    floor: tuple[float, int],
    made: GlmAirReport,
    limits: Limits,
    *,
    quick: bool,
    earlier: Mapping[tuple[str, str], Run] = MappingProxyType({}),
) -> Report:
    """Hold the runs against the limits, beside those of the version before; on small sizes limits of time are left out."""
    goals = [Goal("right verdicts", sum(run.right for run in runs), ">=", len(runs), "")]
    for run in runs:
        goals += _goals_of(run, limits, earlier, quick=quick)
    least, requests = floor
    rows: list[dict[str, Cell]] = [
        {
            "way": run.way,
            "compared with": run.other,
            "verdict": run.verdict,
            "wall s": round(run.wall, 2),
            "÷ floor": round(run.wall / least, 1),
            "CPU s": round(run.cpu, 2),
            "peak MB": round(run.peak / 1e6, 1),
            "requests": run.requests,
            "MB received": round(run.received / 1e6, 1),
            **(_ratios(earlier[run.way, run.other], run) if earlier else {}),
        }
        for run in runs
    ]
    title = (
        f"Verdict on two models of {made.main_parameters / 1e9:.4g} B parameters ({made.tensors:,} tensors, "
        f"{len(made.files)} shards, {made.apparent_bytes / 1e9:.3g} GB each), {LATENCY_MS:.0f} ms; and on the demo's"
    )
    floor_note = (
        f"Floor: {least:.3f} s, the {requests} requests in a row that reading one tensor of one repository takes over plain "
        "HTTP, as in the bench of norms; two repositories can be read side by side, so the floor of two is that of one. "
        "Computing is not in it. Wall over floor is reported, not judged."
    )
    outside = (
        "Wall and CPU are those of the whole command in a new process, start-up included, the best of three runs; peak is that of "
        "the command and its forks together (pages that several share are counted once), in a run of its own. The budget is the "
        "command's own; bytes are bodies as the server counts them. The server runs on the same two cores. "
        + (
            "Before: the version of another checkout, as often and by turns."
            if earlier
            else "Before: November 2026, on another machine, with all metrics and nulls computed before every verdict."
        )
    )
    facts: dict[str, Cell] = {
        "latency_ms": LATENCY_MS,
        "floor_s": least,
        "floor_requests": requests,
        "parameters": made.main_parameters,
        "apparent_bytes": made.apparent_bytes,
    }
    return Report("verdict", title, tuple(rows), tuple(goals), (floor_note, outside), facts)


def _ratios(before: Run, now: Run) -> dict[str, Cell]:
    times = {"before ÷ now: wall": before.wall / now.wall, "CPU": before.cpu / now.cpu, "peak": before.peak / now.peak}
    return {name: round(ratio, 1) for name, ratio in times.items()}


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    line = parser("bench.verdict", __doc__)
    line.add_argument("--before", type=Path, metavar="CHECKOUT", help="measure the version of this checkout as well")
    asked = line.parse_args(argv)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    sizes: dict[str, Any] = TINY if asked.quick else {}
    times = 1 if asked.quick else 3
    startup.compile_package()
    runs: list[Run] = []
    earlier: dict[tuple[str, str], Run] = {}
    with tempfile.TemporaryDirectory(prefix="bench-verdict-") as name:
        scratch = Path(name)

        def measure(way: str, other: str, pair: tuple[str, str], expected: str, hub: Hub | None) -> None:
            one = way, pair, expected, hub, scratch
            versions: list[Path | None] = [asked.before.resolve(), None] if asked.before else [None]
            if way == WARM:
                compare_once(*one)  # fills the cache
            rounds = [[compare_once(*one, version) for version in versions] for _ in range(times)]
            best = [
                replace(best_of(each, compare_once(*one, version, look=True)), other=other)
                for version, each in zip(versions, zip(*rounds, strict=True), strict=True)
            ]
            runs.append(best[-1])
            if asked.before:
                earlier[way, other] = best[0]

        folders = {repo: scratch / repo for repo in MADE}
        made = [
            write_sparse_glm_air(folder, filled_rows=FILLED_ROWS, **MADE[repo], **sizes)
            for repo, folder in folders.items()
        ]
        with serving(folders, latency_ms=LATENCY_MS, tls=False, scratch=scratch) as hub:
            floor = measure_floor(hub, folders[BASE], 3 if asked.quick else 7)
            for other, expected in EXPECTED.items():
                measure(PLAIN, other, (BASE, other), expected, hub)
            for other, expected in list(EXPECTED.items())[asked.quick :]:  # of small ones the derived pair alone
                measure(WARM, other, (BASE, other), expected, hub)
        if not asked.quick:
            with serving(folders, latency_ms=LATENCY_MS, tls=True, scratch=scratch) as hub:
                for other, expected in EXPECTED.items():
                    measure(TLS, other, (BASE, other), expected, hub)
        for other, expected in list(EXPECTED.items())[asked.quick :]:
            measure(LOCAL, other, (str(folders[BASE]), str(folders[other])), expected, None)
        for one, other, expected in SMALL_PAIRS:
            measure(SMALL, other, (str(DEMO / one), str(DEMO / other)), expected, None)
    limits = QUICK_LIMITS if asked.quick else FULL_LIMITS
    return finish([judge(runs, floor, made[0], limits, quick=asked.quick, earlier=earlier)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
