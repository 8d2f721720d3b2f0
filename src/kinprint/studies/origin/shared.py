"""Choose the models and norms that the study `origin` compares, and summarise values by layer."""

from collections.abc import Iterator
from functools import partial

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.layer_pairs import LayerPair, layer_pair
from kinprint.studies.opened import StudyRun, each
from kinprint.studies.outcome import Missing
from kinprint.text import Text

NORMS = (Role.INPUT_NORM, Role.POST_ATTENTION_NORM)
EVERY = 5  # of a control's large tensors every fifth layer is looked at: enough to see what a known relation looks like
COSINE, PEARSON = Text("cosine"), Text("Pearson")


def audited_models(run: StudyRun) -> tuple[str, str]:
    """Return the two models that the audited analysis compares, the first two given; `Missing` if they could not be opened."""
    names = [member.name for member in run.models[:2]]
    if len(names) < 2:
        raise Missing("two models are needed, A and B; {n} was given", n=len(names))
    for name in names:
        run.model(name)
    return names[0], names[1]


def controls(run: StudyRun) -> tuple[str, ...]:
    """Return the further models that could be opened."""
    first = {member.name for member in run.models[:2]}
    return tuple(name for name in run.names if name not in first)


def control_pairs(run: StudyRun) -> Iterator[tuple[str, str]]:
    """Yield each of the two models with each control."""
    return ((one, control) for control in controls(run) for one in audited_models(run))


def is_published(run: StudyRun, a: str, b: str) -> bool:
    """Whether the published figures are about this pair."""
    return (a, b) == ("Solar", "GLM") and run.original(a, b)


def is_complete(pair: LayerPair) -> bool:
    """Whether these are the 46 layers of the publication."""
    return pair.layers == tuple(range(46))


def norm_pair(run: StudyRun, a: str, b: str, role: Role) -> LayerPair:
    """Return one kind of norm of two models, in the layers in which both are there and neither is constant."""
    pair = layer_pair(run, a, b, role)
    kept = [layer for i, layer in enumerate(pair.layers) if pair.grid.valid[i, i]]
    if not kept:
        raise Missing("{a} and {b}: {role} is constant in every layer", **pair.named)
    return pair if len(kept) == len(pair.layers) else pair.only(kept)


def both_norms(run: StudyRun, a: str, b: str, missing: list[Text]) -> dict[Role, LayerPair]:
    """Return the kinds of norms that two models share, on the same layers; what is missing is noted."""
    found = each(missing, NORMS, partial(norm_pair, run, a, b))
    if not found:
        raise Missing(missing.pop())
    same = sorted(set.intersection(*(set(pair.layers) for pair in found)))
    if not same:
        raise Missing("{a} and {b} share no layer that has both norms", a=a, b=b)
    return {pair.role: pair if pair.layers == tuple(same) else pair.only(same) for pair in found}


def summarised(values: FloatArray) -> dict[str, float]:
    """Return mean, population standard deviation, least and greatest, under the names the publication uses."""
    return {name: float(getattr(values, name)()) for name in ("mean", "std", "min", "max")}
