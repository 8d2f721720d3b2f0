"""all-MiniLM-L6-v2 and what others made of it: copies, conversions, children; and a model that only looks alike."""

import shutil
from itertools import combinations

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.evidence import examine
from kinprint.evidence.power import power_of
from kinprint.model.model import open_model
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.orders import said
from support.planting import share_claimed, share_seen

pytestmark = pytest.mark.real
NORMS = ("embedding_norm", "attention_output_norm", "mlp_output_norm")


def lines(report):
    return {line.role: line for line in report.summary}


def norm_cosine(report):
    """Return the mean over all norms of all layers of what a naive comparison would look at."""
    found = [
        measured.value
        for item in report.comparisons
        if item.role in NORMS
        for measured in item.measurements
        if measured.metric == "cosine"
    ]
    assert len(found) == 13
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("name", "kind", "pearson"),
    [
        pytest.param("minilm-fp16", "cast", 0.99999, marks=pytest.mark.nightly),
        ("minilm-int8", "quantised", 0.99999),
        pytest.param("sre", "fine_tuned", 0.999, marks=pytest.mark.nightly),
        ("cloneguard", "fine_tuned", 0.99),
    ],
)
def test_copies_and_children_of_minilm_are_recognised(weights, judge, name, kind, pearson):
    report = judge(weights("minilm"), weights(name))
    verdict = report.verdict
    assert (verdict.class_, verdict.kinds) == ("derived", (kind,))
    assert verdict.layer_map == tuple(range(6))
    assert verdict.log10_p < -200
    assert min(lines(report)[role].mean_pearson for role in NORMS) > pearson
    assert all(item.state == "shared" for item in report.evidence.components)
    if kind == "fine_tuned":
        assert "common ancestor" in verdict.sentence
    if kind == "quantised":
        assert {item.bits for item in report.evidence.edits} == {8}
        assert "to 8 bits" in verdict.sentence


@pytest.mark.parametrize("name", ["sre", pytest.param("cloneguard", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["forward", "turned"])
def test_a_quantised_parent_beside_a_trained_child_is_not_quantised_alone(weights, judge, name, turned):
    """Rounding explains MiniLM's own int8 copy, and not the way from a fine-tune of MiniLM to it."""
    pair = weights(name), weights("minilm-int8")
    verdict = judge(*(pair[::-1] if turned else pair)).verdict
    assert (verdict.class_, verdict.kind) == ("derived", "trained_and_quantised")
    assert "to 8 bits" in verdict.sentence


@pytest.mark.nightly
def test_a_half_precision_copy_beside_an_int8_copy_is_quantised(weights, judge):
    verdict = judge(weights("minilm-fp16"), weights("minilm-int8")).verdict
    assert (verdict.class_, verdict.kinds) == ("derived", ("quantised",))


NAMES = ("minilm", "minilm-fp16", "minilm-int8", "sre", "cloneguard", "e5")


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "two"), list(combinations(NAMES, 2)))
def test_the_verdict_does_not_depend_on_the_order(weights, judge, one, two):
    assert said(judge(weights(one), weights(two))) == said(judge(weights(two), weights(one)), back=True)


@pytest.mark.nightly
def test_two_children_of_one_parent_are_related_and_the_parent_is_not_forgotten(weights, judge):
    verdict = judge(weights("sre"), weights("cloneguard")).verdict
    assert (verdict.class_, verdict.kind) == ("derived", "fine_tuned")
    assert "common ancestor" in verdict.sentence


@pytest.fixture
def e5(weights, tmp_path):
    """Return e5-small with the tokenizer that its package leaves out, the same as MiniLM's: now tokens can be compared."""
    for file in (*weights("e5").iterdir(), weights("minilm") / "tokenizer.json"):
        shutil.copyfile(file, tmp_path / file.name)  # links out of the folder would be refused
    return tmp_path


@pytest.mark.parametrize(("name", "deep"), [("minilm", False), ("minilm", True), ("cloneguard", False)])
def test_e5_is_not_related_however_alike_its_norms_look(weights, judge, e5, name, deep):
    report = judge(weights(name), e5, deep=deep)
    assert norm_cosine(report) > 0.95
    assert report.verdict.class_ == "no_evidence"
    assert report.verdict.log10_p > -3
    assert all(abs(lines(report)[role].mean_pearson) < 0.15 for role in NORMS)
    assert all(not item.shared for item in report.evidence.components)
    assert all(not item.shared for item in report.evidence.alignment.layers)
    # It would have seen a relation: this is what the abstention rests on.
    power = [(item.least, item.quantity) for item in report.evidence.power]
    assert max(least for least, quantity in power if quantity == "correlation of norm scales") < 0.7
    assert max(least for least, quantity in power if quantity == "cosine of rows") <= 0.1
    ran = {test.name for test in report.evidence.tests if test.status == "ok"}
    assert {"fixed_points", "norm_joint", "matrix_correlation"} <= ran
    assert (
        "token_rows" in ran or name != "minilm"
    )  # of two ONNX files much is read whole: the budget ends before tokens
    assert ("fixed_points_aligned" in ran) == deep


@pytest.mark.nightly
@pytest.mark.parametrize("trials", [300])
def test_the_power_stated_for_real_models_holds_when_relations_are_planted(weights, e5, monkeypatch, trials):
    """Relations of the stated strength in MiniLM and e5, planted anew, are seen by the tests, and claimed."""
    kept = []
    monkeypatch.setattr(examine, "power_of", lambda found: kept.append(found) or power_of(found))
    report = compare(str(weights("minilm")), str(e5), Options(metrics=("pearson",)), settings=Settings())
    assert len(report.evidence.power) == 3
    for item in report.evidence.power:
        at, half = (share_seen(kept[0], item, factor * item.least, trials) for factor in (1.0, 0.5))
        assert half <= at
        assert at >= item.power
        assert share_claimed(kept[0], item, item.least, trials // 5) >= item.power


def test_real_norms_of_unrelated_models_behave_as_the_null_says(weights, e5):
    """Every norm of MiniLM against every norm of e5-small: 13 × 25 pairs, of which chance would let few stand out."""
    stacks = []
    with Session(Settings()) as session:
        for folder in (weights("minilm"), e5):
            model = open_model(str(folder), session)
            parts = [part for part in model.naming.tensors if part.role.value in NORMS]
            values = np.stack([model.tensor(*part.key) for part in parts])
            centred = values - values.mean(axis=1, keepdims=True)
            stacks.append(centred / np.linalg.norm(centred, axis=1, keepdims=True))
    z = stacks[0] @ stacks[1].T * np.sqrt(stacks[0].shape[1] - 1)
    assert z.shape == (13, 25)
    assert abs(z.mean()) < 1.0  # the rows of a model resemble each other, so the mean has a spread of some tenths
    assert 0.5 < z.std() < 1.5
    assert np.abs(z).max() < 5.0
