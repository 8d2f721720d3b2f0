"""The benches run, verify what they read, and write the figures they promise. How fast anything is, they judge themselves."""

from __future__ import annotations

import numpy as np
import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow


def measured(report: dict) -> dict:
    return {goal["name"]: goal["measured"] for goal in report["goals"]}


@pytest.mark.parametrize("transport", ["plain", "tls"])
def test_remote_norms(reports, transport):
    (report,) = (each for each in reports["remote_norms"] if each["facts"]["transport"] == transport)
    rows = {row["way"]: row for row in report["rows"]}
    assert list(rows)[:2] == ["published scripts", "published scripts + session"]
    assert list(rows)[-4:] == ["kinprint", "kinprint, cache cold", "kinprint, cache warm", "floor: one tensor"]
    # 9 norms: the index, then three ranges behind a redirect for each
    assert rows["published scripts"]["requests"] == rows["published scripts + session"]["requests"] == 1 + 9 * 6
    assert rows["floor: one tensor"]["requests"] == 5
    assert rows["kinprint"]["requests"] <= 3 + 8 * 2 + 9
    assert rows["kinprint, cache warm"]["requests"] == 1  # which commit the branch stands for
    assert 1 <= measured(report)["bytes over those needed"] < 1.3
    assert 20 < measured(report)["peak memory"] < 300


def test_layer_grid(reports):
    (report,) = reports["layer_grid"]
    assert measured(report)["largest difference of any figure"] < 1e-9
    assert len(report["rows"]) == 3


def test_wrong_values_stop_the_bench():
    from bench.remote_norms import check

    right, wrong = np.ones(3, np.float32), np.array([1, 1, 2], np.float32)
    check("fine", {"x": right}, {"x": right})
    with pytest.raises(SystemExit, match="slow way: x differs from the values on disk"):
        check("slow way", {"x": wrong}, {"x": right})


def test_what_cannot_be_read_has_no_recall_vectors():
    from bench.scale import MIX, Kind, entered_share

    kinds = {name: Kind(1, 1, 1, 1.0, 1.0, 1, 0 if name == "nothing to read" else 1000) for name in MIX}
    assert entered_share(kinds) == pytest.approx(0.55)


def test_local_read(reports):
    (report,) = reports["local_read"]
    ways = {(row["stored as"], row["way"]) for row in report["rows"]}
    assert len(ways) == len(report["rows"]) == 12
    for dtype in ("F32", "BF16"):
        assert {
            (dtype, "plain, read()"),
            (dtype, "plain, readinto()"),
            (dtype, "kinprint, decoded"),
            (dtype, "kinprint, stored bytes"),
        } <= ways
        rows = {row["way"]: row for row in report["rows"] if row["stored as"] == dtype}
        best = max(rows["plain, read()"]["GB/s"], rows["plain, readinto()"]["GB/s"])
        share = rows["kinprint, decoded"]["GB/s"] / best
        assert rows["kinprint, decoded"]["share of plain"] == pytest.approx(share, abs=0.05)
    goals = {goal["name"]: goal for goal in report["goals"]}
    assert goals["BF16, batches of 4 MB: reading, share of plain reading"]["required"]
    assert goals["peak memory, with what wrote the files"]["measured"] < 1000


def test_reports(reports):
    (report,) = reports["reports"]
    rows = {(row["what"], row["of"].split()[0]): row for row in report["rows"]}
    assert {("HTML, en", "6"), ("HTML, ko", "6"), ("JSON", "6"), ("verification", "4"), ("bundle", "6")} <= set(rows)
    assert 0.05 < rows["HTML, en", "6"]["MB"] < 3
    assert rows["bundle", "4"]["MB"] > 0.5  # the bytes themselves are in it
    goals = {goal["name"]: goal for goal in report["goals"]}
    assert goals["HTML of 6 layers, en: first writing"]["limit"] == 2
    assert goals["HTML of 6 layers, en: size"]["required"]
    assert all(goal["measured"] > 0 for goal in goals.values())


def test_every_bench_is_run_by_the_runner(reports):
    from bench.run import BENCHES, NOT_QUICK

    listed = {command[0] for command in BENCHES.values()}
    modules = {f"bench.{path.stem}" for path in (ROOT / "bench").glob("*.py") if "def main(argv" in path.read_text()}
    assert listed == modules - {"bench.run", "bench.peers"}  # the second needs an interpreter with a peer's kit
    assert all(any(found.startswith(name) for found in reports) for name in BENCHES.keys() - NOT_QUICK)
    assert BENCHES.keys() > NOT_QUICK


def test_catalog(reports):
    (report,) = reports["catalog"]
    first, *others = report["rows"]
    assert first["way"] == "file, numpy over mapped arrays"
    assert first["recall"] == 1.0
    for row in others:  # without a server there are none, and a note says why
        assert 0.5 < row["recall"] <= 1.0
    assert others or "not measured" in report["notes"][-1]


def test_adding(reports):
    (report,) = reports["adding"]
    new, again = report["rows"]
    assert new["requests"] > again["requests"] == 1
    assert 0 < measured(report)["bytes received"] <= 30
