"""Summarise each role: test all its layers under one joint null.

Layers of a model resemble each other, so their tests must not be added up as if each were news. Where the permuted axis is
the residual stream, which all layers share, ONE permutation serves them all. Where every layer has its own neurons, each
layer has its own permutation, and cumulants of independent sums add.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kinprint._util.numeric import FloatArray, median
from kinprint.arch import Axis, Role
from kinprint.errors import DegenerateInput
from kinprint.model.reader import Sample
from kinprint.results.measurements import OK, NullResult, RoleSummary, TensorComparison
from kinprint.stats.joint import joint_independent, joint_tail, rows_taken
from kinprint.text import Text

ONE = Text("one permutation for all layers")
OWN = Text("its own permutation for each layer")


Layer = tuple[
    TensorComparison, Sample, Sample
]  # of a role, or one of its experts: as measured, and as read of both models


def summarise(role: Role, layers: Sequence[Layer], *, seed: int) -> RoleSummary:
    """Return a role's line: medians to describe, one statistic to test."""
    done = [item for item, _, _ in layers if item.status == OK]
    cosines = [value for item in done if (value := _value_of(item, "cosine")) is not None]
    null_means = [null.mean for item in done if (null := _null_of(item, "cosine")) is not None]
    pearsons = [value for item in done if (value := _value_of(item, "pearson")) is not None]
    null, permutation, reason = _joint(role, layers, seed)
    return RoleSummary(
        role=role.value,
        kind=role.info.kind,
        compared=len(done),
        not_compared=len(layers) - len(done),
        median_cosine=_median(cosines),
        median_cosine_null=_median(null_means),
        mean_pearson=float(np.mean(pearsons)) if pearsons else None,
        statistic=None if null is None or null.z is None else null.mean + null.z * null.sd,
        null=null,
        permutation=permutation,
        reason=reason,
    )


def _joint(role: Role, layers: Sequence[Layer], seed: int) -> tuple[NullResult | None, Text | None, Text | None]:
    nulls = [_null_of(item, "pearson") for item, _, _ in layers]
    usable = [(layer, null) for layer, null in zip(layers, nulls, strict=True) if null is not None]
    if not usable:
        return None, None, _why_not(item for item, _, _ in layers)
    try:
        if usable[0][0][0].permuted_axis == Axis.RESIDUAL:
            blocks, said = _blocks(role, [(a, b) for (_, a, b), _ in usable])
            return joint_tail(blocks, seed=seed), said, None
        values = [_value_of(item, "pearson") for (item, _, _), _ in usable]
        observed = [value for value in values if value is not None]
        return joint_independent(observed, [null for _, null in usable]), OWN, None
    except DegenerateInput as error:
        return None, None, error.reason


def _blocks(role: Role, samples: Sequence[tuple[Sample, Sample]]) -> tuple[list[tuple[FloatArray, FloatArray]], Text]:
    """Return the layers as (rows × residual) blocks, as many rows as the joint test takes, and how they are permuted."""
    first = samples[0][0].stored
    if first.ndim == 1:
        return [(a.values[None, :], b.values[None, :]) for a, b in samples], ONE
    if not role.info.axes[1].exchangeable:  # rows are permuted: few units, so the d × d form is the cheap one
        return [(a.values.T, b.values.T) for a, b in samples], ONE
    share = rows_taken(len(samples), first.shape[1])
    blocks = [(a.part(slice(share)), b.part(slice(share))) for a, b in samples]
    if all(len(a.stored) <= share for a, _ in samples):
        return blocks, ONE
    return blocks, Text("one permutation for all layers, on the first {n} rows of each", n=share)


def _why_not(comparisons: Iterable[TensorComparison]) -> Text:
    for item in comparisons:
        if item.reason:
            return item.reason
        for measured in item.measurements:
            if measured.metric == "pearson" and measured.reason:
                return measured.reason
    return Text("pearson was not among the metrics asked for")


def _null_of(comparison: TensorComparison, metric: str) -> NullResult | None:
    return next((item.null for item in comparison.measurements if item.metric == metric), None)


def _value_of(comparison: TensorComparison, metric: str) -> float | None:
    return next((item.value for item in comparison.measurements if item.metric == metric), None)


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
