"""Verdicts on the trained family: models whose relations are known because they were trained, or derived, that way."""

from pathlib import Path

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import ROOT

DEMO, FAMILY = ROOT / "demo" / "models", ROOT / "tests" / "family"
BASE = str(DEMO / "base")
QUICK = Options(metrics=("pearson",))


def judge(a, b, **chosen):
    report = compare(str(a), str(b), QUICK, **chosen, settings=Settings())
    assert report.verdict is not None
    assert report.evidence is not None
    return report


@pytest.fixture(scope="module")
def base():
    return derive.load_state(DEMO / "base")


def saved(folder, state, config, tokenizer, dtype="BF16"):
    derive.save_state(folder, state, config, tokenizer, dtype=dtype)
    return folder


# -- really trained ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("child", "kind"),
    [
        (DEMO / "finetune", "fine_tuned"),
        pytest.param(FAMILY / "continued", "continued_pretraining", marks=pytest.mark.slow),
        pytest.param(FAMILY / "norms_reset", "norms_replaced", marks=pytest.mark.slow),
        pytest.param(FAMILY / "revocab", "vocabulary_replaced", marks=pytest.mark.slow),
        pytest.param(FAMILY / "lora", "lora_merged", marks=pytest.mark.slow),
        (DEMO / "permuted", "neurons_permuted"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_a_descendant_is_derived_and_its_kind_is_named(child, kind):
    report = judge(BASE, child)
    verdict = report.verdict
    assert (verdict.class_, verdict.kind) == ("derived", kind)
    assert verdict.log10_p < -20  # what 96 signs can show
    assert "derive" in verdict.sentence
    if kind == "lora_merged":
        assert {item.rank for item in report.evidence.edits if item.edit == "low_rank"} == {4}


@pytest.mark.parametrize(
    ("child", "layers"),
    [(DEMO / "grown", (0, 1, 2, 1, 2, 3))],
    ids=["grown and trained on"],
)
def test_a_grown_model_gives_its_layer_map(child, layers):
    report = judge(BASE, child)
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "depth_changed")
    assert report.verdict.layer_map == layers


@pytest.mark.slow
def test_experts_of_an_upcycled_model_come_from_the_dense_mlp():
    report = judge(BASE, FAMILY / "upcycled")
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "upcycled")
    experts = report.evidence.experts
    assert {(item.layer, item.expert) for item in experts if item.shared} == {
        (i, e) for i in range(4) for e in range(4)
    }
    assert {item.source for item in experts} == {None}


def test_the_same_start_on_other_data_is_not_called_fine_tuning():
    report = judge(BASE, FAMILY / "sibling")
    assert report.verdict.class_ == "shares_initialisation"
    assert report.verdict.kind is None
    assert "initialisation" in report.verdict.sentence


def test_copied_norms_are_shared_norms_and_no_derivation():
    report = judge(BASE, FAMILY / "norms_copied")
    assert report.verdict.class_ == "shares_components"
    assert [item.component for item in report.evidence.components if item.shared] == ["norms"]
    assert "norm weights" in report.verdict.sentence


@pytest.mark.parametrize("deep", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_layers_trained_on_the_embeddings_of_another_model_are_not_its_layers(deep):
    """Shared embeddings give residual dimensions a meaning: what training leaves in them is no weight of the other model."""
    report = judge(BASE, FAMILY / "draft", deep=deep)
    assert report.verdict.class_ == "shares_components"
    assert [item.component for item in report.evidence.components if item.shared] == ["embedding", "head"]
    assert not any(item.shared for item in report.evidence.alignment.layers)


INDEPENDENT = [
    DEMO / "base",
    DEMO / "unrelated",
    *(FAMILY / n for n in ("twin", "distilled_1", "distilled_2", "indep")),
]
PAIRS = [(a, b) for i, a in enumerate(INDEPENDENT) for b in INDEPENDENT[i + 1 :]]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(a, b, marks=() if i < 3 else pytest.mark.slow if i < 5 else pytest.mark.nightly)
        for i, (a, b) in enumerate(PAIRS)
    ],
    ids=lambda path: path.name,
)
def test_independent_models_are_not_accused(a, b):
    """Same config; some share data, tokenizer, or a teacher. None shares a weight."""
    report = judge(a, b)
    assert report.verdict.class_ == "no_evidence"
    assert report.verdict.log10_p > -3
    assert all(item.least is not None or item.reason for item in report.evidence.power)
    assert "would have been seen" in report.verdict.sentence


