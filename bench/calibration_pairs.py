"""Pairs of models that share nothing, or nothing but norms: synthetic ones, and the trained family under random symmetries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations, product
from pathlib import Path

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.evidence.probe import Probe
from kinprint.lab.zoo.derive import Config, State, load_state, upcycle
from support.probes import free_orders, probe_from_state
from support.recipes import RECIPES

ROOT = Path(__file__).resolve().parent.parent
SEED = 20_261_115

LINE = (
    "demo/models/base",
    "demo/models/finetune",
    "demo/models/grown",
    "tests/family/sibling",
    "tests/family/continued",
    "tests/family/norms_copied",
    "tests/family/lora",
    "tests/family/norms_reset",
    "tests/family/revocab",
    "tests/family/upcycled",
)
"""Models with something of base in them: its weights, its initial weights or its norms."""

SINGLES = (
    "demo/models/unrelated",
    "tests/family/twin",
    "tests/family/distilled_1",
    "tests/family/distilled_2",
    "tests/family/indep",
)
"""Models with initial weights of their own: twin saw base's text in base's order, the distilled ones base's logits."""

NORMS_COPIED = ("demo/models/base", "tests/family/norms_copied")

Pair = tuple[Probe, Probe]
Change = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Shape:
    """Sizes of a synthetic model."""

    hidden: int = 64
    layers: int = 3
    kv_heads: int = 4
    head_dim: int = 8
    neurons: int = 96
    vocab: int = 128

    @property
    def config(self) -> Config:
        """Return a Llama config; every key/value head serves one query head."""
        return {
            "model_type": "llama",
            "rms_norm_eps": 1e-5,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.kv_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.neurons,
            "vocab_size": self.vocab,
        }

    def layer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return one layer's tensors."""
        heads = self.kv_heads * self.head_dim
        read, write = (heads, self.hidden), (self.hidden, heads)
        return {
            "input_layernorm": (self.hidden,),
            "post_attention_layernorm": (self.hidden,),
            "self_attn.q_proj": read,
            "self_attn.k_proj": read,
            "self_attn.v_proj": read,
            "self_attn.o_proj": write,
            "mlp.gate_proj": (self.neurons, self.hidden),
            "mlp.up_proj": (self.neurons, self.hidden),
            "mlp.down_proj": (self.hidden, self.neurons),
        }


# -- synthetic models ----------------------------------------------------------------------------------------------------


def _mild(x: FloatArray) -> FloatArray:
    return 1.0 + 0.2 * x


def _same(x: FloatArray) -> FloatArray:
    return x


def _heavy(x: FloatArray) -> FloatArray:
    """Return values with the tails of a Laplace distribution squared: a few dimensions outweigh the rest."""
    made: FloatArray = np.exp(1.2 * x)
    return made


def _laplace(x: FloatArray) -> FloatArray:
    made: FloatArray = x * np.abs(x)
    return made


def synthetic(
    rng: np.random.Generator, shape: Shape, *, norm: Change = _mild, matrix: Change = _same, memory: float = 0.0
) -> State:
    """Draw a model of Gaussian latents; ``memory`` is the correlation of a layer with the one before.

    Layers that resemble each other do so along the residual stream. The neurons and heads of each come in an order of its
    own, as in trained models: only copied layers have one order (`_repeated`).
    """

    def made(values: FloatArray) -> FloatArray:
        return norm(values) if values.ndim == 1 else matrix(values)

    table = (shape.vocab, shape.hidden)
    state = {
        "model.embed_tokens.weight": made(rng.standard_normal(table)),
        "lm_head.weight": made(rng.standard_normal(table)),
        "model.norm.weight": made(rng.standard_normal(shape.hidden)),
    }
    for name, size in shape.layer_shapes().items():
        latent = rng.standard_normal(size)
        for layer in range(shape.layers):
            state[f"model.layers.{layer}.{name}.weight"] = made(latent)
            latent = memory * latent + np.sqrt(1.0 - memory**2) * rng.standard_normal(size)
    single = {name: value.astype(np.float32) for name, value in state.items()}
    return free_orders(single, shape.config, rng, residual=False) if memory else single


def _like_trained(rng: np.random.Generator, shape: Shape) -> State:
    """Draw noise plus directions of the residual stream that all layers use, with some dimensions louder than others."""
    state = synthetic(rng, shape, memory=0.5)
    directions = rng.standard_normal((4, shape.hidden))
    loud = np.ones(shape.hidden)
    loud[rng.choice(shape.hidden, 3, replace=False)] = 6.0
    for name, value in state.items():
        if value.ndim == 1:
            continue
        if value.shape[1] == shape.hidden:
            added = rng.standard_normal((value.shape[0], 4)) @ directions
            state[name] = ((value + 0.7 * added) * loud).astype(np.float32)
        else:
            added = directions.T @ rng.standard_normal((4, value.shape[1]))
            state[name] = ((value + 0.7 * added) * loud[:, None]).astype(np.float32)
    return state


