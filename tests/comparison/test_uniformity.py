"""p-values of independent pairs are uniform through the pipeline, though the layers of each model are correlated."""

import numpy as np
import pytest
from scipy import stats

from kinprint.arch import Role, RoleTensor
from kinprint.comparison.measuring import measure
from kinprint.comparison.selection import Pair
from kinprint.comparison.summary import summarise
from kinprint.metrics import METRICS
from kinprint.model.reader import Sample

METRIC = [METRICS["pearson"]]


def pair_of(role, layer, shape):
    part = RoleTensor(role, layer, None, f"t{layer}", shape, None, 0, False, 0.0)
    return Pair(role, layer, None, part, part)


def correlated_layers(rng, layers, shape, memory):
    """Return layers of which each resembles the last, as in trained models."""
    state = rng.standard_normal(shape)
    made = []
    for _ in range(layers):
        made.append(state)
        state = memory * state + np.sqrt(1 - memory**2) * rng.standard_normal(shape)
    return made


def one_model_pair(seed, role, layers, shape, memory, finish):
    rng = np.random.default_rng([seed, 77])  # not the stream that permutations are drawn from
    left, right = (correlated_layers(rng, layers, shape, memory) for _ in range(2))
    left, right = ([Sample(x := finish(values), "F64", x.shape) for values in side] for side in (left, right))
    jobs = [(pair_of(role, layer, shape), a, b) for layer, (a, b) in enumerate(zip(left, right, strict=True))]
    found = measure(jobs, METRIC, seed=seed)
    stack = [(one, a, b) for one, (_, a, b) in zip(found, jobs, strict=True)]
    return [one.measurements[0].null for one in found], summarise(role, stack, seed=seed).null


def run_pairs(count, role, layers, shape, memory, finish=lambda x: x):
    singles, joints = zip(
        *(one_model_pair(seed, role, layers, shape, memory, finish) for seed in range(count)), strict=True
    )
    return singles, joints


def ks(log10_p):
    return stats.kstest(10.0 ** np.asarray(log10_p), "uniform").pvalue


@pytest.mark.parametrize("count", [200, pytest.param(1200, marks=pytest.mark.nightly)])
def test_norms(count):
    singles, joints = run_pairs(count, Role.INPUT_NORM, 5, (128,), 0.97, finish=lambda x: np.exp(0.2 * x))
    assert ks([nulls[0].log10_p for nulls in singles]) > 0.001
    assert ks([null.log10_p for null in joints]) > 0.001
    z = np.array([null.z for null in joints])
    assert abs(z.std() - 1) < 0.15
    naive = np.array([sum(null.z for null in nulls) / np.sqrt(len(nulls)) for nulls in singles])
    assert naive.std() > 1.7  # layers counted as independent news would accuse in every tenth pair
    assert ks(stats.norm.logsf(naive) / np.log(10)) < 1e-6


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.nightly)])
def test_heavy_tailed_norms(count):
    singles, joints = run_pairs(count, Role.INPUT_NORM, 4, (96,), 0.9, finish=np.exp)
    # bounds and draws: valid p-values, uniform or larger
    for found in ([nulls[-1] for nulls in singles], joints):
        p = 10.0 ** np.array([null.log10_p for null in found])
        assert stats.kstest(p, "uniform", alternative="greater").pvalue > 0.001
        assert p.min() > 0.01 / count


@pytest.mark.parametrize(
    ("role", "shape", "name"),
    [
        (Role.ATTN_Q, (8, 64), "one"),
        (Role.MLP_DOWN, (8, 64), "its own"),
        pytest.param(Role.ATTN_O, (32, 64), "one", marks=pytest.mark.slow),
    ],
)
def test_matrices(role, shape, name):
    singles, joints = run_pairs(200, role, 4, shape, 0.9 if name == "one" else 0.0)
    assert ks([nulls[0].log10_p for nulls in singles]) > 0.001
    assert ks([null.log10_p for null in joints]) > 0.001
    assert abs(np.std([null.z for null in joints]) - 1) < 0.15
