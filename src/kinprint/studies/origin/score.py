"""The score of the first accusation's “definitive” script, by its own rules."""

from __future__ import annotations

import numpy as np

from kinprint.errors import DegenerateInput
from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import NORMS, norm_pair
from kinprint.studies.origin.sigma import compute
from kinprint.studies.outcome import Cell, Missing, Table, column, table
from kinprint.text import Text

BANDS = (
    (100, Text("“definitive proof”")),
    (50, Text("“strong evidence”")),
    (20, Text("“moderate, not conclusive”")),
    (0, Text("“weak or none”")),
)


def score_table(
    norm_mean: float, within_mean: float, attention_mean: float | None, identical: int
) -> tuple[Table, int]:
    """Return the “definitive” script's score by its own rules, and what each rule gave."""
    norm_points = (30 if norm_mean > within_mean + 0.05 else 10) if norm_mean > 0.95 else 0
    attention_points = 10 if attention_mean is not None and abs(attention_mean) < 0.01 else 0
    points = (100 if identical else 0, norm_points, attention_points)
    total = sum(points)
    band = next(name for least, name in BANDS if total >= least)
    rows: list[list[Cell]] = [
        [Text("identical bytes anywhere (constant windows apart): 100"), float(identical), points[0]],
        [Text("mean norm cosine above 0.95: 30 if 0.05 above the baseline, else 10"), norm_mean, points[1]],
        [Text("mean attention cosine within 0.01 of 0: 10"), attention_mean, points[2]],
        [Text("total, {band}", band=band), None, total],
    ]
    columns = (column("rule", "rule"), column("value", "value", 4), column("points", "points"))
    return table("score", Text("The “definitive” script’s score by its own rules, of 100"), columns, rows), total


def norm_means(stage: Stage, a: str, b: str) -> tuple[float, float] | None:
    """Return the mean cosine over both norms and all layers, and the layer-0 baseline within B; None if not to be had."""
    try:
        cosines = np.concatenate([norm_pair(stage, a, b, role).cosine for role in NORMS])
        return float(cosines.mean()), float(compute(stage, a, b).within_b.mean())
    except (Missing, DegenerateInput):
        return None
