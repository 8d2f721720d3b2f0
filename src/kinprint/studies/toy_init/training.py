"""Train a plain GPT-2 (Radford et al. 2019), written as functions of a dictionary of parameters, on synthetic tokens.

Pre-norm blocks, learned positions, tied output head, tanh GELU, dropout on embeddings, attention and residual branches.
Parameters have GPT-2's names; matrices are stored out × in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kinprint._util.progress import Progress, quiet
from kinprint.studies.toy_init.experiment import NORMS, Initialisation, ToyModel, ToySetting

Parameters = dict[str, Tensor]
Tokens = NDArray[np.int64]

_STD = 0.02
_EPSILON = 1e-5
_CHAIN_SEED = 1907
_SUCCESSORS = 3
# One seed serves three ends; drawing them from one stream would make norms a multiple of embeddings.
_WEIGHTS, _DROPOUT = 1, 2


def _purpose_seed(seed: int, purpose: int) -> int:
    """Return a seed for one purpose, hashed, and of 32 bits: torch's CPU generator ignores the upper half of a seed."""
    return int(np.random.SeedSequence((seed, purpose)).generate_state(1)[0])


def initial_parameters(setting: ToySetting, initialisation: Initialisation, *, seed: int) -> Parameters:
    """Return fresh parameters; the two initialisations of one seed differ in the norm weights alone.

    Every norm is drawn, the final one too, in the order of the layers, from a generator with the
    model's own seed, as published; biases are 0.
    """
    weights = torch.Generator().manual_seed(_purpose_seed(seed, _WEIGHTS))
    norms = torch.Generator().manual_seed(seed)
    width, residual, parameters = setting.width, _STD / math.sqrt(2 * setting.layers), Parameters()

    def normal(std: float, *shape: int, generator: torch.Generator = weights) -> Tensor:
        return std * torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    def add(name: str, weight: Tensor) -> None:
        parameters[f"{name}.weight"], parameters[f"{name}.bias"] = weight, weight.new_zeros(len(weight))

    def add_norm(name: str) -> None:
        ones = torch.ones(width, dtype=torch.float32, device="cpu")
        add(name, ones if initialisation == "ones" else normal(1.0, width, generator=norms))

    parameters["wte.weight"] = normal(_STD, setting.vocabulary, width)
    parameters["wpe.weight"] = normal(_STD, setting.positions, width)
    for block in (f"h.{layer}" for layer in range(setting.layers)):
        add_norm(f"{block}.ln_1")
        add(f"{block}.attn.c_attn", normal(_STD, 3 * width, width))
        add(f"{block}.attn.c_proj", normal(residual, width, width))
        add_norm(f"{block}.ln_2")
        add(f"{block}.mlp.c_fc", normal(_STD, 4 * width, width))
        add(f"{block}.mlp.c_proj", normal(residual, width, 4 * width))
    add_norm("ln_f")
    return parameters


