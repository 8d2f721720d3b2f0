"""Find the rotation between the residual bases of two models, with norms folded away and neurons in any order.

A rotation leaves every inner product of residual vectors as it was. Two things follow.

* **Gram profiles.** The products of one neuron's rows with those of some reference neurons do not change. Where neurons keep their
  order, the profile of neuron i in A must be most like that of neuron i in B; and how many are is held against an exact null, since
  unrelated models know nothing of each other's order (`gram_profiles`, then fixed points).
* **Band profiles.** The eigenvectors of a layer's own covariance WᵀW turn with the basis. The share of a neuron's length in each
  band of them is a label that neither rotation nor order can change, and that training changes slowly (`band_profiles`). Labels
  pair some neurons rightly, those give a rotation (Procrustes), the rotation pairs more of them, and so on (`find_rotation`, in
  the manner of iterated closest points, Besl & McKay 1992). What was fitted on some layers must be tested on OTHER layers.

The rows of a neuron may have been rescaled (up by c, down by 1/c), c negative included: only directions are looked at, and signs
of up and down rows are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinprint._util.cores import on_all_cores
from kinprint.align.assignment import assigned
from kinprint.align.neuron_assignment import MAX_ASSIGNED, cosines, mutual_nearest
from kinprint.errors import DegenerateInput

T = TypeVar("T")
Rows = NDArray[np.float32]
Index = NDArray[np.intp]

BANDS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Edges of the bands of eigenvectors, leading ones first: they double, as the decay of spectra suggests."""

ITERATIONS, WIDE_ITERATIONS = 30, 3
"""Rounds at most; a wide model's neurons have labels enough to be paired rightly at once."""
SAMPLED = 1024
"""Rows of A matched in each round: Procrustes needs no more, and a round costs rows × rows of B × width."""
WIDE, LEADING = 1024, 512
"""Width beyond which neurons are paired by their coordinates along so many leading eigenvectors, in a tenth of the time."""
PART = 1 << 11
"""Rows at a time of which the covariance of a wide model is summed: all their directions would take as much memory again."""
KEPT = 1 << 20
"""Values of a matrix up to which what follows from it is kept."""
RIDGE = 0.05
"""Of the largest eigenvalue: what whitening may not amplify."""


@dataclass(frozen=True)
class Neurons:
    """The neurons of one MLP: a row each of gate, up and (transposed) down, norm scales folded in. Gate may be missing."""

    gate: Rows | None
    up: Rows
    down: Rows
    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def count(self) -> int:
        """Number of neurons."""
        return int(self.up.shape[0])

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return int(self.up.shape[1])

    @property
    def kinds(self) -> tuple[Rows | None, Rows, Rows]:
        """Rows of gate, up and down."""
        return self.gate, self.up, self.down

    def directions(self) -> Neurons:
        """Return the same with every row at unit length."""
        return self.once("directions", lambda: _made(X if X is None else directions(X) for X in self.kinds))

    def once(self, name: object, make: Callable[[], T]) -> T:
        """Return what `make` makes of these neurons; kept with them if they are few, since a search comes back to a layer."""
        if self.up.size > KEPT:
            return make()
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def take(self, rows: Index) -> Neurons:
        """Return some of the neurons."""
        return _made(None if X is None else X[rows] for X in self.kinds)


@dataclass(frozen=True)
class FoundRotation:
    """A rotation that takes rows of A to rows of B, fitted on some layers.

    `agreement` is the share of the neurons fitted for which gate, up and down rows each alone find the same partner, by pairs of
    roles. After a fit even unrelated models agree to some degree; other layers decide.
    """

    R: Rows  # width of A × width of B: row of A times R is compared with a row of B; orthogonal, of wide models where it leads
    agreement: float
    pairs: tuple[Index, Index, Rows]  # of the first layers: neurons of A and B, and signs between up and down rows


def directions(X: NDArray[np.floating]) -> Rows:
    """Return rows at unit length; those of zeros as they are."""
    values = np.asarray(X, dtype=np.float32)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Rows = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0.0)
    return unit


def gram_profiles(
    gate: NDArray[np.floating] | None, up: NDArray[np.floating], references: Index, tested: Index
) -> Rows:
    """Return for each tested neuron its cosines with the reference neurons: gate to gate, up to up, gate to up.

    Signs of up rows are free where there is a gate, so their cosines enter by size. Columns are centred: what all neurons have in
    common with a reference tells none of them apart.
    """
    u = directions(up)
    if gate is None:
        parts = [u[tested] @ u[references].T]
    else:
        g = directions(gate)
        parts = [g[tested] @ g[references].T, np.abs(u[tested] @ u[references].T), np.abs(g[tested] @ u[references].T)]
    profiles = np.concatenate([part - part.mean(axis=0) for part in parts], axis=1)
    return np.asarray(profiles, dtype=np.float32)


