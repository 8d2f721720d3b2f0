"""Scan a local hub of tiny repositories at 50 ms: models a second for 1, 2 and 4 workers, and a run that is killed and resumed.

A worker reads one model at a time, so with waiting alone w workers would be w times as fast as one: that is the ideal. What they
compute shares this machine's cores, with the hub and the process that writes the catalog.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.common import Cell, Goal, Report, finish, parser
from bench.hubside import Hub, serving
from kinprint.catalog.store import open_catalog
from kinprint.results.scan import ScanReport
from support.tiny_models import write_tiny

OWNER = "tiny"
LATENCY_MS = 50.0
WORKERS = (1, 2, 4)


def write_owner(folder: Path, count: int) -> Path:
    """Write `count` models that differ in every weight."""
    for number in range(count):
        write_tiny(folder / f"m{number:05d}", number)
    return folder


def _command(hub: Hub, names: Path, catalog: Path, workers: int) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "kinprint", "scan", str(names), "--catalog", str(catalog)]
    command += ["--workers", str(workers), "--format", "json", "-q"]
    return command, {**os.environ, "HF_ENDPOINT": hub.endpoint.url, "OPENBLAS_NUM_THREADS": "1"}


def run_scan(hub: Hub, names: Path, catalog: Path, workers: int) -> ScanReport:
    """Run one scan in a process of its own."""
    command, environment = _command(hub, names, catalog, workers)
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the scan ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return ScanReport.from_json(done.stdout)


def killed_scan(hub: Hub, names: Path, catalog: Path, workers: int, after: int) -> int:
    """Run a scan, kill it with SIGKILL when `after` models are entered, and return how many there are then."""
    command, environment = _command(hub, names, catalog, workers)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and _entered(catalog) < after:
        time.sleep(0.1)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return _entered(catalog)


def _entered(catalog: Path) -> int:
    if not catalog.exists():
        return 0
    with open_catalog(catalog, read_only=True) as opened:
        return opened.count()


def contents(catalog: Path) -> list[tuple[str, str | None, str]]:
    """Return what a catalog holds, in one order, without the times of entry."""
    with open_catalog(catalog, read_only=True) as opened:
        return sorted((entry.name, entry.revision, entry.key) for entry in opened.entries())


def bench(count: int, killed: int, scratch: Path, widths: Sequence[int] = WORKERS) -> Report:
    """Measure the widths, and resume a run that was killed on the first `killed` models."""
    began = time.perf_counter()
    folder = write_owner(scratch / "models", count)
    made_s = time.perf_counter() - began
    few = scratch / "few.txt"
    listed = [f"{OWNER}/{path.name}" for path in sorted(folder.iterdir())]
    few.write_text("\n".join(listed[:killed]), encoding="utf-8")
    rows: list[dict[str, Cell]] = []
    rates: dict[int, float] = {}
    goals = []
    with serving({}, owners={OWNER: folder}, latency_ms=LATENCY_MS, tls=False, scratch=scratch) as hub:
        for workers in widths:
            catalog = scratch / f"catalog-{workers}.db"
            part = scratch / f"names-{workers}.txt"
            share_of_all = max(1, count * workers // widths[-1])
            part.write_text("\n".join(listed[:share_of_all]), encoding="utf-8")
            report = run_scan(hub, part, catalog, workers)
            rates[workers] = report.per_second
            rows.append(_row(report, rates))
            entered = float(_entered(catalog))
            goals.append(Goal(f"{workers} workers: models entered, each once", entered, ">=", share_of_all, ""))
        broken = scratch / "broken.db"
        before = killed_scan(hub, few, broken, widths[-1], after=killed // 3)
        resumed = run_scan(hub, few, broken, widths[-1])
    uninterrupted = [item for item in contents(scratch / f"catalog-{widths[-1]}.db") if item[0] in set(listed[:killed])]
    same = contents(broken) == uninterrupted
    size = (scratch / f"catalog-{widths[-1]}.db").stat().st_size
    share = rates[widths[-1]] / (widths[-1] * rates[widths[0]])
    goals += [
        Goal("killed and resumed: the same catalog as uninterrupted", float(same), ">=", 1.0, ""),
        Goal("killed and resumed: models left when it was killed", float(killed - before), ">=", 1.0, ""),
        Goal("killed and resumed: models read again", float(resumed.added + before - killed), "<=", 0.0, ""),
        Goal(f"{widths[-1]} workers: share of the ideal", share, ">=", 0.5, "", required=False),
    ]
    hub_facts = f"{count:,} repositories, {LATENCY_MS:g} ms before every reply, written in {made_s:.0f} s."
    notes = (
        f"{hub_facts} Killed at {before} of {killed}, then run again. The catalog takes {size / count:,.0f} bytes a model.",
        "Fewer workers read fewer of the models, so that all runs take about as long.",
        "Ideal: as many times the speed of one worker as there are workers, which have two cores here, with hub and writer.",
    )
    return Report("scan", "Scan of tiny repositories", tuple(rows), tuple(goals), notes)


def _row(report: ScanReport, rates: dict[int, float]) -> dict[str, Cell]:
    first = min(rates)
    return {
        "workers": report.workers,
        "models": report.added,
        "seconds": report.seconds,
        "models/s": report.per_second,
        "share of the ideal": report.per_second * first / (report.workers * rates[first]),
        "CPU ms/model": 1e3 * report.cpu_seconds / max(report.added, 1),
        "requests/model": report.requests / max(report.added, 1),
        "kB/model": report.network_bytes / 1e3 / max(report.added, 1),
        "fingerprint kB": report.fingerprint_bytes / 1e3 / max(report.added, 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench."""
    options = parser("bench.scan", __doc__)
    options.add_argument("--models", type=int, default=2000)
    chosen = options.parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="kinprint-scan-"))
    try:
        report = (
            bench(8, 8, scratch, (1, 2)) if chosen.quick else bench(chosen.models, min(300, chosen.models), scratch)
        )
    finally:
        shutil.rmtree(scratch)
    if chosen.quick:
        goals = tuple(goal for goal in report.goals if goal.required)
        report = replace(report, goals=goals)
    return finish([report], chosen.json)


if __name__ == "__main__":
    raise SystemExit(main())
