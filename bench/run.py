"""Run all benches, print their tables, write ``bench/results/latest.json``; exit 1 if a required goal is missed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import parser, write_json

HERE = Path(__file__).resolve().parent
LATEST = HERE / "results" / "latest.json"
BENCHES = {
    "startup": ["bench.startup"],
    "all_pairs": ["bench.all_pairs"],
    "remote_norms": ["bench.remote_norms", "--all"],
}


def run_bench(command: list[str], *, quick: bool) -> tuple[list[dict[str, object]], int]:
    """Run one bench in an interpreter of its own, so that neither imports nor settings of one reach another."""
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        out = Path(made) / "out.json"
        line = [sys.executable, "-m", *command, "--json", str(out), *(["--quick"] if quick else [])]
        status = subprocess.run(line, cwd=HERE.parent, check=False).returncode
        reports = json.loads(out.read_text(encoding="utf-8"))["reports"] if out.exists() else []
    return reports, status


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for."""
    line = parser("bench", __doc__)
    line.add_argument("--only", action="append", choices=sorted(BENCHES), help="may be repeated")
    asked = line.parse_args(argv)
    reports: list[dict[str, object]] = []
    failed: list[str] = []
    for name, command in BENCHES.items():
        if asked.only and name not in asked.only:
            continue
        print(f"## {name}\n", flush=True)
        found, status = run_bench(command, quick=asked.quick)
        reports += found
        if status != 0:
            failed.append(name)
    write_json(asked.json or LATEST, reports)
    print(f"Missed or failed: {', '.join(failed)}" if failed else "All goals met.")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
