"""What the benches share: goals, timing, tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Cell = str | int | float | None


@dataclass(frozen=True)
class Goal:
    """A figure that must not be below (``>=``) or above (``<=``) its limit.

    One with ``required=False`` is reported and does not fail the run: it is what we would like, not what we promise.
    """

    name: str
    measured: float
    relation: str
    limit: float
    unit: str = "×"
    required: bool = True
    before: float | None = None  # what it was when the goal was set, if that was measured

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side."""
        return self.measured >= self.limit if self.relation == ">=" else self.measured <= self.limit


@dataclass(frozen=True)
class Report:
    """One bench's outcome: its rows as measured, and the goals they are held against."""

    bench: str
    title: str
    rows: tuple[Mapping[str, Cell], ...]
    goals: tuple[Goal, ...]
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every required goal is met."""
        return all(goal.met for goal in self.goals if goal.required)

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {
            "bench": self.bench,
            "title": self.title,
            "passed": self.passed,
            "rows": [dict(row) for row in self.rows],
            "goals": [{**asdict(goal), "met": goal.met} for goal in self.goals],
            "notes": list(self.notes),
            "facts": dict(self.facts),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Return a report from what `as_dict` made of it."""
        names = {field.name for field in fields(Goal)}
        goals = tuple(Goal(**{name: goal[name] for name in names}) for goal in data["goals"])
        return cls(data["bench"], data["title"], tuple(data["rows"]), goals, tuple(data["notes"]), data["facts"])

    def markdown(self) -> str:
        """Return the tables."""
        lines = [f"### {self.title}", ""]
        if self.rows:
            lines += [*table(list(self.rows[0]), [list(row.values()) for row in self.rows]), ""]
        lines += [*goal_table(self.goals), ""] if self.goals else []
        lines += [f"{note}  " for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"


_SIGN = {">=": "≥", "<=": "≤"}


def goal_table(goals: Sequence[Goal]) -> list[str]:
    """Return goals, what they were before where that is known, and what was measured."""
    known = any(goal.before is not None for goal in goals)
    rows: list[list[Cell]] = []
    for goal in goals:
        before = ["–" if goal.before is None else f"{shown(goal.before)} {goal.unit}"] if known else []
        limit = f"{_SIGN[goal.relation]} {shown(goal.limit)} {goal.unit}"
        rows.append([goal.name, limit, *before, f"{shown(goal.measured)} {goal.unit}", _verdict(goal)])
    return table(["goal", "limit", *(["before"] if known else []), "measured", "met"], rows)


def _verdict(goal: Goal) -> str:
    if goal.met:
        return "yes"
    return "NO" if goal.required else "not yet (not required)"


def shown(value: Cell) -> str:
    """Return a figure for a table: three significant digits, thousands apart."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return a Markdown table."""
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(shown(cell) for cell in row) + " |" for row in rows),
    ]


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return wall-clock seconds and the result."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


# A process's peak counts that of the one it was started from until it became another program, so the command is started
# by an interpreter that holds nothing, not by this one, which holds numpy and has written models.
_LAUNCHER = """
import json, os, subprocess, sys, time
with open(sys.argv[1], "wb") as out:
    began = time.perf_counter()
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=out)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
child.returncode = os.waitstatus_to_exitcode(status)
peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([child.returncode, wall, used.ru_utime + used.ru_stime, peak]))
"""


# The command and all its forks, at once: of memory that several of them have each is counted its share (PSS). Looking takes
# some time of the cores, so that a run which is looked at is not one which is timed. A look may miss the highest moment, and a
# share is less where others run the same programs: it is at least what the kernel counted for the largest of them.
_WATCHER = """
import json, os, subprocess, sys, time
def shares(session):
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == session:
                with open(f"/proc/{pid}/smaps_rollup") as told:
                    total += next(1024 * int(line.split()[1]) for line in told if line.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return total
with open(sys.argv[1], "wb") as out:
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=out, start_new_session=True)
    peak, ended = 0, 0
    while not ended:
        peak = max(peak, shares(child.pid))
        time.sleep(0.02)
        ended, status, used = os.wait4(child.pid, os.WNOHANG)
child.returncode = os.waitstatus_to_exitcode(status)
peak = max(peak, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
print(json.dumps([child.returncode, 0.0, 0.0, peak]))
"""


@dataclass(frozen=True)
class Cost:
    """What one command cost, measured from outside: start-up included."""

    status: int
    wall: float
    cpu: float
    peak: int  # of the process that had most; of a run that was looked at, of all processes together
    said: str  # on the stream of errors


def from_outside(command: Sequence[str], out: Path, environment: Mapping[str, str], *, look: bool = False) -> Cost:
    """Run a command in a new process, with what it prints in a file; `look` at the memory of it and its forks, and time nothing."""
    line = [sys.executable, "-I", "-S", "-c", _WATCHER if look else _LAUNCHER, str(out), *command]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    status, wall, cpu, peak = json.loads(done.stdout)
    return Cost(status, wall, cpu, peak, done.stderr.strip())


def median(values: Sequence[float]) -> float:
    """Return the median: a busy moment of the machine must not decide a ratio."""
    return statistics.median(values)


def machine() -> dict[str, Cell]:
    """Return what a reader needs to judge the figures, and nothing that names the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "urllib3": version("urllib3"),
    }


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options every bench has."""
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    options.add_argument("--quick", action="store_true", help="small sizes: a smoke test, not a measurement")
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return options


def finish(reports: Sequence[Report], json_file: Path | None) -> int:
    """Print and write the reports; return the exit status."""
    for report in reports:
        print(report.markdown())
    if json_file is not None:
        write_json(json_file, [report.as_dict() for report in reports])
    sys.stdout.flush()
    return 0 if all(report.passed for report in reports) else 1


def write_json(path: Path, reports: list[dict[str, object]]) -> None:
    """Write reports with the machine they come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "reports": reports}, indent=2) + "\n", encoding="utf-8")
