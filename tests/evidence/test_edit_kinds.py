"""Kinds of edits on pairs made by construction: every edit that was made is named, in order, and none that was not."""

from itertools import combinations

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive.states import mapped, matrices
from kinprint.metrics.identity import on_grid
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.red_team.disguises import averaged_layers

QUICK = Options(metrics=("pearson",))
EXPERT = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def model(name):
    folder = DEMO_MODELS / name
    return derive.load_state(folder if folder.exists() else FAMILY_MODELS / name)[0]


def truncated(state, rank):
    def cut(_, values):
        u, s, vt = np.linalg.svd(values.astype(np.float64), full_matrices=False)
        return (u[:, :rank] * s[:rank]) @ vt[:rank]

    return mapped(state, cut, matrices(state, False))


def fp8(state):
    """Round every matrix to FP8 with a scale of its own, as it is read again."""
    return mapped(
        state,
        lambda _, v: on_grid(v * (448.0 / np.abs(v).max()), "F8_E4M3") * (np.abs(v).max() / 448.0),
        matrices(state, False),
    )


def shuffled(state, config):
    return derive.stack_layers(state, config, (2, 0, 3, 1))


def with_another_layer(state, config):
    other = model("unrelated")
    return {name: other[name] if ".layers.2." in name else value for name, value in state.items()}, config


