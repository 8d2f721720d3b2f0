"""Compute the nulls of many metrics on pairs of one shape, such as the layers of a role, with shared parts computed once."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray, each_dot
from kinprint.errors import DegenerateInput
from kinprint.results.measurements import NullResult
from kinprint.stats.dot_products import DOT_KINDS, NullRequest, dot_nulls, unit_deviations
from kinprint.stats.montecarlo import Statistic
from kinprint.stats.nulls import null_for

DOT_FAMILY = frozenset({"pearson", "cosine", "deviation", "l2", "rel_l2_a", "rel_l2"})
"""Kinds that are functions of one and the same permuted dot product: they share z and p."""

KERNEL_DRAWS = 99  # a draw of a kernel alignment touches n² elements; its mean and spread are exact without any


class PermutationNulls:
    """Nulls of pairs of arrays, (pairs, m, d), whose last axis is permuted."""

    # Cosine, Pearson, distances and the deviation cosine all rest on ⟨A, B∘π⟩, so the costly part, the tail of that one
    # statistic, is found once. Each of them still has its own mean and spread.

    def __init__(self, A: FloatArray, B: FloatArray, *, seed: int) -> None:
        self._A, self._B = A, B
        self._seed = seed

    def each(self, kind: str, *, observed: Sequence[float], higher_is_closer: bool) -> list[NullResult]:
        """Return the nulls of `kind`, one of `DOT_KINDS`, for all pairs; raise DegenerateInput if one of the pairs has none."""
        known = self._correlations if kind in DOT_FAMILY else None
        if known is not None and kind == "pearson" and higher_is_closer:
            return known
        if known is None and kind in DOT_FAMILY and len(self._A) > 1:
            raise DegenerateInput(f"null {kind}: a side of one of the pairs is constant")
        ask = NullRequest(kind, observed, higher_is_closer, self._seed, known=known)
        return DOT_KINDS[kind](self._A, self._B, ask)

    def get(
        self,
        kind: str,
        A: NDArray[Any],
        B: NDArray[Any],
        *,
        observed: float,
        higher_is_closer: bool,
        statistic: Statistic | None = None,
    ) -> NullResult:
        """Return the null of `kind` of a single pair, for the arrays that its metric, the statistic, was given."""
        if kind in DOT_KINDS:
            return self.each(kind, observed=(observed,), higher_is_closer=higher_is_closer)[0]
        return null_for(
            kind,
            A,
            B,
            observed=observed,
            higher_is_closer=higher_is_closer,
            rng_seed=self._seed,
            draws=KERNEL_DRAWS if kind.startswith("cka") else None,
            statistic=statistic,
        )

    @cached_property
    def _correlations(self) -> list[NullResult] | None:
        """The nulls of the Pearson correlations, or None where a constant side leaves one without: each metric has its own."""
        try:
            left, right = unit_deviations(self._A), unit_deviations(self._B)
        except DegenerateInput:  # constant, or up to rounding
            return None
        observed = each_dot(left, right).tolist()
        ask = NullRequest("pearson", observed, higher_is_closer=True, seed=self._seed)
        return dot_nulls(left, right, observed, ask)
