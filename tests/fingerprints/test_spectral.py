"""Spectral fingerprint: singular values against numpy's, every invariance, alignment of layers, the demo family."""

from itertools import combinations

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.methods.spectral import Spectral, product_spectra, rising_match
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.held import HeldWeights
from support.places import DEMO_MODELS

MODELS = DEMO_MODELS
METHOD = Spectral()


@pytest.fixture(scope="module")
def base():
    return derive.load_state(MODELS / "base")


def held(state, config, tokenizer=None, label="model"):
    return HeldWeights(label, state, config, tokenizer)


def test_self_is_one(base):
    score = METHOD.score_models(held(*base), held(*base))
    assert score.value == pytest.approx(1.0, abs=1e-12)
    assert score.layers == {0: 0, 1: 1, 2: 2, 3: 3}


def test_singular_values_are_those_of_the_whole_product(base):
    model = held(*base)
    found = product_spectra(model, 1)
    q, k = model.folded(Role.ATTN_Q, 1).astype(np.float64), model.expanded(Role.ATTN_K, 1).astype(np.float64)
    o, v = model.matrix(Role.ATTN_O, 1).astype(np.float64), model.expanded(Role.ATTN_V, 1).astype(np.float64)
    for name, product in (("qk", q.T @ k), ("vo", o @ v)):
        expected = np.linalg.svd(product, compute_uv=False)
        assert expected[32:].max() < 1e-6 * expected[0]  # two stored heads of 16: the rank
        np.testing.assert_allclose(found[name], expected[:32], atol=1e-6 * expected[0])


@pytest.mark.parametrize(
    "change",
    [
        derive.permute_residual,
        derive.flip_signs,
        derive.permute_neurons,
        derive.permute_heads,
        derive.rescale_neurons,
        derive.rescale_values,
        derive.mix_values,
    ],
)
def test_what_it_is_invariant_to(base, change):
    state, config, _ = base
    assert METHOD.score_models(held(*base), held(change(state, config, 5), config)).value == pytest.approx(
        1.0, abs=1e-5
    )


def test_rotation(base):
    state, config, _ = base
    turned, turned_config = derive.rotate_residual(state, config, 5)
    assert METHOD.score_models(held(*base), held(turned, turned_config)).value == pytest.approx(1.0, abs=1e-5)


def test_order_of_layers_it_does_not_survive(base):
    """Layers are aligned in order: a model with its layers reversed is no longer the same."""
    state, config, _ = base
    reversed_state, reversed_config = derive.stack_layers(state, config, (3, 2, 1, 0))
    assert METHOD.score_models(held(*base), held(reversed_state, reversed_config)).value < 0.98


@pytest.mark.parametrize(("layers", "depth"), [((0, 2, 3), 3), ((0, 1, 2, 1, 2, 3), 6)])
def test_published_dropped_and_repeated_layers_are_aligned(base, layers, depth):
    """Published: lineage is traced through block expansion and layer pruning."""
    state, config, _ = base
    other, other_config = derive.stack_layers(state, config, layers)
    score = METHOD.score_models(held(*base), held(other, other_config))
    assert score.value == pytest.approx(1.0, abs=1e-6)
    assert len(score.layers) == min(depth, 4)
    assert all(layers[child] == parent for child, parent in score.layers.items())


def test_rising_match_is_the_best_of_all():
    rng = np.random.default_rng(8)
    for rows, columns in ((3, 6), (6, 3), (4, 4), (1, 5)):
        D = rng.random((rows, columns))
        pairs = rising_match(D)
        short, wide = (D, columns) if rows <= columns else (D.T, rows)
        least = min(
            sum(short[i, j] for i, j in enumerate(chosen)) for chosen in combinations(range(wide), min(rows, columns))
        )
        assert sum(D[i, j] for i, j in pairs) == pytest.approx(least)
        assert pairs == sorted(pairs)


def test_demo_family():
    """The margin is small in absolute terms: unrelated models have like spectra, and the null of real pairs must say so."""
    models = {name: held(*derive.load_state(MODELS / name)) for name in ("base", "finetune", "grown", "unrelated")}
    related, grown, unrelated = (
        METHOD.score_models(models["base"], models[name]).value for name in ("finetune", "grown", "unrelated")
    )
    assert related > 0.97
    assert grown > 0.97
    assert 0.8 < unrelated < 0.95


def test_models_of_other_widths_and_heads(base):
    """Spectra of different ranks are compared at the same relative ranks."""
    rng = np.random.default_rng(2)
    state, width = {}, 64
    for layer in range(4):
        for name in ("q", "k", "v", "o"):
            values = rng.standard_normal((width, width)).astype(np.float32)
            state[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = values
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width}
    config |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4}
    assert 0.0 < METHOD.score_models(held(*base), held(state, config)).value < 0.99


def test_the_fingerprint_is_kilobytes(base):
    features = METHOD.extract(held(*base))
    assert sum(array.nbytes for array in features.arrays.values()) < 4 * 1024


def test_degenerate_inputs(base):
    state, config, _ = base
    headless = {name: value for name, value in state.items() if "q_proj" not in name}
    with pytest.raises(DegenerateInput, match="no layer with query"):
        METHOD.extract(held(headless, config))
    zeros = {name: np.zeros_like(value) if "1.self_attn.v_proj" in name else value for name, value in state.items()}
    with pytest.raises(DegenerateInput, match="vo of layer 1 is zero"):
        METHOD.extract(held(zeros, config))
    with pytest.raises(DegenerateInput, match="do not fit"):
        METHOD.extract(held(state, {**config, "num_attention_heads": 5}))