def split(state, config, order=None):
    """Cut each MLP into four experts of neighbouring neurons, or of neurons in a given order."""
    found = {}
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 4, "intermediate_size": config["intermediate_size"] // 4}
    for name, value in state.items():
        stem, _, rest = name.partition(".mlp.")
        if not rest:
            found[name] = value
            continue
        axis = 1 if rest.startswith("down") else 0
        moved = value if order is None else np.take(value, order, axis=axis)
        for expert, part in enumerate(np.split(moved, 4, axis=axis)):
            found[f"{stem}.block_sparse_moe.experts.{expert}.{EXPERT[rest.split('.')[0]]}.weight"] = part.copy()
        router = np.random.default_rng(1).standard_normal((4, config["hidden_size"]))
        found[f"{stem}.block_sparse_moe.gate.weight"] = 0.02 * router.astype(np.float32)
    return found, {**config, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", **sizes}


def folded_by_random_scales(state, config):
    """Give every norm before a block other scales, and divide the matrices behind it by the change."""
    found, rng = dict(state), np.random.default_rng(5)
    readers = {"input_layernorm": ("q_proj", "k_proj", "v_proj"), "post_attention_layernorm": ("gate_proj", "up_proj")}
    for name, value in state.items():
        stem, module = name.rsplit(".", 2)[:2]
        if module in readers:
            factors = np.exp(0.4 * rng.standard_normal(value.shape)).astype(np.float32)
            found[name] = value * factors
            for reader in state:
                if reader.startswith(f"{stem}.") and reader.split(".")[-2] in readers[module]:
                    found[reader] = found[reader] / factors
    return found, config


def then(first, second):
    """Make two changes one after the other."""
    return lambda s, c: second(*first(s, c))


def only(change):
    """Change the weights alone."""
    return lambda s, c: (change(s), c)


def mixed(other, *shares):
    return lambda s, c: (derive.merge([s, model(other)], shares), c)


def trained(name, change=lambda state: state):
    """Start from a trained descendant, whose weights are changed after."""
    return lambda s, c: (change(model(name)), c)


def int8(s, c):
    return derive.quantise(s, 8), c


def int4(s, c):
    return derive.quantise(s, 4), c


def half_zero(s, c):
    return derive.prune(s, 0.5), c


def three_layers(s, c):
    return derive.drop_layers(s, c, (0, 2, 3))


TUNED, HEAVY = "fine_tuned", "continued_pretraining"
CASES = {
    "int8": (int8, "quantised"),
    "int4": (int4, "quantised"),
    "int3": (only(lambda s: derive.quantise(s, 3)), "quantised"),
    "int4 of a fine-tune": (trained("finetune", lambda s: derive.quantise(s, 4)), TUNED, "quantised"),
    "int8 of a fine-tune": (trained("finetune", lambda s: derive.quantise(s, 8)), TUNED, "quantised"),
    "int4 of heavy training": (trained("continued", lambda s: derive.quantise(s, 4)), HEAVY, "quantised"),
    "int8 of an adapter's merge": (trained("lora", lambda s: derive.quantise(s, 8)), TUNED, "quantised"),
    "pruned by half": (half_zero, "pruned"),
    "pruned by a fifth": (only(lambda s: derive.prune(s, 0.2)), "pruned"),
    "rank 48": (only(lambda s: truncated(s, 48)), "rank_truncated"),
    "rank 24": (only(lambda s: truncated(s, 24)), "rank_truncated"),
    "merged 0.7 with a stranger": (mixed("unrelated", 0.7, 0.3), "merged"),
    "merged 0.5 with a stranger": (mixed("unrelated", 0.5, 0.5), "merged"),
    "merged 0.8 with a twin": (mixed("twin", 0.8, 0.2), "merged"),
    "merged with a relative": (mixed("continued", 0.7, 0.3), TUNED),
    "merged with a child": (mixed("finetune", 0.5, 0.5), TUNED),
    "norms folded": (derive.fold_norms, "norms_folded"),
    "norms traded for matrices": (folded_by_random_scales, "norms_folded"),
    "noise 5 %": (only(lambda s: derive.noise(s, 0.05, 8)), "noise_added"),
    "noise 30 %": (only(lambda s: derive.noise(s, 0.3, 8)), "noise_added"),
    "noise 100 %": (only(lambda s: derive.noise(s, 1.0, 8)), "noise_added"),
    "scaled up": (only(lambda s: derive.scale(s, 1.5)), "scaled"),
    "scaled down": (only(lambda s: derive.scale(s, 0.7)), "scaled"),
    "pairs rescaled": (only(lambda s: derive.rescale_pairs(s, 1.5)), "scaled"),
    "adapter of rank 4": (only(lambda s: derive.low_rank(s, 4, 0.05, 7)), "lora_merged"),
    "FP8": (only(lambda s: fp8(s)), "quantised"),
    "fine-tuned": (trained("finetune"), TUNED),
    "trained heavily": (trained("continued"), HEAVY),
    "another's norms": (lambda s, c: (derive.replace_norms(s, model("unrelated")), c), "norms_replaced"),
    "embeddings redrawn": (only(lambda s: derive.replace_embeddings(s, 9)), "vocabulary_replaced"),
    "neurons reordered": (lambda s, c: (derive.permute_neurons(s, c, 1), c), "neurons_permuted"),
    "MLPs copied into experts": (lambda s, c: derive.upcycle(s, c, 4, 0.02, 6), "upcycled"),
    "MLPs split into experts": (split, "mlp_split"),
    "layers reordered": (shuffled, "layers_reordered"),
    "a stranger's layer": (with_another_layer, "layers_replaced"),
    "a stranger's layer, int8": (then(with_another_layer, int8), "layers_replaced", "quantised"),
    "a layer dropped": (three_layers, "depth_changed"),
    "layers repeated": (lambda s, c: derive.stack_layers(s, c, (0, 1, 2, 1, 2, 3)), "depth_changed"),
    "pruned, a layer dropped": (then(half_zero, three_layers), "depth_changed", "pruned"),
    "int4, a layer dropped": (then(int4, three_layers), "depth_changed", "quantised"),
    "tuned, a layer dropped": (then(trained("finetune"), three_layers), "depth_changed", TUNED),
    "int8, layers reordered": (then(int8, shuffled), "layers_reordered", "quantised"),
    "folded, int8": (then(derive.fold_norms, int8), "norms_folded", "quantised"),
    "folded, tuned": (then(trained("finetune"), derive.fold_norms), "norms_folded", TUNED),
    "embeddings redrawn, int4": (only(lambda s: derive.quantise(derive.replace_embeddings(s, 9), 4)),
                                 "vocabulary_replaced", "quantised"),
    "merged, int8": (then(mixed("unrelated", 0.7, 0.3), int8), "merged", "quantised"),
    "pruned, int4": (then(half_zero, int4), "pruned", "quantised"),
    "FP8 of a fine-tune": (trained("finetune", lambda s: fp8(s)), TUNED, "quantised"),
    "by way of F16": (only(lambda s: derive.stored(s, "F16")), "cast"),
    "by way of F16, a layer dropped": (then(only(lambda s: derive.stored(s, "F16")), three_layers), "depth_changed", "cast"),
    "tuned, pruned": (then(trained("finetune"), half_zero), TUNED, "pruned"),
    "another's norms, pruned": (lambda s, c: half_zero(derive.replace_norms(s, model("unrelated")), c),
                                "norms_replaced", "pruned"),
    "rank 32, int8": (only(lambda s: derive.quantise(truncated(s, 32), 8)), "rank_truncated", "quantised"),
    "noise, int8": (only(lambda s: derive.quantise(derive.noise(s, 0.1, 3), 8)), "noise_added", "quantised"),
}  # fmt: skip


REPEATED, MORE = (
    "with layers repeated (A has {} layers, B has {})",
    "by leaving out or adding layers (A has {} layers, B has {})",
)
DEPTHS = {
    "stacked": (lambda s, c: derive.stack_layers(s, c, (0, 1, 2, 1, 2, 3)), "repeated", REPEATED.format(4, 6)),
    "each twice": (lambda s, c: derive.stack_layers(s, c, (0, 0, 1, 1, 2, 2, 3, 3)), "repeated", REPEATED.format(4, 8)),
    "dropped": (three_layers, "more_or_fewer", MORE.format(4, 3)),
    "dropped and repeated": (lambda s, c: derive.stack_layers(s, c, (0, 1, 1, 2)), None, "by dropping, repeating or moving layers"),
    "fewer, in another order": (lambda s, c: derive.stack_layers(s, c, (3, 0, 2)), None, "by dropping, repeating or moving layers"),
    "averaged": (averaged_layers, None, "by dropping, repeating or moving layers"),
}  # fmt: skip
BACK = {"stacked": REPEATED.format(6, 4), "each twice": REPEATED.format(8, 4), "dropped": MORE.format(3, 4)}


@pytest.mark.parametrize("case", DEPTHS)
def test_what_was_done_to_layers_is_said_as_far_as_the_map_shows_it(case, tmp_path):
    state, config, tokenizer = derive.load_state(DEMO_MODELS / "base")
    make, variant, phrase = DEPTHS[case]
    derive.save_state(tmp_path, *make(state, config), tokenizer)
    forth, back = (
        compare(str(a), str(b), QUICK, settings=Settings()).verdict
        for a, b in ((DEMO_MODELS / "base", tmp_path), (tmp_path, DEMO_MODELS / "base"))
    )
    for verdict, said in ((forth, phrase), (back, BACK.get(case, phrase))):
        assert (verdict.class_, verdict.kind, verdict.variant) == ("derived", "depth_changed", variant)
        assert f"derives from the other {said}" in verdict.sentence


SINGLES = [case for case in CASES if "," not in case][::4]
SAMPLE = ("int4 of a fine-tune", "pruned, a layer dropped", "norms folded", "merged, int8", "pruned, int4", "FP8",
          "FP8 of a fine-tune", "by way of F16", "by way of F16, a layer dropped")  # fmt: skip


def noisy(s, c):
    return derive.noise(s, 0.1, 8), c


def reordered(s, c):
    return derive.permute_neurons(s, c, 1), c


def turned(s, c):
    return derive.permute_heads(s, c, 2), c


def narrow(s, c):
    return derive.prune_neurons(s, c, 200, 5)


def strange_norms(s, c):
    return derive.replace_norms(s, model("unrelated")), c


def new_words(s, c):
    return derive.replace_embeddings(s, 9), c


def rank_32(s, c):
    return truncated(s, 32), c


EDITS = {  # how each is named, and its place among the names of several
    "depth_changed": three_layers, "width_pruned": narrow, "neurons_permuted": reordered, "heads_reordered": turned,
    "norms_folded": derive.fold_norms, "vocabulary_replaced": new_words, "norms_replaced": strange_norms,
    "fine_tuned": trained("finetune"), "lora_merged": trained("lora"), "merged": mixed("unrelated", 0.7, 0.3),
    "rank_truncated": rank_32, "noise_added": noisy, "pruned": half_zero, "quantised": int4,
}  # fmt: skip
UNTOLD = {
    # a spectrum, whiteness or a rank is hidden by what was done after: what is left is named as further training
    ("lora_merged", "quantised"): (TUNED, "quantised"),
    ("lora_merged", "pruned"): (TUNED, "pruned"),
    ("noise_added", "pruned"): (TUNED, "pruned"),
    ("noise_added", "quantised"): (
        TUNED,
        "quantised",
    ),  # noise of 10 % is one rounding error of four bits; of eight it is many
    ("norms_folded", "lora_merged"): ("norms_folded", TUNED),
}
ALONE = {"norms_replaced", "norms_folded", "merged", "rank_truncated", "lora_merged", "noise_added"}
"""Edits that are not put together with each other: each acts on what another one is recognised by."""


def pairs_of_edits():
    for one, two in combinations(EDITS, 2):
        weights = {one, two} & {"fine_tuned", "lora_merged", "merged", "rank_truncated", "noise_added", "pruned"}
        hidden = {one, two} <= ALONE or {one, two} == {"pruned", "rank_truncated"}
        if not hidden and (len(weights) < 2 or "pruned" in weights):
            yield one, two


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "two"), [*pairs_of_edits(), ("norms_folded", "lora_merged")])
@pytest.mark.parametrize("order", ["forward", "turned"])
def test_two_edits_are_both_named(base, tmp_path, one, two, order):
    first, second = (
        (two, one) if two in ("fine_tuned", "lora_merged") else (one, two)
    )  # these start from a trained child
    child = made(base, tmp_path / "child", then(EDITS[first], EDITS[second]))
    pair = (DEMO_MODELS / "base", child)
    verdict = judge(*(pair if order == "forward" else pair[::-1])).verdict
    assert (verdict.class_, verdict.kinds) == ("derived", UNTOLD.get((one, two), (one, two)))


