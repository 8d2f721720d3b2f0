"""p-values of models that share nothing are uniform, or larger where they are bounds; nothing independent is called related."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, kstest

from kinprint.arch import Role
from kinprint.evidence.assess import assess
from kinprint.evidence.battery import run_battery
from kinprint.evidence.controls import classify
from kinprint.evidence.exact_tests import head_test, matrix_test, norm_test, row_test
from kinprint.evidence.probe import SamplePair
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.lab.zoo.derive import load_state
from kinprint.model.reader import Sample
from kinprint.results.findings import IDENTICAL, NO_EVIDENCE, OFF, TESTED
from support.places import ROOT
from support.probes import free_orders, probe_from_state

CONFIG = {
    "model_type": "llama",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "intermediate_size": 40,
    "vocab_size": 64,
}


def model(rng, norm=lambda x: 1 + 0.2 * x):
    d, n, h = CONFIG["hidden_size"], CONFIG["intermediate_size"], 32
    shapes = {"q": (h, d), "k": (h, d), "v": (h, d), "o": (d, h)}
    state = {"model.embed_tokens.weight": (64, d), "lm_head.weight": (64, d), "model.norm.weight": (d,)}
    for layer in range(CONFIG["num_hidden_layers"]):
        stem = f"model.layers.{layer}."
        state |= {f"{stem}self_attn.{part}_proj.weight": shape for part, shape in shapes.items()}
        state |= {f"{stem}mlp.{part}_proj.weight": (n, d) for part in ("gate", "up")}
        state |= {f"{stem}mlp.down_proj.weight": (d, n)}
        state |= {f"{stem}{part}_layernorm.weight": (d,) for part in ("input", "post_attention")}
    drawn = {name: rng.standard_normal(shape) for name, shape in state.items()}
    return {name: (norm(x) if x.ndim == 1 else x).astype(np.float32) for name, x in drawn.items()}


def sample(values):
    return Sample(values.astype(np.float32), "F32", values.shape, 0.0, (0, len(values)) if values.ndim == 2 else None)


def group(rng, role, shape, layers, *, finish=lambda x: x, times=1):
    """Return pairs of independent slices of so many layers, each of which may stand there several times."""
    found = []
    for _ in range(layers):
        a, b = (sample(finish(rng.standard_normal(shape))) for _ in range(2))
        found += [SamplePair(role, len(found) + copy, None, a, b) for copy in range(times)]
    return found


def p_values(test, count, stream):
    """Return p of many pairs; `stream` keeps the data of tests apart, and apart from the draws of Monte-Carlo tests."""
    return 10.0 ** np.array([test(np.random.default_rng([stream, n])).log10_p for n in range(count)])


def too_often(p):
    """Return the least binomial tail of the numbers of p-values at or below some levels."""
    return min(float(binom.sf(np.count_nonzero(p <= x) - 1, p.size, x)) for x in (0.05, 0.01, 0.001))


EXACT = {
    "norms": lambda rng: norm_test(Role.INPUT_NORM, group(rng, Role.INPUT_NORM, (64,), 3), {}, 0),
    "norms with heavy tails": lambda rng: norm_test(
        Role.INPUT_NORM, group(rng, Role.INPUT_NORM, (64,), 3, finish=np.exp), {}, 0
    ),
    "residual columns": lambda rng: matrix_test(Role.ATTN_Q, group(rng, Role.ATTN_Q, (6, 48), 3), {}, 0),
    "residual rows": lambda rng: matrix_test(Role.ATTN_O, group(rng, Role.ATTN_O, (32, 6), 3), {}, 0),
    "neuron columns": lambda rng: matrix_test(Role.MLP_DOWN, group(rng, Role.MLP_DOWN, (6, 48), 3), {}, 0),
}
BOUNDS = {
    "neurons": lambda rng, layers=3, times=1: row_test(
        Role.MLP_UP, group(rng, Role.MLP_UP, (8, 16), layers, times=times)
    ),
    "values of a head": lambda rng, layers=3, times=1: row_test(
        Role.ATTN_V, group(rng, Role.ATTN_V, (16, 16), layers, times=times), 8
    ),
    "heads": lambda rng, layers=3, times=1: head_test(
        Role.ATTN_K, [(place.a, place.b) for place in group(rng, Role.ATTN_K, (6, 16), layers, times=times)]
    ),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("count", [100, pytest.param(2500, marks=pytest.mark.nightly)])
def test_exact_tests_are_uniform(name, count):
    p = p_values(EXACT[name], count, 41)
    assert kstest(p, "uniform").pvalue > 0.001
    assert too_often(p) > 0.001


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("count", [100, pytest.param(2500, marks=pytest.mark.nightly)])
def test_bounds_are_conservative_and_not_idle(name, count):
    p = p_values(BOUNDS[name], count, 42)
    assert too_often(p) > 0.001
    assert p.min() < 0.3


REPEATED = {
    "neuron columns": lambda rng, layers, times: matrix_test(
        Role.MLP_DOWN, group(rng, Role.MLP_DOWN, (6, 48), layers, times=times), {}, 0
    ),
    **BOUNDS,
}


@pytest.mark.parametrize("name", REPEATED)
def test_layers_that_stand_there_several_times_are_no_further_evidence(name):
    """Two models deepened alike have one order of neurons in all copies of a layer, so copies must not count twice."""
    p = p_values(lambda rng: REPEATED[name](rng, layers=1, times=6), 100, 43)
    assert too_often(p) > 0.001


def test_all_tests_of_the_battery_run():
    rng = np.random.default_rng([44, 0])
    a, b = (probe_from_state(model(rng), CONFIG) for _ in range(2))
    names = {(test.name, test.scope) for test in run_battery(a, b, {0: 0, 1: 1}) if test.status == TESTED}
    assert {name for name, _ in names} == {
        "norm_joint",
        "matrix_correlation",
        "fixed_points",
        "head_fixed_points",
        "token_rows",
        "dimension_fixed_points",
        "sign_flips",
    }
    assert len(names) == 23  # 48 residual dimensions are too few for their signs


@pytest.mark.parametrize("count", [12, pytest.param(600, marks=pytest.mark.nightly)])
def test_whole_battery_on_independent_models(count):
    least = []
    for number in range(count):
        rng = np.random.default_rng([45, number])
        found = assess(*(probe_from_state(model(rng), CONFIG) for _ in range(2)))
        assert classify(found) == NO_EVIDENCE
        least.append(10.0**found.log10_p)
    assert too_often(np.array(least)) > 0.001


HARD = {
    "one multiset": lambda rng: (lambda values: lambda x: rng.permutation(values))(np.exp(rng.standard_normal(48))),
    "sorted": lambda rng: lambda x: np.sort(1 + 0.2 * x),
    "constant": lambda rng: lambda x: np.full_like(x, 0.7),
    "ones": lambda rng: np.ones_like,
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("count", [5, pytest.param(200, marks=pytest.mark.nightly)])
def test_deceptive_norms_deceive_nobody(kind, count):
    for number in range(count):
        rng = np.random.default_rng([46, number])
        norm = HARD[kind](rng)
        a, b = (probe_from_state(model(rng, norm), CONFIG) for _ in range(2))
        found = assess(a, b)
        assert found.log10_p > LOG10_ALPHA
        if kind != "one multiset":
            off = [test for test in found.tests if test.name == "norm_joint"]
            assert [test.status for test in off] == [OFF] * 3
            assert all(test.reason for test in off)


# -- the trained family --------------------------------------------------------------------------------------------------

INDEPENDENT = [
    ("demo/models/base", "demo/models/unrelated"),
    ("demo/models/base", "tests/family/twin"),
    ("demo/models/base", "tests/family/distilled_1"),
    ("tests/family/distilled_1", "tests/family/distilled_2"),
]


@pytest.mark.parametrize(("first", "second"), INDEPENDENT)
@pytest.mark.parametrize("count", [1, pytest.param(100, marks=pytest.mark.nightly)])
def test_trained_models_without_common_weights(first, second, count):
    (a, config_a, _), (b, config_b, _) = load_state(ROOT / first), load_state(ROOT / second)
    probe = probe_from_state(a, config_a)
    as_stored = assess(probe, probe_from_state(b, config_b))
    assert classify(as_stored) == NO_EVIDENCE
    least, exact = [], []
    for number in range(count):
        drawn = free_orders(b, config_b, np.random.default_rng([47, number]))
        found = assess(probe, probe_from_state(drawn, config_b))
        assert classify(found) == NO_EVIDENCE
        least.append(10.0**found.log10_p)
        exact += [10.0 ** (test.log10_p or 0.0) for test in found.tests if test.name == "norm_joint"]
    assert too_often(np.array(least)) > 0.001
    assert too_often(np.array(exact)) > 0.001


def test_copy_is_seen_and_its_symmetries_are_drawn_over_all_orders():
    state, config, _ = load_state(ROOT / "demo/models/base")
    probe = probe_from_state(state, config)
    assert classify(assess(probe, probe_from_state(state, config))) == IDENTICAL
    swapped = 0
    stored = "model.layers.0.self_attn.k_proj.weight"
    for number in range(20):
        moved = free_orders(state, config, np.random.default_rng([48, number]), residual=False)
        swapped += not np.array_equal(moved[stored], state[stored])
    assert 2 < swapped < 18  # two heads: the order that is there is one of the two
