"""Open the models of a study and read their tensors, each once."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint._util.progress import Progress
from kinprint.arch import Role, RoleTensor
from kinprint.comparison.selection import parse_layers
from kinprint.errors import DegenerateInput, KinprintError, NeedsExtra
from kinprint.formats.dtypes import Array
from kinprint.model.model import Model, open_model
from kinprint.model.reader import Want, read_together
from kinprint.sources.session import Session
from kinprint.studies.outcome import Missing, ModelOutcome
from kinprint.studies.studied_models import ModelChoice
from kinprint.text import Text

KEPT_RUNS_BYTES = 192_000_000  # of windows, which several pairs of models share; beyond, they are read again
S = TypeVar("S")
T = TypeVar("T")
MAX_LAYERS = 10_000  # more than any model has; a layer that a model lacks is reported by name
ModelWant: TypeAlias = tuple[str, Want]  # a model by name, and what is wanted of it


@dataclass(frozen=True)
class Request:
    """What the user asked a study for."""

    layers: tuple[int, ...] | None = None  # None: the study's own
    roles: tuple[Role, ...] = ()  # empty: the study's own
    full: bool = False  # the long settings of the original, where the study has shorter ones
    replicas: bool = False  # whether the models are statistical replicas
    seed: int = 0  # of every draw


@dataclass(frozen=True)
class OpenedModel(ModelChoice):
    """A model of a run; ``problem`` says why it could not be opened, if so."""

    model: Model | None
    problem: str | None = None


@dataclass
class StudyRun:
    """What the parts of a study work on: opened models, what was read of them, and what the user asked for.

    `values`, `stack` and `stacks` give what `read_ahead` has read; `read` and `stream` read further tensors, for parts that look
    at too much to keep. What a model does not have is said by `Missing`.
    """

    session: Session
    models: tuple[OpenedModel, ...]
    request: Request
    progress: Progress
    folder: Path | None = None  # where a long study may keep what it has done
    _read: dict[ModelWant, Array] = field(default_factory=dict, repr=False)
    _made: dict[str, object] = field(default_factory=dict, repr=False)
    _runs_bytes: int = 0

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made at most once in a run: for what several parts of a study share."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models that could be opened, in the order given."""
        return tuple(one.name for one in self.models if one.model is not None)

    def original(self, *names: str) -> bool:
        """Whether all these models are open and are the published ones, or their replicas: published figures then apply."""
        return set(names) <= {one.name for one in self.models if one.model and one.known and one.known.name == one.name}

    def model(self, name: str) -> Model:
        """Return an open model; `Missing` if it is not part of this run, or could not be opened."""
        found = next((one for one in self.models if one.name == name), None)
        if found is None:
            raise Missing("{model} is not among the models of this run", model=name)
        if found.model is None:
            raise Missing("{model} could not be opened: {why}", model=name, why=found.problem or "")
        return found.model

    def kind(self, name: str) -> str:
        """Return "moe" or "dense", from the config and tensors that were found."""
        return "moe" if self.model(name).naming.experts else "dense"

    def depth(self, name: str) -> int:
        """Return the number of layers (layers that only predict further tokens are not counted)."""
        return self.model(name).naming.layers

    def width(self, name: str) -> int | None:
        """Return the width of the residual stream."""
        return self.model(name).hidden

    def part(self, name: str, role: Role, layer: int | None) -> RoleTensor:
        """Return where a role is stored; `Missing` if the model has no such role, or no such layer."""
        parts, depth = self.model(name).parts, self.depth(name)
        if (role, layer, None) in parts:
            return parts[role, layer, None]
        if layer is not None and layer >= depth:
            said = "{model} has no layer {layer}: it has layers 0 to {last}"
            raise Missing(said, model=name, layer=layer, last=depth - 1)
        if not any(of is role and expert is None for of, _, expert in parts):
            raise Missing("{model} has no tensor of the role {role}", model=name, role=role.value)
        said = "{model} has no tensor of the role {role} in layer {layer}"
        raise Missing(said, model=name, role=role.value, layer=layer)

    def holds(self, name: str, role: Role, layer: int | None) -> bool:
        """Whether the model has this tensor."""
        return attempt([], partial(self.part, name, role, layer)) is not None

    def layers(self, name: str, role: Role) -> tuple[int, ...]:
        """Return the layers in which the model has the role."""
        keys = self.model(name).parts
        return tuple(sorted(layer for of, layer, expert in keys if of is role and expert is None and layer is not None))

    def stored(self, name: str, role: Role, layer: int | None) -> str:
        """Return the number format a tensor is stored in."""
        return self.model(name).checkpoint.tensors[self.part(name, role, layer).name].dtype

    def read_ahead(self, wants: Iterable[ModelWant]) -> None:
        """Read whole tensors of all models together and keep them; what a model does not have is left out."""
        there = [(name, want) for name, want in dict.fromkeys(wants) if self.holds(name, want.role, want.layer)]
        fresh = [want for want in there if want not in self._read]
        self.progress("reading", 0, 1)
        self._read |= zip(fresh, self.read(fresh), strict=True)

    def read(self, wants: Sequence[ModelWant]) -> list[Array]:
        """Return tensors as stored, out × in, or runs of their elements, flat. What is kept is not read again."""
        kept = {want: values for want in wants if (values := self._kept(*want)) is not None}
        missing = [want for want in dict.fromkeys(wants) if want not in kept]
        by_model = {name: [want for of, want in missing if of == name] for name, _ in missing}
        samples = read_together([self.model(name).plan(some) for name, some in by_model.items()])
        for (name, some), found in zip(by_model.items(), samples, strict=True):
            for want, sample in zip(some, found, strict=True):
                kept[name, want] = sample.stored
                if want.elements is not None and self._runs_bytes + sample.stored.nbytes <= KEPT_RUNS_BYTES:
                    self._read[name, want] = sample.stored
                    self._runs_bytes += sample.stored.nbytes
        return [kept[want] for want in wants]

    def _kept(self, name: str, want: Want) -> Array | None:
        """Return what was read before; elements of a whole tensor only where its kept order is the stored one."""
        if (name, want) in self._read or want.elements is None:
            return self._read.get((name, want))
        whole, part = self._read.get((name, Want(want.role, want.layer))), self.part(name, want.role, want.layer)
        if whole is None or part.transposed or part.rows is not None:
            return None
        return np.concatenate([whole.reshape(-1)[start:stop] for start, stop in want.elements])

    def stream(self, groups: Sequence[Sequence[ModelWant]]) -> Iterator[list[Array]]:
        """Yield group after group; the next one is on its way while the caller works on this one."""
        return self.session.ahead(self.read, groups)

    def raw(self, name: str, role: Role, layer: int | None) -> Array:
        """Return a tensor as stored; `Missing` if the model does not have it, or it is not finite."""
        self.part(name, role, layer)
        want = (name, Want(role, layer))
        if want not in self._read:
            self.read_ahead([want])
        values = self._read[want]
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            said = "{model}: {role} of layer {layer} holds values that are not finite"
            raise Missing(said, model=name, role=role.value, layer=layer)
        return values

    def values(self, name: str, role: Role, layer: int | None) -> FloatArray:
        """Return a tensor in float64 as the model uses it (norm offsets added), out × in."""
        return self.raw(name, role, layer).astype(np.float64) + self.part(name, role, layer).offset

    def stack(self, name: str, role: Role, layers: Iterable[int] | None = None) -> tuple[tuple[int, ...], FloatArray]:
        """Return the layers among `layers` that have the role, and their vectors as rows; `Missing` if none, or lengths differ."""
        wanted = None if layers is None else set(layers)
        chosen = tuple(layer for layer in self.layers(name, role) if wanted is None or layer in wanted)
        if not chosen and wanted is None:
            raise Missing("{model} has no tensor of the role {role}", model=name, role=role.value)
        if not chosen:
            asked = ", ".join(map(str, sorted(wanted or ())))
            said = "{model} has no {role} in any of the layers {layers}"
            raise Missing(said, model=name, role=role.value, layers=asked)
        rows = [self.values(name, role, layer).ravel() for layer in chosen]
        if len({row.size for row in rows}) != 1:
            raise Missing("{model}: the layers' {role} differ in length", model=name, role=role.value)
        return chosen, np.stack(rows)

    def stacks(self, a: str, b: str, role: Role) -> tuple[tuple[int, ...], FloatArray, FloatArray]:
        """Return the layers that both models have, and the vectors of each; `Missing` if there are none, or widths differ."""
        shared = sorted(set(self.layers(a, role)) & set(self.layers(b, role)))
        if self.request.layers is not None:
            shared = [layer for layer in shared if layer in self.request.layers]
        if not shared:
            raise Missing("{a} and {b} share no layer with the role {role}", a=a, b=b, role=role.value)
        layers, left = self.stack(a, role, shared)
        _, right = self.stack(b, role, shared)
        require_same_shape(a, left, b, right)
        return layers, left, right


