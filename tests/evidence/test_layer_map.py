"""The layer map: found exactly, decided by matrices and not by norms, with the search paid for and reported."""

import numpy as np
import pytest

from kinprint.evidence.assess import IN_PLACE, SEARCHED, assess
from kinprint.evidence.battery import run_battery
from kinprint.evidence.layer_map import LAYER_ALPHA, align_layers, layer_p
from kinprint.evidence.probe import Probe
from kinprint.lab.zoo.derive import drop_layers, noise, replace_norms, stack_layers
from kinprint.model.reader import Sample
from kinprint.results.findings import OFF, SIGN_FLIPS, TESTED
from kinprint.stats.combine import bonferroni, holm
from support.probes import probe_from_state

GROWN = (0, 1, 2, 1, 2, 3)


def sources(alignment):
    return tuple(item.source if item.shared else None for item in alignment.layers)


def with_norms_of(state, other, order):
    """Give layer i the norms that layer order[i] of another model has."""
    norms = {name: value for name, value in other.items() if value.ndim == 1}
    moved = dict(norms)
    for name in norms:
        if ".layers." in name:
            number = int(name.split(".")[2])
            moved[name] = norms[name.replace(f".{number}.", f".{order[number]}.", 1)]
    return replace_norms(state, moved)


@pytest.fixture(scope="module")
def grown(demo_probe):
    return assess(demo_probe("base"), demo_probe("grown"))


@pytest.fixture(scope="module")
def child(demo):
    """A noisy copy of the demo's base with its layers in another order, as a probe."""

    def build(order, *, keep=False):
        state, config, _ = demo("base")
        made, new = drop_layers(state, config, order) if keep else stack_layers(state, config, order)
        return probe_from_state(noise(made, 0.3, 5), new)

    return build


def test_depth_up_scaling_is_found_exactly(grown):
    alignment = grown.layers.alignment
    assert sources(alignment) == GROWN
    assert alignment.status == TESTED
    assert alignment.kind in ("blocks", "repeats")
    assert [item.layer for item in alignment.layers] == [0, 1, 2, 3, 4, 5]
    assert grown.layer_map == {0: 0, 1: 1, 2: 2, 5: 3}  # tests use no layer of either model twice
    assert {"attn_q", "attn_k", "attn_v", "mlp_gate", "mlp_up"} == set(alignment.scopes)


@pytest.mark.parametrize(
    ("order", "keep", "kind"),
    [
        ((0, 2, 3), True, "subsequence"),
        ((1, 2), True, "subsequence"),
        ((2, 0, 3, 1), False, "shuffled"),
        ((0, 1, 2, 3), False, "identity"),
    ],
)
def test_dropped_moved_and_kept_layers(demo_probe, child, order, keep, kind):
    alignment = align_layers(demo_probe("base"), child(order, keep=keep)).alignment
    assert sources(alignment) == order
    assert alignment.kind == kind


def test_the_map_works_both_ways(demo_probe):
    """Seen from the child, each layer of the base matches all its copies."""
    back = align_layers(demo_probe("grown"), demo_probe("base"))
    assert [item.sources for item in back.alignment.layers] == [(0,), (1, 3), (2, 4), (5,)]
    assert back.layer_map == {0: 0, 1: 1, 2: 2, 3: 5}


def test_unrelated_models_have_no_map(demo_probe):
    alignment = align_layers(demo_probe("base"), demo_probe("unrelated")).alignment
    assert alignment.status == TESTED
    assert sources(alignment) == (None,) * 4
    assert not any(item.shared for item in alignment.layers)


def test_norms_moved_to_other_layers_do_not_move_the_map(demo, demo_probe):
    """Norms say (1, 2, 3, 0), matrices (0, 1, 2, 3): the matrices are right."""
    state, config, _ = demo("base")
    made = with_norms_of(noise(state, 0.3, 6), state, (1, 2, 3, 0))
    found = assess(demo_probe("base"), probe_from_state(made, config))
    assert sources(found.layers.alignment) == (0, 1, 2, 3)
    assert found.layers.alignment.kind == "identity"


def test_norms_alone_make_no_map(demo, demo_probe):
    """Every norm is the base's, at a wrong layer; the matrices are another model's. No wrong map may pass."""
    state, config, _ = demo("unrelated")
    made = with_norms_of(state, demo("base")[0], (1, 2, 3, 0))
    found = assess(demo_probe("base"), probe_from_state(made, config))
    assert sources(found.layers.alignment) == (None,) * 4
    assert found.layer_map == {0: 0, 1: 1, 2: 2, 3: 3}  # where there is nothing to go by, place is
    by_part = {item.component: item.state for item in found.components}
    assert (by_part["attention"], by_part["mlp"]) == ("not shared", "not shared")


