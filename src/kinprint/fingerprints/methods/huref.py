"""HuRef: correlate bilinear forms of the last layers on rare tokens' embeddings, which withstand most changes of basis.

Zeng et al., "HuRef: HUman-REadable Fingerprint for Large Language Models", NeurIPS 2024, arXiv:2312.04828. With X the embeddings
of n rare tokens (a row each) and the matrices (out × in) of each of the last two layers::

    Ma = X Wq' Wk X'      Mb = X Wv' Wo' X'      Mf = X (Wg ∘ Wu)' Wd' X'

n×n each. Each is standardised, and the invariant-terms cosine similarity (ICS) is 100 times the cosine of all of
them laid end to end: 100 times the mean of their Pearson correlations.

A change of basis R of the residual stream turns X to XR and every W that reads the stream to WR, so R cancels in Ma and Mb;
but only if the scale of the norm before W has been multiplied into it, since a diagonal matrix does not commute with R. Wg ∘ Wu
is a product by elements: under R it is not (Wg ∘ Wu)R, so Mf withstands permutations but neither rotations nor sign flips.

Where this differs from the paper: norm scales are folded (there they are not); tokens are a hashed sample of the later half of
the vocabulary, not the rarest by a count over a corpus; up to 1,024 of them, in a portable fingerprint 256 (there 4,096);
no picture is drawn of it. Biases are left out, as there.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints import base
from kinprint.fingerprints.base import Change, Features, Need, PortableMethod, Score, all_but, register
from kinprint.model.tokens import common_rows
from kinprint.model.weights import Matrix, Weights
from kinprint.text import Text, verbatim

LAYERS = 2
PORTABLE_TOKENS, PAIR_TOKENS, LEAST_TOKENS = 256, 1024, 32
TERMS = ("ma", "mb", "mf")

_ATTENTION = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_O)


@register
class HuRef(PortableMethod):
    """Invariant terms of the last two layers."""

    name = "huref"
    title = verbatim("HuRef (ICS)")
    needs = (Need.WEIGHTS, Need.TOKENIZER)
    invariant_to = all_but(Change.SIGN_FLIPS, Change.ROTATION)
    summary = Text(
        "Bilinear forms of attention and MLP on rare tokens, last two layers; 100 times their mean correlation."
    )
    references = ("Zeng et al. 2024, HuRef, NeurIPS, arXiv:2312.04828",)

    def extract(self, model: Weights) -> Features:
        """Keep the standardised terms of 256 tokens, in half precision."""
        return _features(model, PORTABLE_TOKENS, np.float16)

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Compare on more tokens than a file holds."""
        return self.score(_features(a, PAIR_TOKENS, np.float32), _features(b, PAIR_TOKENS, np.float32), seed=seed)

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Return the ICS over all terms both have; ``ma``, ``mb``, ``mf`` and the mean of the first two are in the details."""
        one, two = common_rows(a.arrays["keys"], b.arrays["keys"])
        if one.size < LEAST_TOKENS:
            raise DegenerateInput("{n} rare tokens in common: expected at least {m}", n=one.size, m=LEAST_TOKENS)
        found: dict[str, float] = {}
        for term in [term for term in TERMS if term in a.arrays and term in b.arrays]:
            left, right = a.arrays[term], b.arrays[term]
            depth = min(len(left), len(right))
            each = [
                base.correlation(left[-back][np.ix_(one, one)], right[-back][np.ix_(two, two)], _constant(term))
                for back in range(1, depth + 1)
            ]
            found[term] = 100.0 * math.fsum(each) / depth
        details = {**found, "ma_mb": (found["ma"] + found["mb"]) / 2.0, "tokens": float(one.size)}
        notes = () if "mf" in found else (Text("one of the two has no dense MLP: Ma and Mb only"),)
        return Score(math.fsum(found.values()) / len(found), details=details, notes=notes)


def invariant_terms(model: Weights, X: Matrix, layer: int) -> dict[str, Matrix]:
    """Return Ma, Mb and, where the layer has a dense MLP, Mf; the products are float32."""
    q, k = model.folded(Role.ATTN_Q, layer), model.expanded(Role.ATTN_K, layer)
    v, o = model.expanded(Role.ATTN_V, layer), model.matrix(Role.ATTN_O, layer)
    width = X.shape[1]
    fits = q.shape == k.shape and o.shape[1] == v.shape[0]
    if not fits or any(size != width for size in (q.shape[1], v.shape[1], o.shape[0])):
        raise DegenerateInput(
            "{name}: attention of layer {layer} has shapes {shapes:and}, which do not fit together at width {n}",
            name=model.label,
            layer=layer,
            shapes=tuple(str(part.shape) for part in (q, k, v, o)),
            n=width,
        )
    terms = {"ma": (X @ q.T) @ (X @ k.T).T, "mb": (X @ v.T) @ (X @ o).T}
    if model.has(Role.MLP_UP, layer) and model.has(Role.MLP_DOWN, layer):
        inner = model.folded(Role.MLP_UP, layer)
        if model.has(Role.MLP_GATE, layer):
            inner *= model.folded(Role.MLP_GATE, layer)
        read = X @ inner.T
        del inner
        terms["mf"] = read @ (X @ model.matrix(Role.MLP_DOWN, layer)).T
    return terms


def _features(model: Weights, count: int, dtype: type[np.floating[Any]]) -> Features:
    layers = model.layers_with(*_ATTENTION)[-LAYERS:]
    if not layers:
        raise DegenerateInput("{name} has no layer with query, key, value and output matrices", name=model.label)
    sample = model.tokens(count, rare=True)
    if sample.ids.size < LEAST_TOKENS:
        raise DegenerateInput(
            "{name}: {n} rare tokens: expected at least {m}", name=model.label, n=sample.ids.size, m=LEAST_TOKENS
        )
    X = model.embedding(sample.ids)
    found = [invariant_terms(model, X, layer) for layer in layers]
    arrays: dict[str, NDArray[Any]] = {"keys": sample.keys}
    for term in TERMS:
        if all(term in terms for terms in found):
            arrays[term] = np.stack([base.standardised(terms[term], _constant(term)).astype(dtype) for terms in found])
    return Features(HuRef.name, HuRef.version, arrays, {"tokens": int(sample.ids.size), "layers": len(layers)})


def _constant(term: str) -> DegenerateInput:
    return DegenerateInput("{term} is constant: expected a form that varies over tokens", term=term)
