"""The weakest relation a test sees, found by planting relations and running the test."""

import numpy as np
import pytest

from kinprint.evidence.power import STRENGTHS, least_strength, planted
from kinprint.stats.fixedpoints import count_needed, fixed_points, log10_p_total


def test_the_count_needed_is_the_least_that_reaches_the_level() -> None:
    for sizes in ((32,), (32,) * 4, (200,)):
        needed = count_needed(sizes, -7.0)
        assert needed is not None
        assert log10_p_total(needed, sizes) <= -7.0 < log10_p_total(needed - 1, sizes)
    assert count_needed((6,), -7.0) is None


def test_the_least_strength_is_sought_on_a_grid() -> None:
    assert least_strength(lambda r, _: r, 0.4) == least_strength(lambda r, _: r, 0.4, falling=True) == 0.4
    assert least_strength(lambda r, _: r, 0.41) == 0.45
    assert least_strength(lambda r, _: r, 0.41, falling=True) == 0.55  # a coarser grid
    assert least_strength(lambda r, _: r, 0.0) == STRENGTHS[0]
    assert least_strength(lambda r, _: r, 1.1) is least_strength(lambda r, _: r, 1.1, falling=True) is None


def test_a_statistic_that_falls_again_has_power_only_beyond_the_fall() -> None:
    assert least_strength(lambda r, _: 1.0 if r < 0.5 or r > 0.72 else 0.0, 0.5, falling=True) == 0.85


def test_scatter_asks_for_more() -> None:
    """Of values r ± 0.05 the mean less 3.187 standard deviations is asked for: 0.17 more."""
    noise = np.random.default_rng(0).standard_normal(100)
    noise[:8] = np.array([1, -1] * 4) * np.sqrt(7 / 8)  # sd 1 of the draws that are made
    assert least_strength(lambda r, draw: r + 0.05 * noise[draw] * (r < 1), 0.4) == 0.6


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_planted_rows_keep_the_strength_and_take_turns(strength: float) -> None:
    rng = np.random.default_rng(1)
    one, two = rng.standard_normal((2, 400, 50))
    made, back = ([planted(*sides, strength, draw) for draw in range(8)] for sides in ((one, two), (two, one)))
    for draw, (here, there) in enumerate(made):
        assert here is (one, two)[draw % 2]
        assert np.corrcoef(here.ravel(), there.ravel())[0, 1] == pytest.approx(strength, abs=0.02)
        # the same draws, whichever side comes first
        assert any(other is here and np.array_equal(rows, there) for other, rows in back)
    if strength == 1.0:
        assert fixed_points(*made[0]).count == 400
