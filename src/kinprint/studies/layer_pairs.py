"""Compare the norm weights of two models layer by layer, beside what independence predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.results.measurements import NullResult
from kinprint.stats.joint import joint_tail
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Cell, Missing
from kinprint.studies.row_grid import RowGrid, row_grid


@dataclass(frozen=True, eq=False)
class LayerPair:
    """One role in the layers that two models share: vectors as rows, and all pairs of rows (``grid``).

    Values by layer are the grid's diagonal, the same layer of both. ``null_mean`` and ``null_sd`` are those of the cosine over
    all orders of one side's elements: what mean and spread alone predict. ``pearson``, ``z`` and ``log10_p`` are NaN where a
    side is constant, ``cosine`` and its null where one is zero.
    """

    a: str
    b: str
    role: Role
    layers: tuple[int, ...]
    left: FloatArray
    right: FloatArray
    grid: RowGrid = field(init=False, repr=False)
    cosine: FloatArray = field(init=False, repr=False)
    null_mean: FloatArray = field(init=False, repr=False)
    null_sd: FloatArray = field(init=False, repr=False)
    pearson: FloatArray = field(init=False, repr=False)
    z: FloatArray = field(init=False, repr=False)
    log10_p: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grid = row_grid(self.left, self.right)
        object.__setattr__(self, "grid", grid)
        for name in ("cosine", "null_mean", "null_sd", "pearson", "z", "log10_p"):
            of_grid = f"cosine_{name}" if name.startswith("null") else name
            object.__setattr__(self, name, np.diagonal(getattr(grid, of_grid)))

    @property
    def name(self) -> str:
        """The pair as tables name it."""
        return f"{self.a}–{self.b}"

    @property
    def named(self) -> dict[str, str]:
        """What sentences about the pair name."""
        return {"a": self.a, "b": self.b, "role": self.role.value}

    @property
    def title(self) -> str:
        """The pair as figures name it."""
        return f"{self.a} and {self.b}, {self.role.value}"

    @property
    def pearson_sd(self) -> float:
        """Standard deviation of one layer's Pearson over all orders: exact, and the same for all layers."""
        return 1.0 / math.sqrt(self.left.shape[1] - 1)

    @property
    def mean_pearson(self) -> float:
        """Mean over the layers that have a Pearson; NaN if none has."""
        return finite_mean(self.pearson)

    @property
    def best(self) -> int:
        """Position of the layer with the largest raw cosine; `Missing` if no layer has a cosine."""
        if not np.isfinite(self.cosine).any():
            raise Missing("{a} and {b} have no layer with a cosine: all are zero", a=self.a, b=self.b)
        return int(np.nanargmax(self.cosine))

    @property
    def correlation(self) -> str:
        """Mean Pearson and the test of all layers together, as titles of figures state them."""
        if not np.isfinite(self.pearson).any():
            return "no r: a side is constant"
        test = self.joint()
        log10_p = test.log10_p or 0.0
        value = f"{10.0**log10_p:.2g}" if log10_p > -300 else f"10^{log10_p:.0f}"
        return f"r = {self.mean_pearson:.3f}, joint p {'≤' if test.p_method.bound else '='} {value}"

    @property
    def finding(self) -> str:
        """Mean cosine beside what independence predicts, and the correlation, as titles of figures state them."""
        cosine, null = (f"{finite_mean(values):.3f}" for values in (self.cosine, self.null_mean))
        return f"cosine {cosine} (independent: {null}), {self.correlation}"

    def only(self, layers: Sequence[int]) -> LayerPair:
        """Return some of the layers; `Missing` if there are none."""
        rows = [self.layers.index(layer) for layer in layers if layer in self.layers]
        if not rows:
            raise Missing("{a} and {b} share no layer with the role {role}", **self.named)
        kept = tuple(self.layers[row] for row in rows)
        return LayerPair(self.a, self.b, self.role, kept, self.left[rows], self.right[rows])

    def rows(self, *names: str) -> list[tuple[Cell, ...]]:
        """Return a row for each layer: its number, and what is named, by layer or the same for all."""
        values = [np.broadcast_to(getattr(self, name), len(self.layers)) for name in names]
        return [(layer, *(float(one[i]) for one in values)) for i, layer in enumerate(self.layers)]

    def joint(self, seed: int = 0) -> NullResult:
        """Test the mean of all layers' Pearson under ONE permutation of the residual stream: layers are no independent trials."""
        usable = np.flatnonzero(np.isfinite(self.pearson))
        if not usable.size:
            said = "{a} and {b}: no layer of {role} to test, as one side or the other is constant in each"
            raise Missing(said, **self.named)
        return joint_tail([(self.left[i : i + 1], self.right[i : i + 1]) for i in usable], seed=seed)


def layer_pair(run: StudyRun, a: str, b: str, role: Role) -> LayerPair:
    """Compare two models on the layers that both have; `Missing` if they share none, or their widths differ."""
    return LayerPair(a, b, role, *run.stacks(a, b, role))


def finite_mean(values: FloatArray) -> float:
    """Return the mean of the numbers among `values`; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan


def finite_median(values: FloatArray) -> float:
    """Return the median of the numbers among `values`; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(np.median(kept)) if kept.size else math.nan
