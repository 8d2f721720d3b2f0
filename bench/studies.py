"""All seven studies on replicas, figures included: wall time against the goal, by the command a user runs.

python -m bench.studies          (in a venv with torch and matplotlib; without torch the toy experiment is left out and said so)
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_S = 180.0


def main() -> int:
    """Run the command and print a table."""
    toy = importlib.util.find_spec("torch") is not None
    with tempfile.TemporaryDirectory() as folder:
        started, before = time.monotonic(), os.times()
        command = [sys.executable, "-c", "from kinprint.cli.main import run\nif __name__ == '__main__': run()"]
        subprocess.run([*command, "study", "all", "--replicas", "-q", "--out", folder], check=True)
        wall, after = time.monotonic() - started, os.times()
        figures = len(list(Path(folder).rglob("*.png"))) + len(list(Path(folder).rglob("*.gif")))
        tables = len(list(Path(folder).rglob("*.csv")))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print("\n| what | measured | goal | met |")
    print("|---|---|---|---|")
    which = "seven studies" if toy else "six studies (no torch: toy-init left out)"
    met = "yes" if wall < GOAL_S else "NO"
    print(f"| {which} on replicas, {figures} figures, {tables} tables, wall s | {wall:.0f} | {GOAL_S:.0f} | {met} |")
    print(f"| processor s | {cpu:.0f} | – | – |")
    return 0 if wall < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
