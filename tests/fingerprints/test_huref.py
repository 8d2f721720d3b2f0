"""HuRef: the invariances of its terms, one by one; why norm scales must be folded; the demo family."""

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.huref import HuRef, invariant_terms
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = HuRef()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def demo(name):
    return held(*derive.load_state(MODELS / name), label=name)


def test_self_is_a_hundred(base):
    model = held(*base)
    score = METHOD.score_models(model, model)
    assert score.value == pytest.approx(100.0, abs=1e-9)
    assert METHOD.score(METHOD.extract(model), METHOD.extract(model)).value == pytest.approx(100.0, abs=1e-9)


@pytest.mark.parametrize(
    "change", [derive.permute_residual, derive.permute_neurons, derive.permute_heads, derive.rescale_neurons]
)
def test_what_it_is_invariant_to(base, change):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config, tokenizer))
    assert score.value == pytest.approx(100.0, abs=1e-4)


def test_values_against_outputs(base):
    state, config, tokenizer = base
    other = derive.rescale_values(state, config, 5)
    assert METHOD.score_models(held(*base), held(other, config, tokenizer)).value == pytest.approx(100.0, abs=1e-4)


def test_rotation_and_signs_leave_ma_and_mb_but_not_mf(base):
    state, config, tokenizer = base
    turned, turned_config = derive.rotate_residual(state, config, 5)
    for other in (held(turned, turned_config, tokenizer), held(derive.flip_signs(state, config, 5), config, tokenizer)):
        score = METHOD.score_models(held(*base), other)
        assert score.details["ma_mb"] == pytest.approx(100.0, abs=1e-3)
        assert abs(score.details["mf"]) < 20.0
        assert score.value < 75.0


def test_without_folding_a_rotation_breaks_ma_and_mb(base):
    """The terms as in the paper's text, from the matrices as they are stored."""
    state, config, tokenizer = base
    # scales of trained norms spread more than those of this tiny model: 0.01 to 2.3 in published ones
    rng = np.random.default_rng(3)
    state = {k: v * rng.lognormal(0.0, 1.0, v.shape).astype(np.float32) if v.ndim == 1 else v for k, v in state.items()}
    turned, turned_config = derive.rotate_residual(state, config, 5)
    models = held(state, config, tokenizer), held(turned, turned_config, tokenizer)
    ids = models[0].tokens(200, rare=True).ids

    def term(model, folded):
        X = model.embedding(ids)
        get = model.folded if folded else model.matrix
        q, k = get(Role.ATTN_Q, 3), get(Role.ATTN_K, 3)
        k = np.repeat(k.reshape(2, 16, -1), 3, axis=0).reshape(q.shape)  # six heads on two
        return (X @ q.T @ k @ X.T).ravel()

    def alike(folded):
        return np.corrcoef(term(models[0], folded), term(models[1], folded))[0, 1]

    assert alike(folded=True) == pytest.approx(1.0, abs=1e-5)
    assert alike(folded=False) < 0.9


def test_terms_against_float64(base):
    """float32 products stay within 1e-5 of the spread of the terms in float64."""
    model = held(*base)
    X = model.embedding(model.tokens(256, rare=True).ids)
    found = invariant_terms(model, X, 3)
    wide = X.astype(np.float64)
    gate, up = (model.folded(role, 3).astype(np.float64) for role in (Role.MLP_GATE, Role.MLP_UP))
    q, k, v = (
        m.astype(np.float64)
        for m in (model.folded(Role.ATTN_Q, 3), model.expanded(Role.ATTN_K, 3), model.expanded(Role.ATTN_V, 3))
    )
    o, down = model.matrix(Role.ATTN_O, 3).astype(np.float64), model.matrix(Role.MLP_DOWN, 3).astype(np.float64)
    expected = {
        "ma": wide @ q.T @ k @ wide.T,
        "mb": wide @ v.T @ o.T @ wide.T,
        "mf": wide @ (gate * up).T @ down.T @ wide.T,
    }
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() < 1e-5 * value.std() * value.shape[0], name


