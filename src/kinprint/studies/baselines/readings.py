"""Two vectors read against each other, beside their null, and summaries of such readings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.stats import all_pairs
from kinprint.studies.outcome import Cell, Column, column

Key: TypeAlias = tuple[str, int]
"""A vector: model and layer."""


@dataclass(frozen=True)
class Reading:
    """Two vectors against each other: raw cosine and Pearson, each beside what independent vectors would give.

    ``null_mean`` is also what the two coefficients of variation alone predict: the mean over all orders of the elements.
    """

    a: str
    layer_a: int
    b: str
    layer_b: int
    cosine: float
    null_mean: float
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
        """How tables and figures name it: the models with their layers in brackets."""
        return f"{self.a}[{self.layer_a}] – {self.b}[{self.layer_b}]"

    @property
    def key(self) -> tuple[Key, Key]:
        """The two vectors."""
        return (self.a, self.layer_a), (self.b, self.layer_b)

    @property
    def row(self) -> tuple[Cell, ...]:
        """Cells under `COLUMNS`."""
        head = (self.a, self.layer_a, self.b, self.layer_b, self.cosine, self.null_mean, self.null_sd)
        return (*head, self.pearson, self.pearson_sd, self.z, self.log10_p, self.cv_a, self.cv_b)


COLUMNS: tuple[Column, ...] = (
    column("a", "A"),
    column("layer_a", "layer of A"),
    column("b", "B"),
    column("layer_b", "layer of B"),
    column("cosine", "cosine", 4),
    column("null_mean", "cosine if independent", 4),
    column("null_sd", "its sd", 5),
    column("pearson", "Pearson", 4),
    column("pearson_sd", "Pearson's null sd", 4),
    column("z", "z", 2),
    column("log10_p", "log10 p", 2),
    column("cv_a", "spread over mean, A", 3),
    column("cv_b", "spread over mean, B", 3),
)


@dataclass(frozen=True)
class Spread:
    """Mean and spread of some readings' cosines (population standard deviation, as published), and their null."""

    n: int
    mean: float
    sd: float
    median: float
    low: float
    high: float
    null: float
    pearson: float

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Spread:
        """Summarise readings, of which there has to be at least one."""
        cosines = np.array([reading.cosine for reading in readings])
        return cls(
            n=len(readings),
            mean=float(cosines.mean()),
            sd=float(cosines.std()),
            median=float(np.median(cosines)),
            low=float(cosines.min()),
            high=float(cosines.max()),
            null=float(np.mean([reading.null_mean for reading in readings])),
            pearson=float(np.mean([reading.pearson for reading in readings])),
        )

    @property
    def row(self) -> tuple[Cell, ...]:
        """Cells under `SPREAD_COLUMNS`."""
        return self.n, self.mean, self.sd, self.median, self.low, self.high, self.null, self.pearson


SPREAD_COLUMNS: tuple[Column, ...] = (
    column("n", "n"),
    column("mean", "mean cosine", 4),
    column("sd", "sd", 4),
    column("median", "median", 4),
    column("min", "least", 4),
    column("max", "greatest", 4),
    column("null_mean", "mean if independent", 4),
    column("pearson", "mean Pearson", 4),
)


def read_pairs(found: Mapping[Key, FloatArray], pairs: Iterable[tuple[Key, Key]]) -> list[Reading]:
    """Read pairs of vectors against each other; a pair of which one is not there is left out."""
    wanted = [(a, b) for a, b in pairs if a in found and b in found]
    if not wanted:
        return []
    rows, columns = (list(dict.fromkeys(side)) for side in zip(*wanted, strict=True))
    left, right = np.stack([found[key] for key in rows]), np.stack([found[key] for key in columns])
    measured, sd = all_pairs(left, right), float(1.0 / np.sqrt(left.shape[1] - 1))
    readings = []
    for a, b in wanted:
        at = rows.index(a), columns.index(b)
        values = (measured.cosine, measured.cosine_null_mean, measured.cosine_null_sd, measured.pearson)
        cosine, null_mean, null_sd, pearson = (float(value[at]) for value in values)
        tail = float(measured.z[at]), float(measured.log10_p[at])
        readings.append(
            Reading(*a, *b, cosine, null_mean, null_sd, pearson, sd, *tail, variation(found[a]), variation(found[b]))
        )
    return readings


def variation(vector: FloatArray) -> float:
    """Return the coefficient of variation: standard deviation (population) over absolute mean; NaN if that is zero."""
    mean = abs(float(vector.mean()))
    return float(vector.std()) / mean if mean else float("nan")


def across(names: Sequence[str], layer: int) -> list[tuple[Key, Key]]:
    """Return every pair of models at one layer."""
    return [((a, layer), (b, layer)) for a, b in itertools.combinations(names, 2)]
