"""Measure pairs of vectors by raw cosine and Pearson, each beside what independent vectors give, and summarise such pairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.studies.outcome import columns
from kinprint.studies.row_grid import row_grid

Vector: TypeAlias = tuple[str, int]  # a vector of the role looked at: model and layer


class VectorPair(NamedTuple):
    """Two vectors against each other."""

    a: str
    layer_a: int
    b: str
    layer_b: int
    cosine: float
    null_mean: float  # of the cosine over all orders of one side's elements: what the spreads alone predict
    null_sd: float
    pearson: float
    pearson_sd: float
    z: float
    log10_p: float
    cv_a: float
    cv_b: float

    @property
    def within(self) -> bool:
        """Whether both vectors are of one model."""
        return self.a == self.b

    @property
    def label(self) -> str:
        """The pair as tables and figures name it: the models with their layers in brackets."""
        return f"{self.a}[{self.layer_a}] – {self.b}[{self.layer_b}]"

    @property
    def key(self) -> tuple[Vector, Vector]:
        """The two vectors."""
        return (self.a, self.layer_a), (self.b, self.layer_b)


COLUMNS = columns("a; layer_a; b; layer_b; cosine; null_mean; null_sd; pearson; pearson_sd; z; log10_p; cv_a; cv_b")


class Spread(NamedTuple):
    """Mean and spread of some pairs' cosines (population standard deviation, as published), and their null."""

    n: int
    mean: float
    sd: float
    median: float
    min: float
    max: float
    null_mean: float
    pearson: float

    @classmethod
    def of(cls, pairs: Sequence[VectorPair]) -> Spread:
        """Summarise pairs, of which there has to be at least one."""
        cosines = np.array([pair.cosine for pair in pairs])
        mean, sd, median, least, most = (float(f(cosines)) for f in (np.mean, np.std, np.median, np.min, np.max))
        null, pearson = (float(np.mean([getattr(pair, name) for pair in pairs])) for name in ("null_mean", "pearson"))
        return cls(len(pairs), mean, sd, median, least, most, null, pearson)


SPREAD_COLUMNS = columns(
    "n; mean: mean cosine .4; sd; median; min; max; null_mean: mean if independent .4; pearson: mean Pearson .4"
)


def finding(groups: Iterable[tuple[str, Sequence[VectorPair]]]) -> str:
    """Return what titles of figures state of groups of pairs: mean cosine beside its null, and mean Pearson."""
    kept = [(name, [pair for pair in pairs if np.isfinite(pair.pearson)]) for name, pairs in groups]
    spreads = [(name, Spread.of(pairs)) for name, pairs in kept if pairs]
    said = "{}: cosine {:.3f} (independent: {:.3f}), r = {:.3f}"
    return "; ".join(said.format(name, spread.mean, spread.null_mean, spread.pearson) for name, spread in spreads)


def vector_pairs(found: Mapping[Vector, FloatArray], pairs: Iterable[tuple[Vector, Vector]]) -> list[VectorPair]:
    """Measure pairs of vectors; a pair of which one is not there is left out."""
    wanted = [(a, b) for a, b in pairs if a in found and b in found]
    if not wanted:
        return []
    rows, others = (list(dict.fromkeys(side)) for side in zip(*wanted, strict=True))
    left, right = np.stack([found[key] for key in rows]), np.stack([found[key] for key in others])
    measured, sd = row_grid(left, right), float(1.0 / np.sqrt(left.shape[1] - 1))
    made = []
    for a, b in wanted:
        at = rows.index(a), others.index(b)
        cosine = measured.cosine[at], measured.cosine_null_mean[at], measured.cosine_null_sd[at]
        pearson = measured.pearson[at], sd, measured.z[at], measured.log10_p[at]
        values = (float(value) for value in (*cosine, *pearson, variation(found[a]), variation(found[b])))
        made.append(VectorPair(*a, *b, *values))
    return made


def variation(vector: FloatArray) -> float:
    """Return the coefficient of variation: standard deviation (population) over absolute mean; NaN if that is zero."""
    mean = abs(float(vector.mean()))
    return float(vector.std()) / mean if mean else float("nan")


def across(names: Sequence[str], layer: int) -> list[tuple[Vector, Vector]]:
    """Return every pair of models at one layer."""
    return [((a, layer), (b, layer)) for a, b in itertools.combinations(names, 2)]
