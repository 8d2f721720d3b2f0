"""Rotated models: an exact test on Gram profiles, and verdicts of --deep on models whose basis was rotated."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from kinprint.align.neuron_assignment import NeuronMatch
from kinprint.comparison.pipeline import compare
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence import rotation
from kinprint.evidence.empirical_null import load_null
from kinprint.evidence.neuron_gram import (
    gram_side,
    gram_sides,
    gram_test,
    hold_gram,
    neuron_sets,
    rotation_controls,
)
from kinprint.evidence.rotated_layers import HeldOut, half_held_out
from kinprint.evidence.rotation import HALF_STATISTIC, STATISTIC, examine_rotation
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from kinprint.stats.fixedpoints import fixed_points
from support.places import ROOT

DEMO, FAMILY = ROOT / "demo" / "models", ROOT / "tests" / "family"


def held(loaded, label="m"):
    return HeldWeights(label, *loaded)


def gram_table(one, two):
    return hold_gram(*gram_sides(one, two))


def turned(folder, seed=7, *, everything=False):
    state, config, tokenizer = derive.load_state(folder)
    change = derive.all_symmetries if everything else derive.rotate_residual
    return (*change(state, config, seed), tokenizer)


@pytest.fixture(scope="module")
def base():
    return derive.load_state(DEMO / "base")


def test_fixed_points_of_gram_profiles_keep_their_bound_on_independent_models(small):
    """P(F ≥ k) ≤ 1/k!: checked at k = 2 to 5 over many pairs of layers of independent models."""
    sides = [gram_side(held(small(seed, neurons=64, layers=4)), seed=1) for seed in range(16)]
    counts = np.concatenate(
        [hold_gram(one, two).counts.ravel() for number, one in enumerate(sides) for two in sides[:number]]
    )
    assert counts.size == 120 * 16
    assert 0.5 < counts.mean() < 1.15  # the mean of both sides is rounded down
    for k in (2, 3, 4, 5):
        bound = 1.0 / math.factorial(k)
        assert np.mean(counts >= k) <= bound + 3.0 * math.sqrt(bound / counts.size)


def test_a_rotated_model_has_all_its_fixed_points(base):
    table = gram_table(held(base), held(turned(DEMO / "base")))
    assert table.counts.diagonal().tolist() == [128.0] * 4
    off = table.counts[~np.eye(4, dtype=bool)]
    assert off.max() < 8
    test = gram_test(table)
    assert test.log10_p == pytest.approx(-math.lgamma(129) / math.log(10) + math.log10(16))


def test_neurons_sorted_by_length_on_both_sides_are_not_tested(base):
    """An order that means something would make neighbours alike: the pair of layers is left out, and said so."""

    def sorted_neurons(loaded):
        state, config, tokenizer = loaded
        state = dict(state)
        for layer in range(config["num_hidden_layers"]):
            at = f"model.layers.{layer}.mlp."
            order = np.argsort(np.linalg.norm(state[f"{at}up_proj.weight"], axis=1))
            for name in ("gate_proj", "up_proj"):
                state[f"{at}{name}.weight"] = state[f"{at}{name}.weight"][order]
            state[f"{at}down_proj.weight"] = state[f"{at}down_proj.weight"][:, order]
        return state, config, tokenizer

    one, two = held(sorted_neurons(base)), held(sorted_neurons(derive.load_state(FAMILY / "twin")))
    with pytest.raises(DegenerateInput, match="follow their index"):
        gram_table(one, two)


def test_other_numbers_of_neurons_are_brought_to_the_same(small):
    table = gram_table(held(small(1, neurons=96)), held(small(2, neurons=64)))
    assert table.tested == 32
    with pytest.raises(DegenerateInput, match="at least 16"):
        gram_table(held(small(1)), held(small(2, neurons=12)))


def test_models_without_mlps_are_refused_with_the_reason(small):
    state, config, tokenizer = small(3)
    bare = HeldWeights("bare", {k: v for k, v in state.items() if ".mlp." not in k}, config, tokenizer)
    assert neuron_sets(bare) == {}
    found = examine_rotation(bare, held(small(4)), null=load_null())
    assert {test.log10_p for test in found.tests} == {None}
    assert "no MLP matrices" in (found.untested or "")


def test_an_allowance_that_is_too_small_is_said(small, tmp_path):
    from kinprint.model.model import open_model
    from kinprint.model.weights import StoredWeights
    from kinprint.sources.session import Session

    derive.save_state(tmp_path / "m", *small(5))
    with Session(Settings()) as session:
        one = StoredWeights(open_model(str(tmp_path / "m"), session))
        found = examine_rotation(one, one, null=load_null(), allowance=1000)
    assert "see --budget" in (found.untested or "")


def test_controls_of_the_turned_tests_find_a_copy_and_nothing_else(base, small, monkeypatch):
    found = {item.name: item for item in rotation_controls(held(base), log10_alpha=-6.0)}
    assert {item.status for item in found.values()} == {"passed"}
    assert found["rotated self"].log10_p < -100
    assert found["rotated shuffled self"].log10_p > -3
    state, config, tokenizer = small(6)
    bare = HeldWeights("bare", {k: v for k, v in state.items() if ".mlp." not in k}, config, tokenizer)
    assert {item.status for item in rotation_controls(bare, log10_alpha=-6.0)} == {"not run"}
    # a test that sees relations everywhere fails its control, and a failed control forbids a verdict
    monkeypatch.setattr(
        "kinprint.evidence.neuron_gram.fixed_points", lambda *_, **__: fixed_points(np.eye(40), np.eye(40))
    )
    assert [item.status for item in rotation_controls(held(base), log10_alpha=-6.0)] == ["passed", "failed"]


@pytest.mark.parametrize("statistic", [STATISTIC, HALF_STATISTIC])
def test_the_shipped_null_knows_the_statistics(statistic):
    sample = load_null().sample(statistic)
    assert sample is not None
    assert sample.pairs >= 30
    assert sample.largest < 0.05


# -- verdicts ------------------------------------------------------------------------------------------------------------


def deep(a, b):
    report = compare(str(a), str(b), Options(metrics=("pearson",), deep=True), settings=Settings())
    assert report.verdict is not None
    assert report.evidence is not None
    return report


CASES = [
    (DEMO / "base", False),
    pytest.param(FAMILY / "revocab", True, marks=pytest.mark.nightly),
    *(
        pytest.param(DEMO / name, flag, marks=pytest.mark.nightly)
        for name in ("base", "finetune", "grown")
        for flag in (True, False)
    ),
    *(
        pytest.param(
            FAMILY / name, flag, marks=pytest.mark.slow if name == "continued" and flag else pytest.mark.nightly
        )
        for name in ("continued", "lora")
        for flag in (True, False)
    ),
]


@pytest.mark.parametrize(("child", "everything"), CASES)
def test_a_descendant_in_another_basis_is_found(child, everything, tmp_path):
    derive.save_state(tmp_path / "turned", *turned(child, everything=everything))
    report = deep(DEMO / "base", tmp_path / "turned")
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "re_based")
    assert "rotated" in report.verdict.sentence
    assert report.verdict.log10_p < -100
    names = {test.name for test in report.evidence.tests if (test.log10_p or 0.0) < -100}
    assert names & {"gram_fixed_points", "neuron_match_rotated"}
    controls = {control.name: control.status for control in report.evidence.controls}
    assert controls["rotated self"] == controls["rotated shuffled self"] == "passed"


@pytest.mark.parametrize(
    "other",
    [
        DEMO / "unrelated",
        *(
            pytest.param(FAMILY / name, marks=pytest.mark.nightly)
            for name in ("twin", "indep", "distilled_1", "distilled_2")
        ),
    ],
    ids=lambda value: value.name,
)
@pytest.mark.parametrize("everything", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_an_independent_model_in_another_basis_is_not(other, everything, tmp_path):
    derive.save_state(tmp_path / "turned", *turned(other, everything=everything))
    report = deep(DEMO / "base", tmp_path / "turned")
    assert report.verdict.class_ == "no_evidence"
    ran = [test for test in report.evidence.tests if test.name in ("gram_fixed_points", "neuron_match_rotated")]
    assert len(ran) >= 2
    assert min(test.log10_p for test in ran) > -4.0


@pytest.mark.slow
@pytest.mark.parametrize(("other", "derived"), [(DEMO / "base", True), (FAMILY / "indep", False)])
def test_wide_models_are_fitted_in_their_leading_dimensions(base, other, derived, monkeypatch):
    """What is done beyond a width of 1024, on models of 96: the fit sees a part of the dimensions, the tests see all."""
    for module in ("align.rotation", "evidence.rotated_layers"):
        monkeypatch.setattr(f"kinprint.{module}.WIDE", 64)
    monkeypatch.setattr("kinprint.align.rotation.LEADING", 48)
    two = held(turned(other, everything=True))
    found = examine_rotation(held(base), two, null=load_null())
    assert found.rejects(-6.0) == derived
    assert not found.in_order
    if derived:
        assert found.share > 0.9
        assert found.layers == {0: 0, 1: 1, 2: 2, 3: 3}
        np.testing.assert_allclose(found.turn.T @ found.turn, np.eye(96), atol=1e-4)


def test_without_deep_a_rotation_hides_and_the_report_says_it_was_not_looked_for(tmp_path):
    derive.save_state(tmp_path / "turned", *turned(DEMO / "finetune"))
    report = compare(str(DEMO / "base"), str(tmp_path / "turned"), Options(metrics=("pearson",)), settings=Settings())
    assert report.verdict is not None
    assert report.verdict.class_ == "no_evidence"
    assert any("rotated residual basis" in text for text in report.verdict.untested)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "word"), [(derive.flip_signs, "negated"), (derive.permute_residual, "reordered")], ids=["signs", "order"]
)
def test_norms_that_still_match_do_not_end_the_search(change, word, tmp_path, base):
    """Signs leave every norm as it was: without a further look the models would seem to share norms alone."""
    state, config, tokenizer = base
    derive.save_state(tmp_path / "changed", change(state, config, 3), config, tokenizer)
    report = deep(DEMO / "base", tmp_path / "changed")
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "re_based")
    assert f"residual dimensions {word}" in report.verdict.sentence


SINGLES = [
    DEMO / "base",
    DEMO / "unrelated",
    *(FAMILY / name for name in ("twin", "indep", "distilled_1", "distilled_2")),
]


def least_p(one, two, seed):
    """Return the least p-value of a search, corrected for the tests that it ran."""
    found = examine_rotation(one, two, null=load_null(), seed=seed)
    ran = [test.log10_p for test in found.tests if test.log10_p is not None]
    assert ran
    return 10.0 ** min(0.0, min(ran) + math.log10(len(ran)))


@pytest.mark.parametrize(
    ("trained", "count"),
    [(False, 3), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((False, 300), (True, 60)))],
)
def test_p_values_of_the_whole_search_are_conservative(small, trained, count):
    """All stages, the layers chosen by their spectra included, on independent models in random bases and orders."""
    found = []
    for number in range(count):
        if trained:
            one, two = (derive.load_state(SINGLES[at]) for at in np.random.default_rng(number).permutation(6)[:2])
        else:
            one, two = (small(2 * number + side, neurons=96, layers=4 + side) for side in (0, 1))
        turned_two = (*derive.all_symmetries(two[0], two[1], number), two[2])
        found.append(least_p(held(one), held(turned_two), number))
    p = np.array(found)
    assert min(float(binom.sf(np.count_nonzero(p <= x) - 1, p.size, x)) for x in (0.05, 0.01, 0.001)) > 0.001
    assert p.min() > 1e-4


# -- unrelated models whose neurons have an order, or whose layers are copies --------------------------------------------


def made_of(small, seed, change, layers=4, neurons=128):
    """Return a synthetic model whose MLPs were changed, layer by layer, with neurons as rows."""
    state, config, tokenizer = small(seed, layers=layers, neurons=neurons)
    rng = np.random.default_rng(seed + 1000)
    state = dict(state)
    for layer in range(layers):
        at = f"model.layers.{layer}.mlp."
        gate, up, down = (state[f"{at}{name}_proj.weight"] for name in ("gate", "up", "down"))
        gate, up, down = change(rng, gate, up, down.T)
        state |= {f"{at}gate_proj.weight": gate, f"{at}up_proj.weight": up, f"{at}down_proj.weight": down.T}
    return HeldWeights(
        f"m{seed}", {k: np.ascontiguousarray(v, np.float32) for k, v in state.items()}, config, tokenizer
    )


def repeated(rng, *matrices):
    half = len(matrices[0]) // 2
    return [np.repeat(m[:half], 2, axis=0) + 0.05 * m.std() * rng.standard_normal(m.shape) for m in matrices]


def tiled(rng, *matrices):
    half = len(matrices[0]) // 2
    return [np.concatenate([m[:half], m[:half]]) for m in matrices]


def grouped(rng, *matrices):
    shared = [np.repeat(rng.standard_normal((8, m.shape[1])), len(m) // 8, axis=0) * m.std() for m in matrices]
    return [m + extra for m, extra in zip(matrices, shared, strict=True)]


def tail_copied(rng, *matrices):
    return [np.concatenate([m[:-16], m[:16]]) for m in matrices]


def importance_sorted(rng, gate, up, down):
    order = np.argsort(np.einsum("ij,ij->i", gate, up))
    return gate[order], up[order], down[order]


@pytest.mark.parametrize("change", [repeated, tiled, grouped, tail_copied, importance_sorted])
def test_an_order_of_neurons_that_both_models_have_by_construction_is_no_evidence(small, change):
    one, two = made_of(small, 31, change), made_of(small, 32, change)
    found = examine_rotation(one, two, null=load_null())
    assert all((test.log10_p or 0.0) > -6.0 for test in found.tests)
    if change is not importance_sorted:  # a weak order may pass the check where it cannot mislead
        assert any("places of its neurons mean something" in (test.reason or "") for test in found.tests)


@pytest.mark.parametrize("size", [2, 4, 16])
def test_neurons_that_follow_their_like_do_not_count(size):
    """Half of a layer is fitted: groups of neurons in both of two unrelated models pull their other half along."""

    def grouped_state(folder, seed):
        state, config, tokenizer = derive.load_state(folder)
        rng = np.random.default_rng(seed)
        for name, value in state.items():
            if ".mlp." in name:
                rows = value.T if "down" in name else value
                common = np.repeat(rng.standard_normal((256 // size, 96)), size, axis=0) * 2.0 * rows.std()
                state[name] = np.ascontiguousarray((rows + common).T if "down" in name else rows + common, np.float32)
        return state, config, tokenizer

    one = grouped_state(DEMO / "base", 1)
    two = grouped_state(DEMO / "unrelated", 2)
    two = derive.permute_neurons(two[0], two[1], 5), *two[1:]
    found = half_held_out(held(one), held(two), [(2, 2), (3, 3)], seed=0, draws=1)
    largest = load_null().largest(HALF_STATISTIC)
    assert max(item.share for item in found) > 0.05
    assert all(item.share <= max(largest, 2.0 * item.own) for item in found)
    assert any(item.own > largest for item in found)


def test_layers_that_are_copies_of_those_fitted_prove_nothing(small):
    def shared(seed, order):
        state, config, tokenizer = small(seed, layers=4, neurons=128)
        copies = {
            name: state[name.replace(f"layers.{layer}.", f"layers.{source}.")]
            for layer, source in enumerate(order)
            for name in state
            if f"layers.{layer}." in name
        }
        return HeldWeights("shared", {**state, **copies}, config, tokenizer)

    for order in ((0, 0, 0, 0), (0, 0, 2, 2)):
        found = examine_rotation(shared(41, order), shared(42, order), null=load_null())
        assert all((test.log10_p or 0.0) > -6.0 for test in found.tests)
        if order == (0, 0, 0, 0):  # else layers are left that are no copies of the one fitted
            said = "the layers left to test on are those that were fitted, or copies of them"
            assert said in (found.untested or "")


def test_the_budget_never_turns_a_relation_into_an_error(tmp_path):
    from kinprint.model.model import open_model
    from kinprint.model.weights import StoredWeights
    from kinprint.sources.session import Session

    derive.save_state(tmp_path / "turned", *turned(DEMO / "base"))
    with Session(Settings()) as session:
        one = StoredWeights(open_model(str(DEMO / "base"), session))
        two = StoredWeights(open_model(str(tmp_path / "turned"), session))
        found = examine_rotation(one, two, null=load_null(), allowance=1_300_000)
        assert found.in_order
        assert found.origin is not None
        assert found.origin.reading == "training"
        assert one.bytes_read + two.bytes_read <= 1_300_000
    with Session(Settings(), budget_bytes=530_000) as session:
        one = StoredWeights(open_model(str(DEMO / "base"), session))
        two = StoredWeights(open_model(str(tmp_path / "turned"), session))
        cut = examine_rotation(one, two, null=load_null(), allowance=1_300_000)
        assert cut.in_order
        assert cut.origin is not None
        assert cut.origin.reading == "unclear"
        assert "not examined" in cut.origin.reasons[0]


def test_what_was_found_stands_where_the_budget_ends_before_it_is_examined(monkeypatch):
    places = np.arange(20)
    match = NeuronMatch(places, places, 20, 20, 20, 0.0, 0.0, 20, 0, None, 1.0, 0.0, None, None, None)
    results = [HeldOut((layer, layer), places, places, match, np.eye(8, dtype=np.float32)) for layer in range(2)]

    def refused(*_):
        raise BudgetExceeded("a read of 2 MB was planned, but nothing is left")

    monkeypatch.setattr(rotation, "read_pair", refused)
    origin = rotation._origin_matched(None, None, results)
    assert origin.reading == rotation.UNCLEAR
    assert "nothing is left" in origin.reasons[0]
