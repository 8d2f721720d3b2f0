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
    rows = {(row["way"], row["compared with"].rpartition("-")[2].lower()): row for row in report["rows"]}
    assert {way for way, _ in rows} == {"plain HTTP", "warm cache", "local", "demo models"}
    assert {row["verdict"] for (_, other), row in rows.items() if other == "unrelated"} == {"no_evidence"}
    assert {row["verdict"] for (_, other), row in rows.items() if other != "unrelated"} == {"derived"}
    facts = report["facts"]
    assert facts["floor_requests"] == 5
    for (way, _), row in rows.items():
        assert row["÷ floor"] == pytest.approx(row["wall s"] / facts["floor_s"], rel=0.05)
        assert row["peak MB"] > 50  # a peak of the launcher alone would be far below this
        if way == "plain HTTP":  # both repositories' five steps at the least
            assert row["requests"] >= 10
            assert row["MB received"] > 1
        else:  # the hub's description of either repository is asked for anew
            assert row["requests"] == (2 if way == "warm cache" else 0)


@pytest.fixture
def missed():
    """Judge two runs, one of them changed, and return the goals that were missed."""
    from bench.verdict import DERIVED, FULL_LIMITS, PLAIN, UNRELATED, Run, judge

    def goals(number=0, *, quick=False, **change):
        made = GlmAirReport(110_000_000_000, 106_000_000_000, 18_000, 221_000_000_000, [Path("x")])
        runs = [
            Run(PLAIN, UNRELATED, "no_evidence", True, 5.0, 7.0, 440_000_000, 1000, 109_000_000),
            Run(PLAIN, DERIVED, "derived", True, 5.0, 7.0, 440_000_000, 1000, 109_000_000),
        ]
        runs[number] = replace(runs[number], **change)
        report = judge(runs, (0.25, 5), made, FULL_LIMITS, quick=quick)
        found = [goal.name for goal in report.goals if not goal.met]
        assert report.passed == (not found)
        return found

    return goals


@pytest.mark.parametrize(
    ("number", "change", "goal"),
    [
        (0, {"right": False}, "right verdicts"),
        (1, {"received": 111_000_000}, "Air-Derived, plain HTTP: bytes received"),
        (0, {"peak": 451_000_000}, "Air-Unrelated, plain HTTP: peak memory"),
        (0, {"wall": 6.1}, "Air-Unrelated, plain HTTP: wall"),
        (1, {"cpu": 8.1}, "Air-Derived, plain HTTP: CPU"),
    ],
)
def test_each_goal_can_be_missed(missed, number, change, goal):
    assert missed(number, **change) == [goal]


def test_another_version_of_the_same_run_is_what_was_before():
    from bench.verdict import FULL_LIMITS, PLAIN, UNRELATED, Run, judge

    now = Run(PLAIN, UNRELATED, "no_evidence", True, 5.0, 7.0, 440_000_000, 1000, 109_000_000)
    then = replace(now, wall=50.0, cpu=56.0)
    made = GlmAirReport(110_000_000_000, 106_000_000_000, 18_000, 221_000_000_000, [Path("x")])
    report = judge([now], (0.25, 5), made, FULL_LIMITS, quick=False, earlier={(PLAIN, UNRELATED): then})
    assert [goal.before for goal in report.goals[1:]] == [50.0, 56.0, 109.0, 440.0]
    assert (report.rows[0]["before ÷ now: wall"], report.rows[0]["CPU"]) == (10.0, 8.0)


def test_wall_time_is_not_judged_on_small_sizes(missed):
    assert missed() == missed(quick=True, wall=1e4) == []


@pytest.mark.slow
def test_a_failed_command_stops_the_bench(tmp_path):
    from bench.hubside import serving
    from bench.verdict import PLAIN, TINY, compare_once

    write_sparse_glm_air(tmp_path / "model", **TINY)
    with (
        serving({"bench/Other": tmp_path / "model"}, latency_ms=0, tls=False, scratch=tmp_path) as hub,
        pytest.raises(SystemExit, match="verdict: no report for bench/Other, exit status 3") as ended,
    ):
        compare_once(PLAIN, ("bench/Air", "bench/Other"), "derived", hub, tmp_path)
    assert "bench/Air" in str(ended.value)  # the command's own words: the first repository is not served


def test_the_page_begins_with_goals_before_and_now():
    from bench.common import Goal, Report, machine
    from bench.run import BENCHES, page

    goals = Goal("wall", 5.0, "<=", 4.0, "s", before=47.0), Goal("verdicts", 2, ">=", 2, "")
    others = [Report(name, name, (), ()).as_dict() for name in BENCHES if name != "verdict"]
    text = page(
        [
            {"machine": machine(), "reports": [Report("verdict", "Verdicts", (), goals).as_dict()]},
            {"machine": machine(), "reports": others},
        ]
    )
    table = text.partition("### Goals, before and now")[2].partition("### Verdicts")[0]
    assert table.split("\n")[2:5] == [
        "| goal | limit | before | measured | met |",
        "|---|---|---|---|---|",
        "| wall | ≤ 4 s | 47 s | 5 s | NO |",
    ]
    assert "verdicts" not in table  # what has no before stands in its own table alone
    assert "| verdicts | ≥ 2  | – | 2  | yes |" in text
