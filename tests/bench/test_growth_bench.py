"""The growth bench tells a straight line from a steeper one, and its goals can be missed."""

from __future__ import annotations

import pytest

from support.layouts import GlmAirShape, glm_air_tensors


@pytest.fixture
def growth():
    """Return what a command costs on four sizes, by functions of the bytes that are read."""
    from bench.common import Cost
    from bench.growth import UNRELATED, Growth, Point

    def made(cpu, peak, *, right=True):
        sizes = (1_000_000, 5_000_000, 30_000_000, 60_000_000)
        costs = [Cost(0, 1.0, cpu(size), peak(size), "") for size in sizes]
        return Growth(
            [Point(UNRELATED, "layers", n, 9 * n, n, cost, right) for n, cost in zip(sizes, costs, strict=True)]
        )

    return made


def missed(growth):
    from bench.growth import judge

    return [goal.name for report in judge([growth], quick=False) for goal in report.goals if not goal.met]


def test_straight_lines_pass_wherever_they_start(growth):
    found = growth(lambda n: 3.0 + 2e-6 * n, lambda n: 80_000_000 + 4 * n)
    assert found.row()["beyond the smallest"] == found.row()["… beyond the smallest"] == 1.0
    assert found.row()["CPU at the top"] <= 1.0
    assert found.row()["CPU ~ needed"] < 0.9  # which start-up flatters
    assert missed(found) == []
    assert missed(growth(lambda _: 3.0, lambda _: 80_000_000)) == []


def test_what_grows_faster_is_found_behind_any_start(growth):
    steep = growth(lambda n: 300.0 + 1e-12 * n**2, lambda n: 80_000_000 + int(n**1.2))
    assert steep.row()["CPU ~ needed"] < 0.8  # which start-up flatters
    assert steep.row()["beyond the smallest"] > 1.8
    assert missed(steep) == [f"compare, unrelated, layers: exponent of {what}" for what in ("CPU", "peak")]


def test_a_wrong_verdict_fails(growth):
    assert missed(growth(lambda n: n / 1e6, lambda n: n, right=False)) == ["right verdicts and exit statuses"]


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_models_have_as_many_tensors_as_they_are_said_to_have(size):
    from bench.growth import shape

    dimensions, _ = shape("tensors", size)
    del dimensions["shards"]
    assert len(glm_air_tensors(GlmAirShape(**dimensions))) == pytest.approx(size, rel=0.05)


@pytest.mark.slow
def test_quick_run(reports):
    costs, exponents = reports["growth"]
    assert {row["axis"] for row in costs["rows"]} == {"layers", "tensors"}
    assert all(row["CPU s"] > 0 and row["peak MB"] > 20 and row["MB read"] > 0 for row in costs["rows"])
    assert len(exponents["rows"]) == 2
    (verdicts, *fits) = exponents["goals"]
    assert verdicts["required"]
    assert verdicts["met"]
    assert not any(goal["required"] for goal in fits)