@pytest.mark.slow
def test_matched_hidden_states_are_neither_descent_nor_a_start():
    """The student took over the teacher's basis and no weight: embeddings agree as if they had been trained further."""
    verdict = judge(BASE, FAMILY / "hidden_matched").verdict
    assert (verdict.class_, verdict.kind) == ("shares_components", None)
    assert "training to match hidden states can leave" in verdict.sentence.lower()
    assert not {"attention: shared", "mlp: shared"} & {str(text) for rule in verdict.rules for text in rule.inputs}


@pytest.mark.parametrize(
    ("giver", "variant", "said"),
    [
        (DEMO / "finetune", None, "Training to match hidden states can leave agreement like this, too."),
        (DEMO / "base", None, "The two models share token embeddings, and not most of their layers"),
        (FAMILY / "sibling", "unclear", "The two models agree in token embeddings"),
    ],
    ids=["trained further", "copied", "of one start"],
)
def test_an_embedding_is_said_to_be_shared_as_far_as_is_known(tmp_path, giver, variant, said):
    """The zoo's `partial`: another model's embeddings in a body of its own, copied, or started from the same numbers."""
    body, config, tokenizer = derive.load_state(FAMILY / "indep")
    table = "model.embed_tokens.weight"
    state = {**body, table: derive.load_state(giver)[0][table]}
    verdict = judge(BASE, saved(tmp_path / "child", state, config, tokenizer)).verdict
    assert (verdict.class_, verdict.variant) == ("shares_components", variant)
    assert said in verdict.sentence
    assert ("hidden states" in verdict.sentence) == (giver.name != "base")


@pytest.mark.parametrize(
    "child",
    [DEMO / "unrelated", FAMILY / "distilled_1", pytest.param(FAMILY / "twin", marks=pytest.mark.nightly)],
    ids=lambda p: p.name,
)
def test_looking_deeper_accuses_nobody(child):
    assert judge(BASE, child, deep=True).verdict.class_ == "no_evidence"


@pytest.mark.slow
def test_two_children_of_one_parent_are_not_called_parent_and_child_without_more_ado():
    verdict = judge(FAMILY / "continued", DEMO / "finetune").verdict
    assert verdict.class_ == "derived"
    assert "common ancestor" in verdict.sentence


# -- derived by construction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda s, c: (derive.prune(s, 0.5), c), "pruned"),
        (lambda s, c: (derive.quantise(s, 4, 32), c), "quantised"),
        pytest.param(lambda s, c: (derive.quantise(s, 8), c), "quantised", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: (derive.noise(s, 0.05, 8), c), "noise_added", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: (derive.scale(s, 1.5), c), "scaled", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: (derive.low_rank(s, 4, 0.05, 7), c), "lora_merged", marks=pytest.mark.slow),
        pytest.param(lambda s, c: (derive.permute_neurons(s, c, 1), c), "neurons_permuted", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: (derive.permute_heads(s, c, 1), c), "heads_reordered", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: derive.prune_neurons(s, c, 160, 5), "width_pruned", marks=pytest.mark.nightly),
        pytest.param(lambda s, c: derive.upcycle(s, c, 4, 0.02, 6), "upcycled", marks=pytest.mark.slow),
        pytest.param(lambda s, c: (derive.replace_embeddings(s, 9), c), "vocabulary_replaced", marks=pytest.mark.slow),
    ],
    ids=[
        "pruned by half", "int4", "int8", "noise", "scaled", "low rank", "neurons permuted", "heads permuted",
        "width pruned and reordered", "upcycled", "embeddings replaced",
    ],
)  # fmt: skip
def test_an_edit_is_recognised(base, tmp_path, make, kind):
    state, config, tokenizer = base
    report = judge(BASE, saved(tmp_path / "child", *make(state, config), tokenizer))
    assert (report.verdict.class_, report.verdict.kind) == ("derived", kind)
    if kind == "quantised":
        assert {item.bits for item in report.evidence.edits} <= {4, 8, None}
        assert any(item.bits in (4, 8) for item in report.evidence.edits)


