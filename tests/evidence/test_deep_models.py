"""Deep models: every change that keeps the function is derived at any depth, and what was not tested is not called unshared."""

from itertools import product

import numpy as np
import pytest

from kinprint.comparison.pipeline import compare
from kinprint.lab.red_team.models import deepened
from kinprint.lab.zoo import derive
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.keeping import CHANGES
from support.places import DEMO_MODELS, FAMILY_MODELS
from support.red_team.disguises import more_neurons, widened

PLAIN = {"neurons", "heads", "signs", "neurons rescaled", "rotary pairs turned"}  # found without --deep
CI = {(24, "heads"), (6, "all")}


def marked(case, in_ci):
    """A few cases of a grid in CI, all of them at night."""
    return pytest.param(*case, marks=pytest.mark.slow if in_ci else pytest.mark.nightly)


OTHERS = ("unrelated", "indep", "twin", "distilled_1")


def judged(tmp_path, one, two, *, deep):
    for name, model in (("a", one), ("b", two)):
        derive.save_state(tmp_path / name, *model)
    return compare(tmp_path / "a", tmp_path / "b", Options(metrics=("pearson",), deep=deep), settings=Settings())


def parts_of(report):
    return {item.component: item for item in report.evidence.components}


@pytest.mark.parametrize(
    ("layers", "name"),
    [marked((layers, name), (layers, name) in CI) for layers in (6, 12, 24) for name in CHANGES],
)
def test_a_change_that_keeps_the_function_is_derived_at_any_depth(layers, name, tmp_path):
    state, config, tokenizer = deepened(DEMO_MODELS / "base", layers)
    child = (*CHANGES[name](state, config), tokenizer)
    report = judged(tmp_path, (state, config, tokenizer), child, deep=name not in PLAIN)
    assert report.verdict.class_ == "derived"
    parts = parts_of(report)
    assert parts["mlp"].shared == parts["mlp"].tested == layers
    assert parts["attention"].state == "shared"
    assert "not shared" not in {item.state for item in parts.values()}


@pytest.mark.parametrize("other", [marked((name,), in_ci=False) for name in OTHERS])
def test_independent_deep_models_stay_unaccused(other, tmp_path):
    folder = DEMO_MODELS / other if other == "unrelated" else FAMILY_MODELS / other
    state, config, tokenizer = deepened(folder, 12, seed=2)
    child = (*derive.all_symmetries(state, config, 4), tokenizer)
    report = judged(tmp_path, deepened(DEMO_MODELS / "base", 12), child, deep=True)
    assert report.verdict.class_ == "no_evidence"
    assert report.verdict.log10_p > -4.0


def _attention_of(other):
    """Take a model's attention from another, or draw it anew."""

    def change(state):
        rng = np.random.default_rng(5)
        return {
            name: value
            if ".self_attn." not in name
            else (rng.standard_normal(value.shape) * value.std()).astype(np.float32)
            if other is None
            else other[name]
            for name, value in state.items()
        }

    return change


@pytest.mark.parametrize(
    ("source", "turned"),
    [marked((None, False), True), marked(("unrelated", True), True), marked(("unrelated", False), False)]
    + [marked((name, True), False) for name in ("indep", "twin")],
)
def test_attention_that_was_replaced_is_not_shared(source, turned, tmp_path):
    """The products over heads would have seen a copy, in any basis: only therefore may attention be called not shared."""
    base = derive.load_state(DEMO_MODELS / "base")
    folder = DEMO_MODELS if source in (None, "unrelated") else FAMILY_MODELS
    state = _attention_of(None if source is None else derive.load_state(folder / source)[0])(base[0])
    child = derive.rotate_residual(state, base[1], 3) if turned else (state, base[1])
    report = judged(tmp_path, base, (*child, base[2]), deep=turned)
    assert report.verdict.class_ == "derived"
    assert (parts_of(report)["attention"].state, parts_of(report)["mlp"].state) == ("not shared", "shared")


@pytest.mark.slow
def test_a_budget_too_small_for_all_layers_is_said(tmp_path):
    """Neurons of some layers are matched; the verdict rests on those, and says how many they are."""
    state, config, tokenizer = deepened(DEMO_MODELS / "base", 24)
    child = (derive.random_symmetry(state, config, 3), config, tokenizer)
    for name, model in (("a", (state, config, tokenizer)), ("b", child)):
        derive.save_state(tmp_path / name, *model)
    options = Options(metrics=("pearson",), deep=True, budget_bytes=5_000_000)
    report = compare(tmp_path / "a", tmp_path / "b", options, settings=Settings())
    mlp = parts_of(report)["mlp"]
    assert report.verdict.class_ == "derived"
    assert mlp.shared == mlp.tested < 24
    assert any("layers tested match, of 24 in all" in reason for reason in report.verdict.reasons)


# -- widths, depths and numbers of neurons that differ, in another basis -------------------------------------------------


def inserted(state, config):
    """Insert layers drawn anew, after every third."""
    order = sorted([*range(config["num_hidden_layers"]), *range(2, config["num_hidden_layers"], 3)])
    state, config = derive.stack_layers(state, config, order)
    rng = np.random.default_rng(9)
    fresh = [f".layers.{place}." for place in range(1, len(order)) if order[place] == order[place - 1]]
    return {
        name: (rng.standard_normal(value.shape) * value.std()).astype(np.float32)
        if value.ndim == 2 and any(at in name for at in fresh)
        else value
        for name, value in state.items()
    }, config


def dropped(state, config):
    """Leave out every fourth layer."""
    return derive.drop_layers(state, config, [at for at in range(config["num_hidden_layers"]) if at % 4 != 3])


def shuffled(state, config):
    """Put the layers in another order."""
    order = np.random.default_rng(4).permutation(config["num_hidden_layers"])
    return derive.stack_layers(state, config, order.tolist())