def require_same_shape(a: str, left: Array, b: str, right: Array) -> None:
    """Refuse, with `Missing`, to compare what has different widths: a model of another width is not comparable by element."""
    if left.shape[-1:] != right.shape[-1:] or left.ndim != right.ndim:
        n, m = (side.shape[-1] if side.ndim else 0 for side in (left, right))
        raise Missing("{a} and {b} are not comparable: their vectors have {n} and {m} elements", a=a, b=b, n=n, m=m)


def vector_wants(run: StudyRun, roles: Iterable[Role], layers: Collection[int] | None = None) -> Iterator[ModelWant]:
    """Yield the vectors that the models have of some roles, in all layers or some: what a study reads before its parts."""
    for name, role in itertools.product(run.names, roles):
        for layer in run.layers(name, role):
            if (layers is None or layer in layers) and len(run.part(name, role, layer).shape) == 1:
                yield name, Want(role, layer)


def require_vector(run: StudyRun, name: str, role: Role, layer: int) -> None:
    """Refuse, with `Missing`, a tensor that the model does not have, or that is a matrix."""
    if len(run.part(name, role, layer).shape) != 1:
        raise Missing("{role} is a matrix: this study compares vectors", role=role.value)


def open_run(choices: Sequence[ModelChoice], session: Session, request: Request, progress: Progress) -> StudyRun:
    """Open all models at once. One that cannot be opened is kept with its problem; parts that need it will say so."""
    progress("opening", 0, len(choices))
    jobs = [session.coordinate(partial(open_model, choice.reference, session)) for choice in choices]
    models = []
    for number, (choice, job) in enumerate(zip(choices, jobs, strict=True)):
        try:
            models.append(OpenedModel(choice.name, choice.reference, choice.known, job.result()))
        except KinprintError as error:
            models.append(OpenedModel(choice.name, choice.reference, choice.known, None, error.message))
        progress("opening", number + 1, len(choices))
    return StudyRun(session, tuple(models), request, progress)


