"""The nulls of many metrics on one pair, with what they share computed once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import DegenerateInput
from kinprint.numeric import unit_scaled
from kinprint.results import NullResult
from kinprint.stats.nulls import null_for

DOT_FAMILY = frozenset({"pearson", "cosine", "deviation", "l2", "rel_l2_a", "rel_l2"})
"""Kinds that are functions of one and the same permuted dot product: they share z and p."""

KERNEL_DRAWS = 99  # a draw of a kernel alignment touches n² elements; its mean and spread are exact without any


class PermutationNulls:
    """Nulls of one pair of (m, d) arrays (or vectors) whose last axis is permuted.

    Cosine, Pearson, distances and the deviation cosine all rest on ⟨A, B∘π⟩, so the costly part, the tail of that one
    statistic, is found once. Each of them still has its own mean and spread.
    """

    def __init__(self, A: NDArray[Any], B: NDArray[Any], *, seed: int) -> None:
        self._A, self._B = A, B
        self._seed = seed
        self._shared: NullResult | None = None
        self._tried = False

    def get(
        self, kind: str, A: NDArray[Any], B: NDArray[Any], *, observed: float, higher_is_closer: bool
    ) -> NullResult:
        """Return the null of `kind` for the arrays its metric was given."""
        return null_for(
            kind,
            A,
            B,
            observed=observed,
            higher_is_closer=higher_is_closer,
            rng_seed=self._seed,
            draws=KERNEL_DRAWS if kind.startswith("cka") else None,
            known=self._dot() if kind in DOT_FAMILY else None,
        )

    def _dot(self) -> NullResult | None:
        """Return the null of the Pearson correlation, or None where a constant side leaves it without one."""
        if not self._tried:
            self._tried = True
            left, right = (X - X.mean() for X in (unit_scaled(self._A), unit_scaled(self._B)))
            length = float(np.linalg.norm(left) * np.linalg.norm(right))
            if length > 0.0:
                observed = float(np.vdot(left, right)) / length
                with suppress(DegenerateInput):  # constant up to rounding: each metric then has a null of its own
                    self._shared = null_for(
                        "pearson", self._A, self._B, observed=observed, higher_is_closer=True, rng_seed=self._seed
                    )
        return self._shared
