"""Training of one toy model: the streams of tokens, and Adam on the next-token loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from kinprint.studies.toy_init.experiment import NORMS, Initialisation, Progress, ToyModel, ToySetting
from kinprint.studies.toy_init.gpt2 import DROPOUT, Parameters, initial_parameters, logits, purpose_seed

Tokens = NDArray[np.int64]

_CHAIN_SEED = 1907
_SUCCESSORS = 3


def train(
    setting: ToySetting,
    name: str,
    initialisation: Initialisation,
    *,
    stream: int,
    seed: int,
    progress: Progress | None = None,
) -> ToyModel:
    """Train one model; the caller's random state, threads and gradient mode are as before when this returns."""
    draw = chain_text(setting, stream) if setting.distinct_data else shifted_text(setting, stream)
    with _isolated(purpose_seed(seed, DROPOUT), setting.threads):
        parameters = initial_parameters(setting, initialisation, seed=seed)
        start = _norms(parameters, setting.layers)
        for parameter in parameters.values():
            parameter.requires_grad_()
        # fused is the same Adam in one pass over memory, which is what a small batch waits for.
        optimiser = torch.optim.Adam(parameters.values(), lr=setting.learning_rate, fused=True)
        losses = []
        for step in range(setting.steps):
            tokens = torch.from_numpy(draw(step))
            scores = logits(parameters, tokens[:, :-1], setting, dropout=setting.dropout)
            loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append(float(loss.item()))
            if progress is not None:
                progress(name, step + 1, setting.steps)
        return ToyModel(
            name=name,
            initialisation=initialisation,
            stream=stream,
            seed=seed,
            losses=tuple(losses),
            norms=_norms(parameters, setting.layers),
            start=start,
        )


def shifted_text(setting: ToySetting, stream: int) -> Callable[[int], Tokens]:
    """Return the published text: the rows of a step's batch are one run of successive numbers.

    All streams are this one sequence at another phase: stream 2 at step 0 is stream 1 at step 100.
    """

    def draw(step: int) -> Tokens:
        row = (step + 100 * stream + np.arange(setting.positions, dtype=np.int64)) % setting.vocabulary
        return np.tile(row, (setting.batch, 1))

    return draw


def chain_text(setting: ToySetting, stream: int) -> Callable[[int], Tokens]:
    """Return text that really differs between streams: each is a fixed random Markov chain of its own.

    A token has three successors, with probabilities drawn evenly from all there are. Every row of every step is a new
    walk.
    """
    chain = np.random.default_rng((_CHAIN_SEED, stream))
    tokens = setting.vocabulary
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
    return {
        norm: np.stack(
            [parameters[f"h.{layer}.{norm}.weight"].detach().numpy().astype(np.float64) for layer in range(layers)]
        )
        for norm in NORMS
    }


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