@pytest.mark.parametrize("factor", [1.3, pytest.param(0.8, marks=pytest.mark.nightly)])
def test_what_was_scaled_and_pruned_is_no_average(base, tmp_path, factor):
    child = made(base, tmp_path / "c", then(only(lambda s: derive.scale(s, factor)), half_zero))
    assert judge(DEMO_MODELS / "base", child).verdict.kinds == ("pruned",)


@pytest.mark.parametrize(("share", "direct"), [(0.0, True), (0.2, False)])
def test_two_prunings_of_one_model_are_not_said_to_be_made_of_each_other(base, tmp_path, share, direct):
    """What the sparser one kept, the other has too: both may come from a model that is not here."""
    one = made(base, tmp_path / "one", only(lambda s: derive.prune(s, share) if share else s))
    report = judge(one, made(base, tmp_path / "two", half_zero))
    assert report.verdict.kinds == ("pruned",)
    assert ("common ancestor" in report.verdict.sentence) == (not direct)
    assert {item.direction for item in report.evidence.edits} == {"forward" if direct else None}


@pytest.fixture(scope="module")
def base():
    return derive.load_state(DEMO_MODELS / "base")


def judge(a, b, **chosen):
    return compare(str(a), str(b), QUICK, **chosen, settings=Settings())