def logits(parameters: Parameters, tokens: Tensor, setting: ToySetting, *, dropout: float) -> Tensor:
    """Return batch × length × vocabulary scores of the next token; ``dropout=0`` is the model in use."""

    def linear(name: str, x: Tensor) -> Tensor:
        return functional.linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return functional.layer_norm(x, (setting.width,), weight, bias, _EPSILON)

    def attention(name: str, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = linear(f"{name}.c_attn", x).view(batch, length, 3, setting.heads, width // setting.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return linear(f"{name}.c_proj", mixed.transpose(1, 2).reshape(batch, length, width))

    def mlp(name: str, x: Tensor) -> Tensor:
        return linear(f"{name}.c_proj", functional.gelu(linear(f"{name}.c_fc", x), approximate="tanh"))

    x = functional.embedding(tokens, parameters["wte.weight"]) + parameters["wpe.weight"][: tokens.shape[1]]
    x = functional.dropout(x, dropout)
    for block in (f"h.{layer}" for layer in range(setting.layers)):
        x = x + functional.dropout(attention(f"{block}.attn", norm(f"{block}.ln_1", x)), dropout)
        x = x + functional.dropout(mlp(f"{block}.mlp", norm(f"{block}.ln_2", x)), dropout)
    return functional.linear(norm("ln_f", x), parameters["wte.weight"])


def train(
    setting: ToySetting,
    name: str,
    initialisation: Initialisation,
    *,
    stream: int,
    seed: int,
    progress: Progress = quiet,
) -> ToyModel:
    """Train one model with Adam on the next-token loss; the caller's random state, threads and gradient mode stay as they are."""
    draw = chain_text(setting, stream) if setting.distinct_data else shifted_text(setting, stream)
    with _isolated(_purpose_seed(seed, _DROPOUT), setting.threads):
        parameters = initial_parameters(setting, initialisation, seed=seed)
        start, losses = _norms(parameters, setting.layers), []
        for parameter in parameters.values():
            parameter.requires_grad_()
        # fused is the same Adam in one pass over memory, which is what a small batch waits for.
        optimiser = torch.optim.Adam(parameters.values(), lr=setting.learning_rate, fused=True)
        for step in range(setting.steps):
            tokens = torch.from_numpy(draw(step))
            scores = logits(parameters, tokens[:, :-1], setting, dropout=setting.dropout)
            loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append(float(loss.item()))
            progress(name, step + 1, setting.steps)
        norms = _norms(parameters, setting.layers)
    return ToyModel(name, initialisation, stream, seed, tuple(losses), norms, start)


def shifted_text(setting: ToySetting, stream: int) -> Callable[[int], Tokens]:
    """Return the published text: the rows of a step's batch are one run of successive numbers.

    All streams are this one sequence at another phase: stream 2 at step 0 is stream 1 at step 100.
    """

    def draw(step: int) -> Tokens:
        row = (step + 100 * stream + np.arange(setting.positions, dtype=np.int64)) % setting.vocabulary
        return np.tile(row, (setting.batch, 1))

    return draw


def chain_text(setting: ToySetting, stream: int) -> Callable[[int], Tokens]:
    """Return text that differs between streams: each is a Markov chain with a transition table of its own.

    A token has three successors, with probabilities drawn evenly from all there are. Every row of every step is a new
    walk.
    """
    chain, tokens = np.random.default_rng((_CHAIN_SEED, stream)), setting.vocabulary
    successors = np.array([chain.choice(tokens, size=_SUCCESSORS, replace=False) for _ in range(tokens)])
    thresholds = np.cumsum(chain.dirichlet(np.ones(_SUCCESSORS), size=tokens), axis=1)[:, :-1]

    def draw(step: int) -> Tokens:
        walk = np.random.default_rng((_CHAIN_SEED, stream, step + 1))
        rows = np.empty((setting.batch, setting.positions), dtype=np.int64)
        rows[:, 0] = walk.integers(tokens, size=setting.batch)
        for position in range(1, setting.positions):
            last = rows[:, position - 1]
            chosen = (walk.random(setting.batch)[:, None] > thresholds[last]).sum(axis=1)
            rows[:, position] = successors[last, chosen]
        return rows

    return draw


def _norms(parameters: Parameters, layers: int) -> dict[str, NDArray[np.float64]]:
    """Return copies of the blocks' norm weights, layers × width."""
    weights = {norm: [parameters[f"h.{layer}.{norm}.weight"].detach() for layer in range(layers)] for norm in NORMS}
    return {norm: np.stack([weight.numpy().astype(np.float64) for weight in found]) for norm, found in weights.items()}


@contextmanager
def _isolated(seed: int, threads: int) -> Iterator[None]:
    """Seed torch's CPU generator, which dropout cannot do without, and fix the threads; put both back afterwards."""
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        # Not torch.manual_seed: it would seed the accelerators too, whose state is not saved here.
        torch.default_generator.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
