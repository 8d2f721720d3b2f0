"""What scanning the public hub would take: costs of single models as measured here, and a simulation of two and a half million.

Measured: requests, bytes, processor time, peak memory and fingerprint of repositories of several sizes on a local hub at 50 ms, and
how fast the one writer enters models. Assumed, and printed as such: how many of the hub's repositories are of which size. The
simulation lets workers take models one after the other, wave of requests by wave, through the very gate that scans use.
"""

from __future__ import annotations

import heapq
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.common import Cell, Goal, Report, finish, from_outside, parser
from bench.hubside import serving
from kinprint.catalog.store import open_catalog
from kinprint.sources.pace import BURST, Pace
from support.catalogs import make_item
from support.layouts import write_sparse_glm_air
from support.tiny_models import write_tiny

HUB_MODELS = 2_500_000
LATENCY_S = 0.05
ROWS = 64  # of every matrix that are not holes: more than a fingerprint reads
WAVES = 6  # requests that need the answer to the one before: description, index, look-up, header, data, data
RECALL_BYTES = 256 * 4  # of one model
MIX = {"nothing to read": 0.45, "tiny": 0.30, "8 shards": 0.22, "47 shards": 0.03}
"""Assumed shares of the hub's repositories, by the repository whose cost stands for them. Nobody counted them here."""

_ONE = """
import json, resource, sys, time
from kinprint.catalog.adding import fingerprint_model
from kinprint.errors import KinprintError
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from dataclasses import replace
session = Session(replace(Settings.from_env(), range_cache=None, concurrency=16))
def cost(name):
    size, before = 0, (session.traffic.requests, session.traffic.network_bytes)
    fresh, wall = time.process_time(), time.perf_counter()
    try:
        size = len(fingerprint_model(name, Options(budget_bytes=64_000_000), session=session).fingerprint)
    except KinprintError as error:
        print(error.message, file=sys.stderr)
    told = {"cpu_s": time.process_time() - fresh, "wall_s": time.perf_counter() - wall, "fingerprint": size}
    counts = (session.traffic.requests - before[0], session.traffic.network_bytes - before[1])
    return told | dict(zip(("requests", "bytes"), counts))
cost("scale/tiny")  # a process of a scan has loaded its libraries and holds its connections
told = cost(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(told | {"peak_kb": peak}))
"""


@dataclass(frozen=True)
class Kind:
    """What one repository of a kind costs."""

    at_hub: int  # requests: descriptions, look-ups, small files
    at_cdn: int  # requests: ranges of large files
    bytes: int
    cpu_s: float
    wall_s: float
    peak_bytes: int
    fingerprint: int

    @property
    def requests(self) -> int:
        """All requests."""
        return self.at_hub + self.at_cdn