def made(base, folder, make, dtype="BF16"):
    state, config, tokenizer = base
    derive.save_state(folder, *make(state, config), tokenizer, dtype=dtype)
    return folder


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in SINGLES or case in SAMPLE else pytest.mark.nightly) for case in CASES],
)
def test_what_was_done_is_named_and_nothing_else(base, tmp_path, case):
    make, *kinds = CASES[case]
    verdict = judge(DEMO_MODELS / "base", made(base, tmp_path / "child", make)).verdict
    assert (verdict.class_, list(verdict.kinds)) == ("derived", kinds)
    together = kinds in ([TUNED, "quantised"], [HEAVY, "quantised"])
    assert verdict.kind == ("trained_and_quantised" if together else kinds[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in SAMPLE[1:2] else pytest.mark.nightly)
        for case, (_, *kinds) in CASES.items()
        if kinds[0] != "mlp_split"
    ],
)
def test_kinds_do_not_depend_on_the_order(base, tmp_path, case):
    make, *kinds = CASES[case]
    verdict = judge(made(base, tmp_path / "child", make), DEMO_MODELS / "base").verdict
    assert (verdict.class_, list(verdict.kinds)) == ("derived", kinds)


@pytest.mark.parametrize(("dtype", "kinds"), [("F16", ("cast",)), ("F32", ("cast",))])
def test_another_number_format_is_a_cast(base, tmp_path, dtype, kinds):
    assert judge(DEMO_MODELS / "base", made(base, tmp_path / "c", lambda s, c: (s, c), dtype)).verdict.kinds == kinds


