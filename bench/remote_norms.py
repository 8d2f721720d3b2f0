"""All norms of a 106-billion-parameter model by range over HTTP: scripts, the official client, kinprint, the floor.

The hub runs in another process and adds 50 ms to each response. Every way must return the very values on disk.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bench import clients, ways
from bench.common import Cell, Goal, Report, finish, median, parser, timed
from bench.hubside import Hub, Repository, Values, make_repository, running_hub

LATENCY_MS = 50.0
WISHED = {"plain": 1.5, "tls": 1.8}
BEFORE = {"plain": 1.84, "tls": 2.19}  # times the floor, in early November 2026
_COMPARED = {"plain": "plain HTTP", "tls": "TLS"}


@dataclass(frozen=True)
class Run:
    """One way, measured."""

    way: str
    walls: tuple[float, ...]
    requests: int
    received: int
    note: str = ""
    cpu: float | None = None

    @property
    def wall(self) -> float:
        """The median of the walls; NaN of none."""
        return median(self.walls) if self.walls else float("nan")


def check(way: str, found: Values, expected: Values) -> None:
    """Hold a way's values against those on disk; a fast way that reads something else is worth nothing."""
    if found.keys() != expected.keys():
        raise SystemExit(f"{way}: other tensors than expected: {sorted(found.keys() ^ expected.keys())[:5]}")
    for name, values in expected.items():
        if not np.array_equal(found[name], values):
            raise SystemExit(f"{way}: {name} differs from the values on disk")


def measure(hub: Hub, way: str, read: Callable[[], Values], expected: Values, *, times: int = 1) -> Run:
    """Time a way so many times; the counters are those of the last."""
    walls, used = [], []
    for _ in range(times):
        hub.reset()
        gc.collect()
        began = time.process_time()
        wall, found = timed(read)
        used.append(time.process_time() - began)
        walls.append(wall)
        check(way, found, expected)
    counted = hub.stats()
    return Run(way, tuple(walls), counted["requests"], counted["bytes"], cpu=min(used))


def measure_together(hub: Hub, repository: Repository, times: int) -> tuple[Run, Run]:
    """Time kinprint and the floor in turns, so that a busy moment of the machine hits both."""
    first = next(iter(repository.norms))
    chain = ways.make_chain(repository.folder, first)
    trust = ways.trust_of(hub.endpoint.ca)
    ours: list[Run] = []
    floors: list[float] = []
    ways.kinprint(hub.endpoint)  # imports and bytecode are not what is measured
    for _ in range(times):
        gc.collect()
        wall, raw = timed(lambda: ways.floor(hub.endpoint, chain, trust))
        if len(raw) != repository.norms[first].size * 2:
            raise SystemExit("the floor's chain did not end in a tensor")
        floors.append(wall)
        ours.append(measure(hub, "kinprint", lambda: ways.kinprint(hub.endpoint), repository.norms))
    hub.reset()
    ways.floor(hub.endpoint, chain, trust)
    counted = hub.stats()
    floor = Run("floor: one tensor", tuple(floors), counted["requests"], counted["bytes"], "5 requests in a row")
    walls = tuple(run.walls[0] for run in ours)
    return Run(
        "kinprint", walls, ours[-1].requests, ours[-1].received, f"median of {times}", min(run.cpu or 0 for run in ours)
    ), floor


def measure_cached(hub: Hub, repository: Repository, scratch: Path, times: int) -> list[Run]:
    """Time a first and a second run with the range cache."""
    cold: list[Run] = []
    warm: list[Run] = []
    for number in range(times):
        cache = scratch / f"cache-{number}"
        for runs, way in ((cold, "kinprint, cache cold"), (warm, "kinprint, cache warm")):
            runs.append(measure(hub, way, lambda cache=cache: ways.kinprint(hub.endpoint, cache), repository.norms))  # type: ignore[misc]
    return [
        Run(r[0].way, tuple(x.walls[0] for x in r), r[-1].requests, r[-1].received, f"median of {times}", r[-1].cpu)
        for r in (cold, warm)
    ]


def measure_official(hub: Hub, repository: Repository, cache: Path) -> Run | str:
    """Time the official client, or say why not."""
    names = list(repository.norms)
    try:
        import huggingface_hub
    except ImportError:
        return "huggingface_hub is not installed"
    run = measure(hub, "huggingface_hub", lambda: ways.official(hub.endpoint, names, cache), repository.norms)
    return Run(run.way, run.walls, run.requests, run.received, f"{huggingface_hub.__version__}, 16 threads", run.cpu)


def measure_clients(hub: Hub, repository: Repository, times: int) -> list[Run]:
    """Time other clients at kinprint's own waves of requests; one that is missing or fails has a row without figures."""
    found, names = [], list(repository.norms)
    for client in clients.CLIENTS:
        known = clients.installed(client)
        if known is None:
            found.append(Run(f"{client}, same waves", (), 0, 0, "not installed"))
            continue
        try:
            run = measure(
                hub, client, partial(clients.read, client, hub.endpoint, names), repository.norms, times=times
            )
        except Exception as error:  # noqa: BLE001 - what a client cannot do is a finding, and must not end the bench
            found.append(Run(f"{client}, same waves", (), 0, 0, f"{known}: {type(error).__name__}: {error!s:.60}"))
            continue
        found.append(replace(run, way=f"{client}, same waves", note=f"{known}, median of {times}"))
    return found


