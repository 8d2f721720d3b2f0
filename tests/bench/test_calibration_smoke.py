"""The calibration bench runs, counts what it says, and its goals can be missed."""

from __future__ import annotations

import numpy as np
import pytest


def outcome(n, p, verdict="no_evidence", least=0.0):
    from bench.calibration import Outcome
    from bench.calibration_pairs import Trial

    return Outcome(Trial("Gaussian", n), verdict, least, (), (("norm_joint input_norm", float(np.log10(p)), False),))


@pytest.mark.slow
def test_quick_run(reports):
    tested = {row["test"] for row in reports["calibration_uniformity"][0]["rows"] if row["pairs"] == "synthetic"}
    assert {"norm_joint input_norm", "matrix_correlation mlp_down", "token_rows embedding"} <= tested
    assert {"fixed_points mlp_up", "head_fixed_points attn_k"} <= tested
    goals = {goal["name"]: goal["measured"] for goal in reports["calibration_verdicts"][0]["goals"]}
    assert goals["independent pairs called derived"] == 0
    assert goals["independent pairs"] > 120
    assert goals["pairs with copied norms called anything but that"] == 0
    assert "calibration_norms_copied" in reports


def test_page_needs_a_full_run(capsys):
    from bench.calibration import main

    with pytest.raises(SystemExit) as ended:
        main(["--quick", "--page"])
    assert ended.value.code == 2
    assert "--page needs a full run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda p, more: p, True),
        (lambda p, more: p**1.2, False),  # small p-values too often
        (lambda p, more: p**0.8, False),  # too seldom: not what an exact test does
        (lambda p, more: np.where(p < 0.01, 1e-4, more), False),  # only the far tail is wrong
    ],
)
def test_goals_see_what_is_not_uniform(change, passes):
    from bench.calibration import uniformity

    rng = np.random.default_rng([1, 2])
    drawn = change(rng.random(2500), rng.random(2500))
    assert uniformity([outcome(n, p) for n, p in enumerate(drawn)], []).passed == passes


@pytest.mark.parametrize("change", ["none", "one false verdict", "too few"])
def test_one_false_verdict_fails_the_run(change):
    from bench.calibration import verdicts

    made = [outcome(n, 0.5) for n in range(9000 if change == "too few" else 10_000)]
    if change == "one false verdict":
        made[7] = outcome(7, 0.5, "derived", -7.0)
    assert verdicts(made).passed == (change == "none")