@pytest.mark.parametrize("dtype", ["F16", pytest.param("F32", marks=pytest.mark.slow)])
def test_a_cast_is_a_cast(base, tmp_path, dtype):
    verdict = judge(BASE, saved(tmp_path / "child", *base, dtype=dtype)).verdict
    assert (verdict.class_, verdict.kind) == ("derived", "cast")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.7, pytest.param(0.3, marks=pytest.mark.nightly)])
def test_both_parents_of_a_merge_and_their_shares_are_found(base, tmp_path, share):
    state, config, tokenizer = base
    other, _, _ = derive.load_state(DEMO / "unrelated")
    child = saved(tmp_path / "child", derive.merge([state, other], [share, 1 - share]), config, tokenizer)
    report = judge(BASE, child, parents=(str(DEMO / "unrelated"),))
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "merged")
    assert report.evidence.merge.coefficients == pytest.approx((share, 1 - share), abs=0.05)
    assert report.evidence.merge.r_squared > 0.99
    alone = judge(BASE, child).verdict
    assert (alone.class_, alone.kind) == ("derived", "merged")


@pytest.mark.slow
@pytest.mark.parametrize(
    "keep", [(0, 2, 3), *(pytest.param(kept, marks=pytest.mark.nightly) for kept in ((0, 3), (1, 2, 3)))], ids=str
)
def test_dropped_layers_are_named(base, tmp_path, keep):
    state, config, tokenizer = base
    verdict = judge(BASE, saved(tmp_path / "child", *derive.drop_layers(state, config, keep), tokenizer)).verdict
    assert (verdict.class_, verdict.kind, verdict.layer_map) == ("derived", "depth_changed", keep)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [pytest.param(derive.permute_residual, marks=pytest.mark.nightly), derive.random_symmetry]
)
def test_a_reordered_residual_stream_is_found_by_looking_deeper(base, tmp_path, make):
    state, config, tokenizer = base
    child = saved(tmp_path / "child", make(state, config, 3), config, tokenizer)
    shallow, deep = judge(BASE, child).verdict, judge(BASE, child, deep=True).verdict
    assert shallow.class_ == "no_evidence"
    assert any("--deep" in text for text in shallow.untested)
    assert (deep.class_, deep.kind) == ("derived", "re_based")


@pytest.mark.slow
@pytest.mark.parametrize(("child", "parent"), [("finetune", "continued"), ("lora", "finetune")])
def test_a_relative_given_as_parent_makes_no_merge(child, parent):
    folders = {"finetune": DEMO / "finetune", "continued": FAMILY / "continued", "lora": FAMILY / "lora"}
    report = judge(BASE, folders[child], parents=(str(folders[parent]),))
    assert report.verdict.class_ == "derived"
    assert report.verdict.kind != "merged"


@pytest.mark.slow
def test_upcycling_is_seen_from_either_side():
    verdict = judge(FAMILY / "upcycled", BASE).verdict
    assert (verdict.class_, verdict.kind) == ("derived", "upcycled")


@pytest.mark.parametrize("budget", [20_000, 70_000])
def test_too_small_a_budget_never_says_identical(budget):
    """Base and its reordered copy share norms and embeddings byte for byte; so does base with itself."""
    for other, allowed in (
        (DEMO / "permuted", {"shares_components", "derived"}),
        (BASE, {"derived", "shares_components"}),
    ):
        report = compare(BASE, str(other), QUICK, budget_bytes=budget, settings=Settings())
        if other == BASE:
            allowed |= {"identical"}
            assert report.verdict.kind in (None, "no_difference_found")
        assert report.verdict.class_ in allowed


@pytest.mark.slow
def test_a_null_that_was_used_is_named(base, tmp_path):
    state, config, tokenizer = base
    child = saved(tmp_path / "child", derive.random_symmetry(state, config, 3), config, tokenizer)
    verdict = judge(BASE, child, deep=True).verdict
    assert verdict.null is not None
    assert "default null" in verdict.null
    assert judge(BASE, DEMO / "finetune").verdict.null is None
