"""What the parts of the baselines study share: which layers, models and vectors, and what was published of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.baselines.readings import Key, Reading
from kinprint.studies.opened import Stage, attempt, require_same_shape
from kinprint.studies.outcome import Check, Missing, Section
from kinprint.studies.published import published
from kinprint.studies.vectors import require_vector
from kinprint.text import Text

ROLE = Role.INPUT_NORM
FIFTH = "Mixtral-8x22B"
"""The model that only the five-MoE variant has: of another width, so that no element of it has a partner."""


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """Which layers are looked at.

    ``far`` are set against layer 0, ``steps`` against each other, all models meet at ``at`` and at each of ``sweep``.
    """

    far: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    at: int
    sweep: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """Every layer that is read."""
        return tuple(sorted({0, self.at, *self.far, *self.sweep, *itertools.chain(*self.steps)}))


PUBLISHED = Layers(far=(10, 20, 30, 40), steps=((10, 20), (20, 30)), at=10, sweep=(5, 10, 15, 20, 25, 30))


def layers_of(stage: Stage) -> Layers:
    """Return the layers asked for; else the published ones; else, in models of no more than 20 layers, some evenly apart."""
    if not stage.names:
        raise Missing(Text("none of the models could be opened"))
    asked = stage.request.layers
    if asked:
        later = tuple(layer for layer in asked if layer > 0)
        return Layers(later, tuple(itertools.pairwise(later)), later[0] if later else 0, asked)
    depth = min(stage.depth(name) for name in stage.names[:2])
    if depth > max(PUBLISHED.steps[0]):
        return PUBLISHED
    step = max(1, depth // 4)
    far = tuple(layer for layer in (step, 2 * step, 3 * step) if layer < depth)
    sweep = tuple(sorted({round(part * (depth - 1) / 6) for part in range(1, 7)}))
    return Layers(far, tuple(itertools.pairwise(far)), far[0] if far else 0, sweep)


# -- models and vectors --------------------------------------------------------------------------------------------------


def roles_of(stage: Stage) -> tuple[Role, ...]:
    """Return the roles asked for; the input norm by default."""
    return stage.request.roles or (ROLE,)


def tag(role: Role) -> str:
    """Return what is appended to the names of tables and figures of a role other than the default."""
    return "" if role is ROLE else f"_{role.value}"


def for_each_role(run: Callable[[Stage, Role, Section], None]) -> Callable[[Stage], Section]:
    """Return a part that does `run` for each role; what is missing is said once."""

    def one(stage: Stage, role: Role, section: Section) -> None:
        _require_role(stage, role)
        run(stage, role, section)

    def part(stage: Stage) -> Section:
        section = Section()
        for role in roles_of(stage):
            attempt(section.missing, partial(one, stage, role, section))
        for said in (section.missing, section.notes):
            said[:] = {text.render(): text for text in said}.values()
        return section

    return part


def _require_role(stage: Stage, role: Role) -> None:
    """Refuse a role that no model has in its layers, or that is a matrix, before each model and layer is named for it."""
    held = [(name, layer) for name in stage.names for layer in stage.layers(name, role)[:1]]
    if stage.names and not held:
        raise Missing(Text("none of these models has {role} in its layers", role=role.value))
    for name, layer in held:
        require_vector(stage, name, role, layer)


def kinds_of(stage: Stage, missing: list[Text]) -> dict[str, str]:
    """Return "moe" or "dense" for each model but the fifth, MoE first; one that could not be opened is noted."""
    found: dict[str, str] = {}
    for member in stage.members:
        if member.known is None or member.known.name != FIFTH:
            attempt(missing, partial(_note_kind, stage, member.name, found))
    return dict(sorted(found.items(), key=lambda item: item[1] != "moe"))


def _note_kind(stage: Stage, name: str, found: dict[str, str]) -> None:
    found[name] = stage.kind(name)


def moe_models(stage: Stage, section: Section) -> list[str]:
    """Return the MoE models, or all models, with a note, if there are not two."""
    kinds = kinds_of(stage, section.missing)
    moe = [name for name, kind in kinds.items() if kind == "moe"]
    if len(moe) >= 2:
        return moe
    section.notes.append(Text("There are no two MoE models among these: all models are compared instead."))
    return list(kinds)


def vectors(stage: Stage, role: Role, keys: Iterable[Key], missing: list[Text]) -> dict[Key, FloatArray]:
    """Return the vectors that exist and are as long as most of them; what is left out is noted."""
    found: dict[Key, FloatArray] = {}
    for key in dict.fromkeys(keys):
        attempt(missing, partial(_take, stage, role, key, found))
    if not found:
        return found
    width = Counter(vector.size for vector in found.values()).most_common(1)[0][0]
    first = next(key for key, vector in found.items() if vector.size == width)
    kept: dict[Key, FloatArray] = {}
    for key, vector in found.items():
        if vector.size == width:
            kept[key] = vector
        else:
            attempt(missing, partial(require_same_shape, first[0], found[first], key[0], vector))
    return kept


def _take(stage: Stage, role: Role, key: Key, found: dict[Key, FloatArray]) -> None:
    require_vector(stage, key[0], role, key[1])
    found[key] = stage.values(key[0], role, key[1])


# -- published figures -----------------------------------------------------------------------------------------------------


def results() -> dict[str, Any]:
    """Return the published RESULTS.md (seed 000)."""
    found: dict[str, Any] = published()["chahero_RESULTS"]
    return found


def pair_checks(
    stage: Stage, role: Role, readings: Iterable[Reading], known: Mapping[tuple[Key, Key], float]
) -> list[Check]:
    """Return a check of the cosine for each reading that was published."""
    if role is not ROLE:
        return []
    return [
        Check(Text("cosine, {pair}", pair=reading.label), known[reading.key], reading.cosine)
        for reading in readings
        if reading.key in known and stage.original(reading.a, reading.b)
    ]