def test_folding_in_another_number_format_names_both(base, tmp_path):
    verdict = judge(DEMO_MODELS / "base", made(base, tmp_path / "c", derive.fold_norms, "F32")).verdict
    assert verdict.kinds == ("norms_folded", "cast")
    assert "merged" not in verdict.sentence
    assert "folded" in verdict.sentence


def test_neurons_dealt_to_experts_in_any_order_are_a_split(base, tmp_path):
    order = np.random.default_rng(3).permutation(base[1]["intermediate_size"])
    child = made(base, tmp_path / "c", lambda s, c: split(s, c, order))
    verdict = judge(DEMO_MODELS / "base", child).verdict
    assert "upcycled" not in verdict.kinds
    assert verdict.kinds in ((), ("mlp_split",))  # no kind where the experts' places hide the relation of the layers


@pytest.mark.parametrize("share", [0.3, pytest.param(0.15, marks=pytest.mark.nightly)])
def test_a_spherical_merge_is_not_called_training_alone(base, tmp_path, share):
    """Its factor is another one for norms than for matrices: neither an average nor surely training."""
    child = made(base, tmp_path / "c", lambda s, c: (derive.slerp(s, model("unrelated"), share), c))
    verdict = judge(DEMO_MODELS / "base", child).verdict
    assert "merged" not in verdict.kinds
    assert "mixing in another model" in verdict.sentence or verdict.kind == TUNED


def test_a_merge_with_a_part_left_alone_is_no_average(base, tmp_path):
    def make(s, c):
        merged = derive.merge([s, model("unrelated")], [0.7, 0.3])
        return {name: s[name] if "o_proj" in name else value for name, value in merged.items()}, c

    assert "merged" not in judge(DEMO_MODELS / "base", made(base, tmp_path / "c", make)).verdict.kinds


def test_quantised_matrices_with_trained_norms_are_not_quantised_alone(base, tmp_path):
    def make(s, c):
        return derive.replace_norms(derive.quantise(s, 4), model("finetune")), c

    verdict = judge(DEMO_MODELS / "base", made(base, tmp_path / "c", make)).verdict
    assert verdict.kind != "quantised"
    assert "norms" in " ".join(verdict.reasons)


def half_of_each(s, c):
    return derive.frankenmerge([s, model("unrelated")], c, [(0, 0), (0, 1), (1, 2), (1, 3)])


