"""Edits that a red team made: what a report says of them is so, in both orders, and what it does not know is left open."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive.states import EMBEDDINGS, HEAD, mapped
from kinprint.results.findings import NO_EVIDENCE, SHARES_COMPONENTS, UNCLEAR
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS, FAMILY_MODELS

BASE = DEMO_MODELS / "base"


@pytest.fixture(scope="module")
def base():
    return derive.load_state(BASE)


@pytest.fixture
def judge(base, tmp_path):
    """Compare two models, each (state, config, tokenizer) or the base, in both orders, which have to agree; or with parents."""

    def folder(name, model, dtype):
        derive.save_state(tmp_path / name, *model, dtype=dtype)
        return str(tmp_path / name)

    def judged(one, other, *parents, dtype="BF16", deep=False, experts=1):
        paths = [folder(f"model{n}", model, dtype) for n, model in enumerate((one, other, *parents))]
        chosen = Options(metrics=("pearson",), parents=tuple(paths[2:]), deep=deep, experts=experts)
        reports = [compare(*pair, chosen, settings=Settings()) for pair in ((paths[0], paths[1]), (paths[1], paths[0]))]
        first, second = (report.verdict for report in reports)
        assert parents or (first.class_, first.kinds, first.sentence) == (second.class_, second.kinds, second.sentence)
        return reports[0]

    return judged


def family(name):
    return derive.load_state(FAMILY_MODELS / name if (FAMILY_MODELS / name).is_dir() else DEMO_MODELS / name)


def states(report):
    return {item.component: item.state for item in report.evidence.components}


def test_parts_of_which_a_tenth_was_mixed_in_are_not_called_different(base, judge):
    mixed = derive.merge([family("unrelated")[0], base[0]], (0.9, 0.1))
    report = judge(base, (mixed, *base[1:]))
    assert report.verdict.kinds == ("merged",)
    assert states(report)["norms"] == states(report)["head"] == "not tested"


def test_a_part_in_which_a_test_stands_out_is_not_called_different(base, judge):
    """What DARE leaves of the head correlates at 0.35, nine standard deviations, and just misses the level of a part."""
    report = judge(base, (derive.dare(base[0], family("finetune")[0], 0.5, 3), *base[1:]), dtype="F32")
    assert states(report)["head"] == "not tested"
    redrawn = mapped(base[0], lambda _, v: np.random.default_rng(2).standard_normal(v.shape) * v.std(), {HEAD})
    assert states(judge(base, (redrawn, *base[1:])))["head"] == "not shared"


def test_a_layer_in_anothers_place_is_moved_whichever_model_comes_first(base, judge):
    state, config = derive.stack_layers(base[0], base[1], (0, 1, 1, 3))
    assert judge(base, (state, config, base[2])).verdict.kinds == ("depth_changed",)


def test_an_update_of_a_model_on_a_grid_is_not_called_rounding(base, judge):
    coded = derive.quantise(base[0], 4)
    updated = derive.low_rank(coded, 4, 0.05, 3)
    report = judge((coded, *base[1:]), (updated, *base[1:]), dtype="F32")
    assert "lora_merged" in report.verdict.kinds
    assert "rank 4" in report.verdict.sentence


def resized(model, neurons):
    """Keep some neurons of each MLP, or add random ones between them; those kept stay in their order."""
    state, config, tokenizer = model
    rng, found = np.random.default_rng(1), dict(state)
    order = np.sort(rng.choice(256, min(neurons, 256), replace=False))
    order = np.insert(order, np.sort(rng.choice(256, neurons - len(order))), 256 + np.arange(neurons - len(order)))
    for name in (name for name in state if ".mlp." in name):
        axis = 1 if "down" in name else 0
        more = rng.standard_normal(state[name].shape).astype(np.float32) * state[name].std()
        found[name] = np.concatenate([state[name], more], axis=axis).take(order, axis=axis)
    return found, {**config, "intermediate_size": neurons}, tokenizer


@pytest.mark.parametrize("neurons", [192, 320])
def test_neurons_that_keep_their_order_are_not_called_reordered(base, judge, neurons):
    report = judge(base, resized(base, neurons), deep=True)
    assert report.verdict.kinds == ("width_pruned",)
    assert "by removing or adding MLP neurons" in report.verdict.sentence
    assert "reorder" not in report.verdict.sentence


def test_two_experts_made_one_are_no_neurons_removed(judge):
    state, config, tokenizer = family("upcycled")
    found = {}
    for name, value in state.items():
        before, is_expert, rest = name.partition(".experts.")
        number, _, part = rest.partition(".")
        if not is_expert:
            found[name] = value[:3] if name.endswith("block_sparse_moe.gate.weight") else value
        elif number == "0":
            found[name] = 0.5 * (value + state[f"{before}.experts.3.{part}"])
        elif number != "3":
            found[name] = value
    report = judge((state, config, tokenizer), (found, {**config, "num_local_experts": 3}, tokenizer), deep=True)
    assert not {"width_pruned", "experts_removed"} & set(report.verdict.kinds)


@pytest.mark.parametrize("given", ["twice", "with A"])
def test_a_parent_that_is_given_twice_counts_once(base, judge, given):
    other = family("indep")
    parents = (other, other) if given == "twice" else (base, other)
    report = judge(base, (derive.merge([base[0], other[0]], (0.6, 0.4)), *base[1:]), *parents, dtype="F32")
    assert report.evidence.merge.coefficients == pytest.approx((0.6, 0.4), abs=1e-3)
    assert "weighted merge" in report.verdict.sentence


@pytest.mark.parametrize("bits", [4, 8])
def test_the_grid_of_a_quantised_merge_leaves_no_alternative_open(base, judge, bits):
    merged = derive.merge([base[0], family("indep")[0]], (0.6, 0.4))
    report = judge(base, (derive.quantise(merged, bits), *base[1:]), family("indep"), dtype="F32")
    assert report.evidence.merge.alternative is None
    assert report.verdict.kinds == ("merged", "quantised")
    relative = judge(base, (derive.quantise(merged, bits), *base[1:]), family("twin"), dtype="F32")
    assert relative.evidence.merge.alternative is not None


def test_heads_of_which_half_were_drawn_anew_are_not_called_reordered(base, judge):
    """What is left of the others agrees over all heads together, too, and no further than in place."""
    state, config, tokenizer = base
    inner = config["hidden_size"] // config["num_attention_heads"]
    shares = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1}  # the axis along which the heads lie

    def half(name, values):
        if (axis := shares.get(name.split(".")[-2])) is None:
            return values
        heads = np.moveaxis(values.copy(), axis, 0)
        count = len(heads) // inner // 2 * inner
        heads[:count] = np.random.default_rng(3).standard_normal(heads[:count].shape) * values.std()
        return np.moveaxis(heads, 0, axis)

    redrawn = mapped(state, half, set(state))
    assert "heads_reordered" not in judge(base, (redrawn, config, tokenizer)).verdict.kinds
    reordered = derive.permute_heads(state, config, 5)
    assert judge(base, (reordered, config, tokenizer)).verdict.kinds == ("heads_reordered",)


def test_an_expert_that_two_mixtures_have_in_common_is_no_common_start(judge):
    """Each of its own model, and one expert of a third's MLPs in both: a common start would show in the others and in attention."""
    (own, config, tokenizer), (other, _, theirs), (third, *_) = map(family, ("base", "unrelated", "indep"))
    mixtures = [derive.upcycle(state, config, 3, 0.3, seed)[0] for seed, state in enumerate((own, other, third))]
    made = derive.upcycle(own, config, 3, 0.3, 0)[1]
    taken = {name: values for name, values in mixtures[2].items() if ".experts.1." in name}
    pair = [(mixture | taken, made, words) for mixture, words in zip(mixtures, (tokenizer, theirs), strict=False)]
    report = judge(*pair, experts=3)
    assert (report.verdict.class_, report.verdict.variant) == (SHARES_COMPONENTS, UNCLEAR)
    assert "agree in experts (in 4 of 12 places)" in report.verdict.sentence
    assert "whether these experts were taken over" in report.verdict.sentence
    unread = judge(*pair).verdict
    assert unread.class_ == NO_EVIDENCE
    assert unread.untested[0] == "2 of 3 experts of each layer: not compared in place (see --experts)"


def test_without_tokenizers_rows_that_differ_may_be_tokens_renumbered(base, judge):
    state, config, tokenizer = base
    order = np.random.default_rng(1).permutation(config["vocab_size"])
    moved = mapped(state, lambda _, values: values[order], {name for name in state if name in (HEAD, EMBEDDINGS)})
    unknown = judge((state, config, None), (moved, config, None))
    assert unknown.verdict.kinds == ("vocabulary_replaced",)
    assert "or its tokens renumbered" in unknown.verdict.sentence
    known = judge(base, (moved, config, tokenizer)).verdict  # as the tokenizer says, each token has another row
    assert "with its token embeddings replaced; or both" in known.sentence
