"""Deep searches: `compare --deep` on the demo family beyond start-up, and the method `kin` on a pair of a billion parameters.

The demo family is compared in one process, the best of five runs, so that imports are done. The pair of `kin` is
that of `bench.fingerprints`: unrelated models of the shape of Llama 3.2 1B, for which the search runs to its end; `--models`
names a folder where they are kept between runs (5 GB).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.common import Cell, Goal, Report, finish, parser
from bench.fingerprints import FULL, QUICK, run_method, write_model

DEMO = Path(__file__).resolve().parents[1] / "demo" / "models"
OTHERS = ("finetune", "permuted", "grown", "unrelated")
DEEP_S, KIN_S, KIN_MB = 0.5, 15.0, 800.0
DEEP_BEFORE, KIN_BEFORE, KIN_BEFORE_MB = "2.1 s, with start-up", 57.4, 1581.0


def deep(*, quick: bool) -> Report:
    """Compare the base with each of its family, deep and not, and take the best of some runs."""
    import kinprint

    def seconds(other: str, *, search: bool) -> float:
        began = time.perf_counter()
        kinprint.compare(DEMO / "base", DEMO / other, deep=search)
        return time.perf_counter() - began

    rows: list[dict[str, Cell]] = []
    for other in OTHERS[-1:] if quick else OTHERS:
        times = [min(seconds(other, search=search) for _ in range(1 if quick else 5)) for search in (True, False)]
        rows.append({"pair": f"base, {other}", "deep s": round(times[0], 3), "without s": round(times[1], 3)})
    worst = max(float(str(row["deep s"])) for row in rows)
    goal = Goal("slowest pair, wished for", worst, "<=", DEEP_S * (4 if quick else 1), "s", required=False)
    notes = (f"Before: {DEEP_BEFORE}.",)
    return Report("deep_demo", "`compare --deep` of the demo family beyond start-up", tuple(rows), (goal,), notes)


def kin(folder: Path, *, quick: bool) -> Report:
    """Run the method on a pair, in a process of its own."""
    sides = folder / "a", folder / "b"
    for seed, side in enumerate(sides, 1):
        if not side.exists():
            write_model(side, QUICK if quick else FULL, seed)
    found = run_method("kin", *sides)
    seconds, peak = found["wall"], found["peak"] / 1e6
    before: dict[str, Cell] = {"kin": "before", "seconds": KIN_BEFORE, "CPU seconds": 62.8, "peak MB": KIN_BEFORE_MB}
    now: dict[str, Cell] = {"kin": "now", "seconds": seconds, "CPU seconds": found["cpu"], "peak MB": peak}
    rows = (now,) if quick else (before, now)
    goals = (
        Goal("kin: time", seconds, "<=", KIN_S, "s", before=None if quick else KIN_BEFORE),
        Goal("kin: peak memory", peak, "<=", KIN_MB, "MB", before=None if quick else KIN_BEFORE_MB),
    )
    return Report("deep_kin", f"`kin` on a pair of {'tiny models' if quick else '1.2 billion parameters'}", rows, goals)


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    line = parser("bench.deep", __doc__)
    line.add_argument("--models", type=Path, help="folder that keeps the pair between runs")
    asked = line.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-deep-") as made:
        reports = [deep(quick=asked.quick), kin(asked.models or Path(made), quick=asked.quick)]
        return finish(reports, asked.json)


if __name__ == "__main__":
    sys.exit(main())