UNTRUE = {"re_based", "vocabulary_replaced", "norms_replaced"}


@pytest.mark.parametrize(
    ("parent", "make", "kinds"),
    [
        pytest.param("unrelated", half_of_each, ("layers_replaced",), id="the other half of the layers"),
        pytest.param("base", mixed("unrelated", 0.1, 0.9), ("merged",), id="a tenth mixed in"),
        pytest.param("base", lambda s, c: (derive.dare(s, model("finetune"), 0.9, 3), c), (HEAVY,), id="DARE"),
    ],
)
def test_a_deeper_look_says_nothing_untrue(base, tmp_path, parent, make, kinds):
    """Dimensions in their places are not moved, and what hardly shows in any part was not replaced in one."""
    verdict = judge(DEMO_MODELS / parent, made(base, tmp_path / "child", make), deep=True).verdict
    assert not UNTRUE & {*verdict.kinds}
    assert (verdict.class_, verdict.kinds) == ("derived", kinds)


# -- with parents given ------------------------------------------------------------------------------------------------


def merged_report(base, tmp_path, share, parent, first="base"):
    make = mixed("unrelated", share, 1 - share)
    given = DEMO_MODELS / parent if (DEMO_MODELS / parent).exists() else FAMILY_MODELS / parent
    return judge(DEMO_MODELS / first, made(base, tmp_path / "child", make), parents=(str(given),))


@pytest.mark.parametrize("share", [0.7, pytest.param(0.4, marks=pytest.mark.nightly)])
def test_coefficients_of_a_merge_hold_within_their_errors(base, tmp_path, share):
    report = merged_report(base, tmp_path, share, "unrelated")
    merge = report.evidence.merge
    assert report.verdict.kind == "merged"
    assert merge.alternative is None
    for found, error, true in zip(merge.coefficients, merge.standard_errors, (share, 1 - share), strict=True):
        assert 0.0 < error < 0.01
        assert abs(found - true) < max(5 * error, 1e-3)
    assert "±" in report.verdict.sentence
    assert "common ancestor" not in report.verdict.sentence


MERGES = {
    "a model and its fine-tune": (("base", "finetune"), (0.85, 0.15)),
    "two children": (("finetune", "continued"), (0.3, 0.7)),
    "an adapter and a fine-tune": (("lora", "finetune"), (0.5, 0.5)),
    "three": (("base", "unrelated", "twin"), (0.5, 0.2, 0.3)),
    "three, two of them near": (("base", "finetune", "unrelated"), (0.4, 0.3, 0.3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [case if case in ("a model and its fine-tune", "three") else
                                  pytest.param(case, marks=pytest.mark.nightly) for case in MERGES])  # fmt: skip
def test_coefficients_hold_within_twice_their_errors_whatever_the_parents(base, tmp_path, case):
    """Without the alternative of a relative, what is stated holds; near parents have wide errors, as rounding hides them."""
    names, shares = MERGES[case]
    places = [str((DEMO_MODELS if (DEMO_MODELS / name).exists() else FAMILY_MODELS) / name) for name in names]
    child = made(base, tmp_path / "child", only(lambda _: derive.merge([model(name) for name in names], shares)))
    merge = judge(places[0], child, parents=tuple(places[1:])).evidence.merge
    assert merge.alternative is None
    for found, error, true in zip(merge.coefficients, merge.standard_errors, shares, strict=True):
        assert abs(found - true) <= 2.0 * error < 0.05


@pytest.mark.slow
def test_a_relative_in_place_of_the_true_parent_leaves_the_alternative_open(base, tmp_path):
    report = merged_report(base, tmp_path, 0.7, "unrelated", first="finetune")
    merge = report.evidence.merge
    assert merge.alternative is not None
    assert "relative" in merge.alternative
    assert report.verdict.kind == "merged"
    assert "relative" in report.verdict.sentence
    assert "not among those given" not in report.verdict.sentence
    assert abs(merge.coefficients[0] - 0.7) < 0.1
