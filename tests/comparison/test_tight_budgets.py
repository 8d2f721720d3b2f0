"""What is read under a tight budget does not depend on which thread came first."""

from dataclasses import replace

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS


@pytest.mark.parametrize("budget", [110_000, *(pytest.param(n, marks=pytest.mark.nightly) for n in (150_000, 300_000))])
def test_runs_give_the_same_report(budget):
    pair = [str(MODELS / name) for name in ("base", "finetune")]
    made = [compare(*pair, Options(metrics=("pearson",)), budget_bytes=budget, settings=Settings()) for _ in range(4)]
    assert len({replace(report, run=made[0].run).to_json() for report in made}) == 1
    assert made[0].bytes_read <= budget
