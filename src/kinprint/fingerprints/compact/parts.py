"""Choose what a compact fingerprint keeps of a model, and read it in one go.

Every choice is a public rule on shapes alone, so that two models are cut alike without knowing of each other, and so that exact
tests stay exact: the first dimensions, rows and columns; layers counted from both ends, since depth is changed in the middle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.arch import Axis, Role
from kinprint.errors import DegenerateInput
from kinprint.evidence.neuron_gram import LEAST_NEURONS, GramSide, NeuronSet, gram_side, neuron_sets
from kinprint.model.reader import Want
from kinprint.model.weights import Matrix, Weights

T = TypeVar("T")

ENDS = 8  # layers of each end whose norms are kept
DIMENSIONS = 1024  # of each norm
NORM_ROLES = 4  # kinds of norms; Gemma has as many
MLP_ENDS = 3  # layers of each end whose neurons are kept
WIDTH = 4096  # up to which so many are; of wider models fewer, so that no more has to be read
ROWS, COLUMNS = 32, 256  # of gate and up
GRAM_ROWS = 128  # neurons of a layer for profiles: half tested, half references
TOKENS = (64, 128)  # ids whose embeddings are kept: printable bytes, or tokens that are hardly trained
QUANTILES = 64
GRAM_SEED = 0  # which neurons are references is part of the format

RESIDUAL_NORMS = tuple(role for role in Role if role.info.kind == "norm" and role.info.axes == (Axis.RESIDUAL,))


def from_ends(items: Sequence[T], most: int) -> Iterator[tuple[int, T]]:
    """Yield up to `most` items of each end with their places, 0, 1, … from the front and 2·ENDS − 1, … from the back."""
    front = min(most, -(-len(items) // 2))
    yield from enumerate(items[:front])
    yield from ((2 * ENDS - 1 - back, item) for back, item in enumerate(items[::-1][: min(most, len(items) - front)]))


@dataclass(frozen=True)
class Parts:
    """What a compact fingerprint reads of a model, found from its headers."""

    norms: Mapping[Role, Sequence[tuple[int, int | None]]]  # place and layer; place −1 for norms outside the layers
    neurons: Sequence[tuple[int, NeuronSet]]
    rows: int  # of gate and up that are read: as many as every chosen layer has
    tokens: bool


def choose_parts(model: Weights) -> Parts:
    """Choose by shapes alone."""
    norms: dict[Role, list[tuple[int, int | None]]] = {}
    for role in RESIDUAL_NORMS:
        if model.has(role):
            norms[role] = [(-1, None)]
        elif sum(places[0][0] >= 0 for places in norms.values()) < NORM_ROLES and (found := model.layers_with(role)):
            norms[role] = list(from_ends(found, ENDS))
    sets = neuron_sets(model)
    ends = max(1, min(MLP_ENDS, MLP_ENDS * WIDTH // max(1, model.hidden)))
    neurons = list(from_ends([sets[layer] for layer in sorted(sets)], ends))
    rows = min((one.first for _, one in neurons), default=0)
    table = model.shape(Role.EMBEDDING) if model.has(Role.EMBEDDING) else (0,)
    tokens = table[0] >= TOKENS[1] and len(table) == 2
    return Parts(norms, neurons, min(GRAM_ROWS, rows), tokens)


def wanted(model: Weights, parts: Parts) -> list[Want]:
    """List what is read, so that all of it is read together."""
    wants = [Want(role, layer) for role, places in parts.norms.items() for _, layer in places]
    for _, one in parts.neurons:
        wants += [Want(role, one.layer, one.experts[0], (0, parts.rows)) for role in one.roles]
        if model.has(Role.POST_ATTENTION_NORM, one.layer):
            wants.append(Want(Role.POST_ATTENTION_NORM, one.layer))
    if parts.tokens:
        wants.append(Want(Role.EMBEDDING, rows=TOKENS))
    return list(dict.fromkeys(wants))


def norm_vectors(model: Weights, role: Role, places: Sequence[tuple[int, int | None]]) -> Matrix:
    """Return the norms of a role, one below the other."""
    return np.stack([model.matrix(role, layer) for _, layer in places])


def neuron_rows(model: Weights, parts: Parts) -> dict[Role, list[tuple[int, Matrix]]]:
    """Return the first rows and columns of gate and up, by role, with their places."""
    found: dict[Role, list[tuple[int, Matrix]]] = {}
    for place, one in parts.neurons:
        for role in one.roles:
            read = model.matrix(role, one.layer, expert=one.experts[0], rows=(0, parts.rows))
            found.setdefault(role, []).append((place, read[:ROWS, :COLUMNS]))
    return found


def gram_of(model: Weights, parts: Parts) -> GramSide:
    """Return the Gram profiles of the layers chosen."""
    if parts.rows < LEAST_NEURONS:
        raise DegenerateInput("{n} neurons: expected at least {m}", n=parts.rows, m=LEAST_NEURONS)
    layers = [one.layer for _, one in parts.neurons]
    return gram_side(model, seed=GRAM_SEED, rows=parts.rows, layers=layers)


def token_cosines(rows: Matrix) -> FloatArray:
    """Return the cosines of embeddings with each other, above the diagonal, without what all tokens have in common."""
    x = rows.astype(np.float64)
    x -= x.mean(axis=0)
    lengths = np.linalg.norm(x, axis=1)
    if not bool(np.all(lengths > 0.0)):
        raise DegenerateInput("some embeddings are all the same")
    x /= lengths[:, None]
    cosines: FloatArray = (x @ x.T)[np.triu_indices(len(x), 1)]
    return cosines


def quantiles_of(norms: Matrix) -> NDArray[np.float32]:
    """Return norms sorted and thinned to as many values each: the same in any order of residual dimensions."""
    ordered = np.sort(norms.astype(np.float64), axis=1)
    at = (np.arange(QUANTILES) + 0.5) / QUANTILES * ordered.shape[1] - 0.5
    return np.stack([np.interp(at, np.arange(ordered.shape[1]), one) for one in ordered]).astype(np.float32)
