"""The calibration bench runs, counts what it says, and its goals can be missed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow


def test_quick_run(tmp_path):
    out = tmp_path / "out.json"
    line = [sys.executable, "-m", "bench.calibration", "--quick", "--json", str(out)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    assert out.exists(), done.stderr  # a traceback has status 1 too
    reports = {report["bench"]: report for report in json.loads(out.read_text())["reports"]}
    assert (done.returncode == 0) == all(report["passed"] for report in reports.values())
    tested = {row["test"] for row in reports["calibration_uniformity"]["rows"] if row["pairs"] == "synthetic"}
    assert {"norm_joint input_norm", "matrix_correlation mlp_down", "token_rows embedding"} <= tested
    assert {"fixed_points mlp_up", "head_fixed_points attn_k"} <= tested
    goals = {goal["name"]: goal["measured"] for goal in reports["calibration_verdicts"]["goals"]}
    assert goals["independent pairs called derived"] == 0
    assert goals["independent pairs"] > 200
    assert goals["pairs with copied norms called anything but that"] == 0
    assert "calibration_norms_copied" in reports


def test_page_needs_a_full_run():
    line = [sys.executable, "-m", "bench.calibration", "--quick", "--page"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2
    assert "--page needs a full run" in done.stderr


_PRELUDE = """
import sys
import numpy as np
from bench.calibration import Outcome, uniformity, verdicts
from bench.calibration_pairs import Trial
rng = np.random.default_rng([1, 2])
def outcome(n, p, verdict="no_evidence", least=0.0):
    return Outcome(Trial("Gaussian", n), verdict, least, (), (("norm_joint input_norm", float(np.log10(p)), False),))
"""


@pytest.mark.parametrize(
    ("draws", "passes"),
    [
        ("rng.random(2500)", True),
        ("rng.random(2500) ** 1.2", False),  # small p-values too often
        ("rng.random(2500) ** 0.8", False),  # too seldom: not what an exact test does
        ("np.where(rng.random(2500) < 0.01, 1e-4, rng.random(2500))", False),  # only the far tail is wrong
    ],
)
def test_goals_see_what_is_not_uniform(draws, passes):
    code = f"{_PRELUDE}\nfound = uniformity([outcome(n, p) for n, p in enumerate({draws})], [])\nsys.exit(not found.passed)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == (0 if passes else 1), done.stderr
    assert not done.stderr


@pytest.mark.parametrize(
    ("change", "passes"),
    [("", True), ("made[7] = outcome(7, 0.5, 'derived', -7.0)", False), ("made = made[:9000]", False)],
)
def test_one_false_verdict_fails_the_run(change, passes):
    code = f"{_PRELUDE}\nmade = [outcome(n, 0.5) for n in range(10_000)]\n{change}\nsys.exit(not verdicts(made).passed)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == (0 if passes else 1), done.stderr
    assert not done.stderr
