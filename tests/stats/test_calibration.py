"""p-values of unrelated pairs are uniform: the only property that makes the rest worth reading."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from kinprint.metrics import METRICS
from kinprint.results.p_values import PMethod
from kinprint.stats.joint import joint_blocks
from kinprint.stats.nulls import null_for
from kinprint.studies.row_grid import row_grid

DRAWERS = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(0.0, 0.5, shape),
    "student": lambda rng, shape: rng.standard_t(5.0, shape),
}


def _p(kind: str, a: np.ndarray, b: np.ndarray, seed: int, draws: int = 199) -> tuple[float, str]:
    result = null_for(kind, a, b, observed=METRICS[kind](a, b), higher_is_closer=True, rng_seed=seed, draws=draws)
    assert result.log10_p is not None
    return 10**result.log10_p, result.p_method


@pytest.mark.parametrize("kind", ["cosine", "spearman"])
@pytest.mark.parametrize("family", DRAWERS)
def test_normal_route_is_uniform(family: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    d = 4096 if family == "lognormal" else 1024  # the skewness of the null falls as 1/√d
    found = [_p(kind, *DRAWERS[family](rng, (2, d)), seed) for seed in range(500)]
    assert np.mean([method == PMethod.NORMAL for _, method in found]) > 0.95
    assert scipy.stats.kstest([p for p, _ in found], "uniform").pvalue > 0.001


@pytest.mark.parametrize("scale", [1.5, 2.5])
def test_monte_carlo_route_is_valid(scale: float) -> None:
    rng = np.random.default_rng(1)
    found = [_p("pearson", *rng.lognormal(0.0, scale, (2, 256)), seed, draws=99) for seed in range(500)]
    assert np.mean([method == PMethod.MONTE_CARLO for _, method in found]) > 0.9
    values = np.array([p for p, _ in found])
    for alpha in (0.01, 0.05, 0.2, 0.5):
        assert np.mean(values <= alpha) <= alpha + 3.5 * math.sqrt(alpha * (1 - alpha) / 500)


def test_layer_grid_is_valid_and_uniform_where_normal() -> None:
    rng = np.random.default_rng(2)
    A, B = rng.lognormal(0.0, 0.5, (2, 500, 4096))
    found = row_grid(A, B)
    diagonal = np.arange(500)  # pairs off the diagonal share vectors
    p = 10 ** found.log10_p[diagonal, diagonal]
    assert found.normal[diagonal, diagonal].mean() > 0.95  # the others are bounds, not p-values
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.001


def test_joint_of_correlated_layers_is_uniform() -> None:
    rng = np.random.default_rng(3)
    values = []
    for seed in range(500):
        common = rng.normal(size=(2, 1, 64))  # small, so that BLAS does not start threads for it
        A, B = np.exp(0.2 * (common + 0.5 * rng.normal(size=(2, 6, 64))))
        rows = [(a[None], b[None]) for a, b in zip(A, B, strict=True)]
        log10_p = joint_blocks(rows, seed=seed, draws=199).log10_p
        assert log10_p is not None
        values.append(10**log10_p)
    assert scipy.stats.kstest(values, "uniform").pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("skewness", [2.4, *(pytest.param(s, marks=pytest.mark.nightly) for s in (1.0, 3.0))])
def test_thresholds_of_the_normal_tail(skewness: float) -> None:
    """Where the rule says normal, drawn tails agree with it to a tenth of log p, down to p = 1e-4."""
    rng = np.random.default_rng(4)
    shape = 4.0 / skewness**2  # of a gamma distribution with this skewness
    a, b = rng.gamma(shape, size=(2, 4096))
    b.sort()
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    null = null_for("pearson", a, b, observed=0.0, higher_is_closer=True)
    assert null.skewness is not None
    draws = np.concatenate([rng.permuted(np.tile(b, (500, 1)), axis=1) @ a for _ in range(50)]) / 4096 / null.sd
    assert scipy.stats.skew(draws) == pytest.approx(null.skewness, abs=0.05)
    if null.skewness > 0.1:
        assert null.p_method == PMethod.MONTE_CARLO
        return
    for z in (1.0, 2.0, 3.0):
        drawn = math.log10(np.mean(draws >= z))
        assert drawn == pytest.approx(math.log10(scipy.stats.norm.sf(z)), rel=0.1)
