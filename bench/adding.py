"""A repository of 106 billion parameters entered in a catalog: `kinprint catalog add` from its name to the confirmed entry.

A sparse repository is written (some 560 MB on disk); the hub runs in another process and adds 50 ms to each response. The command
runs as a user runs it, start-up included, over plain HTTP and without a cache; then again, when the commit is entered already.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from bench import startup
from bench.common import Cell, Goal, Report, finish, from_outside, parser
from bench.hubside import serving
from bench.verdict import BASE, FILLED_ROWS, LATENCY_MS, TINY, environment
from support.layouts import write_sparse_glm_air

WALL_S, RECEIVED_MB, ENTRY_MB = 3.0, 30.0, 1.0


def main(argv: list[str] | None = None) -> int:
    given = parser("bench.adding", __doc__).parse_args(argv)
    size: dict[str, Any] = TINY if given.quick else {}
    times = 1 if given.quick else 3
    with tempfile.TemporaryDirectory(prefix="bench-adding-") as place:
        scratch = Path(place)
        made = write_sparse_glm_air(scratch / "model", seed=1, filled_rows=FILLED_ROWS, **size)
        rows: list[dict[str, Cell]] = []
        with serving({BASE: scratch / "model"}, latency_ms=LATENCY_MS, tls=False, scratch=scratch) as hub:
            for number in range(times):
                for way in ("new", "entered already"):
                    hub.reset()
                    out, catalog = scratch / "out.json", scratch / f"{number}.db"
                    command = [*startup.command()[:-1], "catalog", "add", BASE, "--catalog", str(catalog), "--no-cache"]
                    cost = from_outside([*command, "--format", "json", "-q"], out, environment(hub, scratch))
                    told = json.loads(out.read_bytes() or b"{}")
                    if cost.status or len(told["added" if way == "new" else "already"]) != 1:
                        raise SystemExit(f"adding: exit status {cost.status}: {cost.said[-500:]}")
                    counted = hub.stats()
                    row: dict[str, Cell] = {"way": way, "wall s": cost.wall, "CPU s": cost.cpu}
                    row |= {"peak MB": cost.peak / 1e6, "requests": counted["requests"]}
                    rows.append(row | {"MB received": counted["bytes"] / 1e6})
        stored = (scratch / "0.db").stat().st_size / 1e6
    best = {way: min((row for row in rows if row["way"] == way), key=_wall) for way in ("new", "entered already")}
    new = best["new"]
    goals = [
        Goal("bytes received", float(new["MB received"] or 0), "<=", RECEIVED_MB, "MB"),
        Goal("the catalog with one entry", stored, "<=", ENTRY_MB, "MB"),
        Goal("requests where the commit is entered", float(best["entered already"]["requests"] or 0), "<=", 1, ""),
    ]
    if not given.quick:
        goals.insert(0, Goal("wall", _wall(new), "<=", WALL_S, "s"))
    title = f"Adding a model of {made.main_parameters / 1e9:.4g} B parameters to a catalog, {LATENCY_MS:.0f} ms, best of {times}"
    return finish([Report("adding", title, tuple(best.values()), tuple(goals))], given.json)


def _wall(row: dict[str, Cell]) -> float:
    return float(row["wall s"] or 0)


if __name__ == "__main__":
    raise SystemExit(main())
