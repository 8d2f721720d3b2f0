"""All studies on replicas, figures included: wall time against the goal, by the command a user runs.

In a venv with torch and matplotlib these are seven; without torch the toy experiment is left out, and the table says so.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import Cell, Goal, Report, finish, parser, timed

GOAL_S = 180.0
QUICK = ("sanity",)  # the shortest
WITHOUT_TORCH = ("baselines", "metrics", "bias", "sanity", "origin", "scale")
_RUN = "from kinprint.cli.main import run\nif __name__ == '__main__': run()"


def measure(*, quick: bool) -> Report:
    """Run the command; what it wrote is counted, so that a run that does nothing is not a fast one."""
    toy = importlib.util.find_spec("torch") is not None
    studies = QUICK if quick else ("all",) if toy else WITHOUT_TORCH
    with tempfile.TemporaryDirectory(prefix="bench-studies-") as folder:
        before = os.times()
        command = [sys.executable, "-c", _RUN, "study", *studies, "--replicas", "-q", "--out", folder]
        wall, _ = timed(lambda: subprocess.run(command, check=True))
        after = os.times()
        files = list(Path(folder).rglob("*"))
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    which = ", ".join(QUICK) if quick else "seven studies" if toy else "six studies (no torch: toy-init left out)"
    row: dict[str, Cell] = {
        "studies": which,
        "wall s": round(wall, 1),
        "processor s": round(busy, 1),
        "figures": sum(file.suffix in (".png", ".gif") for file in files),
        "tables": sum(file.suffix == ".csv" for file in files),
    }
    tables, least = int(row["tables"] or 0), 1 if quick else 6
    goals = (Goal("wall", wall, "<=", GOAL_S, "s"), Goal("tables written", tables, ">=", least, ""))
    return Report("studies", "Studies on replicas", (row,), goals)


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.studies", __doc__).parse_args(argv)
    return finish([measure(quick=asked.quick)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
