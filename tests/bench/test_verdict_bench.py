"""The verdict bench measures the whole command from outside, and each of its goals can be missed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", code, *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def test_quick_run(tmp_path):
    out = tmp_path / "all.json"
    line = [sys.executable, "-m", "bench", "--quick", "--only", "verdict", "--json", str(out)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    # Nothing that is judged depends on how busy the machine is.
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(out.read_text())["reports"]
    assert report["bench"] == "verdict"
    assert report["title"] in done.stdout
    unrelated, derived = report["rows"]
    assert (unrelated["verdict"], unrelated["exit"]) == ("no_evidence", 0)
    assert (derived["verdict"], derived["exit"]) == ("derived", 11)
    facts = report["facts"]
    assert facts["floor_requests"] == 5
    assert 5 * facts["latency_ms"] / 1e3 <= facts["floor_s"] < 5
    for row in report["rows"]:
        # Both repositories' five steps at the least; a wall or a peak of the launcher alone would be far below these.
        assert row["requests"] >= 10
        assert row["wall s"] > facts["floor_s"]
        assert row["÷ floor"] == pytest.approx(row["wall s"] / facts["floor_s"], rel=0.05)
        assert row["CPU s"] > 0.3
        assert row["peak MB"] > 50
        assert row["bytes received"] > 1_000_000


_JUDGE = """
import sys
from dataclasses import replace
from pathlib import Path
from bench.verdict import DERIVED, FULL_LIMITS, UNRELATED, Run, judge
from support.layouts import GlmAirReport
made = GlmAirReport(110_000_000_000, 106_000_000_000, 18_000, 221_000_000_000, [Path("x")])
runs = [Run(UNRELATED, "no_evidence", 0, 60.0, 50.0, 990_000_000, 1000, 199_000_000),
        Run(DERIVED, "derived", 11, 9000.0, 50.0, 990_000_000, 1000, 199_000_000)]
if len(sys.argv) > 1:
    runs[int(sys.argv[1])] = eval(f"replace(runs[{sys.argv[1]}], {sys.argv[2]})")
report = judge(runs, (0.25, 5), made, FULL_LIMITS)
print([goal.name for goal in report.goals if not goal.met])
sys.exit(not report.passed)
"""


@pytest.mark.parametrize(
    ("number", "change", "missed"),
    [
        ("0", "verdict='derived'", "right verdicts, by report and exit status"),
        ("0", "status=11", "right verdicts, by report and exit status"),
        ("1", "verdict='shares_components', status=12", "right verdicts, by report and exit status"),
        ("1", "received=201_000_000", "Air-Derived: bytes received"),
        ("0", "peak=1_001_000_000", "Air-Unrelated: peak memory"),
    ],
)
def test_each_goal_can_be_missed(number, change, missed):
    done = run_code(_JUDGE, number, change)
    assert (done.returncode, done.stdout.strip()) == (1, str([missed])), done.stderr


def test_time_alone_misses_nothing():
    done = run_code(_JUDGE)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


_NO_REPORT = """
import sys
from pathlib import Path
from bench.verdict import TINY, compare_once
from bench.hubside import serving
from support.layouts import write_sparse_glm_air
scratch = Path(sys.argv[1])
write_sparse_glm_air(scratch / "model", **TINY)
with serving({"bench/Other": scratch / "model"}, latency_ms=0, tls=False, scratch=scratch) as hub:
    compare_once(hub, "bench/Other", scratch)
"""


def test_a_failed_command_stops_the_bench(tmp_path):
    done = run_code(_NO_REPORT, str(tmp_path))
    assert done.returncode == 1
    assert "verdict: no report for bench/Other, exit status 3" in done.stderr
    assert "bench/Air" in done.stderr  # the command's own words: the first repository is not served
