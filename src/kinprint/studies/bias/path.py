"""Joint principal components of the layers of several models, and what is left of them in random order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.errors import DegenerateInput
from kinprint.metrics import METRICS
from kinprint.studies.outcome import Missing
from kinprint.text import Text

COMPONENTS = 3
ORDERS = 40
"""Random orders of each model's dimensions that the null of the explained variance is drawn from."""


@dataclass(frozen=True)
class JointPath:
    """Scores (models × layers × components) and shares of variance.

    ``null`` and ``null_sd`` are mean and standard deviation of the shares when each model's dimensions are put into one
    random order of their own; ``with_mean`` the correlation of a component's scores with the mean of each layer's values.
    """

    names: tuple[str, ...]
    layers: tuple[int, ...]
    scores: FloatArray
    explained: FloatArray
    null: FloatArray
    null_sd: FloatArray
    with_mean: tuple[float | None, ...]


def joint_path(stacks: Mapping[str, tuple[tuple[int, ...], FloatArray]], *, seed: int) -> JointPath:
    """Return the joint principal components of the layers that all models have.

    Raises
    ------
    Missing
        If there are too few layers.
    DegenerateInput
        If all layers are the same.
    """
    shared = sorted(set.intersection(*(set(layers) for layers, _ in stacks.values()))) if stacks else []
    if len(shared) * len(stacks) < COMPONENTS + 1:
        raise Missing(
            Text(
                "principal components need at least {least} layers in all; {count} are there",
                least=COMPONENTS + 1,
                count=len(shared) * len(stacks),
            )
        )
    rows = [values[[layers.index(layer) for layer in shared]] for layers, values in stacks.values()]
    stack = np.concatenate(rows)
    shares, vectors, sizes = _components(stack)
    if sizes[0] <= 0.0:
        raise DegenerateInput("principal components: all layers are the same")
    count = min(COMPONENTS, int(np.count_nonzero(sizes > 1e-12 * sizes[0])))
    scores = vectors[:, :count] * sizes[:count]
    scores = scores * np.where(
        np.abs(scores).max(axis=0) == scores.max(axis=0), 1.0, -1.0
    )  # signs are arbitrary: fix them
    null = _null(rows, seed)[:, :count]
    level = stack.mean(axis=1)
    return JointPath(
        names=tuple(stacks),
        layers=tuple(shared),
        scores=scores.reshape(len(stacks), len(shared), count),
        explained=shares[:count],
        null=null.mean(axis=0),
        null_sd=null.std(axis=0, ddof=1),
        with_mean=tuple(_correlation(scores[:, k], level) for k in range(count)),
    )


def _components(stack: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shares of variance, unit score vectors and their lengths, from the Gram matrix: rows are few."""
    centred = stack - stack.mean(axis=0)
    return _spectrum(centred @ centred.T)


def _spectrum(gram: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values[::-1], 0.0)
    total = values.sum()
    return values / total if total > 0.0 else values, vectors[:, ::-1], np.sqrt(values)


def _null(rows: list[FloatArray], seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(ORDERS):
        mixed = np.concatenate([values[:, rng.permutation(values.shape[1])] for values in rows])
        found.append(_components(mixed)[0])
    return np.array(found)


def _correlation(x: FloatArray, y: FloatArray) -> float | None:
    try:
        return METRICS["pearson"](x, y)
    except DegenerateInput:
        return None
