"""Compare attention by products over heads, which neither the order of heads nor a basis inside them can change.

Summed over heads, WqᵀWk (what attends to what, at no distance) and WoWv (what is written for what is read) stay as they are where
heads are reordered, values are rotated or rescaled, and rotary pairs are turned or rescaled. Both are matrices over the residual
stream, so that a map of residual dimensions, or a rotation, brings them into one basis. The multiple of the identity in them is
left out: attention that copies, or looks for the same again, has it whatever it was trained from.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint._util.records import dataclass
from kinprint.arch import Role
from kinprint.errors import BudgetExceeded, DegenerateInput
from kinprint.evidence.probe import in_depth
from kinprint.model.weights import Weights
from kinprint.stats.joint import joint_tail

ROLES = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_O)
ROWS = 256  # residual dimensions whose products with all others are compared: a copy shows in far fewer
MAX_WIDTH = 4096
LEAST_R = 0.3
"""Correlation of both products below which they are not called shared: what attention has to do is alike in all models of like
text, and more so in one residual basis. Models that share embeddings and head alone reach 0.21 in the lower of the two (0.38 in the
higher), independent ones 0.04; heavy continued pretraining leaves 0.46."""

MOVED = 1.5
"""Times as far as the factors of a product agree in place, from which the product shows that heads were reordered, or turned in
themselves. Where they stand in place, and some were drawn anew or all trained, a product keeps little more than its factors do:
1.3 times as much where half of the heads were drawn anew, and eight times or more where they were reordered or turned."""

Product = tuple[np.ndarray[Any, np.dtype[np.float32]], np.ndarray[Any, np.dtype[np.float32]]]
Aligned = Callable[[int, Product], Product]
"""Bring the two factors of a product of A, in one layer of B, into B's residual basis."""


@dataclass(frozen=True)
class HeadProducts:
    """The attention of a layer beside that of its source: log10 p of the null that they have nothing to do with each other."""

    log10_p: float
    moved: bool  # whether the products agree far more than what stands in place


def compare_heads(
    a: Weights, b: Weights, layer_map: Mapping[int, int], aligned: Aligned, allowance: int | None, *, seed: int
) -> dict[int, HeadProducts]:
    """Compare the attention of layers with that of their sources, layer by layer."""
    # As many evenly spaced layers of B as the allowance lets; none where a side lacks a matrix, or is too wide.
    if max(a.hidden, b.hidden) > MAX_WIDTH:
        return {}
    pairs = [
        (source, layer)
        for layer, source in in_depth(layer_map)
        if all(a.has(role, source) and b.has(role, layer) for role in ROLES)
    ]
    if not pairs:
        return {}
    cost = sum(a.nbytes(role, pairs[0][0]) + b.nbytes(role, pairs[0][1]) for role in ROLES)
    count = len(pairs) if allowance is None or not cost else min(len(pairs), allowance // cost)
    found = {}
    for source, layer in evenly_spaced(pairs, count):
        try:
            found[layer] = _layer(a, b, (source, layer), aligned, seed)
        except (DegenerateInput, BudgetExceeded):
            continue
    return found


def _layer(a: Weights, b: Weights, pair: tuple[int, int], aligned: Aligned, seed: int) -> HeadProducts:
    ps, moved = [], False
    for one, two in zip(_factors(a, pair[0]), _factors(b, pair[1]), strict=True):
        turned = aligned(pair[1], one)
        left, right = _product(*turned), _product(*two)
        if left.shape != right.shape:
            raise DegenerateInput("widths differ: {a} and {b}", a=left.shape[1], b=right.shape[1])
        r = _cosine(left, right)
        ps.append(joint_tail([(left, right)], seed=seed).log10_p or 0.0 if r >= LEAST_R else 0.0)
        alike = [x.shape == y.shape for x, y in zip(turned, two, strict=True)]
        in_place = [max(0.0, _cosine(x, y)) for x, y in zip(turned, two, strict=True)] if all(alike) else [0.0]
        moved |= r >= max(LEAST_R, MOVED * float(np.prod(in_place)) ** (1.0 / len(in_place)))
    return HeadProducts(max(ps), moved)


def _cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b) or 1.0))


def _factors(model: Weights, layer: int) -> tuple[Product, Product]:
    """Return q and k, and o and v, each with a row for every channel of every query head."""
    q, k, v = model.folded(Role.ATTN_Q, layer), model.expanded(Role.ATTN_K, layer), model.expanded(Role.ATTN_V, layer)
    o = np.ascontiguousarray(model.matrix(Role.ATTN_O, layer).T)
    if len(q) != len(k) or len(o) != len(v):
        raise DegenerateInput("it is not known which rows belong to one head")
    return (q, k), (o, v)


def _product(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> FloatArray:
    """Return some rows of leftᵀ right, without the multiple of the identity in it."""
    if left.shape != right.shape:
        raise DegenerateInput("widths differ: {a} and {b}", a=left.shape[1], b=right.shape[1])
    d = right.shape[1]
    trace = float(np.vdot(left, right)) / d
    rows = np.array(evenly_spaced(range(d), ROWS))
    product: FloatArray = (left[:, rows].T @ right).astype(np.float64)
    product[np.arange(len(rows)), rows] -= trace
    return product
