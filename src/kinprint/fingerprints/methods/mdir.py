"""MDIR on embeddings: measure how near to a permutation the best map between two residual bases is.

Zhang, "Matrix-Driven Instant Review: Confident Detection and Reconstruction of LLM Plagiarism on PC", 2025, arXiv:2508.06309. With
E_a, E_b the embeddings of the tokens both models have (t×d), the orthogonal polar factor C = UV' of E_a'E_b = UΣV' is the rotation
that takes one nearest to the other, and ::

    T = max over permutations P of tr(CP')        log p = ln d! − T²/2

The trace of a Haar-distributed orthogonal matrix is nearly N(0, 1), with a tail below exp(−t²/2) at all t; Haar measure does not
change under P, so the union over all d! permutations bounds the tail of T. T = d for a copy, reordered or not. The score is T/d.

What is implemented is this first stage, on embeddings, as the reference code in LeaFBench does it; the paper goes on to test
the matrices of each layer, as our own aligned tests do. No signs are allowed, as there: where some residual dimensions were negated
the detail ``signed`` shows it, for which |C| is matched at the price of ln 2^d. A rotated copy reads as unrelated.

The p-value is NOT exact: no symmetry says that C of unrelated models is Haar-distributed in the basis the weights are stored in.
Optimisers that work by coordinates (Adam) single that basis out, and models trained on like data agree in what tokens mean. On 15
unrelated pairs of this project's small models (width 96, the same data and distillation among them) T/d was 0.237 to 0.252, mean
0.241, against 0.241 ± 0.004 for Haar matrices; same seed and other data, which is shared initialisation: 0.61.

Tokens: at most eight times the width, chosen by hash (there: all). Products are summed in float64 from float32 blocks. The SVD
takes time as d³: some 20 s at 2048, minutes at 4096, and beyond that the method declines.
"""

import math

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.align.assignment import assigned
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import Change, Method, Need, Score, all_but, pair_null, register
from kinprint.model.tokens import common_rows
from kinprint.model.weights import Weights
from kinprint.text import Text

MAX_WIDTH = 4096
TOKENS_PER_DIMENSION = 8
BLOCK = 1 << 23  # elements of a block of embeddings: 32 MiB in float32
_LN10 = math.log(10.0)


@register
class Mdir(Method):
    """Polar factor of the embeddings, and its best trace over permutations."""

    name = "mdir"
    title = Text("MDIR (embeddings)")
    needs = (Need.WEIGHTS, Need.TOKENIZER)
    invariant_to = all_but(Change.SIGN_FLIPS, Change.ROTATION)
    summary = Text("How near a permutation the best rotation between the embeddings of shared tokens is.")
    references = ("Zhang 2025, Matrix-Driven Instant Review (MDIR), arXiv:2508.06309",)

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Return T/d, with the published p-value as a null that is not exact."""
        width = _width(a, b)
        C = polar_factor(_cross_product(a, b, width))
        total, signed = best_trace(C), best_trace(np.abs(C))
        details = {
            "trace": float(np.trace(C)) / width,
            "signed": signed / width,
            "signed_log10_p": log10_p(signed, width, signs=True),
        }
        name = Text("Haar-distributed polar factor, best of all permutations (large-deviation form)")
        haar = Text("the polar factor of unrelated models is Haar-distributed in the stored basis: not so in general")
        chance = pair_null(name, None, None, log10_p(total, width), width, haar, exact=False)
        return Score(total / width, chance=chance, details=details)


def log10_p(total: float, width: int, *, signs: bool = False) -> float:
    """Return log10 of d!·exp(−T²/2), of 2^d·d!·exp(−T²/2) where signs were free too; at most 0."""
    choices = math.lgamma(width + 1) + (width * math.log(2.0) if signs else 0.0)
    return min(0.0, (choices - max(total, 0.0) ** 2 / 2.0) / _LN10)


def polar_factor(M: FloatArray) -> FloatArray:
    """Return the orthogonal matrix nearest to a square one of full rank."""
    U, singular, Vt = np.linalg.svd(M)
    if singular[-1] <= M.shape[0] * np.finfo(np.float64).eps * singular[0]:
        raise DegenerateInput("the embeddings of the shared tokens do not span the residual stream of both models")
    factor: FloatArray = U @ Vt
    return factor


def best_trace(C: FloatArray) -> float:
    """Return the largest sum of one entry from each row and column."""
    return float(C[np.arange(len(C)), assigned(C)].sum())


def _width(a: Weights, b: Weights) -> int:
    widths = a.shape(Role.EMBEDDING)[1], b.shape(Role.EMBEDDING)[1]
    if widths[0] != widths[1]:
        raise DegenerateInput("embeddings are {a} and {b} wide: expected equal widths", a=widths[0], b=widths[1])
    if widths[0] > MAX_WIDTH:
        raise DegenerateInput("embeddings are {a} wide: expected at most {b}", a=widths[0], b=MAX_WIDTH)
    return widths[0]


def _cross_product(a: Weights, b: Weights, width: int) -> FloatArray:
    count = TOKENS_PER_DIMENSION * width
    one, two = a.tokens(count), b.tokens(count)
    first, second = common_rows(one.keys, two.keys)
    if first.size < width:
        raise DegenerateInput("{n} tokens in common: expected at least the width, {m}", n=first.size, m=width)
    pairs = np.stack([one.ids[first], two.ids[second]])
    pairs = pairs[:, np.argsort(pairs[0], kind="stable")]  # neighbours in the file are read together
    total = np.zeros((width, width))
    for start in range(0, pairs.shape[1], max(1, BLOCK // width)):
        part = pairs[:, start : start + max(1, BLOCK // width)]
        total += a.embedding(part[0]).T @ b.embedding(part[1])
    return total