def peak_rss(hub: Hub) -> float:
    """Return the peak memory, in MB, of a fresh process that reads all norms."""
    at = hub.endpoint
    command = [
        sys.executable,
        "-m",
        "bench.remote_norms",
        "--rss-child",
        json.dumps([at.url, at.repo, at.commit, at.ca]),
    ]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return float(done.stdout) / 1e6


def _own_peak_bytes() -> int:
    # ru_maxrss counts the parent's memory too where the process was forked from a larger one, so the kernel's own
    # high-water mark of this address space is preferred.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def compare(hub: Hub, repository: Repository, scratch: Path, *, transport: str, asked: argparse.Namespace) -> Report:
    """Run all ways against one hub and judge."""
    times: int = 3 if asked.quick else asked.times
    # The scripts' time grows with the number of norms and ours hardly does, so a small repository earns less.
    factors = (3, 3) if asked.quick else (50, 20)
    names, expected = list(repository.norms), repository.norms
    slow = measure(hub, "published scripts", lambda: ways.published_scripts(hub.endpoint, names), expected)
    kept = measure(
        hub, "published scripts + session", lambda: ways.published_scripts_with_session(hub.endpoint, names), expected
    )
    official = measure_official(hub, repository, scratch / "official")
    ours, floor = measure_together(hub, repository, times)
    cached = measure_cached(hub, repository, scratch, max(3, times // 2))
    others = measure_clients(hub, repository, max(3, times // 2))
    memory = peak_rss(hub)
    runs = [slow, kept, *([official] if isinstance(official, Run) else []), *others, ours, *cached, floor]
    before = None if asked.quick else BEFORE[transport]
    goals = (
        Goal("times faster than published scripts", slow.wall / ours.wall, ">=", factors[0]),
        Goal("times faster than published scripts + session", kept.wall / ours.wall, ">=", factors[1]),
        Goal("wall over the floor", ours.wall / floor.wall, "<=", 6 if asked.quick else 2.5),
        Goal(
            f"all norms, {_COMPARED[transport]}: wall over the floor, wished for",
            ours.wall / floor.wall,
            "<=",
            WISHED[transport],
            required=False,
            before=before,
        ),
        Goal("bytes over those needed", ours.received / repository.needed_bytes, "<=", 1.3),
        Goal("peak memory", memory, "<=", 300, "MB"),
    )
    needed = (
        f"Needed: {repository.needed_bytes:,} bytes (index {repository.index_bytes:,}, headers "
        f"{repository.header_bytes:,}, norms {repository.norm_bytes:,}). Received: bodies, as the server counts them."
    )
    spread = f"kinprint {min(ours.walls):.3f}–{max(ours.walls):.3f} s, floor {min(floor.walls):.3f}–{max(floor.walls):.3f} s."
    skipped = () if isinstance(official, Run) else (f"huggingface_hub: skipped, {official}.",)
    title = (
        f"{len(names)} norms of {repository.parameters / 1e9:.0f} B parameters ({repository.tensors:,} tensors, "
        f"{repository.files} shards), {LATENCY_MS:.0f} ms, {_COMPARED[transport]}"
    )
    rows = tuple(_row(run, ours.wall) for run in runs)
    facts: dict[str, Cell] = {
        "transport": transport,
        "latency_ms": LATENCY_MS,
        "needed_bytes": repository.needed_bytes,
        "peak_mb": memory,
    }
    return Report("remote_norms", title, rows, goals, (needed, f"Spread: {spread}", *skipped), facts)


def _row(run: Run, ours: float) -> dict[str, Cell]:
    return {
        "way": run.way,
        "wall s": round(run.wall, 3) if run.walls else None,
        "CPU s": None if run.cpu is None else round(run.cpu, 3),
        "÷ kinprint": round(run.wall / ours, 2) if run.walls else None,
        "requests": run.requests if run.walls else None,
        "bytes received": run.received if run.walls else None,
        "runs": len(run.walls),
        "note": run.note,
    }


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser("bench.remote_norms", __doc__)
    line.add_argument("--tls", action="store_true", help="over TLS, with 50 ms per round trip of a handshake as well")
    line.add_argument("--all", action="store_true", help="plain, then TLS")
    line.add_argument("--times", type=int, default=7, help="runs of kinprint and of the floor (default 7)")
    line.add_argument("--rss-child", metavar="ENDPOINT", help=argparse.SUPPRESS)
    return line


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = options().parse_args(argv)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    if asked.rss_child:
        ways.kinprint(ways.Endpoint(*json.loads(asked.rss_child)))
        print(_own_peak_bytes())
        return 0
    transports = ["plain", "tls"] if asked.all else ["tls"] if asked.tls else ["plain"]
    reports = []
    with tempfile.TemporaryDirectory(prefix="bench-norms-") as made:
        repository = make_repository(Path(made) / "repository", quick=asked.quick)
        for transport in transports:
            scratch = Path(made) / transport
            scratch.mkdir()
            with running_hub(repository, latency_ms=LATENCY_MS, tls=transport == "tls", scratch=scratch) as hub:
                reports.append(compare(hub, repository, scratch, transport=transport, asked=asked))
    return finish(reports, asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