def band_profiles(neurons: Neurons, rows: Index | None = None, width: int | None = None) -> NDArray[np.float64]:
    """Return the labels of neurons (a row each): ranks, as normal scores, of lengths, cosines and spectral bands.

    Bands end at `width` leading eigenvectors: where another model is narrower, at its width.
    With `rows` only of these, and their ranks among each other: of a random sample they are nearly those among all.
    """
    return neurons.once((None if rows is None else rows.tobytes(), width), lambda: _band_profiles(neurons, rows, width))


def _band_profiles(neurons: Neurons, rows: Index | None, width: int | None) -> NDArray[np.float64]:
    from statistics import NormalDist

    unit = neurons.directions()
    frames = _frames(unit)
    if rows is not None:
        neurons, unit = neurons.take(rows), unit.take(rows)
    kinds = [X for X in unit.kinds if X is not None]
    lengths = _log_length(neurons.up) + _log_length(neurons.down)  # a rescaled neuron keeps the product
    labels = [lengths] if neurons.gate is None else [_log_length(neurons.gate), lengths]
    pairs = [(i, j) for i in range(len(kinds)) for j in range(i + 1, len(kinds))]
    free = {index for index, X in enumerate(kinds) if X is not unit.gate and unit.gate is not None}
    labels += [_signless(np.einsum("ij,ij->i", kinds[i], kinds[j]), i, j, free) for i, j in pairs]
    for V in (frame[:, :width] for frame in frames):
        rotated = [X @ V for X in kinds]
        for X in rotated:
            labels += [np.log(band + 1e-4 / X.shape[1]) for band in _bands(X * X, 1)]
        for i, j in pairs:
            labels += [_signless(band * V.shape[1], i, j, free) for band in _bands(rotated[i] * rotated[j], 2)]
    table = np.array(labels, dtype=np.float64)
    order = np.argsort(table, axis=1, kind="stable")
    n, normal = table.shape[1], NormalDist()
    scores = np.array([normal.inv_cdf((rank + 1.0) / (n + 1.0)) for rank in range(n)])
    np.put_along_axis(table, order, scores[None, :], axis=1)
    return np.ascontiguousarray(table.T)


def _frames(unit: Neurons) -> list[Rows]:
    """Return bases that turn with the residual basis: eigenvectors, leading ones first, of the covariance of each kind of rows."""
    kinds = [X for X in unit.kinds if X is not None]
    return [np.ascontiguousarray(np.linalg.eigh(X.T @ X)[1][:, ::-1]) for X in kinds]