def describe(one: OpenedModel, *, replica: bool) -> ModelOutcome:
    """Return what RESULTS.md lists of a model."""
    if one.model is None:
        return ModelOutcome(one.name, one.reference, None, None, None, None, None, replica, one.problem)
    made, reference = one.model.summary(), one.known.repo if replica and one.known else one.reference
    shape = made.architecture, made.layers, made.hidden, made.parameters
    return ModelOutcome(one.name, reference, made.commit, *shape, replica, None, made.notes)


def read_layers(text: str | None) -> tuple[int, ...] | None:
    """Read ``0,5,10-20`` as layer numbers, whatever the models have; None means the study's own."""
    chosen = parse_layers(text, MAX_LAYERS)
    return None if chosen is None else tuple(sorted(chosen))


def attempt(missing: list[Text], action: Callable[[], T], where: Text | None = None) -> T | None:
    """Return what one piece of a part gives; what is missing or undefined is noted, under the models that `where` names."""
    try:
        return action()
    except Missing as error:
        missing.append(error.text)
    except NeedsExtra as error:
        missing.append(Text("{why}; {hint}", why=error.reason, hint=error.hint or ""))
    except DegenerateInput as error:
        said = Text("not defined here: {why}", why=error.reason)
        missing.append(said if where is None else Text("{where}: {why}", where=where, why=said))
    return None


def each(
    missing: list[Text], items: Iterable[S], action: Callable[[S], T | None], where: Callable[[S], Text] | None = None
) -> list[T]:
    """Return what `action` gives for each item it can be done on; see `attempt`."""
    found = [attempt(missing, partial(action, item), where(item) if where else None) for item in items]
    return [one for one in found if one is not None]


def sides(a: str, b: str) -> Text:
    """Return how an error's “a” and “b” are told apart, for `attempt`."""
    return Text("{a} (a) and {b} (b)", a=a, b=b)
