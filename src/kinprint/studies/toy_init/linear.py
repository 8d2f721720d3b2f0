"""Linear maps of float32 by oneDNN, where torch has it; else torch's own.

Nine tenths of a training are such products. Torch gives them to MKL, which leaves half of what a processor of another maker can do
unused: on an AMD Zen 5, 110 GFLOP/s on one core against 250 here, in the same precision (1,016 × 512 by 512 × 2,048, torch 2.13).
An earlier machine had 87 against 60 to 80. It is taken there too: a choice by speed would make results differ between machines.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x · weightᵀ + bias, with nothing applied to it; of each matrix the rows or the columns may lie together."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _Linear(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        flat = gradient.flatten(0, -2)
        return _product(gradient, weight.T), _product(flat.T, x.flatten(0, -2).T), flat.sum(0)


def products() -> str:
    """Return whose products they are; others round otherwise."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return "oneDNN" if known else "torch"


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x · weightᵀ + bias of rows of float32, with gradients of all three."""
    if products() == "oneDNN":
        found: Tensor = _Linear.apply(x, weight, bias)
        return found
    return functional.linear(x, weight, bias)