def _norm_names(state: State) -> list[str]:
    return [name for name, value in state.items() if value.ndim == 1]


def _with_norms(state: State, change: Callable[[State, str], FloatArray]) -> State:
    return {**state, **{name: change(state, name).astype(np.float32) for name in _norm_names(state)}}


def _both(rng: np.random.Generator, shape: Shape, draw: Callable[[np.random.Generator, Shape], State]) -> Pair:
    first, second = (draw(rng, shape) for _ in range(2))
    return probe_from_state(first, shape.config, label="A"), probe_from_state(second, shape.config, label="B")


def _plain(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, synthetic)


def _heavy_tailed(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, partial(synthetic, norm=_heavy, matrix=_laplace))


def _correlated(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, partial(synthetic, memory=0.97))


def _low_rank(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, _like_trained)


def _equal_norms(rng: np.random.Generator, shape: Shape) -> Pair:
    """Both models have the same heavy-tailed values in all their norms, each in an order of its own."""
    values = _heavy(rng.standard_normal(shape.hidden))
    return _both(rng, shape, lambda r, s: _with_norms(synthetic(r, s), lambda *_: r.permutation(values)))


def _sorted_norms(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, lambda r, s: _with_norms(synthetic(r, s), lambda state, name: np.sort(state[name])))


def _constant_norms(rng: np.random.Generator, shape: Shape) -> Pair:
    level = float(rng.uniform(0.2, 3.0))
    return _both(rng, shape, lambda r, s: _with_norms(synthetic(r, s), lambda st, n: np.full_like(st[n], level)))


def _unit_norms(rng: np.random.Generator, shape: Shape) -> Pair:
    return _both(rng, shape, lambda r, s: _with_norms(synthetic(r, s), lambda st, n: np.ones_like(st[n])))


