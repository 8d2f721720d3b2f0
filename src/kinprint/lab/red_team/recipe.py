"""Describe a pair of the red team: two models, what is done to either, and the right answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kinprint.lab.red_team.models import Source
from kinprint.lab.zoo.edits import run_edit
from kinprint.lab.zoo.members import Loaded

HONEST, EVASIVE = "honest", "evasive"
DEPTHS = (6, 12, 24)
PRINCIPLES = {
    1: "places that mean something by recipe", 2: "same random start", 3: "distillation, starts of a part",
    4: "structured dimensions", 5: "depth and coverage", 6: "norms", 7: "changes that keep the function, and combinations",
    8: "origin after an alignment", 9: "kinds", 10: "merges with relatives", 11: "not read, not recognised, power",
    12: "the order of the models",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One change of a model: a function as `run_edit` takes it, further models that it needs, and its arguments."""

    edit: Callable[..., Any]
    others: tuple[Source, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()


def do(edit: Callable[..., Any], *others: Source, **arguments: Any) -> Step:
    """Return a step."""
    return Step(edit, others, tuple(arguments.items()))


def made(source: Source, steps: Sequence[Step], layers: int) -> Loaded:
    """Make a model: draw or load it, and take every step."""
    model = source(layers)
    for step in steps:
        parents = [model, *(other(layers) for other in step.others)]
        model = run_edit(step.edit, parents, 3, dict(step.arguments), "F32")
    return model


@dataclass(frozen=True)
class Recipe:
    """A pair at some depths: models ``a`` and ``b``, what is done to either (``left``, ``right``), and the right classes.

    Edits of ``kinds`` must all be named ("x|y": one of them), those of ``may`` can be, any other is wrong; None: not judged.
    ``parents`` are given to the comparison as possible parents of a merge, ``swapped`` asks for one answer in both orders,
    ``unsaid`` is a part that must not be called not shared, ``why`` the reason of an answer that is not plain.
    """

    name: str
    principle: int
    intent: str
    classes: tuple[str, ...]
    a: Source
    b: Source
    left: tuple[Step, ...] = ()
    right: tuple[Step, ...] = ()
    kinds: tuple[str, ...] | None = None
    may: tuple[str, ...] = ()
    layers: tuple[int, ...] = DEPTHS
    parents: tuple[Source, ...] = ()
    swapped: bool = False
    unsaid: str = ""
    why: str = ""
