"""The verdict bench measures the whole command from outside, and each of its goals can be missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.layouts import GlmAirReport, write_sparse_glm_air


@pytest.mark.slow
def test_quick_run(reports):
    (report,) = reports["verdict"]
    assert report["passed"]  # nothing that is judged depends on how busy the machine is
    unrelated, derived = report["rows"]
    assert (unrelated["verdict"], unrelated["exit"]) == ("no_evidence", 0)
    assert (derived["verdict"], derived["exit"]) == ("derived", 11)
    facts = report["facts"]
    assert facts["floor_requests"] == 5
    for row in report["rows"]:
        # Both repositories' five steps at the least; a peak of the launcher alone would be far below this.
        assert row["requests"] >= 10
        assert row["÷ floor"] == pytest.approx(row["wall s"] / facts["floor_s"], rel=0.05)
        assert row["peak MB"] > 50
        assert row["bytes received"] > 1_000_000


@pytest.fixture
def missed():
    """Judge two runs, one of them changed, and return the goals that were missed."""
    from bench.verdict import DERIVED, FULL_LIMITS, UNRELATED, Run, judge

    def goals(number=0, **change):
        made = GlmAirReport(110_000_000_000, 106_000_000_000, 18_000, 221_000_000_000, [Path("x")])
        runs = [
            Run(UNRELATED, "no_evidence", 0, 60.0, 50.0, 990_000_000, 1000, 199_000_000),
            Run(DERIVED, "derived", 11, 9000.0, 50.0, 990_000_000, 1000, 199_000_000),
        ]
        runs[number] = replace(runs[number], **change)
        report = judge(runs, (0.25, 5), made, FULL_LIMITS)
        found = [goal.name for goal in report.goals if not goal.met]
        assert report.passed == (not found)
        return found

    return goals


@pytest.mark.parametrize(
    ("number", "change", "goal"),
    [
        (0, {"verdict": "derived"}, "right verdicts, by report and exit status"),
        (0, {"status": 11}, "right verdicts, by report and exit status"),
        (1, {"verdict": "shares_components", "status": 12}, "right verdicts, by report and exit status"),
        (1, {"received": 201_000_000}, "Air-Derived: bytes received"),
        (0, {"peak": 1_001_000_000}, "Air-Unrelated: peak memory"),
    ],
)
def test_each_goal_can_be_missed(missed, number, change, goal):
    assert missed(number, **change) == [goal]


def test_time_alone_misses_nothing(missed):
    assert missed() == []


@pytest.mark.slow
def test_a_failed_command_stops_the_bench(tmp_path):
    from bench.hubside import serving
    from bench.verdict import TINY, compare_once

    write_sparse_glm_air(tmp_path / "model", **TINY)
    with (
        serving({"bench/Other": tmp_path / "model"}, latency_ms=0, tls=False, scratch=tmp_path) as hub,
        pytest.raises(SystemExit, match="verdict: no report for bench/Other, exit status 3") as ended,
    ):
        compare_once(hub, "bench/Other", tmp_path)
    assert "bench/Air" in str(ended.value)  # the command's own words: the first repository is not served
