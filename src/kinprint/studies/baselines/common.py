"""Choose and measure the layers, models and vectors that the parts of the baselines study share."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.opened import StudyRun, attempt, each, require_same_shape, require_vector
from kinprint.studies.outcome import Missing, Section
from kinprint.studies.published import claims, published_checks
from kinprint.studies.vector_pairs import Vector, VectorPair, across, vector_pairs
from kinprint.text import Text

ROLE = Role.INPUT_NORM
FIFTH = "Mixtral-8x22B"
"""The model that only the five-MoE variant has: of another width, so that no element of it has a partner."""


@dataclass(frozen=True)
class Layers:
    """Layers that the experiments compare."""

    far: tuple[int, ...]  # set against layer 0
    steps: tuple[tuple[int, int], ...]  # set against each other
    at: int  # where all models are compared
    sweep: tuple[int, ...]  # at each of which the MoE models are compared

    @property
    def all(self) -> tuple[int, ...]:
        """Every layer that is read."""
        return tuple(sorted({0, self.at, *self.far, *self.sweep, *itertools.chain(*self.steps)}))


PUBLISHED = Layers(far=(10, 20, 30, 40), steps=((10, 20), (20, 30)), at=10, sweep=(5, 10, 15, 20, 25, 30))


def layers_of(run: StudyRun) -> Layers:
    """Return the layers asked for; else the published ones; else, in models of no more than 20 layers, some evenly apart."""
    if not run.names:
        raise Missing("none of the models could be opened")
    asked = run.request.layers
    if asked:
        later = tuple(layer for layer in asked if layer > 0)
        return Layers(later, tuple(itertools.pairwise(later)), later[0] if later else 0, asked)
    depth = min(run.depth(name) for name in run.names[:2])
    if depth > max(PUBLISHED.steps[0]):
        return PUBLISHED
    step = max(1, depth // 4)
    far = tuple(layer for layer in (step, 2 * step, 3 * step) if layer < depth)
    sweep = tuple(sorted({round(part * (depth - 1) / 6) for part in range(1, 7)}))
    return Layers(far, tuple(itertools.pairwise(far)), far[0] if far else 0, sweep)


def tag(role: Role) -> str:
    """Return what is appended to the names of tables and figures of a role other than the default."""
    return "" if role is ROLE else f"_{role.value}"


def for_each_role(do: Callable[[StudyRun, Role, Section], None]) -> Callable[[StudyRun], Section]:
    """Return a part that does `do` for each role; what is missing is said once."""

    def one(run: StudyRun, section: Section, role: Role) -> None:
        # a role that no model has, or that is a matrix, is refused before each model and layer is named for it
        held = [(name, layer) for name in run.names for layer in run.layers(name, role)[:1]]
        if run.names and not held:
            raise Missing("none of these models has {role} in its layers", role=role.value)
        for name, layer in held:
            require_vector(run, name, role, layer)
        do(run, role, section)

    def part(run: StudyRun) -> Section:
        section = Section()
        each(section.missing, run.request.roles or (ROLE,), partial(one, run, section))
        for said in (section.missing, section.notes):
            said[:] = dict.fromkeys(said)
        return section

    return part


def kinds_of(run: StudyRun, missing: list[Text]) -> dict[str, str]:
    """Return "moe" or "dense" for each model but the fifth, MoE first; one that could not be opened is noted."""
    names = [member.name for member in run.models if member.known is None or member.known.name != FIFTH]
    found = each(missing, names, lambda name: (name, run.kind(name)))
    return dict(sorted(found, key=lambda item: item[1] != "moe"))


def moe_models(run: StudyRun, section: Section) -> list[str]:
    """Return the MoE models, or all models, with a note, if there are not two."""
    kinds = kinds_of(run, section.missing)
    moe = [name for name, kind in kinds.items() if kind == "moe"]
    if len(moe) >= 2:
        return moe
    section.note("There are no two MoE models among these: all models are compared instead.")
    return list(kinds)


def vectors(run: StudyRun, role: Role, keys: Iterable[Vector], missing: list[Text]) -> dict[Vector, FloatArray]:
    """Return the vectors that exist and are as long as most of them; what is left out is noted."""

    def take(key: Vector) -> tuple[Vector, FloatArray]:
        require_vector(run, key[0], role, key[1])
        return key, run.values(key[0], role, key[1])

    found = dict(each(missing, dict.fromkeys(keys), take))
    if not found:
        return found
    width = Counter(vector.size for vector in found.values()).most_common(1)[0][0]
    first = next(key for key, vector in found.items() if vector.size == width)
    for key, vector in found.items():
        attempt(missing, partial(require_same_shape, first[0], found[first], key[0], vector))
    return {key: vector for key, vector in found.items() if vector.size == width}


def measured(
    run: StudyRun, role: Role, pairs: Iterable[tuple[Vector, Vector]], missing: list[Text]
) -> tuple[list[VectorPair], dict[Vector, FloatArray]]:
    """Return pairs of vectors, measured, and the vectors; what cannot be compared is noted."""
    wanted = list(pairs)
    held = vectors(run, role, itertools.chain.from_iterable(wanted), missing)
    return vector_pairs(held, wanted), held


def at_layer(run: StudyRun, role: Role, names: Iterable[str], layer: int, missing: list[Text]) -> list[VectorPair]:
    """Return every pair of models at one layer."""
    return vector_pairs(vectors(run, role, [(name, layer) for name in names], missing), across(list(names), layer))


def add_checks(
    run: StudyRun, role: Role, section: Section, part: str, values: Mapping[str, float | None] | None = None
) -> None:
    """Add what was published of a part: the figures are those of the input norm."""
    if role is ROLE:
        section.checks += published_checks(run, section, claims("baselines")[part], values)
