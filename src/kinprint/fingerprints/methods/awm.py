"""AWM: pair residual dimensions by shared tokens' embeddings, then compare queries and keys by unbiased CKA.

Zeng, Chen, He, Wang & Lin, "AWM: Accurate Weight-Matrix Fingerprint for Large Language Models", ICLR 2026, arXiv:2510.06738.
With embeddings E, E' of the shared tokens (a row each), a linear assignment on 1 − |cos(column, column')| gives for each residual
dimension of one model its partner π and sign s in the other. The columns of Wq' and Wk' are put into that order, and each is
compared by the unbiased linear CKA whose n examples are the residual dimensions::

    K = Wᵀ W,  L = (W'Πs)ᵀ W'Πs,   UCKA = ⟨U(K), U(L)⟩ / (‖U(K)‖ ‖U(L)‖)

U(·) takes the mean of rows and columns away without the diagonal (Székely & Rizzo 2014), so that noise reads 0 whatever the
widths. K stays as it is under any orthogonal map of W's rows: neither the order of heads nor rotations inside them matter. A
rotation of the residual stream does: no pairing of dimensions undoes it. The score is the mean over q and k and over layers;
the paper's 90 unrelated pairs have mean 0.0038 and sd 0.0028.

Where depths differ, layers are paired by an assignment on the UCKA of `PROBE` residual dimensions; else by number. Up to `TOKENS`
shared tokens are taken (in the paper all). The null permutes residual dimensions after pairing, and is not exact: they were paired
because they treat tokens alike, and two models trained on like text may agree a little after that. The variance of one UCKA is
2/(n(n−3)) exactly, and that of a mean of several under one permutation at most that.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.align.assignment import assigned
from kinprint.align.residual_basis import MAX_WIDTH
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import Change, Method, Need, Score, all_but, cka_chance, register, unit_rows
from kinprint.model.tokens import common_rows
from kinprint.model.weights import Matrix, Weights
from kinprint.stats.kernels import centred_gram, u_centred
from kinprint.text import Text, verbatim

TOKENS, LEAST_TOKENS = 8192, 64
PROBE = 256  # residual dimensions on which all pairs of layers are compared where depths differ
LEAST_DIMENSIONS = 16
_ROLES = (Role.ATTN_Q, Role.ATTN_K)


@register
class AWM(Method):
    """Unbiased CKA of q and k after residual dimensions were paired by shared tokens."""

    name = "awm"
    title = verbatim("AWM")
    needs = (Need.WEIGHTS, Need.TOKENIZER)
    invariant_to = all_but(Change.ROTATION)
    summary = Text(
        "Residual dimensions paired (with signs) by shared tokens' embeddings, then unbiased CKA of Wq and Wk over layers."
    )
    references = ("Zeng et al. 2026, AWM (ICLR), arXiv:2510.06738", "Song et al. 2012", "Székely & Rizzo 2014")

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Pair dimensions, pair layers, and compare their q and k."""
        layers = _layers_of(a), _layers_of(b)
        pairing = paired_dimensions(a, b)
        if len(layers[0]) == len(layers[1]):
            pairs = list(zip(*layers, strict=True))
        else:
            pairs = _paired_layers((a, b), layers, pairing, seed=seed)
        found = {role: [_similarity((a, b), role, pair, pairing) for pair in pairs] for role in _ROLES}
        by_layer = np.mean([found[role] for role in _ROLES], axis=0)
        value = float(by_layer.mean())
        details = {
            "q": float(np.mean(found[Role.ATTN_Q])),
            "k": float(np.mean(found[Role.ATTN_K])),
            "best_layer": float(by_layer.max()),
            "worst_layer": float(by_layer.min()),
            "shared_tokens": float(pairing.tokens),
            "column_cosine": pairing.cosine,
        }
        chance = cka_chance(
            value,
            pairing.size,
            Text("residual dimensions permuted after alignment"),
            Text("the alignment saw embeddings only, yet it pairs dimensions that treat tokens alike"),
            Text("sd is that of one matrix, an upper bound for the mean of several"),
            Text("normal tail"),
        )
        notes = () if a.vocabulary() and b.vocabulary() else (Text("tokens were paired by number: no tokenizer"),)
        return Score(value, chance, details, {second: first for first, second in pairs}, notes)


