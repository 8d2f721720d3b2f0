"""Train a plain GPT-2 (Radford et al. 2019), written as functions of a dictionary of parameters, on synthetic tokens.

Pre-norm blocks, learned positions, tied output head, tanh GELU, dropout on embeddings, attention and residual branches.
Parameters have GPT-2's names; matrices are stored out × in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kinprint._util.progress import Progress, quiet
from kinprint.studies.toy_init.experiment import NORMS, Initialisation, ToyModel, ToySetting
from kinprint.studies.toy_init.kept import Arrays, Kept
from kinprint.studies.toy_init.linear import linear, products

Parameters = dict[str, Tensor]
Tokens = NDArray[np.int64]
Drop = Callable[[Tensor], Tensor]

_STD = 0.02
_EPSILON = 1e-5
_CHAIN_SEED = 1907
_SUCCESSORS = 3
# One seed serves three ends; drawing them from one stream would make norms a multiple of embeddings.
_WEIGHTS, _DROPOUT = 1, 2
_ROWS = (
    8  # of a batch at a time, in memory that is used again: for all 32 at once, fresh pages took a tenth of the time
)
_MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam
_KEPT_EVERY = 10  # steps
_FORM = 2  # part of what a kept file is known by: to be raised by any change that makes other numbers


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


def masks(seed: int, step: int, rate: float) -> Drop:
    """Return the dropout of a step, of 16 bits an element; no earlier draw matters, so a training can go on from any step."""
    # (Torch's own took 7 % of the time.)
    drawn, dropped = np.random.Generator(np.random.SFC64((seed, _DROPOUT, step))), round(rate * 2**16)

    def drop(x: Tensor) -> Tensor:
        bits = drawn.integers(2**64, size=-(-x.numel() // 4), dtype=np.uint64).view(np.uint16)
        kept = torch.from_numpy(bits[: x.numel()] >= dropped).view(x.shape)
        return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))

    return drop


def logits(parameters: Parameters, tokens: Tensor, setting: ToySetting, drop: Drop = lambda x: x) -> Tensor:
    """Return batch × length × vocabulary scores of the next token; without `drop`, those of the model in use."""
    batch, length = tokens.shape
    later = torch.full((length, length), -math.inf).triu(1)

    def mapped(name: str, x: Tensor) -> Tensor:
        return linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return functional.layer_norm(x, (setting.width,), weight, bias, _EPSILON)

    def attention(name: str, x: Tensor) -> Tensor:
        parts = mapped(f"{name}.c_attn", x).view(batch, length, 3, setting.heads, setting.width // setting.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).flatten(1, 2)
        # What scaled_dot_product_attention does where there is dropout, in fewer passes.
        weights = torch.baddbmm(later, query, key.mT, alpha=query.shape[-1] ** -0.5).softmax(-1)
        mixed = torch.bmm(drop(weights), value).unflatten(0, (batch, setting.heads))
        return mapped(f"{name}.c_proj", mixed.transpose(1, 2).flatten(2))

    def mlp(name: str, x: Tensor) -> Tensor:
        return mapped(f"{name}.c_proj", functional.gelu(mapped(f"{name}.c_fc", x), approximate="tanh"))

    x = drop(functional.embedding(tokens, parameters["wte.weight"]) + parameters["wpe.weight"][:length])
    for block in (f"h.{layer}" for layer in range(setting.layers)):
        x = x + drop(attention(f"{block}.attn", norm(f"{block}.ln_1", x)))
        x = x + drop(mlp(f"{block}.mlp", norm(f"{block}.ln_2", x)))
    return functional.linear(norm("ln_f", x), parameters["wte.weight"])


def train(
    setting: ToySetting,
    name: str,
    initialisation: Initialisation,
    *,
    stream: int,
    seed: int,
    folder: Path | None = None,
    progress: Progress = quiet,
) -> ToyModel:
    """Train one model with Adam on the next-token loss; the caller's random state, threads and gradient mode stay as they are.

    In `folder`, if given, its state is kept every few steps, and at last its result; a training goes on from what it finds there,
    to the same numbers as without a break.
    """
    draw = chain_text(setting, stream) if setting.distinct_data else shifted_text(setting, stream)
    of = asdict(setting) | {"model": name, "stream": stream, "seed": seed, "form": _FORM}
    of |= {"torch": torch.__version__, "products": products()}
    kept = Kept(folder, f"{'distinct' if setting.distinct_data else 'published'}-{name}", of)
    with one_thread(), torch.enable_grad():
        parameters = initial_parameters(setting, initialisation, seed=seed)
        moments = {f"{of}.{key}": torch.zeros_like(x) for key in _MOMENTS for of, x in parameters.items()}
        start, losses = _norms(parameters, setting.layers), np.zeros(setting.steps, np.float32)
        result = {"losses": losses, **_norms(parameters, setting.layers)}
        state = {"losses": losses} | {key: x.numpy() for key, x in (parameters | moments).items()}
        finished = kept.restore(result, state) is result
        done = setting.steps if finished else int(np.count_nonzero(losses))  # no loss is 0
        adam = _adam(parameters, moments, done, setting.learning_rate)
        for step in range(done, setting.steps):
            drop, tokens = masks(seed, step, setting.dropout), torch.from_numpy(draw(step))
            losses[step] = _backward(parameters, tokens, setting, drop)
            adam.step()
            adam.zero_grad()
            if (step + 1) % _KEPT_EVERY == 0:
                kept.write(state)
            progress(name, step + 1, setting.steps)
    if not finished:
        result |= _norms(parameters, setting.layers)
        kept.write(result)
    before, after = ({norm: rows[norm].astype(np.float64) for norm in NORMS} for rows in (start, result))
    return ToyModel(name, initialisation, stream, seed, tuple(losses.tolist()), after, before, kept.note)


def _adam(parameters: Parameters, moments: Parameters, done: int, rate: float) -> torch.optim.Adam:
    """Return Adam as it is after some steps; fused is one pass over memory, which is what a small batch waits for."""
    adam = torch.optim.Adam([x.requires_grad_() for x in parameters.values()], lr=rate, fused=True)
    for name, parameter in parameters.items():
        known = {key: moments[f"{name}.{key}"] for key in _MOMENTS}
        adam.state[parameter] = {"step": torch.tensor(float(done)), **known}
    return adam


def _backward(parameters: Parameters, tokens: Tensor, setting: ToySetting, drop: Drop) -> float:
    """Add the gradient of the mean loss over a batch; return that loss."""
    total = 0.0
    for rows in tokens.split(_ROWS):
        scores = logits(parameters, rows[:, :-1], setting, drop)
        loss = functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten()) * (len(rows) / len(tokens))
        torch.autograd.backward(loss)
        total += loss.item()
    return total


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


def _norms(parameters: Parameters, layers: int) -> Arrays:
    """Return copies of the blocks' norm weights, layers × width."""
    names = {norm: [f"h.{layer}.{norm}.weight" for layer in range(layers)] for norm in NORMS}
    return {norm: np.stack([parameters[name].detach().numpy() for name in found]) for norm, found in names.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: on more, sums are split, and their number would be part of the result."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