def leading_part(kinds: Iterable[Rows | None]) -> tuple[Neurons, Rows]:
    """Return the neurons of a wide model by their coordinates along the leading eigenvectors of all their rows, and those.

    Eigenvectors turn with the residual basis: in these coordinates, too, the other model is rotated.
    """
    from scipy.linalg import eigh

    rows = list(kinds)
    parts = [part for X in rows if X is not None for part in np.array_split(X, -(-len(X) // PART))]
    total = sum((unit.T @ unit for unit in map(directions, parts)), start=np.zeros((1, 1), dtype=np.float32))
    last = len(total) - 1
    V = eigh(total, subset_by_index=(max(0, last - LEADING + 1), last), driver="evr", overwrite_a=True)[1][:, ::-1]
    return _made(None if X is None else X @ V for X in rows), V


def spectrum(neurons: Neurons, width: int) -> NDArray[np.float64]:
    """Return the `width` leading eigenvalues of the covariance of each kind of rows: no basis and no order changes them.

    At mean 0 and spread 1, so that white noise, which lifts all of them alike, changes little: of 24 trained layers all are
    nearest to themselves with noise of 30 % of the spread, 20 with 50 %; of logarithms 3 and none.
    """
    unit = neurons.directions()
    kinds = [X for X in unit.kinds if X is not None]
    every = neurons.once("spectrum", lambda: [np.linalg.eigvalsh(X.T @ X)[::-1] for X in kinds])
    values = [found[:width].astype(np.float64) for found in every]
    return np.concatenate([(found - found.mean()) / (found.std() or 1.0) for found in values])


def _log_length(X: NDArray[np.floating]) -> NDArray[np.floating]:
    lengths: NDArray[np.floating] = np.log(np.maximum(np.linalg.norm(X, axis=1), 1e-30))
    return lengths


def _signless(values: NDArray[np.floating], i: int, j: int, free: set[int]) -> NDArray[np.floating]:
    """Drop the sign of a product of which one factor's sign is free; up and down change theirs together."""
    return np.abs(values) if (i in free) != (j in free) else values


def _bands(products: Rows, step: int) -> list[NDArray[np.floating]]:
    edges = [edge for edge in BANDS[::step] if edge < products.shape[1]] + [products.shape[1]]
    return [products[:, low:high].mean(axis=1) for low, high in pairwise(edges)]


def pair_by_bands(a: NDArray[np.float64], b: NDArray[np.float64]) -> Index:
    """Return for each neuron of A the one of B whose labels are nearest, −1 for none; labels are whitened together first."""
    both = np.concatenate([a, b])
    values, vectors = np.linalg.eigh(np.cov(both.T))
    kept = values > 1e-3 * values[-1]
    whiten = vectors[:, kept] / np.sqrt(values[kept] + RIDGE * values[-1])
    left, right = a @ whiten, b @ whiten
    sizes = np.sum(left * left, axis=1)[:, None], np.sum(right * right, axis=1)
    return _paired(lambda some: 2.0 * left[some] @ right.T - sizes[1] - sizes[0][some], len(left), len(right))


def _paired(similarity: Callable[[slice], NDArray[np.floating]], rows: int, columns: int) -> Index:
    """Pair rows with columns, given what gives the similarity of some rows: by the best assignment where that is quick."""
    if max(rows, columns) <= MAX_ASSIGNED:
        return assigned(similarity(slice(None)))
    return mutual_nearest(similarity, rows, columns)


def find_rotation(
    pairs: Iterable[tuple[Neurons, Neurons]],
    *,
    start: Rows | None = None,
    seed: int = 0,
    among: Index | None = None,
    most: int = 0,
) -> FoundRotation:
    """Find the rotation between two models from pairs of layers that are taken to belong together.

    Without a first guess to `start` from (the embeddings of shared tokens, say), band profiles pair the first neurons. `seed`
    draws the neurons of A that are used, where there are more than `SAMPLED`, `among` those given if any are. Of the leading part
    of a wide model `most` neurons are used, and few rounds made.
    """
    rng = np.random.default_rng(seed)
    sides: list[tuple[Neurons, Neurons]] = []
    indices: list[Index] = []
    used: list[Index] = []
    for a, b in pairs:  # one pair at a time: they may be read only now
        if (a.gate is None) != (b.gate is None):
            raise DegenerateInput("rotation: only one side has gate matrices")
        # fewer rows than dimensions would leave the rotation undetermined
        rows = np.sort(rng.permutation(a.count if among is None else among)[: max(SAMPLED, a.width, most)])
        if start is None:
            some = None if a.count == len(rows) else rows
            width = min(a.width, b.width)
            labels = on_all_cores(lambda side: band_profiles(*side, width), ((a, some), (b, None)))  # noqa: B023 - called at once
            indices.append(pair_by_bands(*labels))
        sides.append((a.take(rows).directions(), b.directions()))
        used.append(rows)
    R = start
    signs = [_first_signs(*side, index) for side, index in zip(sides, indices, strict=True)] if R is None else []
    for done in range(WIDE_ITERATIONS if most else ITERATIONS):
        if R is None or done:
            R = _procrustes(sides, indices, signs)
        again = on_all_cores(lambda side: match_rotated(*side, R), sides)  # noqa: B023 - called at once
        still = bool(indices) and all(np.array_equal(new, old) for (new, _), old in zip(again, indices, strict=True))
        indices, signs = [index for index, _ in again], [sign for _, sign in again]
        if still:
            break
    assert R is not None
    shares = on_all_cores(lambda side: agreement(side[0].kinds, side[1].kinds, R), sides)
    return FoundRotation(R, float(np.mean(shares)), (used[0], indices[0], signs[0]))


def _first_signs(a: Neurons, b: Neurons, index: Index) -> Rows:
    """Return the sign between paired up rows as far as it can be told before there is a rotation: by cosines with gate rows."""
    if a.gate is None or b.gate is None:
        return np.ones(len(index), dtype=np.float32)
    one = np.einsum("ij,ij->i", a.gate, a.up)
    two = np.einsum("ij,ij->i", b.gate, b.up)[index]
    return np.where(one * two < 0.0, -1.0, 1.0).astype(np.float32)


def _procrustes(sides: Sequence[tuple[Neurons, Neurons]], indices: Sequence[Index], signs: Sequence[Rows]) -> Rows:
    """Return the orthogonal R that takes paired rows of A nearest to those of B (Schönemann 1966)."""
    total = np.zeros((sides[0][0].width, sides[0][1].width), dtype=np.float32)
    for (a, b), index, sign in zip(sides, indices, signs, strict=True):
        kept = np.flatnonzero(index >= 0)
        partner, turn = index[kept], sign[kept][:, None]
        if a.gate is not None and b.gate is not None:
            total += a.gate[kept].T @ b.gate[partner]
        total += a.up[kept].T @ (turn * b.up[partner])
        total += a.down[kept].T @ (turn * b.down[partner])
    return nearest_rotation(total)


def nearest_rotation(C: Rows) -> Rows:
    """Return UVᵀ of C = UΣVᵀ.

    Beyond `WIDE` by the eigenvectors of CᵀC, a third of the work, and Newton–Schulz steps that mend what rounding did to
    orthogonality (Björck & Bowie 1971); directions that C hardly determines may then be shrunk, and count for less.
    """
    if C.shape[0] <= WIDE or C.shape[0] != C.shape[1]:
        U, _, Vt = np.linalg.svd(C, full_matrices=False)
        return np.asarray(U @ Vt, dtype=np.float32)
    scaled = C / np.linalg.norm(C)
    values, V = np.linalg.eigh(scaled.T @ scaled)
    lengths = np.sqrt(np.maximum(values, values[-1] * np.finfo(np.float32).eps))
    R = ((scaled @ V) / lengths) @ V.T
    for _ in range(3):
        R = 1.5 * R - 0.5 * (R @ (R.T @ R))
    return np.asarray(R, dtype=np.float32)


def match_rotated(a: Neurons, b: Neurons, R: Rows) -> tuple[Index, Rows]:
    """Return for each neuron of A that of B which all rows pair it with, −1 for none, and the sign between up and down rows.

    By the cosines of their directions, which are given, under a rotation.
    """
    up, down, gate = a.up @ R, a.down @ R, None if a.gate is None or b.gate is None else a.gate @ R

    def likeness(some: slice) -> Rows:
        free: Rows = np.add(up[some] @ b.up.T, down[some] @ b.down.T)
        return free if gate is None or b.gate is None else np.add(gate[some] @ b.gate.T, np.abs(free))

    index = _paired(likeness, a.count, b.count)
    if gate is None:
        return index, np.ones(a.count, dtype=np.float32)
    loose = np.einsum("ij,ij->i", up, b.up[index]) + np.einsum("ij,ij->i", down, b.down[index])
    return index, np.where(loose < 0.0, -1.0, 1.0).astype(np.float32)


def agreement(a: Iterable[Rows | None], b: Iterable[Rows | None], R: Rows | None = None) -> float:
    """Return the share of neurons that two kinds of rows, each alone, pair alike under a rotation: the mean over the kinds.

    Directions of gate rows (None without), up rows and down rows are given; signs of the others are free where there are gates.
    """
    found, count, gated = [], 0, False
    for place, (left, right) in enumerate(zip(a, b, strict=False)):
        if left is not None and right is not None:
            gated, count = gated or place == 0, min(len(left), len(right))
            rows, signed = left if R is None else left @ R, place == 0 or not gated
            found.append(_paired(partial(cosines, rows, right, signed=signed), len(left), len(right)))
    alike = [np.count_nonzero((found[i] == found[j]) & (found[i] >= 0)) for i in range(len(found)) for j in range(i)]
    return float(np.mean(alike)) / count


def whole_rotation(a: Iterable[Rows | None], b: Iterable[Rows | None], pairs: tuple[Index, Index, Rows]) -> Rows:
    """Return the rotation of all dimensions by pairs of neurons that were found in leading ones: gate, up and down rows of both."""
    paired = np.flatnonzero(pairs[1] >= 0)
    sides = [(a, pairs[0][paired]), (b, pairs[1][paired])]
    one, two = (_made(X if X is None else directions(X[rows]) for X in kinds) for kinds, rows in sides)
    return _procrustes([(one, two)], [np.arange(len(paired))], [pairs[2][paired]])


def _made(kinds: Iterable[Rows | None]) -> Neurons:
    return Neurons(*kinds)  # type: ignore[arg-type]
