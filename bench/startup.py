"""How long ``kinprint --help`` takes: a new interpreter, imports and all, with the package compiled."""

from __future__ import annotations

import compileall
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from bench.common import Cell, Goal, Report, finish, median, parser, timed

LIMIT_S = 0.25


def command() -> list[str]:
    """Return the installed script, else the module."""
    script = Path(sysconfig.get_path("scripts")) / ("kinprint.exe" if sys.platform == "win32" else "kinprint")
    return [str(script), "--help"] if script.exists() else [sys.executable, "-m", "kinprint", "--help"]


def compile_package() -> None:
    """Write the package's bytecode, which a user has after the first run even if this machine forbids writing it."""
    spec = find_spec("kinprint")
    assert spec is not None
    for place in spec.submodule_search_locations or ():
        if not compileall.compile_dir(place, quiet=1):
            raise SystemExit("startup: the package does not compile")


def run_once(line: list[str]) -> float:
    """Time one run, which must succeed and print a usage."""
    wall, done = timed(lambda: subprocess.run(line, capture_output=True, text=True, check=False))
    if done.returncode != 0 or "Usage" not in done.stdout:
        raise SystemExit(f"startup: --help failed with exit status {done.returncode}: {done.stderr.strip()[-500:]}")
    return wall


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.startup", __doc__).parse_args(argv)
    times = 3 if asked.quick else 10
    compile_package()
    line = command()
    run_once(line)  # fills the disk cache
    helps, bare = [], []
    for _ in range(times):
        helps.append(run_once(line))
        bare.append(timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))[0])
    rows: tuple[dict[str, Cell], ...] = (
        {
            "command": "kinprint --help",
            "wall s": round(median(helps), 3),
            "best s": round(min(helps), 3),
            "runs": times,
        },
        {"command": "python -c pass", "wall s": round(median(bare), 3), "best s": round(min(bare), 3), "runs": times},
    )
    goals = (Goal("kinprint --help", median(helps), "<=", LIMIT_S * (4 if asked.quick else 1), "s"),)
    return finish([Report("startup", "Start-up", rows, goals)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
