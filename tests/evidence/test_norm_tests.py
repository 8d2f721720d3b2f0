"""The joint norm test: closed form against Monte-Carlo, one role at a time, and off where an assumption fails."""

import math

import numpy as np
import pytest

from kinprint.arch import Axis, Role, ordered_axes
from kinprint.evidence.battery import run_battery
from kinprint.evidence.exact_tests import RESIDUAL_ORDER
from kinprint.evidence.probe import Probe
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, TESTED

DRAWS = 999
NORM_ROLES = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.FINAL_NORM, Role.EMBEDDING_NORM, Role.MLP_OUTPUT_NORM)


def probe(norms, role=Role.INPUT_NORM, **more):
    """A model of which only one role's norms were read: one vector for each layer."""
    samples = {}
    for layer, values in enumerate(norms):
        at = layer if role.info.scope == "layer" else None
        samples[role, at, None] = Sample(np.asarray(values), "F64", np.shape(values))
    return Probe("norms", len(norms), hidden=len(norms[0]), samples=samples, **more)


def only(a, b):
    """Run the battery under the identity map and return its only test."""
    test, *_ = run_battery(a, b, {layer: layer for layer in range(a.layers)})
    return test


def chain(rng, layers, width, spread=0.3):
    """Norms of one model: every layer is like the one before, as in trained models."""
    channels = rng.standard_normal(width)
    rows = []
    for _ in range(layers):
        rows.append(np.exp(spread * channels))
        channels = 0.8 * channels + 0.6 * rng.standard_normal(width)
    return np.array(rows)


def related(rng, norms, share):
    """A partner of which each layer holds so much of the first model's norms, and a chain of its own."""
    own = chain(rng, *norms.shape)
    return share * norms + (1 - share) * own


def statistic(a, b):
    return float(np.mean([np.corrcoef(one, two)[0, 1] for one, two in zip(a, b, strict=True)]))


def drawn(a, b, seed):
    """Return the statistic under so many permutations of residual dimensions, each the same for all layers."""
    rng = np.random.default_rng(seed)
    unit_a, unit_b = (
        (x - x.mean(axis=1, keepdims=True)) / (x.std(axis=1, keepdims=True) * math.sqrt(x.shape[1])) for x in (a, b)
    )
    gram = unit_a.T @ unit_b / len(a)  # entry (i, j): what the sum gains if dimension j of B meets i of A
    each = np.arange(a.shape[1])
    return np.array([gram[each, rng.permutation(a.shape[1])].sum() for _ in range(DRAWS)])


@pytest.mark.parametrize(("share", "seed"), [(0.0, 1), (0.0, 2), (0.12, 3), (0.2, 4), (-0.15, 5)])
def test_closed_form_and_monte_carlo_agree(share, seed):
    rng = np.random.default_rng(seed)
    a = chain(rng, 6, 192)
    b = related(rng, a, share)
    test = only(probe(a), probe(b))
    draws = drawn(a, b, seed + 100)
    observed = statistic(a, b)
    assert test.statistic == pytest.approx(observed, abs=1e-9)
    assert test.null_mean == pytest.approx(0.0, abs=1e-12)
    assert abs(draws.mean()) < 4 * test.null_sd / math.sqrt(DRAWS)
    assert test.null_sd == pytest.approx(draws.std(), rel=4 / math.sqrt(2 * DRAWS))
    assert test.z == pytest.approx((observed - draws.mean()) / draws.std(), abs=0.15 + 0.1 * abs(test.z))
    p = (1 + np.count_nonzero(draws >= observed)) / (1 + DRAWS)
    assert 10**test.log10_p == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / DRAWS) + 1 / DRAWS)


def test_layers_are_not_taken_as_independent():
    """Layers of one model are alike: the spread of their mean is far larger than that of independent layers."""
    rng = np.random.default_rng(6)
    a, b = chain(rng, 12, 192), chain(rng, 12, 192)
    test = only(probe(a), probe(b))
    independent = 1 / math.sqrt(12 * 191)
    assert test.null_sd > 1.3 * independent
    assert test.null_sd == pytest.approx(drawn(a, b, 7).std(), rel=0.1)


