"""Compact fingerprints: small, exact on independent models, and seen through every single change of order or basis."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact import parts
from kinprint.fingerprints.compact.codes import MOST, ZERO, decode, encode
from kinprint.fingerprints.compact.proof import prove
from kinprint.fingerprints.file import describe, to_bytes, write_fingerprint
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.recall import FAMILIES, recall_vectors
from kinprint.fingerprints.report import RELATED, compare_fingerprints, make_fingerprint
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

COMPACT = METHODS["compact"]


@pytest.fixture(scope="module")
def base():
    return derive.load_state(DEMO_MODELS / "base")


@pytest.fixture(scope="module")
def kept(base):
    """The features of the bundled models, and of the base after changes that leave its function alone."""
    state, config, tokenizer = base
    found = {name: derive.load_state(DEMO_MODELS / name) for name in ("base", "finetune", "unrelated", "grown")}
    for name in ("permute_residual", "permute_neurons", "rotate_residual", "flip_signs", "permute_and_flip"):
        changed = getattr(derive, name)(state, config, 7)
        found[name] = (*(changed if isinstance(changed, tuple) else (changed, config)), tokenizer)
    return {name: COMPACT.extract(HeldWeights(name, *model)) for name, model in found.items()}


def file_of(features, base):
    return describe(HeldWeights("base", *base), {"compact": features}, {})


@pytest.mark.parametrize("centred", [True, False])
def test_codes_keep_values_to_a_percent_of_their_spread_beside_outliers(centred):
    x = np.random.default_rng(1).standard_normal((3, 500)) + (4.0 if centred else 0.0)
    x[0, 7], x[1, 9] = 300.0, 0.0
    codes, scales = encode(x, centred=centred)
    back = decode(codes, scales)
    assert codes.dtype == np.int8
    assert back[1, 9] == 0.0
    assert codes[1, 9] == ZERO
    usual = np.abs(x - np.median(x, axis=1, keepdims=True)) < 2.0
    assert float(np.abs(back - x)[usual].max()) < 0.1
    assert abs(back[0, 7] / 300.0 - 1.0) < 0.05


def test_codes_of_constant_vectors_are_constant():
    codes, scales = encode(np.full((2, 9), 1.5), centred=True)
    assert not codes.any()
    np.testing.assert_array_equal(decode(codes, scales), np.full((2, 9), 1.5, np.float32))
    assert int(np.abs(encode(np.eye(5), centred=True)[0]).max()) in (MOST, -ZERO)


def test_layers_are_counted_from_both_ends():
    assert list(parts.from_ends("abcde", 2)) == [(0, "a"), (1, "b"), (15, "e"), (14, "d")]
    assert list(parts.from_ends("abc", 8)) == [(0, "a"), (1, "b"), (15, "c")]
    assert list(parts.from_ends("", 8)) == []


def test_a_fingerprint_is_a_tenth_of_a_tiny_model(kept, base):
    assert len(to_bytes(file_of(kept["base"], base))) < 100_000


@pytest.mark.parametrize(
    ("child", "seen_by"),
    [
        ("finetune", {"dimension_fixed_points", "fixed_points", "gram_fixed_points"}),
        ("grown", {"dimension_fixed_points", "fixed_points", "gram_fixed_points"}),
        ("permute_residual", {"gram_fixed_points"}),
        ("rotate_residual", {"gram_fixed_points"}),
        ("permute_neurons", {"dimension_fixed_points"}),
        ("flip_signs", {"dimension_fixed_points", "gram_fixed_points"}),
    ],
)
def test_children_are_proven_related(kept, child, seen_by):
    proof = prove(kept["base"], kept[child])
    assert proof.log10_p < -60
    seen = {test.name for test in proof.tests if (test.log10_p_claim or 0.0) < -15}
    assert seen >= seen_by


def test_strangers_and_full_disguises_are_not(kept):
    for name in (
        "unrelated",
        "permute_and_flip",
    ):  # orders of dimensions and neurons drawn anew: no exact test can see it
        proof = prove(kept["base"], kept[name])
        assert proof.tests_run > 8
        assert proof.log10_p > -3


def test_nothing_in_common_is_no_answer(kept):
    only = Features("compact", 1, {"tokens": kept["base"].arrays["tokens"]}, {})
    assert prove(only, kept["base"]).log10_p is None
    with pytest.raises(DegenerateInput, match="no exact test can run"):
        COMPACT.score(only, kept["base"])


@pytest.mark.parametrize("name", ["norms.input_norm", "rows.mlp_up", "gram", "gram.lengths", "rows.mlp_up.at"])
@pytest.mark.parametrize("value", [np.zeros((3, 2), np.int8), np.zeros(0, np.int8), np.zeros((4, 4), np.float64)])
def test_hostile_arrays_are_refused_with_the_reason(kept, name, value):
    spoilt = replace(kept["base"], arrays={**kept["base"].arrays, name: value})
    with pytest.raises(DegenerateInput):
        prove(spoilt, kept["base"])


def test_scales_that_overflow_are_refused(kept):
    scales = np.full_like(kept["base"].arrays["gram.scales"], 1e30)
    with pytest.raises(DegenerateInput, match="values beyond"):
        prove(replace(kept["base"], arrays={**kept["base"].arrays, "gram.scales": scales}), kept["base"])


def test_recall_vectors_are_short_unit_and_find_children(kept, base):
    vectors = {name: recall_vectors(file_of(features, base)) for name, features in kept.items()}
    assert sum(FAMILIES.values()) <= 256
    for found in vectors.values():
        for name, vector in found.items():
            assert vector.shape == (FAMILIES[name],)
            assert vector.dtype == np.float32
            assert abs(float(np.linalg.norm(vector)) - 1.0) < 1e-6
    assert "norms" not in vectors["rotate_residual"]  # its norms are all one: absent, not zero

    def cosine(family, child):
        return float(vectors["base"][family] @ vectors[child][family])

    assert cosine("norms", "finetune") > 0.9
    assert cosine("rows", "finetune") > 0.9
    assert cosine("gram", "rotate_residual") > 0.9
    assert cosine("tokens", "permute_and_flip") > 0.99
    assert cosine("sorted", "permute_and_flip") > 0.99
    assert all(abs(cosine(family, "unrelated")) < 0.5 for family in ("norms", "rows", "gram", "sorted"))


def test_a_fingerprint_without_compact_parts_has_no_vectors(kept, base):
    assert recall_vectors(replace(file_of(kept["base"], base), features={})) == {}


def test_files_are_compact_unless_asked_and_compare_by_what_both_hold(tmp_path):
    small = make_fingerprint(DEMO_MODELS / "base")
    large = make_fingerprint(DEMO_MODELS / "finetune", methods=["norms", "compact"])
    assert set(small.features) == {"compact"}
    for name, found in (("a.kfp", small), ("b.kfp", large)):
        write_fingerprint(tmp_path / name, found)
    report = compare_fingerprints(tmp_path / "a.kfp", tmp_path / "b.kfp")
    assert [item.method for item in report.methods] == ["compact"]
    assert report.class_ == RELATED
    assert compare_fingerprints(tmp_path / "b.kfp", DEMO_MODELS / "base").class_ == RELATED