def _repeated(rng: np.random.Generator, shape: Shape, times: int = 2) -> Pair:
    """Both models were deepened alike: each layer stands there several times, one after the other."""
    deep = replace(shape, layers=shape.layers * times)

    def draw(r: np.random.Generator, s: Shape) -> State:
        short = synthetic(r, replace(s, layers=s.layers // times))
        state = {name: value for name, value in short.items() if ".layers." not in name}
        for name in s.layer_shapes():
            for layer in range(s.layers):
                source = f"model.layers.{layer // times}.{name}.weight"
                state[f"model.layers.{layer}.{name}.weight"] = short[source]
        return state

    return _both(rng, deep, draw)


def _zero_rows(rng: np.random.Generator, shape: Shape) -> Pair:
    """Kill neurons, tokens and residual dimensions: rows and columns of zeros, at places of each model's own."""

    def draw(r: np.random.Generator, s: Shape) -> State:
        state = synthetic(r, s)
        dead = r.choice(s.hidden, s.hidden // 4, replace=False)
        for name, value in state.items():
            if value.ndim == 2:
                value[r.random(value.shape[0]) < 0.5] = 0.0
            axis = value.ndim - 1 if value.shape[-1] == s.hidden else 0
            np.moveaxis(value, axis, 0)[dead] = 0.0
            state[name] = value
        return state

    return _both(rng, shape, draw)


def _tiny(rng: np.random.Generator, shape: Shape) -> Pair:
    small = Shape(int(rng.integers(4, 25)), int(rng.integers(1, 4)), 2, 2, int(rng.integers(4, 25)), 16)
    return _both(rng, replace(small, vocab=shape.vocab), synthetic)


def _other_depth(rng: np.random.Generator, shape: Shape) -> Pair:
    """Give the models unequal depths, and layers that resemble each other: the layer map has much to choose from."""
    made = []
    for layers in (int(rng.integers(2, 5)), int(rng.integers(4, 7))):
        size = replace(shape, layers=layers)
        made.append(probe_from_state(synthetic(rng, size, memory=0.97), size.config, label=f"{layers} layers"))
    return made[0], made[1]


def _upcycled(rng: np.random.Generator, shape: Shape) -> Pair:
    """Both models have experts that are noisy copies of one MLP each: the experts of a layer have one order of neurons."""
    made = []
    for label in "AB":
        dense = synthetic(rng, shape)
        state, config = upcycle(dense, shape.config, experts=4, noise=0.3, seed=int(rng.integers(2**31)))
        made.append(probe_from_state(state, config, label=label))
    return made[0], made[1]


def _by_recipe(rng: np.random.Generator, shape: Shape, *, recipe: str) -> Pair:
    """Do to two independent models what one public recipe does to any: their places agree, their weights do not."""
    return _both(rng, replace(shape, hidden=96), lambda r, s: RECIPES[recipe](synthetic(r, s)))


def _copied_norms(rng: np.random.Generator, shape: Shape) -> Pair:
    """B has A's norms, somewhat retrained, and nothing else of it. Wide enough for the threshold to be in reach."""
    shape = replace(shape, hidden=128)
    first, second = synthetic(rng, shape), synthetic(rng, shape)
    for name in _norm_names(first):
        noise = 0.2 * float(first[name].std()) * rng.standard_normal(shape.hidden)
        second[name] = (first[name] + noise).astype(np.float32)
    return probe_from_state(first, shape.config, label="A"), probe_from_state(second, shape.config, label="B")


Maker = Callable[[np.random.Generator, Shape], Pair]

UNIFORM: dict[str, Maker] = {
    "Gaussian": _plain,
    "heavy-tailed": _heavy_tailed,
    "correlated layers": _correlated,
    "low rank and loud dimensions": _low_rank,
}
"""Families whose p-values are held against the uniform distribution."""

HARD: dict[str, Maker] = {
    "one heavy-tailed multiset of norms": _equal_norms,
    "sorted norms": _sorted_norms,
    "constant norms": _constant_norms,
    "norms of ones": _unit_norms,
    "each layer twice": _repeated,
    "each layer four times": partial(_repeated, times=4),
    "upcycled experts": _upcycled,
    "zero rows and columns": _zero_rows,
    "tiny widths": _tiny,
    "other depth, layers alike": _other_depth,
    **{recipe: partial(_by_recipe, recipe=recipe) for recipe in RECIPES},
}

COPIED = "norms copied, synthetic"
COPIED_TRAINED = "norms copied and retrained, trained"
SYNTHETIC: dict[str, Maker] = {**UNIFORM, **HARD, COPIED: _copied_norms}


# -- the trained family --------------------------------------------------------------------------------------------------


def trained_pairs() -> tuple[list[tuple[str, str]], list[str]]:
    """Return all independent pairs of the trained models that are there, and the names of those that are not."""
    there = [name for name in (*LINE, *SINGLES) if (ROOT / name / "model.safetensors").is_file()]
    missing = [name for name in (*LINE, *SINGLES) if name not in there]
    line, singles = ([name for name in group if name in there] for group in (LINE, SINGLES))
    return [*product(line, singles), *combinations(singles, 2)], missing


@lru_cache(maxsize=32)
def _loaded(name: str) -> tuple[State, Config]:
    state, config, _ = load_state(ROOT / name)
    return state, config


def trained(a: str, b: str, rng: np.random.Generator, *, residual: bool = True) -> Pair:
    """Return two stored models, all free orders of the second drawn anew."""
    (first, config_a), (second, config_b) = _loaded(a), _loaded(b)
    moved = free_orders(second, config_b, rng, residual=residual)
    return probe_from_state(first, config_a, label=a), probe_from_state(moved, config_b, label=b)


# -- trials --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One pair to judge. ``models`` is set for trained ones."""

    family: str
    number: int
    models: tuple[str, str] | None = None

    @property
    def population(self) -> str:
        """What the p-values of this trial are pooled with: "" where they are not held against the uniform one."""
        if self.family in UNIFORM:
            return "synthetic"
        return "trained" if self.models is not None and self.family != COPIED_TRAINED else ""

    def pair(self) -> Pair:
        """Make the pair; the same for the same trial, whatever ran before."""
        if self.models is None:
            rng = np.random.default_rng([SEED, list(SYNTHETIC).index(self.family), self.number])
            return SYNTHETIC[self.family](rng, Shape())
        rng = np.random.default_rng([SEED, 1000, *self.family.encode(), self.number])
        return trained(*self.models, rng, residual=self.family != COPIED_TRAINED)


def plan(synthetic_each: int, hard_each: int, trained_in_all: int) -> list[Trial]:
    """List the trials: so many of each synthetic family, of each hard one, and at least so many of all trained pairs."""
    trials = [Trial(name, n) for name in UNIFORM for n in range(synthetic_each)]
    trials += [Trial(name, n) for name in (*HARD, COPIED) for n in range(hard_each)]
    pairs, _ = trained_pairs()
    trials += [Trial(_title(pair), n, pair) for pair in pairs for n in range(-(-trained_in_all // len(pairs)))]
    if all((ROOT / name / "model.safetensors").is_file() for name in NORMS_COPIED):
        trials += [Trial(COPIED_TRAINED, n, NORMS_COPIED) for n in range(hard_each)]
    return trials


def _title(pair: Sequence[str]) -> str:
    return " × ".join(Path(name).name for name in pair)
