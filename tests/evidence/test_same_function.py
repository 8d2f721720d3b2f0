"""Models that compute the same function are told so, by running both; a model that was changed ever so little is not."""

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.evidence.same_function import RETRAINED, check_function
from kinprint.lab.red_team.models import deepened
from kinprint.lab.zoo import derive
from kinprint.model.model import open_models
from kinprint.model.tokenizers import compare_tokenizers
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.keeping import CHANGES, negated
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.red_team.disguises import more_neurons, widened


def renumbered(state, config, tokenizer):
    """Give the tokens other numbers."""
    order = np.random.default_rng(1).permutation(config["vocab_size"])
    tables = {name: state[name][order] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    places = {int(old): new for new, old in enumerate(order)}
    vocabulary = {token: places[number] for token, number in tokenizer["model"]["vocab"].items()}
    added = [entry | {"id": places[entry["id"]]} for entry in tokenizer.get("added_tokens", [])]
    model = tokenizer["model"] | {"vocab": vocabulary}
    return state | tables, config, tokenizer | {"model": model, "added_tokens": added}


def plainly(change):
    return lambda state, config, tokenizer: (*change(state, config), tokenizer)


KEEPING = {
    **{name: plainly(change) for name, change in CHANGES.items()},
    "norms folded": plainly(derive.fold_norms),
    "values rotated": plainly(lambda s, c: (derive.mix_values(s, c, 3), c)),
    "values rescaled": plainly(lambda s, c: (derive.rescale_values(s, c, 3), c)),
    "q and k rescaled": plainly(lambda s, c: (derive.rescale_pairs(s, 1.5), c)),
    "neurons negated": plainly(lambda s, c: (negated(s, c, neurons=True), c)),
    "values negated": plainly(lambda s, c: (negated(s, c, values=True), c)),
    "neurons split": plainly(lambda s, c: more_neurons(s, c, 16, idle=False)),
    "neurons idle": plainly(lambda s, c: more_neurons(s, c, 16, idle=True)),
    "widened": plainly(widened),
    "values rotated, neurons rescaled": plainly(
        lambda s, c: (derive.mix_values(derive.rescale_neurons(s, c, 3), c, 3), c)
    ),
    "tokens renumbered": renumbered,
    "cast": lambda s, c, t: (s, c, t),
}
CI = {
    (6, "all"),
    (6, "widened"),
    (6, "norms folded"),
    (6, "neurons split"),
    (12, "rotary pairs turned"),
    (24, "rotated"),
}
FAST = {(6, "rotated"), (6, "values rotated"), (6, "tokens renumbered"), (6, "neurons negated"), (6, "heads")}


def checked(tmp_path, one, two, dtypes=("BF16", "BF16"), *, swapped=False, **chosen):
    """Return what running two models shows; the same, the other way round."""
    for name, model, dtype in zip("ab", (one, two), dtypes, strict=True):
        derive.save_state(tmp_path / name, *model, dtype)
    with Session(Settings(), budget_bytes=None) as session:
        a, b = open_models([str(tmp_path / name) for name in "ab"], session)
        _, tokens = compare_tokenizers(a, b, share=1.0)
        found = check_function((a, b), tokens, {}, Options(), **chosen)
        if swapped:
            back = check_function((b, a), [pair[::-1] for pair in tokens], {}, Options(), **chosen)
            assert (back.same, back.reason) == (found.same, found.reason)
            assert (back.rounding or 0.0) == pytest.approx(found.rounding or 0.0, rel=1e-6)
        return found


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        pytest.param(
            layers,
            name,
            marks=() if (layers, name) in FAST else pytest.mark.slow if (layers, name) in CI else pytest.mark.nightly,
        )
        for layers in (6, 12, 24)
        for name in KEEPING
    ],
)
def test_the_function_is_the_same(layers, name, tmp_path):
    model = deepened(DEMO_MODELS / "base", layers)
    for dtypes in (("BF16", "BF16"), ("BF16", "F32"), ("F32", "F32")):
        found = checked(tmp_path, model, KEEPING[name](*model), dtypes, swapped=dtypes == ("BF16", "F32"))
        assert found.same, (dtypes, found)
        assert (found.positions, found.tokens) == (64, model[1]["vocab_size"])


def tuned(state, config, tokenizer):
    """Take a thousandth of a fine-tuning's change."""
    other = derive.load_state(DEMO_MODELS / "finetune")[0]
    return derive.merge([state, other], [0.999, 0.001]), config, tokenizer


def zeroed(state, config, tokenizer):
    up = "model.layers.1.mlp.up_proj.weight"
    return state | {up: state[up] * (np.arange(len(state[up])) != 5)[:, None]}, config, tokenizer


def weak_neuron(state, config, tokenizer):
    """Zero a neuron that does hardly anything, of which rounding the whole matrix would hide the loss."""
    up, down = (f"model.layers.1.mlp.{part}_proj.weight" for part in ("up", "down"))
    weak = (np.arange(len(state[up])) == 5)[:, None]
    state = state | {down: np.where(weak.T, 0.01 * state[down], state[down])}
    return state, state | {up: np.where(weak, 0.0, state[up]).astype(np.float32)}, config, tokenizer


def one_head(state, config, tokenizer):
    other = derive.load_state(DEMO_MODELS / "unrelated")[0]
    rows = np.arange(len(state["model.layers.1.self_attn.k_proj.weight"]))[:, None] < config["head_dim"]
    names = [f"model.layers.1.self_attn.{part}_proj.weight" for part in "kv"]
    return state | {name: np.where(rows, other[name], state[name]) for name in names}, config, tokenizer


