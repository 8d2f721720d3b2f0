"""Dimension fixed points: strong from norms alone, and shut where a recipe gives dimensions an order."""

import math

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.dimension_test import FEW_NORMS, dimension_test, norms_agree
from kinprint.evidence.probe import Probe, SamplePair
from kinprint.model.reader import Sample

WIDTH, NORMS = 128, 13


def model(seed, *, like=0.9, width=WIDTH):
    """Return norms of a model: layers resemble each other, tails are heavy."""
    rng = np.random.default_rng(seed)
    common = rng.standard_t(4, width)
    layers = like * common + np.sqrt(1 - like**2) * rng.standard_t(4, (NORMS, width))
    return 1.0 + 0.1 * layers


def sample(values):
    return Sample(values, "F64", values.shape)


def run(a, b):
    pairs = zip(a, b, strict=True)
    return dimension_test(
        [SamplePair(Role.INPUT_NORM, n, None, sample(x), sample(y)) for n, (x, y) in enumerate(pairs)], {}
    )


def shaped(seed, shape):
    """Return a model whose dimensions differ by a recipe that looks at their places alone."""
    return model(seed) + 0.5 * shape


INDEX = np.arange(WIDTH)
SHAPES = {
    "trend": INDEX / WIDTH,
    "sorted and dealt": (INDEX % 16) / 16,
    "dealt the other way": (INDEX // 8 % 4) / 4,
    "every fourth": 1.0 * (INDEX % 4 == 0),
    "every seventh": 1.0 * (INDEX % 7 == 0),
    "bits": sum(((INDEX >> k) & 1) * 0.3 for k in range(7)),
    "a wave": np.cos(2 * np.pi * INDEX / 11),
    "parity of bits": np.array([int(i).bit_count() % 2 for i in INDEX]) * 1.0,
}


def log10_p(a, b):
    """Return what the test says, or None where the order of dimensions keeps it shut."""
    try:
        return run(a, b).log10_p
    except DegenerateInput as error:
        return None if "order has a meaning" in str(error) else math.nan


@pytest.mark.parametrize("name", SHAPES)
def test_dimensions_with_an_order_of_their_own_accuse_nobody(name):
    found = [log10_p(shaped(2 * n, SHAPES[name]), shaped(2 * n + 1, SHAPES[name])) for n in range(12)]
    assert min((p for p in found if p is not None), default=0.0) > -4.0
    if name not in ("every seventh", "bits"):  # too weak at this width to be seen as an order, or to make points
        assert found.count(None) >= 8


@pytest.mark.parametrize("count", [4, 12, 24, 48])
@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_dimensions_set_apart_by_place_accuse_nobody(count, strength):
    rng, shape = np.random.default_rng(77), np.zeros(WIDTH)
    shape[rng.choice(WIDTH, count, replace=False)] = strength * rng.normal(1.0, 0.3, count)
    found = [log10_p(shaped(2 * n, shape), shaped(2 * n + 1, shape)) for n in range(12)]
    assert min((p for p in found if p is not None), default=0.0) > -4.0


def test_independent_models_show_nothing():
    counts = [run(model(2 * seed), model(2 * seed + 1)).statistic for seed in range(300)]
    assert np.mean(counts) < 1.5
    assert max(counts) <= 6
    assert np.mean(np.array(counts) >= 3) <= 1 / 6 + 0.06


def test_relations_are_seen():
    a = model(1)
    noise = 0.1 * np.random.default_rng(3).standard_normal(a.shape)
    assert run(a, a + 0.3 * noise).log10_p < -100
    assert run(a, a + noise).log10_p < -30
    retrained = 0.5 * (a - 1) + 0.5 * (model(9) - 1) + 1
    assert run(a, retrained).log10_p < -10


def test_constant_norms_are_no_profiles():
    a = np.ones((NORMS, WIDTH))
    with pytest.raises(DegenerateInput, match="vary"):
        run(a, model(1))


def deep(seed, layers, role, noise=0.0):
    """Return a model whose one kind of norms was trained, and whose other kind is still all ones."""
    norms = model(seed)[np.arange(layers) % NORMS] + 0.02 * np.random.default_rng(seed + 7).standard_normal(
        (layers, WIDTH)
    )
    norms += noise * np.random.default_rng(99).standard_normal(norms.shape)
    kinds = {Role.INPUT_NORM: np.ones_like(norms), Role.POST_ATTENTION_NORM: np.ones_like(norms), role: norms}
    samples = {(Role.FINAL_NORM, None, None): sample(np.ones(WIDTH))}
    for layer in range(layers):  # in the order of names, as models come
        samples |= {(kind, layer, None): sample(rows[layer]) for kind, rows in kinds.items()}
    return Probe("deep", layers, hidden=WIDTH, samples=samples)


@pytest.mark.parametrize("role", [Role.INPUT_NORM, Role.POST_ATTENTION_NORM])
def test_a_first_look_at_few_norms_has_some_of_either_kind(role):
    """More layers than are looked at, of which one kind of norms tells nothing."""
    layers = FEW_NORMS
    first = deep(1, layers, role)
    assert norms_agree(first, deep(1, layers, role, noise=0.02))
    assert not norms_agree(first, deep(2, layers, role))
    assert not norms_agree(first, deep(1, layers - 1, role))