def test_a_wrong_map_gives_wrong_layers_no_evidence(demo_probe):
    """The same code that finds 10^-100 at the right layer finds nothing at a wrong one."""
    base, other = demo_probe("base"), demo_probe("grown")
    roles = [
        role
        for role in {key[0] for key in base.samples}
        if role.value in ("attn_q", "attn_k", "attn_v", "mlp_gate", "mlp_up")
    ]
    for layer, source in enumerate(GROWN):
        for candidate in range(4):
            p = layer_p(base, other, candidate, layer, roles, {}, seed=0)
            assert (p < -12) is (candidate == source), (layer, candidate, p)


def test_tries_and_holm_are_reported_and_paid(grown):
    """Each entry: least of attention and MLP, times candidates and parts, then Holm over the layers."""
    layers = grown.layers
    found = layers.alignment.layers
    assert {item.tries for item in found} == {4}
    raw = [bonferroni(min(layers.attention[i], layers.mlp[i]), 4 * 2) for i in range(6)]
    assert [item.log10_p for item in found] == pytest.approx(holm(raw))
    assert all(item.log10_p > min(layers.attention[item.layer], layers.mlp[item.layer]) for item in found)
    assert all(item.shared == (item.log10_p <= LAYER_ALPHA) for item in found)
    summary = next(test for test in grown.tests if test.name == "layer_map")
    assert summary.log10_p == min(item.log10_p for item in found)
    assert summary.statistic == 6
    assert "4 candidates" in summary.p_text


def test_the_runner_up_is_far_behind(grown):
    for item in grown.layers.alignment.layers:
        assert item.runner_up != item.source
        assert item.runner_up_z < item.z / 3
        assert 0.5 < item.correlation <= 1.0


def test_tests_under_a_searched_map_pay_for_the_search(grown, demo_probe):
    """4 × 6 pairs of layers were looked at before the battery ran: every p-value of layers is multiplied by that."""
    plain = {(t.name, t.scope): t for t in run_battery(demo_probe("base"), demo_probe("grown"), grown.layer_map)}
    seen = 0
    for test in grown.tests:
        before = plain.get((test.name, test.scope))
        if before is None:
            assert test.name == "layer_map"
            continue
        outside = test.scope in ("embedding", "head", "final_norm")
        assert (SEARCHED in test.assumptions) is not outside
        assert test.log10_p == pytest.approx(before.log10_p if outside else bonferroni(before.log10_p, 24))
        seen += not outside
    assert seen > 8


def test_the_identity_map_is_no_search(demo_probe):
    found = assess(demo_probe("base"), demo_probe("finetune"))
    assert sources(found.layers.alignment) == (0, 1, 2, 3)
    assert not any(SEARCHED in test.assumptions for test in found.tests)


def test_holm_over_the_battery(demo_probe):
    """log10_p_holm is Holm's adjustment over all tests that ran, and never below the raw value."""
    found = assess(demo_probe("base"), demo_probe("finetune"))
    ran = [test for test in found.tests if test.log10_p is not None]
    assert [t.log10_p_holm for t in ran] == pytest.approx(holm([t.log10_p for t in ran]))
    claims = [t.log10_p_claim for t in ran if t.log10_p_claim is not None]
    assert found.log10_p == min(claims) == found.strongest.log10_p_claim
    signs = {str(t.scope): t.log10_p_holm for t in ran if t.name == SIGN_FLIPS}
    supported = [t for t in ran if t.name in IN_PLACE and t.scope in signs]
    assert len(supported) >= 8
    assert all(t.log10_p_claim == max(t.log10_p_holm, signs[t.scope]) for t in supported)


def test_no_map_without_matrices_or_with_other_widths(demo_probe, small):
    base = demo_probe("base")
    norms = Probe(
        "norms", 4, hidden=96, samples={key: s for key, s in base.samples.items() if key[0].info.kind == "norm"}
    )
    found = align_layers(norms, norms).alignment
    assert (found.status, found.kind, found.layers) == (OFF, "none", ())
    assert found.reason == "no matrix that reads the residual stream was read in every layer of both models"
    state, config, _ = small(1)
    other = align_layers(base, probe_from_state(state, config)).alignment
    assert (other.status, other.reason) == (OFF, "residual widths differ: 96 and 64")


def test_a_role_that_one_layer_lacks_or_spoils_is_left_out(demo_probe):
    """One NaN in one layer's up matrix: the map is made from the other roles, and says from which."""
    base = demo_probe("base")
    spoilt = demo_probe("finetune")
    samples = dict(spoilt.samples)
    key = next(key for key in samples if key[0].value == "mlp_up" and key[1] == 2)
    stored = samples[key].stored.copy()
    stored[0, 0] = np.nan
    samples[key] = Sample(stored, "F32", samples[key].shape, rows=samples[key].rows)
    found = align_layers(base, Probe("spoilt", 4, hidden=96, kv_heads=2, samples=samples)).alignment
    assert sources(found) == (0, 1, 2, 3)
    assert "mlp_up" not in found.scopes
    assert "mlp_gate" in found.scopes