def test_grouped_heads_are_repeated_not_tiled(base):
    """A model whose groups were written out as heads of their own is the same model."""
    state, config, tokenizer = base
    wide = dict(state)
    for name, value in state.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            wide[name] = np.repeat(value.reshape(2, 16, -1), 3, axis=0).reshape(96, -1)
    other = held(wide, {**config, "num_key_value_heads": 6}, tokenizer)
    assert METHOD.score_models(held(*base), other).value == pytest.approx(100.0, abs=1e-4)


def test_published_offspring_high_independent_near_zero():
    """Published: offspring of one base above 80 or so even after heavy continued training, independent models a few at most."""
    base = demo("base")
    finetune, grown, unrelated = (METHOD.score_models(base, demo(name)) for name in ("finetune", "grown", "unrelated"))
    assert finetune.value > 85.0
    assert grown.value > 90.0  # depth differs: the last layers are compared
    assert abs(unrelated.value) < 10.0


def test_portable_agrees_with_the_models_and_is_small(base):
    finetune = demo("finetune")
    features = METHOD.extract(held(*base))
    assert sum(array.nbytes for array in features.arrays.values()) < 1_500_000
    apart = METHOD.score(features, METHOD.extract(finetune)).value
    assert apart == pytest.approx(METHOD.score_models(held(*base), finetune).value, abs=0.5)


def test_half_precision_costs_little(base):
    model = held(*base)
    features = METHOD.extract(model)
    assert features.arrays["ma"].dtype == np.float16
    exact = METHOD.score_models(model, model).value
    assert METHOD.score(features, METHOD.extract(demo("base"))).value == pytest.approx(exact, abs=1e-3)


def test_shared_tokens_of_other_vocabularies(base):
    """Rows are paired by token text: a copy whose vocabulary was reordered and thinned out is still found."""
    state, config, tokenizer = base
    vocab = tokenizer["model"]["vocab"]
    rng = np.random.default_rng(4)
    kept = sorted(rng.choice(len(vocab), 400, replace=False))
    names = {number: text for text, number in vocab.items()}
    other = {**state, "model.embed_tokens.weight": state["model.embed_tokens.weight"][kept]}
    other["lm_head.weight"] = state["lm_head.weight"][kept]
    renamed = {"model": {"type": "BPE", "vocab": {names[old]: new for new, old in enumerate(kept)}, "merges": []}}
    copy = held(other, {**config, "vocab_size": len(kept)}, renamed)
    score = METHOD.score_models(held(*base), copy)
    assert score.value == pytest.approx(100.0, abs=1e-3)
    assert 32 <= score.details["tokens"] < 256


def test_experts_leave_two_terms(base):
    state, config, tokenizer = base
    upcycled, moe = derive.upcycle(state, config, 4, 0.0, 1)
    score = METHOD.score_models(held(*base), held(upcycled, moe, tokenizer))
    assert score.value == pytest.approx(100.0, abs=1e-4)
    assert "mf" not in score.details
    assert any("no dense MLP" in note for note in score.notes)


def test_degenerate_inputs(base):
    state, config, tokenizer = base
    foreign = {"model": {"type": "BPE", "vocab": {f"§{i}": i for i in range(512)}, "merges": []}}
    with pytest.raises(DegenerateInput, match="0 rare tokens in common"):
        METHOD.score_models(held(*base), held(state, config, foreign))
    few = {"model": {"type": "BPE", "vocab": {f"§{i}": i for i in range(20)}, "merges": []}}
    with pytest.raises(DegenerateInput, match="expected at least 32"):
        METHOD.extract(held(state, config, few))
    headless = {name: value for name, value in state.items() if "k_proj" not in name}
    with pytest.raises(DegenerateInput, match="no layer with query, key, value and output"):
        METHOD.extract(held(headless, config, tokenizer))
    zeros = {**state, "model.embed_tokens.weight": np.zeros_like(state["model.embed_tokens.weight"])}
    with pytest.raises(DegenerateInput, match="ma is constant"):
        METHOD.extract(held(zeros, config, tokenizer))
