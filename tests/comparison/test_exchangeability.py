"""Where an axis has an order of its own, nothing is permuted: each of these once gave unrelated models a tiny p."""

import numpy as np
import pytest

from kinprint.arch import Axis, Role, RoleTensor, ordered_axes
from kinprint.arch.roles import permuted_axis
from kinprint.comparison.measuring import measure
from kinprint.comparison.selection import Pair
from kinprint.metrics import METRICS
from kinprint.model.reader import Sample


def pair_of(role, shape):
    sides = [RoleTensor(role, 0, None, name, shape, None, 0, False, 0.0) for name in "ab"]
    return Pair(role, 0, None, *sides)


def measured(role, a, b, ordered=None, metrics=("pearson", "shuffled_cosine", "cosine")):
    chosen = [METRICS[name] for name in metrics]
    job = pair_of(role, a.shape), *(Sample(x, "F64", x.shape) for x in (a, b))
    return measure([job], chosen, seed=0, ordered=ordered or {})[0]


def test_a_shared_diagonal_is_not_evidence():
    rng = np.random.default_rng(0)
    a, b = (0.02 * rng.standard_normal((64, 64)) + 0.1 * np.eye(64) for _ in range(2))
    found = measured(Role.HEAD_DENSE, a, b)
    assert all(item.null is None for item in found.measurements)
    assert "neither may be permuted alone" in found.measurements[0].reason


def test_a_table_of_positions_has_no_null():
    table = np.sin(np.arange(32)[:, None] / 10000 ** (np.arange(64) / 64))
    found = measured(Role.POSITION_EMBEDDING, table, table)
    assert all(item.null is None for item in found.measurements)


@pytest.mark.parametrize(
    "config", [{"model_type": "whisper"}, {"model_type": "distilbert", "sinusoidal_pos_embds": True}]
)
def test_fixed_positions_order_the_residual_stream(config):
    ordered = ordered_axes(config)
    assert permuted_axis(Role.INPUT_NORM, ordered)[0] is None
    assert permuted_axis(Role.ATTN_Q, ordered)[0] is None
    assert permuted_axis(Role.MLP_UP, ordered) == (0, "neuron")
    assert permuted_axis(Role.MLP_DOWN, ordered) == (1, "neuron")
    found = measured(Role.INPUT_NORM, np.arange(1.0, 65), np.arange(1.0, 65), ordered)
    assert "sinusoidal" in found.measurements[0].reason


def test_grouped_experts_are_ordered():
    assert ordered_axes({"n_group": 1}) == {}
    assert ordered_axes({"n_group": True}) == {}
    assert list(ordered_axes({"n_group": 8})) == [Axis.EXPERT]
    assert permuted_axis(Role.ROUTER_BIAS, ordered_axes({"n_group": 8}))[0] is None
    assert permuted_axis(Role.ROUTER, ordered_axes({"n_group": 8})) == (1, "residual")


def test_a_shuffled_cosine_has_a_place_but_no_p():
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(0, 0.3, (2, 256))
    found = {item.metric: item for item in measured(Role.INPUT_NORM, a, b).measurements}
    assert abs(found["shuffled_cosine"].null.z) < 5
    assert found["shuffled_cosine"].null.log10_p is None
    matrix = {item.metric for item in measured(Role.MLP_UP, *rng.standard_normal((2, 8, 32))).measurements}
    assert matrix == {"pearson", "cosine"}


@pytest.mark.parametrize("scale", [1e308, 1e200, 1e-200, 5e-324])
def test_hostile_magnitudes_become_a_reason(scale):
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0.1, 1.0, (2, 64)) * scale
    found = measured(Role.INPUT_NORM, a, b, metrics=tuple(METRICS))
    assert found.status == "not_comparable"
    assert "expected between" in found.reason
