"""Load the server: 200 readers of stored pages at once (locust), then 50 jobs queued by three clients.

    python bench/serve_load.py --locust .venv-load/bin/locust [--users 200] [--seconds 30]

Goals: no error, 95th percentile of stored pages at most 100 ms; every queued job is answered.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from support.serving import Server  # noqa: E402 - after the path to it

GOAL_MS, JOBS = 100.0, 50
OTHERS = ("finetune", "unrelated", "grown")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--locust", required=True)
    asked.add_argument("--users", type=int, default=200)
    asked.add_argument("--seconds", type=int, default=30)
    asked.add_argument("--jobs", type=int, default=JOBS)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        how = ("--local", str(ROOT / "demo" / "models"), "--rate", "1000000", "--write-rate", "100000")
        server = Server(Path(place) / "state", *how)
        try:
            ids = [server.start("base", other) for other in OTHERS]
            for id_ in ids:
                assert server.ended(id_)["state"] == "done"
            fine = read(server, ids, Path(place), given)
            return 0 if queue(server, given.jobs) and fine else 1
        finally:
            server.end()


def read(server: Server, ids: list[str], place: Path, given: argparse.Namespace) -> bool:
    """Let many read at once; print what locust measured, and return whether the goals hold."""
    file = ["-f", str(ROOT / "bench" / "serve_locust.py"), "--host", server.base, "--csv", str(place / "load")]
    # They come over ten seconds and are counted from when all are there: a wave of first connections is another question.
    amount = ["--headless", "-u", str(given.users), "-r", str(-(-given.users // 10)), "-t", f"{10 + given.seconds}s"]
    amount += ["--only-summary", "--reset-stats"]
    environment = {**os.environ, "KINPRINT_RESULTS": ",".join(ids)}
    subprocess.run([given.locust, *file, *amount], check=False, env=environment)
    with (place / "load_stats.csv").open(newline="") as opened:
        total = next(row for row in csv.DictReader(opened) if row["Name"] == "Aggregated")
    requests, failures, p95 = int(total["Request Count"]), int(total["Failure Count"]), float(total["95%"])
    print(
        f"{given.users} readers: {requests} requests, {failures} failed, 95th percentile {p95:g} ms (goal {GOAL_MS:g})"
    )
    return requests > 0 and failures == 0 and p95 <= GOAL_MS


def queue(server: Server, count: int) -> bool:
    """Queue jobs of three clients of 20 each and wait for all of them."""
    started = time.monotonic()
    keys = [server.key(f"client {number}") for number in range(-(-count // 20))]
    ids = []
    for number in range(count):
        key = keys[number // 20]
        reply = server.ask("/api/compare", {"a": "base", "b": "finetune"}, Authorization=f"Bearer {key}")
        assert reply.status == 202, reply.text
        ids.append(reply.json["id"])
    print(f"{count} jobs queued in {time.monotonic() - started:.1f} s")
    states = [server.ended(id_, 600)["state"] for id_ in ids]
    print(f"{states.count('done')} of {count} done after {time.monotonic() - started:.1f} s, one at a time")
    return states.count("done") == count


if __name__ == "__main__":
    sys.exit(main())
