"""What the parts of the study `origin` share: which models are compared, their norms, and summaries of a column of values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.stats import RowGrid, joint_tail, row_grid
from kinprint.studies.opened import Stage
from kinprint.studies.outcome import Check, Missing, Trust
from kinprint.studies.published import published
from kinprint.text import Text

NORMS = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)
CATEGORY = {Role.INPUT_NORM: "norm_pre", Role.POST_ATTENTION_NORM: "norm_post"}
EVERY = 5
"""Of a control's large tensors every fifth layer is looked at: enough to see what a known relation looks like."""


def accused(stage: Stage) -> tuple[str, str]:
    """Return the two models that the accusation is about: the first two given.

    Raises
    ------
    Missing
        If there are not two, or one of them could not be opened.
    """
    names = [member.name for member in stage.members[:2]]
    if len(names) < 2:
        raise Missing(Text("two models are needed, A and B; {n} was given", n=len(names)))
    for name in names:
        stage.model(name)
    return names[0], names[1]


def controls(stage: Stage) -> tuple[str, ...]:
    """Return the further models that could be opened."""
    first = {member.name for member in stage.members[:2]}
    return tuple(name for name in stage.names if name not in first)


def all_model_pairs(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield A and B, then each of them with each control."""
    a, b = accused(stage)
    yield a, b
    for control in controls(stage):
        yield a, control
        yield b, control


def is_published(stage: Stage, a: str, b: str) -> bool:
    """Whether the published figures are about this pair."""
    return (a, b) == ("Solar", "GLM") and stage.original(a, b)


def origin() -> dict[str, Any]:
    """Return the figures of the first accusation."""
    found: dict[str, Any] = published()["origin"]
    return found


@dataclass(frozen=True)
class NormPair:
    """One kind of norm in the layers that two models share: vectors as rows, and all pairs of rows."""

    a: str
    b: str
    role: Role
    layers: tuple[int, ...]
    left: FloatArray
    right: FloatArray
    pairs: RowGrid
    dropped: tuple[int, ...] = ()  # layers in which a side is constant: no correlation is defined there

    @property
    def cosine(self) -> FloatArray:
        """Cosine of the same layer."""
        return np.diagonal(self.pairs.cosine)

    @property
    def pearson(self) -> FloatArray:
        """Pearson correlation of the same layer."""
        return np.diagonal(self.pairs.pearson)

    @property
    def null_mean(self) -> FloatArray:
        """Mean cosine over all orders of one side's elements: what mean and spread alone predict."""
        return np.diagonal(self.pairs.cosine_null_mean)

    @property
    def null_sd(self) -> FloatArray:
        """Standard deviation of the cosine over all orders."""
        return np.diagonal(self.pairs.cosine_null_sd)

    @property
    def pearson_sd(self) -> float:
        """Standard deviation of Pearson's correlation over all orders."""
        return 1.0 / math.sqrt(self.left.shape[1] - 1)

    @property
    def complete(self) -> bool:
        """Whether these are the 46 layers of the publication."""
        return self.layers == tuple(range(46))

    def only(self, layers: Sequence[int]) -> NormPair:
        """Return some of the layers."""
        rows = [self.layers.index(layer) for layer in layers]
        left, right = self.left[rows], self.right[rows]
        return NormPair(self.a, self.b, self.role, tuple(layers), left, right, row_grid(left, right))


def norm_pair(stage: Stage, a: str, b: str, role: Role) -> NormPair:
    """Return one kind of norm of two models, in the layers both have.

    Raises
    ------
    Missing
        If they share no layer, their widths differ, or every layer is constant.
    """
    layers, left, right = stage.stacks(a, b, role)
    pairs = row_grid(left, right)
    keep = [i for i in range(len(layers)) if pairs.valid[i, i]]
    if not keep:
        raise Missing(Text("{a} and {b}: {role} is constant in every layer", a=a, b=b, role=role.value))
    if len(keep) == len(layers):
        return NormPair(a, b, role, layers, left, right, pairs)
    kept, left, right = tuple(layers[i] for i in keep), left[keep], right[keep]
    dropped = tuple(layer for layer in layers if layer not in kept)
    return NormPair(a, b, role, kept, left, right, row_grid(left, right), dropped)


def both_norms(stage: Stage, a: str, b: str, missing: list[Text]) -> dict[Role, NormPair]:
    """Return the kinds of norms that two models share, on the same layers; what is missing is noted.

    Raises
    ------
    Missing
        If there is none.
    """
    found: dict[Role, NormPair] = {}
    for role in NORMS:
        try:
            found[role] = norm_pair(stage, a, b, role)
        except Missing as error:
            missing.append(error.text)
    if not found:
        raise Missing(missing.pop())
    layers = set.intersection(*(set(pair.layers) for pair in found.values()))
    if not layers:
        raise Missing(Text("{a} and {b} share no layer that has both norms", a=a, b=b))
    same = tuple(sorted(layers))
    return {role: pair if pair.layers == same else pair.only(same) for role, pair in found.items()}


@dataclass(frozen=True)
class Joint:
    """The mean Pearson correlation of all layers under one permutation for all: layers of a model are not independent."""

    mean: float
    sd: float
    z: float | None
    log10_p: float | None


def joint(pair: NormPair) -> Joint:
    """Test all layers of a pair together."""
    null = joint_tail([(x[None, :], y[None, :]) for x, y in zip(pair.left, pair.right, strict=True)])
    return Joint(float(pair.pearson.mean()), null.sd, null.z, null.log10_p)


def count_check(
    what: Text, known: float, measured: float | None, trust: Trust = "measured", reason: Text | None = None
) -> Check:
    """Return a check of a count: within one unit of the last digit 0 would pass for 1, so counts have to be equal."""
    return Check(what, float(known), measured, 0, trust, reason, within=0.5)


STATISTICS = ("mean", "std", "min", "max")


def summarised(values: FloatArray) -> dict[str, float]:
    """Return mean, population standard deviation, least and greatest, under the names the publication uses."""
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def summary_checks(
    what: Text, known: dict[str, float], values: FloatArray, *, digits: int = 4, reason: Text | None = None
) -> list[Check]:
    """Return published mean, standard deviation, least and greatest beside the measured ones."""
    measured = summarised(values)
    return [
        Check(
            Text("{statistic} of {what}", statistic=STATISTIC[name], what=what),
            known[name],
            measured[name],
            digits,
            reason=reason,
        )
        for name in STATISTICS
        if known.get(name) is not None
    ]


UNCONSTRAINED = Text("the replicas were not made to have this number")
NEEDS_FULL = Text("published on more elements or draws: the long settings are needed to compare")
COSINE, PEARSON = Text("cosine"), Text("Pearson")
STATISTIC = {
    "mean": Text("mean"),
    "std": Text("standard deviation"),
    "min": Text("least"),
    "max": Text("greatest"),
}
