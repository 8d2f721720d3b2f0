"""Merges, stacked layers of two models, and vocabularies cut and extended."""

import json

import numpy as np
import pytest

from kinprint.lab.zoo import derive
from support.places import DEMO_MODELS

DEMO = DEMO_MODELS
TABLE, HEAD, UP = "model.embed_tokens.weight", "lm_head.weight", "model.layers.{}.mlp.up_proj.weight"


def drawn(seed, shape=(40, 30)):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name in ("a.w.weight", "b.w.weight")}


@pytest.fixture(scope="module")
def models():
    return {name: derive.load_state(DEMO / name) for name in ("base", "unrelated")}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_slerp_keeps_the_length_and_divides_the_angle(share):
    a, b = drawn(1), drawn(2)
    b = {name: value * np.linalg.norm(a[name]) / np.linalg.norm(value) for name, value in b.items()}

    def angle(x, y):
        return np.arccos(np.clip(np.vdot(x, y) / np.linalg.norm(x) / np.linalg.norm(y), -1, 1))

    for name, value in derive.slerp(a, b, share).items():
        assert np.linalg.norm(value) == pytest.approx(np.linalg.norm(a[name]), rel=1e-5)
        assert angle(value, a[name]) == pytest.approx(share * angle(a[name], b[name]), abs=1e-3)


def test_slerp_of_parallel_or_zero_tensors_is_linear():
    a = drawn(1)
    doubled = {name: 2 * value for name, value in a.items()}
    zero = {name: 0 * value for name, value in a.items()}
    for name, value in derive.slerp(a, doubled, 0.5).items():
        np.testing.assert_allclose(value, 1.5 * a[name], rtol=1e-5)
    for name, value in derive.slerp(a, zero, 0.25).items():
        np.testing.assert_allclose(value, 0.75 * a[name], rtol=1e-6)


def test_ties_by_hand():
    base = {"a.w.weight": np.zeros((1, 4), np.float32)}
    first = {"a.w.weight": np.array([[4, -3, 0.1, 2]], np.float32)}
    second = {"a.w.weight": np.array([[2, 5, 0.2, -0.1]], np.float32)}
    # Half of each is kept: 4, -3 of the first and 2, 5 of the second. The second column elects plus.
    merged = derive.ties(base, [first, second], density=0.5)["a.w.weight"]
    np.testing.assert_allclose(merged, [[3, 5, 0, 0]])
    np.testing.assert_allclose(derive.ties(base, [first, second], 0.5, scale=0.5)["a.w.weight"], [[1.5, 2.5, 0, 0]])
    alone = derive.ties(base, [first], density=1.0)["a.w.weight"]
    np.testing.assert_allclose(alone, first["a.w.weight"])


def test_dare_keeps_some_of_the_difference_and_its_mean():
    base, child = drawn(1, (200, 200)), drawn(2, (200, 200))
    merged = derive.dare(base, child, 0.75, seed=1)
    for name in base:
        moved, whole = merged[name] - base[name], child[name] - base[name]
        kept = moved != 0
        assert kept.mean() == pytest.approx(0.25, abs=0.01)
        np.testing.assert_allclose(moved[kept], 4 * whole[kept], rtol=1e-3, atol=1e-4)
    assert not np.array_equal(merged["a.w.weight"] == base["a.w.weight"], merged["b.w.weight"] == base["b.w.weight"])
    np.testing.assert_allclose(derive.dare(base, child, 0.0, seed=1)["a.w.weight"], child["a.w.weight"], atol=1e-6)


def test_merges_refuse_what_does_not_fit():
    a, small = drawn(1), drawn(2, (4, 30))
    for call in (
        lambda: derive.slerp(a, small, 0.5),
        lambda: derive.ties(a, [small], 0.5),
        lambda: derive.dare(a, small, 0.5, 1),
    ):
        with pytest.raises(ValueError, match="name or shape"):
            call()
    with pytest.raises(ValueError, match="density"):
        derive.ties(a, [a], 0)
    with pytest.raises(ValueError, match="share to drop"):
        derive.dare(a, a, 1.0, 1)


