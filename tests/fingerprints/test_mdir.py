"""MDIR: polar factor and best trace by construction, what the published p-value says of unrelated models, the demo family."""

import math

import numpy as np
import pytest

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.mdir import Mdir, best_trace, log10_p, polar_factor
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = Mdir()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def test_self_is_one_with_the_largest_evidence(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == pytest.approx(1.0, abs=1e-9)
    assert score.chance.log10_p == pytest.approx((math.lgamma(97) - 96**2 / 2) / math.log(10), rel=1e-6)
    assert not score.chance.exact


@pytest.mark.parametrize(
    "change",
    [
        derive.permute_residual,
        derive.permute_neurons,
        derive.permute_heads,
        derive.rescale_neurons,
        derive.rescale_values,
    ],
)
def test_what_it_is_invariant_to(base, change):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(change(state, config, 5), config, tokenizer))
    assert score.value == pytest.approx(1.0, abs=1e-6)


def test_signs_need_the_other_figure(base):
    state, config, tokenizer = base
    score = METHOD.score_models(held(*base), held(derive.flip_signs(state, config, 5), config, tokenizer))
    assert score.value < 0.7
    assert score.details["signed"] == pytest.approx(1.0, abs=1e-6)
    assert score.details["signed_log10_p"] < -1000.0


def test_rotation_it_does_not_survive(base):
    state, config, tokenizer = base
    turned, turned_config = derive.rotate_residual(state, config, 5)
    score = METHOD.score_models(held(*base), held(turned, turned_config, tokenizer))
    assert score.value < 0.35
    assert score.chance.log10_p == 0.0


def test_polar_factor_undoes_a_rotation():
    rng = np.random.default_rng(1)
    E, R = rng.standard_normal((200, 24)), derive.random_rotation(24, rng)
    np.testing.assert_allclose(polar_factor(E.T @ (E @ R)), R, atol=1e-10)


def test_best_trace_finds_a_permutation():
    rng = np.random.default_rng(1)
    order = rng.permutation(40)
    C = np.eye(40)[order]
    assert best_trace(C) == pytest.approx(40.0)
    assert np.trace(C) < 10.0


def test_published_p_value_holds_for_haar_matrices():
    """The union bound over permutations: no random rotation gets below p = 1 by much, though its best trace is far above 1."""
    rng = np.random.default_rng(2)
    found = [best_trace(derive.random_rotation(48, rng)) for _ in range(200)]
    assert min(found) > 10.0
    assert min(log10_p(total, 48) for total in found) == 0.0


def test_log10_p_stays_in_log_space():
    assert log10_p(4096.0, 4096) < -3e6
    assert log10_p(-3.0, 10) == 0.0
    assert log10_p(50.0, 60, signs=True) > log10_p(50.0, 60)


def test_against_float64(base):
    """Products of float32 blocks move the score by less than 1e-6."""
    one, two = held(*base), held(*derive.load_state(MODELS / "finetune"))
    ids = one.tokens(8 * 96).ids  # the tokenizers are the same
    E = [model.state["model.embed_tokens.weight"][ids].astype(np.float64) for model in (one, two)]
    expected = best_trace(polar_factor(E[0].T @ E[1])) / 96
    assert METHOD.score_models(one, two).value == pytest.approx(expected, abs=1e-6)


def test_demo_family():
    models = {name: held(*derive.load_state(MODELS / name)) for name in ("base", "finetune", "grown", "unrelated")}
    found = {name: METHOD.score_models(models["base"], models[name]) for name in ("finetune", "grown", "unrelated")}
    assert found["finetune"].value > 0.99
    assert found["grown"].value > 0.99
    assert found["unrelated"].value < 0.3
    assert found["unrelated"].chance.log10_p == 0.0


def test_unrelated_models_look_like_haar_matrices():
    """Measured, no theorem: the reason the null is not called exact is the next test."""
    rng = np.random.default_rng(5)
    chance = [best_trace(derive.random_rotation(96, rng)) / 96 for _ in range(20)]
    one, two = (held(*derive.load_state(MODELS / name)) for name in ("base", "unrelated"))
    assert METHOD.score_models(one, two).value == pytest.approx(np.mean(chance), abs=0.02)


def test_coordinates_that_training_singles_out_break_the_published_null():
    """Two models that share no weights, but express what tokens mean along the same coordinates, reach any p-value."""
    rng = np.random.default_rng(3)
    t, d = 2000, 64
    meaning = rng.standard_normal((t, d))
    sides = [meaning + 0.3 * rng.standard_normal((t, d)) for _ in range(2)]
    total = best_trace(polar_factor(sides[0].T @ sides[1]))
    assert log10_p(total, d) < -100.0


def test_degenerate_inputs(base):
    state, config, tokenizer = base
    narrow = {"model": {"type": "BPE", "vocab": dict(list(tokenizer["model"]["vocab"].items())[:90]), "merges": []}}
    with pytest.raises(DegenerateInput, match="expected at least the width, 96"):
        METHOD.score_models(held(*base), held(state, config, narrow))
    other = {**state, "model.embed_tokens.weight": np.ones((512, 64), dtype=np.float32)}
    with pytest.raises(DegenerateInput, match="96 and 64 wide"):
        METHOD.score_models(held(*base), held(other, config, tokenizer))
    wide = {**state, "model.embed_tokens.weight": np.ones((512, 5000), dtype=np.float32)}
    with pytest.raises(DegenerateInput, match="at most 4096"):
        METHOD.score_models(held(wide, config, tokenizer), held(wide, config, tokenizer))
    flat = {**state, "model.embed_tokens.weight": np.ones((512, 96), dtype=np.float32)}
    with pytest.raises(DegenerateInput, match="do not span"):
        METHOD.score_models(held(*base), held(flat, config, tokenizer))
    without = {name: value for name, value in state.items() if "embed" not in name}
    with pytest.raises(DegenerateInput, match="no embedding"):
        METHOD.score_models(held(*base), held(without, config, tokenizer))