def test_heavy_tails_make_p_larger_not_smaller():
    """One huge entry on either side meets by chance once in 64: no p-value may be far below that."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((2, 4, 64)) * 0.01 + 1.0
    a[:, 5], b[:, 5] = 9.0, 9.0
    test = only(probe(a), probe(b))
    assert test.z > 6
    assert test.log10_p > -math.log10(64) - 0.5


@pytest.mark.parametrize("role", NORM_ROLES)
def test_each_role_is_tested_by_itself(role):
    rng = np.random.default_rng(9)
    layers = 4 if role.info.scope == "layer" else 1
    a, other = chain(rng, layers, 256), chain(rng, layers, 256)
    copy, none = only(probe(a, role), probe(a * 2, role)), only(probe(a, role), probe(other, role))
    for test in (copy, none):
        assert (test.name, test.scope, test.status, test.reason) == ("norm_joint", role.value, TESTED, None)
        assert (test.n, test.blocks) == (256, layers)
        assert test.null == "one permutation of residual dimensions"
        assert RESIDUAL_ORDER in test.assumptions
        assert test.p_method
    assert copy.statistic == pytest.approx(1.0)
    assert copy.log10_p < -15
    assert none.log10_p > -3


def test_roles_do_not_speak_for_each_other():
    """Input norms shared, post-attention norms not: one test each, and they differ."""
    rng = np.random.default_rng(10)
    shared, a_post, b_post = (chain(rng, 4, 256) for _ in range(3))
    a, b = probe(shared), probe(shared)
    a.samples.update(probe(a_post, Role.POST_ATTENTION_NORM).samples)
    b.samples.update(probe(b_post, Role.POST_ATTENTION_NORM).samples)
    found = {test.scope: test for test in run_battery(a, b, {layer: layer for layer in range(4)})}
    assert found["input_norm"].log10_p < -15
    assert found["post_attention_norm"].log10_p > -3


# -- off, visibly ------------------------------------------------------------------------------------------------------


def off(test, *words):
    assert test.status == OFF
    assert (test.statistic, test.z, test.log10_p, test.log10_p_holm) == (None, None, None, None)
    for word in words:
        assert word in test.reason


def test_constant_norms():
    rng = np.random.default_rng(11)
    a, flat = chain(rng, 4, 64), np.ones((4, 64))
    off(only(probe(a), probe(flat)), "all 4 norms are constant")
    off(only(probe(flat), probe(flat * 0.5)), "all 4 norms are constant")


def test_one_constant_layer_is_left_out_and_the_count_says_so():
    rng = np.random.default_rng(12)
    a = chain(rng, 4, 128)
    b = a.copy()
    b[2] = 1.0
    test = only(probe(a), probe(b))
    assert (test.status, test.blocks) == (TESTED, 3)
    assert test.statistic == pytest.approx(1.0)


@pytest.mark.parametrize("falling", [False, True])
def test_sorted_norms(falling):
    rng = np.random.default_rng(13)
    a, b = np.sort(chain(rng, 4, 128)), np.sort(chain(rng, 4, 128))
    if falling:
        a, b = a[:, ::-1], b[:, ::-1]
    off(only(probe(a), probe(b)), "follow their index", "order has a meaning")


def test_norms_that_follow_their_neighbours():
    """Unrelated phases and frequencies, no trend: but neighbouring dimensions are alike on both sides."""
    at = np.arange(256)
    a = np.array([2 + np.sin(at / 9 + phase) for phase in range(4)])
    b = np.array([2 + np.cos(at / 11 + phase) for phase in range(4)])
    off(only(probe(a), probe(b)), "their neighbours")


def test_one_side_in_no_order_is_enough():
    """If the order of one side is arbitrary, permuting it is a valid null whatever the other looks like."""
    rng = np.random.default_rng(14)
    ps = []
    for _ in range(20):
        a, b = chain(rng, 4, 128), np.sort(chain(rng, 4, 128))
        test = only(probe(a), probe(b))
        if test.status == TESTED:
            ps.append(test.log10_p)
    # now and then chance gives the other side a trend too; then the test abstains
    assert len(ps) >= 16
    assert min(ps) > -3


@pytest.mark.parametrize(("width", "layers", "a", "b"), [(128, 24, 0.45, 0.45), (1024, 24, 0.95, 0.15)])
def test_weak_trends_in_many_layers_are_no_evidence(width, layers, a, b):
    """Independent norms whose entries follow their index a little, as after slicing by importance."""
    rng = np.random.default_rng(15)
    index = np.arange(width) - (width - 1) / 2
    index /= index.std()
    for _ in range(5):
        sides = [1 + 0.1 * (r * index + np.sqrt(1 - r * r) * rng.standard_normal((layers, width))) for r in (a, b)]
        off(only(probe(sides[0]), probe(sides[1])), "follow their index")


@pytest.mark.parametrize("side", [0, 1])
def test_sinusoidal_positions(side):
    """Equal norms would be decisive; with an order of its own in either model the test says nothing."""
    axes = ordered_axes({"model_type": "distilbert", "sinusoidal_pos_embds": True})
    assert set(axes) == {Axis.RESIDUAL}
    norms = chain(np.random.default_rng(15), 4, 64)
    both = [probe(norms, ordered=axes if number == side else {}) for number in (0, 1)]
    off(only(*both), "sinusoidal positions")


@pytest.mark.parametrize(("value", "side"), [(math.nan, 0), (math.inf, 1)])
def test_not_a_number(value, side):
    norms = chain(np.random.default_rng(16), 4, 64)
    both = [norms.copy(), norms.copy()]
    both[side][3, 7] = value
    off(only(probe(both[0]), probe(both[1])), "NaN or infinity", "AB"[side], "layer 3")


def test_different_widths():
    rng = np.random.default_rng(17)
    off(only(probe(chain(rng, 4, 64)), probe(chain(rng, 4, 48))), "widths differ: 64 and 48")


def test_a_norm_of_another_axis_is_no_norm_test():
    """Norms inside a head are ordered by rotary frequencies: there is no residual order to permute."""
    norms = chain(np.random.default_rng(18), 4, 64)
    assert run_battery(probe(norms, Role.Q_NORM), probe(norms, Role.Q_NORM), {0: 0, 1: 1, 2: 2, 3: 3}) == []


def test_an_offset_is_part_of_the_norm():
    """Gemma stores w − 1: the same norm stored either way correlates fully, and constants stay constants."""
    norms = chain(np.random.default_rng(19), 3, 128)
    stored = probe(norms - 1)
    samples = {key: Sample(s.stored, s.dtype, s.shape, offset=1.0) for key, s in stored.samples.items()}
    test = only(probe(norms), Probe("gemma", 3, hidden=128, samples=samples))
    assert test.statistic == pytest.approx(1.0)
    flat = {key: Sample(np.zeros(128), "F64", (128,), offset=1.0) for key in samples}
    off(only(probe(norms), Probe("flat", 3, hidden=128, samples=flat)), "constant")