def test_a_frankenmerge_has_layers_of_both_and_the_rest_of_the_first(models):
    (a, config, _), (b, _, _) = models["base"], models["unrelated"]
    merged, changed = derive.frankenmerge([a, b], config, [(0, 0), (0, 1), (1, 1), (1, 3), (0, 3)])
    assert changed["num_hidden_layers"] == 5
    for new, (state, old) in enumerate([(a, 0), (a, 1), (b, 1), (b, 3), (a, 3)]):
        assert np.array_equal(merged[UP.format(new)], state[UP.format(old)])
    assert np.array_equal(merged[TABLE], a[TABLE])
    with pytest.raises(ValueError, match="model 1 has no layer 4"):
        derive.frankenmerge([a, b], config, [(0, 0), (1, 4)])
    narrow, _ = derive.prune_neurons(b, config, 100, 1)
    with pytest.raises(ValueError, match="differ in shape"):
        derive.frankenmerge([a, narrow], config, [(0, 0), (1, 1)])


def test_embeddings_of_another_model(models):
    (a, _, _), (b, _, _) = models["base"], models["unrelated"]
    host = derive.replace_tables(a, b)
    assert {name for name in a if not np.array_equal(a[name], host[name])} == {TABLE, HEAD}
    assert np.array_equal(host[TABLE], b[TABLE])
    with pytest.raises(ValueError, match="width 96"):
        derive.replace_tables(a, {TABLE: b[TABLE][:, :5], HEAD: b[HEAD][:, :5]})


@pytest.mark.parametrize("keep", [512, 400, 258])
def test_a_pruned_vocabulary_keeps_its_rows_with_its_tokens(models, keep):
    state, config, tokenizer = models["base"]
    before = json.dumps(tokenizer)
    small, changed, cut = derive.prune_vocabulary(state, config, tokenizer, keep, seed=3)
    assert json.dumps(tokenizer) == before
    assert changed["vocab_size"] == keep == len(small[TABLE]) == len(cut["model"]["vocab"])
    old = tokenizer["model"]["vocab"]
    for token, row in cut["model"]["vocab"].items():
        assert np.array_equal(small[TABLE][row], state[TABLE][old[token]])
        assert np.array_equal(small[HEAD][row], state[HEAD][old[token]])
    # Every merge has its parts and its result, and single bytes and special tokens are all there: any text can be spelt.
    for first, second in cut["model"]["merges"]:
        assert {first, second, first + second} <= cut["model"]["vocab"].keys()
    made = {first + second for first, second in tokenizer["model"]["merges"]}
    assert set(old) - made <= cut["model"]["vocab"].keys()
    assert [cut["model"]["vocab"][added["content"]] for added in cut["added_tokens"]] == [0, 1]


def test_a_vocabulary_cannot_lose_more_than_its_merges(models):
    state, config, tokenizer = models["base"]
    with pytest.raises(ValueError, match="only 254 are made by merges"):
        derive.prune_vocabulary(state, config, tokenizer, 200, seed=3)
    with pytest.raises(ValueError, match="cannot keep 600 of 512"):
        derive.prune_vocabulary(state, config, tokenizer, 600, seed=3)
    with pytest.raises(ValueError, match="type Unigram"):
        derive.prune_vocabulary(state, config, {"model": {"type": "Unigram"}}, 400, seed=3)


def test_an_extended_vocabulary_has_the_old_rows_and_new_ones_near_their_mean(models):
    state, config, tokenizer = models["base"]
    big, changed, longer = derive.extend_vocabulary(state, config, tokenizer, 10, seed=3)
    assert changed["vocab_size"] == 522 == len(big[HEAD])
    assert np.array_equal(big[TABLE][:512], state[TABLE])
    assert np.abs(big[TABLE][512:] - state[TABLE].mean(axis=0)).std() < 0.15 * state[TABLE].std()
    assert [added["id"] for added in longer["added_tokens"]] == [0, 1, *range(512, 522)]
    assert len(tokenizer["added_tokens"]) == 2
    assert derive.extend_vocabulary(state, config, None, 10, seed=3)[2] is None
    with pytest.raises(ValueError, match="by 0 tokens"):
        derive.extend_vocabulary(state, config, tokenizer, 0, seed=3)


def test_stored_values_are_those_that_come_back_from_a_file(tmp_path, models):
    state = {name: value * np.float32(1.2345678) for name, value in models["base"][0].items()}
    for dtype in ("BF16", "F16", "F32"):
        derive.save_state(tmp_path / dtype, state, {}, dtype=dtype)
        back, _, _ = derive.load_state(tmp_path / dtype)
        again = derive.stored(state, dtype)
        assert all(np.array_equal(back[name], again[name]) for name in state)
    with pytest.raises(ValueError, match="cannot store as I8"):
        derive.stored(state, "I8")
