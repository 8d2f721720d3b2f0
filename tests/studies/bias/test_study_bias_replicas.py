"""The bias study on replicas: what agrees with the publication, what has no result, and what is wrong and why."""

import itertools

import numpy as np
import pytest

from kinprint.lab.replicas.design import design
from kinprint.lab.replicas.norms import replica_norms

pytestmark = pytest.mark.nightly  # CI runs three other studies on replicas

MEASURES = ("cosine", "Pearson")
UNMEASURED = (("Solar", "INTELLECT"), ("INTELLECT", "Phi"))


def part(outcome, name):
    return next(item.section for item in outcome.parts if item.name == name)


def records(section, name):
    found = next(item for item in section.tables if item.name == name)
    return [dict(zip((column.key for column in found.columns), row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def replica_run(run_on_replicas):
    return run_on_replicas("bias")


def test_published_figures_agree_on_replicas(replica_run):
    sure = [check for check in replica_run.checks if check.trust != "wrong"]
    assert len(sure) == 243
    assert not replica_run.missing
    # the maker says 106 and the tensors give 106.85, which rounds to 107
    assert [str(check.what) for check in sure if check.agrees is False] == ["E-1: parameters of GLM, billions"]


def test_what_replicas_do_not_fix_has_no_result(replica_run):
    free = {str(check.what): check for check in replica_run.checks if check.agrees is None and check.trust != "wrong"}
    assert all(check.reason is not None for check in free.values())
    assert free.keys() == {
        "figure 6: largest value on the surfaces",
        *(f"figure 7: variance explained by component {number}, %" for number in (1, 2, 3)),
        *(
            f"D-2: mean {measure} of {which}"
            for measure in MEASURES
            for which in ("the same layer", "different layers")
        ),
        *(f"D-2: difference of the two means, {measure}" for measure in MEASURES),
        "D-2: spread of Pearson, different layers",
        *(f"E-3: mean {measure}, {a} and {b}" for measure in MEASURES for a, b in UNMEASURED),
        *(f"E-3: mean cosine, {a} and Phi" for a in ("Solar", "GLM")),
    }
    assert free["D-2: mean Pearson of different layers"].digits == 4
    assert str(free["D-2: mean Pearson of different layers"].reason) == "not fixed by the replicas"


def test_reasons_are_about_the_number_beside_them(replica_run):
    reasons = {str(check.what): str(check.reason) for check in replica_run.checks if check.reason is not None}
    across = [why for what, why in reasons.items() if what.startswith("D-2: Pearson, Solar layer 0, GLM layer 23")]
    assert len(across) == 1
    assert "nobody else measured this pair of layers" in across[0]
    assert "two readers measured 0.0158" in reasons["D-2: spread of Pearson, same layer"]
    for a, b in UNMEASURED:
        assert "nobody else measured this pair" in reasons[f"E-3: mean Pearson, {a} and {b}"]


def test_figures_known_to_be_wrong_differ_on_replicas(replica_run):
    wrong = [check for check in replica_run.checks if check.trust == "wrong"]
    assert len(wrong) == 53
    assert [str(check.what) for check in wrong if check.agrees] == []
    # Of different layers nothing is published but this; hyunwoongko measured post norms of Phi in three layers only.
    free = [str(check.what) for check in wrong if check.agrees is None]
    assert [what.split(":")[0] for what in free] == ["D-2"] * 6 + ["E-3"] * 2


def test_layers_of_the_replicas_are_worth_few_independent_ones(replica_run):
    rows = {(row["a"], row["b"]): row for row in records(part(replica_run, "fig5"), "diagonals_input_norm")}
    row = rows["Solar", "GLM"]
    assert row["layers"] == 46
    assert row["effective"] < 20
    assert abs(row["z"]) < 4 < rows["GLM", "INTELLECT"]["z"]


def unit(rows):
    centred = rows.astype(np.float64) - rows.astype(np.float64).mean(axis=1, keepdims=True)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def test_correlations_that_nobody_measured_are_those_of_chance():
    made, known = replica_norms(0), {frozenset(pair) for pair in design().correlations}
    for kind in ("input_norm", "post_attention_norm"):
        for a, b in itertools.combinations(("Solar", "GLM", "Phi"), 2):
            z = unit(made[a, kind]) @ unit(made[b, kind]).T * np.sqrt(4095)
            free = [(i, k) for i, k in np.ndindex(*z.shape) if frozenset(((a, kind, i), (b, kind, k))) not in known]
            assert len(free) > 1400
            assert max(abs(z[at]) for at in free) < 4.0, (kind, a, b)


def test_differences_of_the_two_norms_are_those_of_chance(replica_run):
    for a, b in (("Solar", "GLM"), ("Solar", "Phi"), ("GLM", "Phi"), ("INTELLECT", "Phi")):
        scores = [row["z"] for row in records(part(replica_run, "fig10"), f"difference_{a}_{b}")]
        assert len(scores) >= 32
        assert max(map(abs, scores)) < 3.5, (a, b)
