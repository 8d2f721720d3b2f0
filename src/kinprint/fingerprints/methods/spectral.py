"""Spectral fingerprint: compare singular values of the attention products, layers aligned in order.

After GhostSpec (Wang et al., "Ghost in the Transformer: Tracing LLM Lineage with SVD-Fingerprint", AAAI 2026, arXiv:2511.06390).
For each layer the singular values of the d×d products::

    Wq' Wk     and     Wo Wv

(key and value heads repeated for their groups) are normalised, compared by their squared distance, and layers of models of
different depths are aligned in order. No change of basis of the residual stream or inside the value heads changes singular values.

A repeated key head meets the sum of its group's query heads: Wq' Wk = Σ_g (Σ_{h in g} Wq_h)' Wk_g. So the product has the rank r of
the stored keys at most, and its singular values are the roots of the eigenvalues of the r×r matrix L'(Wk Wk')L, where L is the
root of the Gram matrix of the summed queries, in float64: values below some 10⁻⁷ of the largest are inexact, and do not count.

What is ours, the paper leaving it open or doing otherwise: norm scales are folded into Wq, Wk and Wv first, without which a
rotation changes the products; 48 values of each spectrum are kept, at ranks spaced evenly in their logarithm, brought to unit
length; the score is 1 − mean of ‖s_a − s_b‖/√2 over layers and both products, so that it falls as their mean squared distance
rises; the shallower model's layers are matched to a rising sequence of the deeper one's with the least total distance.
Any two trained models have falling spectra of much the same form, so it needs the null of independent pairs beside it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import CHANGES, Features, PortableMethod, Score, register
from kinprint.model.weights import Matrix, Weights
from kinprint.text import Text

POINTS = 48
LAYERS = 48
PRODUCTS = ("qk", "vo")

_ROLES = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_O)


@register
class Spectral(PortableMethod):
    """Spectra of the attention products."""

    name = "spectral"
    title = Text("Spectral (GhostSpec)")
    invariant_to = CHANGES
    summary = Text(
        "Singular values of Wq'Wk and WoWv per layer, layers aligned in order; blind to every change of basis."
    )
    references = ("Wang et al. 2025, Ghost in the Transformer (GhostSpec), arXiv:2511.06390",)

    def extract(self, model: Weights) -> Features:
        """Keep 48 numbers for each product of each layer (of at most 48 layers, evenly spaced)."""
        layers = evenly_spaced(model.layers_with(*_ROLES), LAYERS, at="nearest")
        if not layers:
            raise DegenerateInput("{name} has no layer with query, key, value and output matrices", name=model.label)
        rows: dict[str, list[FloatArray]] = {name: [] for name in PRODUCTS}
        for layer in layers:
            for name, values in product_spectra(model, layer).items():
                rows[name].append(_sampled(values, model.label, name, layer))
        arrays: dict[str, NDArray[np.generic]] = {name: np.array(rows[name], dtype=np.float32) for name in PRODUCTS}
        arrays["layers"] = np.array(layers, dtype=np.int32)
        return Features(self.name, self.version, arrays, {"points": POINTS, "layers": len(layers)})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Align layers, then compare; ``qk`` and ``vo`` apart are in the details, and the mean squared distance."""
        distances = {name: _distances(a.arrays[name], b.arrays[name]) for name in PRODUCTS}
        both = (distances["qk"] + distances["vo"]) / 2.0
        pairs = rising_match(both)
        picked = {name: [float(D[i, j]) for i, j in pairs] for name, D in distances.items()}
        means = {name: 1.0 - math.fsum(values) / len(values) / math.sqrt(2.0) for name, values in picked.items()}
        squares = [value * value for values in picked.values() for value in values]
        details = {**means, "mse": math.fsum(squares) / len(squares) / POINTS, "layers": float(len(pairs))}
        numbers = a.arrays["layers"], b.arrays["layers"]
        found = {int(numbers[1][j]): int(numbers[0][i]) for i, j in pairs}
        value = math.fsum(means.values()) / len(PRODUCTS)
        return Score(min(1.0, max(0.0, value)), details=details, layers=found)


def product_spectra(model: Weights, layer: int) -> dict[str, FloatArray]:
    """Return the singular values of Wq'Wk and of WoWv, largest first."""
    q, k = model.folded(Role.ATTN_Q, layer), model.folded(Role.ATTN_K, layer)
    v, o = model.folded(Role.ATTN_V, layer), model.matrix(Role.ATTN_O, layer)
    return {
        "qk": _singular_values(_summed_groups(model, q, k), k),
        "vo": _singular_values(_summed_groups(model, np.ascontiguousarray(o.T), v), v),
    }


def _summed_groups(model: Weights, many: Matrix, few: Matrix) -> Matrix:
    """Add up the blocks of query heads that share a key or value head, so that the rows become those of `few`."""
    if many.shape[0] == few.shape[0]:
        return many
    heads, kv_heads = model.heads, model.kv_heads
    fits = heads and kv_heads and many.shape[0] * kv_heads == few.shape[0] * heads
    if not fits or not kv_heads or few.shape[0] % kv_heads:
        raise DegenerateInput(
            "{name}: query and key rows {n} and {m} do not fit {k} and {l} heads",
            name=model.label,
            n=len(many),
            m=len(few),
            k=heads,
            l=kv_heads,
        )
    size = few.shape[0] // kv_heads
    groups = many.reshape(kv_heads, -1, size, many.shape[1])
    summed: Matrix = groups.sum(axis=1).reshape(few.shape[0], -1)
    return summed


def _singular_values(A: Matrix, B: Matrix) -> FloatArray:
    """Return those of A'B for A and B with a row for each of r inner dimensions."""
    left, right = A.astype(np.float64), B.astype(np.float64)
    values, vectors = np.linalg.eigh(left @ left.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    squared = np.linalg.eigvalsh(root.T @ (right @ right.T) @ root)
    return np.sqrt(np.maximum(squared[::-1], 0.0))


def _sampled(values: FloatArray, name: str, product: str, layer: int) -> FloatArray:
    """Return the spectrum at ranks from the first to the last, evenly spaced in their logarithm, at unit length."""
    places = np.geomspace(1.0, float(values.size), POINTS) - 1.0
    taken = np.interp(places, np.arange(values.size), values)
    length = float(np.linalg.norm(taken))
    if length == 0.0:
        raise DegenerateInput(
            "{name}: {product} of layer {layer} is zero: there is no spectrum", name=name, product=product, layer=layer
        )
    return taken / length


def _distances(A: NDArray[np.generic], B: NDArray[np.generic]) -> FloatArray:
    left, right = A.astype(np.float64), B.astype(np.float64)
    gaps: FloatArray = np.linalg.norm(left[:, None, :] - right[None, :, :], axis=2)
    return gaps


def rising_match(D: FloatArray) -> list[tuple[int, int]]:
    """Match every row or column of the shorter side to a rising sequence of the other's, with the least total, in O(L·M)."""
    if D.shape[0] > D.shape[1]:
        return [(i, j) for j, i in rising_match(D.T)]
    rows, columns = D.shape
    best = np.full((rows + 1, columns + 1), math.inf)
    best[0] = 0.0
    for i in range(rows):
        for j in range(i, columns):
            best[i + 1, j + 1] = min(best[i + 1, j], best[i, j] + D[i, j])
    pairs, j = [], columns
    for i in range(rows, 0, -1):
        while best[i, j] == best[i, j - 1]:  # not used: the value was carried over
            j -= 1
        pairs.append((i - 1, j - 1))
        j -= 1
    return pairs[::-1]
