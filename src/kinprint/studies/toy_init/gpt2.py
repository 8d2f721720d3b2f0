"""A plain GPT-2 (Radford et al. 2019) as functions of a dictionary of parameters.

Pre-norm blocks, learned positions, tied output head, tanh GELU, dropout on embeddings, attention and residual branches.
Parameters have GPT-2's names; matrices are stored out × in.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kinprint.studies.toy_init.experiment import Initialisation, ToySetting

Parameters = dict[str, Tensor]

_STD = 0.02
_EPSILON = 1e-5
# One seed serves three ends; drawing them from one stream would make norms a multiple of embeddings.
WEIGHTS, DROPOUT = 1, 2


def purpose_seed(seed: int, purpose: int) -> int:
    """Return a seed of its own for each purpose and model seed.

    Hashed, and of 32 bits: torch's CPU generator ignores the upper half of a seed.
    """
    return int(np.random.SeedSequence((seed, purpose)).generate_state(1)[0])


def initial_parameters(setting: ToySetting, initialisation: Initialisation, *, seed: int) -> Parameters:
    """Return fresh parameters; the two initialisations of one seed differ in the norm weights alone.

    Every norm is drawn, the final one too, in the order in which the tokens meet them, from a generator with the
    model's own seed, as published; biases are 0.
    """
    weights = torch.Generator().manual_seed(purpose_seed(seed, WEIGHTS))
    norms = torch.Generator().manual_seed(seed)
    width = setting.width
    parameters: Parameters = {}

    def zeros(size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float32, device="cpu")

    def normal(generator: torch.Generator, std: float, *shape: int) -> Tensor:
        return std * torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    def add_linear(name: str, inputs: int, outputs: int, std: float) -> None:
        parameters[f"{name}.weight"] = normal(weights, std, outputs, inputs)
        parameters[f"{name}.bias"] = zeros(outputs)

    def add_norm(name: str) -> None:
        ones = initialisation == "ones"
        parameters[f"{name}.weight"] = zeros(width) + 1 if ones else normal(norms, 1.0, width)
        parameters[f"{name}.bias"] = zeros(width)

    parameters["wte.weight"] = normal(weights, _STD, setting.vocabulary, width)
    parameters["wpe.weight"] = normal(weights, _STD, setting.positions, width)
    residual = _STD / math.sqrt(2 * setting.layers)
    for layer in range(setting.layers):
        block = f"h.{layer}"
        add_norm(f"{block}.ln_1")
        add_linear(f"{block}.attn.c_attn", width, 3 * width, _STD)
        add_linear(f"{block}.attn.c_proj", width, width, residual)
        add_norm(f"{block}.ln_2")
        add_linear(f"{block}.mlp.c_fc", width, 4 * width, _STD)
        add_linear(f"{block}.mlp.c_proj", 4 * width, width, residual)
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
    for layer in range(setting.layers):
        block = f"h.{layer}"
        x = x + functional.dropout(attention(f"{block}.attn", norm(f"{block}.ln_1", x)), dropout)
        x = x + functional.dropout(mlp(f"{block}.mlp", norm(f"{block}.ln_2", x)), dropout)
    return functional.linear(norm("ln_f", x), parameters["wte.weight"])
