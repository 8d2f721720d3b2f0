"""REEF: compare the outputs of layers at the last token of fixed prompts by linear CKA.

Zhang et al., "REEF: Representation Encoding Fingerprints for Large Language Models", ICLR 2025, arXiv:2410.14273. X (n×d) are the
outputs of a layer at the last token of n prompts, Y (n×d') those of a layer of the other model; K = XXᵀ, L = YYᵀ::

    CKA = HSIC(K, L) / √(HSIC(K, K) HSIC(L, L))

CKA does not change under rotations of the residual stream or with scale, and widths and tokenizers may differ: prompts are text.

Why unbiased. The usual HSIC, tr(KHLH), is never negative and counts the diagonals of K and L, the lengths of the n vectors,
as likeness. With d much larger than n the diagonal is nearly all there is: noise reads √(β_K β_L)/(n−1) with β = (tr K)²/tr K²,
about 1/(1 + (n−1)/d), which is 0.953 at n = 200 and d = 4096. The unbiased HSIC (Song et al. 2012) leaves the diagonal out and
reads 0 ± 0.007. The score is the unbiased CKA; the biased one, which the paper uses, stands beside it in the details.

The paper takes 200 statements and one layer, the 18th of 32 (`published_layer`). Here layers of the same relative depth are paired,
and their mean is the score. Where else this differs from the paper: the prompts are our own (`data/prompts.txt`), not TruthfulQA's;
outputs are those of the blocks, before the final norm; at most `LAYERS` layers are kept, as Gram matrices in half precision.

Two models that learnt the same language represent the same prompts alike, whoever trained them: the null of permuted prompts is
far too strict, and only the empirical null of independent models tells what a value means.
"""

import math

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import CHANGES, Features, Need, PortableMethod, Score, cka_chance, register
from kinprint.fingerprints.forward import Runner, prompts, prompts_digest
from kinprint.model.weights import Weights
from kinprint.stats.kernels import centred_gram, u_centred
from kinprint.text import Text, verbatim

LAYERS = 12
PUBLISHED_DEPTH = 18 / 32


@register
class REEF(PortableMethod):
    """CKA of representations."""

    name = "reef"
    title = verbatim("REEF")
    needs = (Need.WEIGHTS, Need.TOKENIZER, Need.FORWARD)
    invariant_to = CHANGES
    summary = Text(
        "Unbiased linear CKA of layers' outputs at the last token of 200 fixed prompts; widths and tokenizers may differ."
    )
    references = ("Zhang et al. 2025, REEF (ICLR), arXiv:2410.14273", "Kornblith et al. 2019", "Song et al. 2012")

    def extract(self, model: Weights) -> Features:
        """Run the prompts, and keep a Gram matrix of each of some layers."""
        outputs = list(Runner(model).last_tokens())
        chosen = evenly_spaced(range(len(outputs)), LAYERS, at="nearest")
        grams = np.array([packed(outputs[layer]) for layer in chosen])
        arrays = {"grams": grams, "layers": np.array(chosen, dtype=np.int32)}
        return Features(self.name, self.version, arrays, {"depth": len(outputs), "prompts": prompts_digest()})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Compare all kept layers with all."""
        sides = _checked(a), _checked(b)
        biased = _layer_grid(sides[0], sides[1])
        unbiased = _layer_grid([u_centred(K) for K in sides[0]], [u_centred(L) for L in sides[1]])
        depths = _depths(a), _depths(b)
        # each layer of the side with fewer is paired with the other's of nearest relative depth
        apart, fewer = np.abs(depths[0][:, None] - depths[1]), int(len(depths[0]) > len(depths[1]))
        places = apart.argmin(axis=1 - fewer)
        rows, columns = (places, np.arange(places.size)) if fewer else (np.arange(places.size), places)
        best = np.unravel_index(int(unbiased.argmax()), unbiased.shape)
        layers_a, layers_b = a.arrays["layers"], b.arrays["layers"]
        published = tuple(int(np.abs(side - PUBLISHED_DEPTH).argmin()) for side in depths)
        value = float(unbiased[rows, columns].mean())
        details = {
            "biased": float(biased[rows, columns].mean()),
            "published_layer": float(unbiased[published]),
            "published_layer_biased": float(biased[published]),
            "best_pair": float(unbiased[best]),
            "best_layer_a": float(layers_a[best[0]]),
            "best_layer_b": float(layers_b[best[1]]),
            "worst_layer": float(unbiased[rows, columns].min()),
        }
        nearest = unbiased.argmax(axis=0)
        layers = {int(layer): int(layers_a[nearest[place]]) for place, layer in enumerate(layers_b)}
        chance = cka_chance(
            value,
            sides[0][0].shape[0],
            Text("prompts permuted"),
            Text("none holds for language models: prompts have a meaning, which independent models share"),
            Text("sd is that of one pair of layers, an upper bound for the mean of several; normal tail"),
        )
        return Score(value, chance, details, layers)


def packed(X: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return the upper triangle of the centred Gram matrix, its largest value 1, in half precision."""
    K = centred_gram(X.astype(np.float64))
    flat: NDArray[np.float16] = (K / np.abs(K).max())[np.triu_indices(K.shape[0])].astype(np.float16)
    return flat


def unpacked(flat: NDArray[np.float16], n: int) -> FloatArray:
    """Return the matrix again, of unit norm; rounding has moved its row sums from zero, so it is centred anew."""
    K = np.zeros((n, n))
    K[np.triu_indices(n)] = flat
    K += np.triu(K, 1).T
    means = K.mean(axis=0)
    K += means.mean() - means[:, None] - means[None, :]
    norm = float(np.linalg.norm(K))
    if not math.isfinite(norm) or norm <= 0.0:
        raise DegenerateInput("a layer's Gram matrix is zero or not finite")
    return K / norm


def _checked(features: Features) -> list[FloatArray]:
    if features.facts.get("prompts") != prompts_digest():
        raise DegenerateInput("the fingerprint was made with other prompts")
    n = len(prompts())
    grams, layers = features.arrays["grams"], features.arrays["layers"]
    if grams.ndim != 2 or grams.shape != (layers.size, n * (n + 1) // 2) or not layers.size:
        raise DegenerateInput(
            "Gram matrices of shape {shape} for {n} layers and {m} prompts", shape=str(grams.shape), n=layers.size, m=n
        )
    return [unpacked(flat, n) for flat in grams]


def _layer_grid(left: list[FloatArray], right: list[FloatArray]) -> FloatArray:
    products: FloatArray = np.array([K.ravel() for K in left]) @ np.array([L.ravel() for L in right]).T
    return np.clip(products, -1.0, 1.0)


def _depths(features: Features) -> FloatArray:
    """Return how deep in its model each kept layer is, the last at 1."""
    depth = float(features.facts["depth"])
    return (features.arrays["layers"] + 1) / depth