class Pairing:
    """Residual dimensions of A and of B that belong together, with the sign each of B's carries."""

    def __init__(self, cosines: Matrix, tokens: int) -> None:
        index = assigned(np.abs(cosines, dtype=np.float64))
        first = np.flatnonzero(index >= 0)
        taken = cosines[first, index[first]]
        kept = taken != 0.0  # a column of zeros has no partner
        self.first: NDArray[np.intp] = first[kept]
        self.second: NDArray[np.intp] = index[first][kept]
        self.sign: Matrix = np.sign(taken[kept])
        self.tokens = tokens
        self.size = int(self.first.size)
        self.cosine = float(np.abs(taken[kept], dtype=np.float64).mean()) if self.size else 0.0
        if self.size < LEAST_DIMENSIONS:
            raise DegenerateInput(
                "{n} residual dimensions could be paired: expected at least {m}", n=self.size, m=LEAST_DIMENSIONS
            )


def paired_dimensions(a: Weights, b: Weights) -> Pairing:
    """Pair residual dimensions by the best assignment on |cosine| of embedding columns over shared tokens."""
    for side in (a, b):
        width = side.shape(Role.EMBEDDING)[1]
        if width > MAX_WIDTH:
            raise DegenerateInput(
                "{name} is {n} wide: expected at most {m} residual dimensions", name=side.label, n=width, m=MAX_WIDTH
            )
    samples = a.tokens(TOKENS), b.tokens(TOKENS)
    first, second = common_rows(samples[0].keys, samples[1].keys)
    if first.size < LEAST_TOKENS:
        raise DegenerateInput("{n} tokens are shared: expected at least {m}", n=first.size, m=LEAST_TOKENS)
    left = unit_rows(a.embedding(samples[0].ids[first]).T)
    right = unit_rows(b.embedding(samples[1].ids[second]).T)
    return Pairing(left @ right.T, int(first.size))


def _layers_of(model: Weights) -> list[int]:
    layers = model.layers_with(*_ROLES)
    if not layers:
        raise DegenerateInput("{name} has no layer with query and key matrices of its own", name=model.label)
    width = model.shape(Role.EMBEDDING)[1]
    for role in _ROLES:
        reads = model.shape(role, layers[0])[1]
        if reads != width:
            name, read = model.label, role.value
            raise DegenerateInput(
                "{name}: {role} reads {n} values where the embedding has {m}", name=name, role=read, n=reads, m=width
            )
    return layers


def _similarity(models: tuple[Weights, Weights], role: Role, pair: tuple[int, int], pairing: Pairing) -> float:
    left = _centred(models[0].matrix(role, pair[0])[:, pairing.first])
    right = _centred(models[1].matrix(role, pair[1])[:, pairing.second] * pairing.sign)
    return float(np.clip(np.vdot(left, right), -1.0, 1.0))


def _centred(W: Matrix) -> FloatArray:
    """Return the U-centred Gram matrix of W's columns; the product is float32, all else float64."""
    return u_centred(centred_gram(np.ascontiguousarray(W.T)).astype(np.float64))


def _paired_layers(
    models: tuple[Weights, Weights], layers: tuple[Sequence[int], Sequence[int]], pairing: Pairing, *, seed: int
) -> list[tuple[int, int]]:
    """Pair layers by the best assignment on the UCKA of some residual dimensions, mean over q and k."""
    some = np.sort(np.random.default_rng(seed).permutation(pairing.size)[:PROBE])
    left = np.array(list(_probes(models[0], layers[0], pairing.first[some])))
    right = np.array(list(_probes(models[1], layers[1], pairing.second[some], pairing.sign[some])))
    index = assigned(left @ right.T)
    return [(layers[0][row], layers[1][int(column)]) for row, column in enumerate(index) if column >= 0]


def _probes(
    model: Weights, layers: Sequence[int], columns: NDArray[np.intp], sign: Matrix | None = None
) -> Iterator[FloatArray]:
    for layer in layers:
        parts = [model.matrix(role, layer)[:, columns] for role in _ROLES]
        yield np.concatenate([_centred(W if sign is None else W * sign).ravel() for W in parts])
