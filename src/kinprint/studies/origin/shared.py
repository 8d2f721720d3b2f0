"""What the parts of the study `origin` share: which models are compared, their norms, and summaries of a column of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.outcome import Check, Missing, Section, Trust
from kinprint.studies.published import claims, published, published_checks
from kinprint.text import Text

NORMS = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)
EVERY = 5
"""Of a control's large tensors every fifth layer is looked at: enough to see what a known relation looks like."""

UNCONSTRAINED = Text("the replicas were not made to have this number")
COSINE, PEARSON = Text("cosine"), Text("Pearson")
STATISTIC = {
    "mean": Text("mean"),
    "std": Text("standard deviation"),
    "min": Text("least"),
    "max": Text("greatest"),
}
"""Statistics under the names the publication uses."""


def accused(run: StudyRun) -> tuple[str, str]:
    """Return the two models that the accusation is about, the first two given; `Missing` if they could not be opened."""
    names = [member.name for member in run.models[:2]]
    if len(names) < 2:
        raise Missing(Text("two models are needed, A and B; {n} was given", n=len(names)))
    for name in names:
        run.model(name)
    return names[0], names[1]


def controls(run: StudyRun) -> tuple[str, ...]:
    """Return the further models that could be opened."""
    first = {member.name for member in run.models[:2]}
    return tuple(name for name in run.names if name not in first)


def control_pairs(run: StudyRun) -> Iterator[tuple[str, str]]:
    """Yield each of the two models with each control."""
    a, b = accused(run)
    for control in controls(run):
        yield a, control
        yield b, control


def is_published(run: StudyRun, a: str, b: str) -> bool:
    """Whether the published figures are about this pair."""
    return (a, b) == ("Solar", "GLM") and run.original(a, b)


def add_checks(run: StudyRun, section: Section, part: str, values: Mapping[str, float | None] | None = None) -> None:
    """Add what ``claims.json`` lists for a part, if the published figures are about these models."""
    if is_published(run, *accused(run)):
        section.checks += published_checks(run, section, claims("origin")[part], values)


def is_complete(pair: LayerPair) -> bool:
    """Whether these are the 46 layers of the publication."""
    return pair.layers == tuple(range(46))


def origin() -> dict[str, Any]:
    """Return the figures of the first accusation."""
    found: dict[str, Any] = published()["origin"]
    return found


def norm_pair(run: StudyRun, a: str, b: str, role: Role) -> LayerPair:
    """Return one kind of norm of two models, in the layers in which both are there and neither is constant."""
    pair = layer_pair(run, a, b, role)
    kept = [layer for i, layer in enumerate(pair.layers) if pair.grid.valid[i, i]]
    if not kept:
        raise Missing(Text("{a} and {b}: {role} is constant in every layer", a=a, b=b, role=role.value))
    return pair if len(kept) == len(pair.layers) else pair.only(kept)


def both_norms(run: StudyRun, a: str, b: str, missing: list[Text]) -> dict[Role, LayerPair]:
    """Return the kinds of norms that two models share, on the same layers; what is missing is noted."""
    found = each(missing, NORMS, partial(norm_pair, run, a, b))
    if not found:
        raise Missing(missing.pop())
    same = sorted(set.intersection(*(set(pair.layers) for pair in found)))
    if not same:
        raise Missing(Text("{a} and {b} share no layer that has both norms", a=a, b=b))
    return {pair.role: pair if pair.layers == tuple(same) else pair.only(same) for pair in found}


def count_check(
    what: Text, known: float, measured: float | None, trust: Trust = "measured", reason: Text | None = None
) -> Check:
    """Return a check of a count: within one unit of the last digit 0 would pass for 1, so counts have to be equal."""
    return Check(what, float(known), measured, digits=0, trust=trust, reason=reason, within=0.5)


def summarised(values: FloatArray) -> dict[str, float]:
    """Return mean, population standard deviation, least and greatest, under the names the publication uses."""
    return {name: float(getattr(values, name)()) for name in STATISTIC}