def narrowed(state, config, keep=80):
    """Keep the directions of the residual stream that are written most."""
    state, config = derive.fold_norms(state, config)
    written = [
        value.astype(np.float64)
        for name, value in state.items()
        if name.endswith(("down_proj.weight", "o_proj.weight"))
    ]
    V = np.linalg.eigh(sum(value @ value.T for value in written))[1][:, ::-1][:, :keep]

    def change(name, value):
        if value.ndim == 1:
            return np.ones(keep, np.float32)
        return (V.T @ value if derive.symmetry.residual_axis(name) == 0 else value @ V).astype(np.float32)

    return {name: change(name, value) for name, value in state.items()}, {**config, "hidden_size": keep}


def pruned(state, config, keep=80):
    """Keep some residual dimensions."""
    kept = np.sort(np.random.default_rng(8).permutation(config["hidden_size"])[:keep])
    axes = {name: derive.symmetry.residual_axis(name) for name in state}
    state = {name: np.ascontiguousarray(value.take(kept, axis=axes[name])) for name, value in state.items()}
    return state, {**config, "hidden_size": keep}


SHAPES = {
    "split": lambda s, c: more_neurons(s, c, 64, idle=False),
    "idle": lambda s, c: more_neurons(s, c, 64, idle=True),
    "widened": widened,
    "narrowed": narrowed,
    "pruned": pruned,
    "inserted": inserted,
    "dropped": dropped,
    "shuffled": shuffled,
}
MOVED = {"inserted": "depth_changed", "dropped": "depth_changed", "shuffled": "layers_reordered"}


def own_bases(state, config, seed):
    """Reorder neurons and put every layer into a basis of its own; what lies between layers would have to undo that."""
    state, config = derive.fold_norms(derive.permute_neurons(state, config, seed), config)
    result = dict(state)
    for layer in range(config["num_hidden_layers"]):
        turned, _ = derive.rotate_residual(state, config, 100 * seed + layer)
        result |= {name: value for name, value in turned.items() if f".layers.{layer}." in name}
    return result, config


BASES = {"rotated": derive.rotate_residual, "all": derive.all_symmetries, "own bases": own_bases}


def reshaped(folder, layers, name, basis, seed=1, noise=0.0):
    state, config, tokenizer = deepened(folder, layers, seed)
    if noise:
        state = derive.noise(state, noise, 77)
    return (*BASES[basis](*SHAPES[name](state, config), 3), tokenizer)


CI_SHAPES = {(12, "inserted", "all", 0.2), (6, "shuffled", "own bases", 0.0)}


@pytest.mark.parametrize(
    ("layers", "name", "basis", "noise"),
    [
        marked(case, case in CI_SHAPES)
        for case in product((6, 8, 12, 24), SHAPES, BASES, (0.0, 0.2))
        if case[0] == 8 or case[1] in MOVED
    ],
)
def test_another_shape_in_another_basis_is_derived(layers, name, basis, noise, tmp_path):
    child = reshaped(DEMO_MODELS / "base", layers, name, basis, noise=noise)
    report = judged(tmp_path, deepened(DEMO_MODELS / "base", layers), child, deep=True)
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "re_based")
    if name in MOVED and basis != "own bases":  # only one basis tells a layer from its noisy copy in another one
        assert MOVED[name] in report.verdict.kinds
    states = {item.component: item.state for item in report.evidence.components}
    assert {states["mlp"], states["attention"]} <= {"shared", "partly shared"}
    assert "partly shared" not in states.values() or name == "inserted"


CI_NEGATIVES = {(8, "inserted", "all", "twin"), (8, "shuffled", "own bases", "unrelated")}


@pytest.mark.parametrize(
    ("layers", "name", "basis", "other"),
    [marked(case, case in CI_NEGATIVES) for case in product((8, 12), SHAPES, ("all", "own bases"), OTHERS)],
)
def test_another_shape_of_an_independent_model_is_not(layers, name, basis, other, tmp_path):
    folder = DEMO_MODELS / other if other == "unrelated" else FAMILY_MODELS / other
    child = reshaped(folder, layers, name, basis, seed=2)
    report = judged(tmp_path, deepened(DEMO_MODELS / "base", layers), child, deep=True)
    assert report.verdict.class_ == "no_evidence"
    assert report.verdict.log10_p > -4.0


@pytest.mark.slow
def test_the_layer_map_of_a_disguised_model_is_found(tmp_path):
    """Layers put in another order, all of it in another basis: the map says which is which."""
    state, config, tokenizer = deepened(DEMO_MODELS / "base", 6)
    child = derive.all_symmetries(*shuffled(state, config), 3)
    report = judged(tmp_path, (state, config, tokenizer), (*child, tokenizer), deep=True)
    order = np.random.default_rng(4).permutation(6).tolist()
    assert list(report.verdict.layer_map) == order
    assert report.verdict.kinds == ("re_based", "layers_reordered")


@pytest.mark.slow
def test_a_vocabulary_replaced_and_all_reordered_is_not_called_rotated(tmp_path):
    """Without tokens in common, the neurons tell the order of residual dimensions."""
    state, config, tokenizer = derive.load_state(DEMO_MODELS / "base")
    rng = np.random.default_rng(5)
    drawn = {
        name: (rng.standard_normal(value.shape) * value.std()).astype(np.float32)
        for name, value in state.items()
        if name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    child = derive.permute_and_flip({**state, **drawn}, config, 3), config, None
    report = judged(tmp_path, (state, config, tokenizer), child, deep=True)
    assert (report.verdict.class_, report.verdict.variant) == ("derived", "reordered")
    assert "residual dimensions reordered" in report.verdict.sentence
