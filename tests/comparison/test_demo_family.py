"""The whole pipeline on five really trained models whose relations are known (demo/README.md)."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare

IDENTITY_VALUES = {
    "cosine": 1.0,
    "pearson": 1.0,
    "spearman": 1.0,
    "deviation_cosine": 1.0,
    "l2": 0.0,
    "rel_l2_a": 0.0,
    "rel_l2": 0.0,
    "rel_rmse": 0.0,
    "mean_abs_diff": 0.0,
    "p99_abs_diff": 0.0,
    "cv_diff": 0.0,
    "changed_ratio": 0.0,
    "ulp_distance": 0.0,
    "byte_identity": 1.0,
    "cka": 1.0,
    "cka_unbiased": 1.0,
}
ROLES = 12
MODELS = ("finetune", "unrelated", "permuted", "grown", "base")


def values(report, metric, *roles):
    return [
        found.value
        for item in report.comparisons
        if not roles or item.role in roles
        for found in item.measurements
        if found.metric == metric and found.value is not None
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_accounted_for(demo, demo_folder, checked, name):
    report = demo(name)
    checked(report, str(demo_folder / "base"), str(demo_folder / name))
    assert report.status == "ok"
    assert len(report.comparisons) == 39
    assert len(report.summary) == ROLES
    assert [line.not_compared for line in report.summary] == [0] * ROLES


def test_a_fine_tune_is_seen_in_every_role(demo):
    found = {line.role: line.null for line in demo("finetune").summary}
    assert len(found) == ROLES
    assert max(null.log10_p for null in found.values()) < -4.5
    assert min(null.z for null in found.values()) > 9
    norms = [line for line in demo("finetune").summary if line.kind == "norm"]
    assert [line.role for line in norms] == ["final_norm", "input_norm", "post_attention_norm"]
    assert all(line.null.log10_p < -9.5 and line.mean_pearson > 0.98 for line in norms)


def test_an_unrelated_model_is_not_accused_however_high_its_cosine(demo):
    summary = demo("unrelated").summary
    assert min(line.null.log10_p for line in summary) > -3.5
    assert max(abs(line.null.z) for line in summary) < 3.5
    for line in summary:
        if line.kind == "norm":
            assert line.median_cosine > 0.98
            assert abs(line.median_cosine - line.median_cosine_null) < 0.01


def test_single_layers_of_an_unrelated_model_stay_near_their_nulls(demo):
    z = [
        found.null.z
        for item in demo("unrelated").comparisons
        for found in item.measurements
        if found.metric == "pearson"
    ]
    assert len(z) == 39
    assert max(map(abs, z)) < 4.5
    assert abs(np.mean(z)) < 0.6


def test_a_permuted_model_is_identical_where_order_is_shared(demo):
    report = demo("permuted")
    shared = ("input_norm", "post_attention_norm", "final_norm", "embedding", "head")
    assert len(values(report, "byte_identity", *shared)) == 11
    assert set(values(report, "byte_identity", *shared)) == {1.0}
    assert set(values(report, "changed_ratio", *shared)) == {0.0}
    assert set(values(report, "ulp_distance", *shared)) == {0.0}
    moved = ("mlp_gate", "mlp_up", "mlp_down")
    assert set(values(report, "byte_identity", *moved)) == {0.0}
    assert min(values(report, "changed_ratio", *moved)) > 0.9
    assert max(map(abs, values(report, "pearson", *moved))) < 0.3


def test_a_grown_model_leaves_its_extra_layers_out_and_says_so(demo):
    (skipped,) = demo("grown").skipped
    assert (skipped.count, skipped.reason) == (18, "model A has only 4 layers")
    assert all(".4." in name for name in skipped.examples)
    assert (demo("grown").a.layers, demo("grown").b.layers) == (4, 6)


def test_a_model_against_itself(demo):
    report = demo("base")
    seen = set()
    for item in report.comparisons:
        for found in item.measurements:
            if found.metric in IDENTITY_VALUES and found.value is not None:
                seen.add(found.metric)
                assert found.value == pytest.approx(IDENTITY_VALUES[found.metric], abs=1e-9), (item.role, found.metric)
    assert seen == set(IDENTITY_VALUES)
    assert report.config.differences == ()
    assert report.tokenizer.identical_files
    assert report.tokenizer.jaccard == 1.0


def test_an_observation_is_its_mean_over_layers(demo):
    for name in ("finetune", "unrelated"):
        for line in demo(name).summary:
            assert line.mean_pearson == pytest.approx(line.null.mean + line.null.z * line.null.sd, abs=1e-9), line.role


def test_residual_roles_share_one_permutation_and_neurons_have_their_own(demo):
    permutations = {line.role: line.permutation for line in demo("unrelated").summary}
    assert permutations.pop("mlp_down") == "its own permutation for each layer"
    assert set(permutations.values()) == {"one permutation for all layers"}


def test_config_and_tokenizer_of_the_unrelated_model(demo):
    report = demo("unrelated")
    assert (report.config.status, report.config.differences) == ("ok", ())
    found = report.tokenizer
    assert (found.status, found.identical_files, found.kind_a) == ("ok", False, "BPE")
    assert (found.tokens_a, found.tokens_b, found.tokens_common, found.same_id) == (512, 512, 438, 271)
    assert (found.merges_a, found.merges_b, found.merges_common) == (254, 254, 159)


@pytest.mark.parametrize(
    ("child", "parent", "coefficients", "explained", "elements"),
    [
        ("grown", "finetune", (0.960, 0.043), 0.9958, 101_376),  # layers 0, 1, 2, 1, 2, 3 of base
        ("finetune", "unrelated", (0.980, -0.002), 0.9644, 112_640),  # every layer in its place
    ],
)
def test_parents_are_weighed_where_the_layers_of_the_child_come_from(
    demo_folder, child, parent, coefficients, explained, elements
):
    report = compare(demo_folder / "base", demo_folder / child, parents=(demo_folder / parent,))
    assert report.evidence.merge.coefficients == pytest.approx(coefficients, abs=0.001)
    assert report.evidence.merge.r_squared == pytest.approx(explained, abs=0.0001)
    assert report.evidence.merge.elements == elements