def one_token(state, config, tokenizer):
    table = state["model.embed_tokens.weight"].copy()
    table[9] = table[10]
    return state | {"model.embed_tokens.weight": table}, config, tokenizer


CHANGING = {
    "tuned a little": tuned,
    "a neuron zeroed": zeroed,
    "a head of another model": one_head,
    "noise": lambda s, c, t: (derive.noise(s, 1e-3, 5), c, t),
    "little noise": lambda s, c, t: (derive.noise(s, 1e-4, 5), c, t),
    "a neuron zeroed, rotated": lambda s, c, t: (*derive.rotate_residual(zeroed(s, c, t)[0], c, 3), t),
    "a neuron zeroed, reordered": lambda s, c, t: (derive.random_symmetry(zeroed(s, c, t)[0], c, 3), c, t),
    "other rotary base": lambda s, c, t: (s, c | {"rope_theta": 20_000.0}, t),
    "tokens renumbered in the tokenizer alone": lambda s, c, t: (s, *renumbered(s, c, t)[1:]),
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_small_change_is_not_the_same_function(name, tmp_path):
    model = derive.load_state(DEMO_MODELS / "base")
    for dtypes in (("BF16", "BF16"), ("F32", "F32"), ("BF16", "F32")):
        found = checked(tmp_path, model, CHANGING[name](*model), dtypes, swapped=True)
        assert found.same is False, (dtypes, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["child_of_child", "lora", "continued", "disguised_tuned", "rotated_tuned", "norms_reset"]
)
def test_trained_children_compute_something_else(name, tmp_path):
    found = checked(tmp_path, derive.load_state(DEMO_MODELS / "base"), derive.load_state(FAMILY_MODELS / name))
    assert found.same is False


def test_a_model_that_cannot_be_run_is_not_checked(tmp_path):
    model = derive.load_state(DEMO_MODELS / "base")
    scaled = (model[0], model[1] | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, model[2])
    found = checked(tmp_path, model, scaled)
    assert (found.same, found.difference) == (None, None)
    assert "rope_scaling" in found.said
    assert found.said.phrase("ko").lang == "ko"
    found = checked(tmp_path, model, model, allowance=1000)
    assert found.same is None
    assert "reading both models whole takes" in found.said


def test_tokens_that_one_model_lacks_are_said(tmp_path):
    model = derive.load_state(DEMO_MODELS / "base")
    found = checked(tmp_path, model, derive.prune_vocabulary(*model, 400, 3))
    assert (found.same, found.tokens, found.all_tokens) == (True, 400, False)
    assert "of the tokens that both have" in found.said


def test_what_stands_in_place_unchanged_was_not_rounded(tmp_path):
    before, after, *rest = weak_neuron(*derive.load_state(DEMO_MODELS / "base"))
    found = checked(tmp_path, (before, *rest), (after, *rest))
    assert found.difference < 1e-3
    assert found.same is False


def test_weights_in_place_must_be_rounded_number_by_number(tmp_path):
    state, config, tokenizer = derive.load_state(DEMO_MODELS / "base")
    name = "model.layers.2.mlp.down_proj.weight"
    nudged = state[name].copy()
    nudged[3, 7] *= 1.01  # one number, by one step of BF16 or two
    found = checked(tmp_path, (state, config, tokenizer), (state | {name: nudged}, config, tokenizer))
    assert (found.same, found.reason) == (False, RETRAINED)


# -- what reports say ----------------------------------------------------------------------------------------------------


def compared(tmp_path, one, two, dtype="BF16"):
    for name, model in (("a", one), ("b", two)):
        derive.save_state(tmp_path / name, *model, dtype if name == "b" else "BF16")
    return compare(tmp_path / "a", tmp_path / "b", Options(metrics=("pearson",)), settings=Settings())


@pytest.mark.parametrize(
    ("layers", "name", "kinds"),
    [
        (6, "tokens renumbered", "same_function"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (6, "neurons idle", "same_function"),
                (12, "rotary pairs turned", "same_function"),
                (6, "values rotated, neurons rescaled", "heads_reordered, rescaled"),
            )
        ),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                (6, "neurons split", "same_function"),
                (12, "neurons rescaled", "rescaled"),
                (12, "q and k rescaled", "scaled"),
                (12, "heads", "heads_reordered"),
                (24, "neurons", "neurons_permuted"),
                (24, "neurons negated", "units_negated"),
                (24, "values rotated", "heads_reordered"),
            )
        ),
    ],
)
def test_a_report_says_so(layers, name, kinds, tmp_path):
    model = deepened(DEMO_MODELS / "base", layers)
    model = derive.stored(model[0], "BF16"), *model[1:]
    report = compared(tmp_path, model, KEEPING[name](*model))
    assert report.evidence.function.same
    assert (report.verdict.class_, ", ".join(report.verdict.kinds)) == ("derived", kinds)
    assert "up to rounding" in report.verdict.sentence
    assert any("both compute the same function" in reason for reason in report.verdict.reasons)
    assert {item.state for item in report.evidence.components} <= {"shared", "not tested"}
    assert report.verdict.sentence.phrase("ko").lang == "ko"


def test_a_fine_tuned_model_is_not_run(judge, folder):
    """Gates in place that changed are enough to know: nothing more is read."""
    assert judge(folder("base"), folder("finetune")).evidence.function is None


def test_another_kind_of_edit_is_named_only_where_the_function_changed(tmp_path):
    model = derive.load_state(DEMO_MODELS / "base")
    report = compared(tmp_path, model, zeroed(*model), "F32")
    assert report.evidence.function.same is False
    assert "cast" not in report.verdict.kinds