def measure(scratch: Path, *, quick: bool) -> dict[str, Kind]:
    """Read one repository of each kind in a process of its own."""
    import json

    folders = {name: scratch / name.replace(" ", "-") for name in MIX}
    folders["nothing to read"].mkdir(parents=True)
    (folders["nothing to read"] / "README.md").write_text("A card alone.\n", encoding="utf-8")
    write_tiny(folders["tiny"], 1)
    write_sparse_glm_air(folders["8 shards"], shards=8, layers=4, experts=16, filled_rows=ROWS)
    if not quick:
        write_sparse_glm_air(folders["47 shards"], filled_rows=ROWS)
    made = {f"scale/{folder.name}": folder for folder in folders.values() if folder.is_dir()}
    found: dict[str, Kind] = {}
    with serving(made, latency_ms=1e3 * LATENCY_S, tls=False, scratch=scratch) as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.endpoint.url, "OPENBLAS_NUM_THREADS": "1"}
        warm = {"hub": 0, "cdn": 0}
        for name in sorted(folders, key=lambda name: name != "tiny"):
            folder = folders[name]
            if folder.is_dir():
                hub.reset()
                out = scratch / "told.json"
                done = from_outside([sys.executable, "-c", _ONE, f"scale/{folder.name}"], out, environment)
                if done.status:
                    raise RuntimeError(f"{name}: {done.said[-500:]}")
                told = json.loads(out.read_text(encoding="utf-8"))
                asked = hub.requests()
                if name == "tiny":  # read twice: what warms up the process is a tiny one
                    warm = {origin: count // 2 for origin, count in asked.items()}
                own = (asked["hub"] - warm["hub"], asked["cdn"] - warm["cdn"])
                known = (told["bytes"], told["cpu_s"], told["wall_s"], 1024 * told["peak_kb"])
                found[name] = Kind(*own, *known, told["fingerprint"])
    if quick:
        found["47 shards"] = found["8 shards"]
    return {name: found[name] for name in MIX}


def entered_share(kinds: Mapping[str, Kind]) -> float:
    """Return the share of the hub's repositories that are entered: those that a fingerprint can be made of."""
    return sum(MIX[name] for name, kind in kinds.items() if kind.fingerprint)


def entered_per_s(scratch: Path, count: int) -> tuple[float, float]:
    """Return how many models the one writer enters in a second of processor time and of waiting for the disk."""
    items = [make_item(number) for number in range(count)]
    with open_catalog(scratch / "writer.db") as catalog:
        began, cpu = time.perf_counter(), time.process_time()
        for item in items:
            catalog.add(*item)
        return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


def simulate(kinds: Mapping[str, Kind], workers: int, per_s: float, models: int, seed: int = 7) -> float:
    """Return models a second in the long run, of `workers` that each have a core, at `per_s` requests a second to the hub."""
    rng = np.random.default_rng(seed)
    names = list(MIX)
    drawn = rng.choice(len(names), size=models, p=[MIX[name] for name in names])
    now = [0.0]
    gate = Pace(per_s, clock=lambda: now[0])
    waiting = iter(drawn)
    events = [(0.0, worker, -1, 0) for worker in range(workers)]  # when, who, kind of model (-1: takes the next), wave
    heapq.heapify(events)
    done = 0
    while events:
        now[0], worker, kind, wave = heapq.heappop(events)
        if kind < 0 or wave == WAVES:
            done += kind >= 0
            kind = int(next(waiting, -1))
            if kind >= 0:
                heapq.heappush(events, (now[0], worker, kind, 0))
            continue
        cost = kinds[names[kind]]
        half = WAVES // 2  # the hub is asked first, then the servers that it leads to, which have a limit of their own
        host, count = ("hub", cost.at_hub) if wave < half else ("cdn", cost.at_cdn)
        asked = count // half + (wave % half < count % half)
        last = max((gate.turn_s(host) for _ in range(asked)), default=0.0)
        compute = cost.cpu_s if wave == WAVES - 1 else 0.0
        heapq.heappush(events, (now[0] + last + (LATENCY_S if asked else 0.0) + compute, worker, kind, wave + 1))
    return done / now[0]


def bench(scratch: Path, *, quick: bool) -> list[Report]:
    """Measure, simulate, and say what the whole hub would take."""
    kinds = measure(scratch, quick=quick)
    writer, writer_cpu = entered_per_s(scratch, 50 if quick else 1000)
    rows: list[dict[str, Cell]] = [
        {
            "repository": name,
            "assumed share": MIX[name],
            "requests, hub": kind.at_hub,
            "requests, CDN": kind.at_cdn,
            "kB read": kind.bytes / 1e3,
            "CPU s": kind.cpu_s,
            "wall s": kind.wall_s,
            "peak MB": kind.peak_bytes / 1e6,
            "fingerprint kB": kind.fingerprint / 1e3,
        }
        for name, kind in kinds.items()
    ]
    mean = {
        part: sum(MIX[name] * getattr(kind, part) for name, kind in kinds.items())
        for part in ("requests", "at_hub", "at_cdn", "bytes", "cpu_s", "fingerprint")
    }
    busiest = max(mean["at_hub"], mean["at_cdn"])
    sample = 2_000 if quick else 20_000
    plans: Sequence[tuple[int, float]] = ((4, 10.0), (64, 10.0), (64, 100.0), (256, 1000.0))
    simulated: list[dict[str, Cell]] = []
    for workers, per_s in plans:
        rate = simulate(kinds, workers, per_s, sample)
        simulated.append(
            {
                "workers": workers,
                "requests/s to a host": per_s,
                "models/s": rate,
                "days for the hub": HUB_MODELS / rate / 86_400,
                "share of what the limit allows": rate * busiest / per_s,
                "share of one writer": rate / writer,
            }
        )
    totals = (
        f"{HUB_MODELS:,} repositories: {HUB_MODELS * mean['requests'] / 1e6:,.0f} million requests, "
        f"{HUB_MODELS * mean['bytes'] / 1e12:,.1f} TB read, {HUB_MODELS * mean['cpu_s'] / 3600:,.0f} core hours, "
        f"{HUB_MODELS * mean['fingerprint'] / 1e9:,.0f} GB of fingerprints, "
        f"{HUB_MODELS * entered_share(kinds) * RECALL_BYTES / 1e9:.1f} GB of recall vectors."
    )
    limit = simulated[0]["models/s"]
    bound = 10.0 / busiest * (1.0 + BURST / 1e3)
    goals = [
        Goal("simulation: no faster than the limit of requests allows", float(limit or 0.0), "<=", bound, "models/s")
    ]
    one_writer = f"One writer enters {writer:,.0f} small models a second ({writer_cpu:,.0f} by processor time)."
    return [
        Report("scale_models", "What one repository costs", tuple(rows), ()),
        Report("scale", "What the public hub would take", tuple(simulated), tuple(goals), (totals, one_writer)),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench."""
    chosen = parser("bench.scale", __doc__).parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="kinprint-scale-"))
    try:
        return finish(bench(scratch, quick=chosen.quick), chosen.json)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    raise SystemExit(main())
