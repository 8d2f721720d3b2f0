"""The models of a study, opened, and their tensors, each read once. No study has a reader of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role, RoleTensor
from kinprint.comparison.selection import parse_layers
from kinprint.errors import DegenerateInput, KinprintError
from kinprint.formats.dtypes import Array
from kinprint.formats.plan import Run
from kinprint.model import reader
from kinprint.model.model import Model, open_model
from kinprint.sources.session import Session
from kinprint.studies.outcome import MemberOutcome, Missing
from kinprint.studies.studied_models import Casting, Known
from kinprint.text import Text

Progress = Callable[[str, int, int], None]
KEPT_RUNS_BYTES = 192_000_000  # of windows, which several pairs of models share; beyond, they are read again
S = TypeVar("S")
T = TypeVar("T")
MAX_LAYERS = 10_000  # more than any model has; a layer that a model lacks is reported by name


@dataclass(frozen=True)
class Request:
    """What the user asked a study for.

    Parameters
    ----------
    layers
        Layers to look at; None for the study's own.
    roles
        Roles to look at; empty for the study's own.
    full
        The long settings of the original, where the study has shorter ones.
    replicas
        Whether the models are statistical replicas.
    seed
        Seed of every draw.
    """

    layers: tuple[int, ...] | None = None
    roles: tuple[Role, ...] = ()
    full: bool = False
    replicas: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Want:
    """A tensor of a model, or element runs of it as stored (half-open, ascending)."""

    model: str
    role: Role
    layer: int | None = None
    runs: tuple[Run, ...] | None = None


@dataclass(frozen=True)
class Member:
    """A model on the stage; ``problem`` says why it could not be opened, if so."""

    name: str
    reference: str
    known: Known | None
    model: Model | None
    problem: str | None = None


@dataclass
class Stage:
    """Opened models and what was read of them.

    `vector`, `stack` and `values` give what `read_ahead` has read; `read` and `stream` read further tensors, for parts that
    look at too much to keep.
    """

    session: Session
    members: tuple[Member, ...]
    request: Request
    progress: Progress
    _read: dict[tuple[str, Role, int | None], Array] = field(default_factory=dict, repr=False)
    _parts: dict[str, dict[tuple[Role, int | None], RoleTensor]] = field(default_factory=dict, repr=False)
    _made: dict[str, object] = field(default_factory=dict, repr=False)
    _runs: dict[Want, Array] = field(default_factory=dict, repr=False)
    _runs_bytes: int = 0

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made at most once in a run: for what several parts of a study share."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])

    # -- who is there ---------------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models that could be opened, in the order given."""
        return tuple(member.name for member in self.members if member.model is not None)

    def has(self, *names: str) -> bool:
        """Whether all these models are open."""
        return set(names) <= set(self.names)

    def original(self, *names: str) -> bool:
        """Whether all these models are open and are the published ones, or their replicas: published figures then apply."""
        known = {m.name for m in self.members if m.known is not None and m.known.name == m.name and m.model is not None}
        return set(names) <= known

    def model(self, name: str) -> Model:
        """Return an open model.

        Raises
        ------
        Missing
            If it is not part of this run, or could not be opened.
        """
        member = next((member for member in self.members if member.name == name), None)
        if member is None:
            raise Missing(Text("{model} is not among the models of this run", model=name))
        if member.model is None:
            raise Missing(Text("{model} could not be opened: {why}", model=name, why=member.problem or ""))
        return member.model

    def kind(self, name: str) -> str:
        """Return "moe" or "dense", from the config and tensors that were found."""
        return "moe" if self.model(name).naming.experts else "dense"

    def depth(self, name: str) -> int:
        """Return the number of layers (layers that only predict further tokens are not counted)."""
        return self.model(name).naming.layers

    def width(self, name: str) -> int | None:
        """Return the width of the residual stream."""
        return self.model(name).hidden

    # -- what they hold --------------------------------------------------------------------------------------------------

    def part(self, name: str, role: Role, layer: int | None) -> RoleTensor:
        """Return where a role is stored.

        Raises
        ------
        Missing
            If the model has no such role, or no such layer.
        """
        model = self.model(name)
        if name not in self._parts:
            kept = [part for part in model.naming.tensors if part.expert is None]
            self._parts[name] = {(part.role, part.layer): part for part in kept}
        found = self._parts[name].get((role, layer))
        if found is None:
            raise Missing(self._absent(name, role, layer))
        return found

    def _absent(self, name: str, role: Role, layer: int | None) -> Text:
        depth = self.depth(name)
        if layer is not None and layer >= depth:
            return Text(
                "{model} has no layer {layer}: it has layers 0 to {last}", model=name, layer=layer, last=depth - 1
            )
        if not any(key[0] is role for key in self._parts[name]):
            return Text("{model} has no tensor of the role {role}", model=name, role=role.value)
        return Text(
            "{model} has no tensor of the role {role} in layer {layer}", model=name, role=role.value, layer=layer
        )

    def holds(self, name: str, role: Role, layer: int | None) -> bool:
        """Whether the model has this tensor."""
        try:
            self.part(name, role, layer)
        except Missing:
            return False
        return True

    def layers(self, name: str, role: Role) -> tuple[int, ...]:
        """Return the layers in which the model has the role."""
        model = self.model(name)
        return tuple(
            sorted(p.layer for p in model.naming.tensors if p.role is role and p.layer is not None and p.expert is None)
        )

    def stored(self, name: str, role: Role, layer: int | None) -> str:
        """Return the number format a tensor is stored in."""
        return self.model(name).checkpoint.tensors[self.part(name, role, layer).name].dtype

    # -- reading -----------------------------------------------------------------------------------------------------------

    def read_ahead(self, wants: Iterable[Want]) -> None:
        """Read whole tensors of all models together and keep them; what a model does not have is left out."""
        kept = [
            want
            for want in dict.fromkeys(wants)
            if self.has(want.model)
            and self.holds(want.model, want.role, want.layer)
            and (want.model, want.role, want.layer) not in self._read
        ]
        self.progress("reading", 0, 1)
        for want, values in zip(kept, self.read(kept), strict=True):
            self._read[want.model, want.role, want.layer] = values

    def read(self, wants: Sequence[Want]) -> list[Array]:
        """Return tensors, or runs of them; values as stored, oriented out × in (runs: flat). What is kept is not read again."""
        kept = {number: values for number, want in enumerate(wants) if (values := self._kept(want)) is not None}
        missing = [number for number in range(len(wants)) if number not in kept]
        fresh = self._fetched([wants[number] for number in missing])
        for number, values in zip(missing, fresh, strict=True):
            if wants[number].runs is not None and self._runs_bytes + values.nbytes <= KEPT_RUNS_BYTES:
                self._runs[wants[number]] = values
                self._runs_bytes += values.nbytes
        found = kept | dict(zip(missing, fresh, strict=True))
        return [found[number] for number in range(len(wants))]

    def _kept(self, want: Want) -> Array | None:
        """Return what was read ahead; runs only where the kept order is the stored one."""
        if want in self._runs:
            return self._runs[want]
        values = self._read.get((want.model, want.role, want.layer))
        if values is None or want.runs is None:
            return values
        part = self.part(want.model, want.role, want.layer)
        if part.transposed or part.rows is not None:
            return None
        flat = values.reshape(-1)
        return np.concatenate([flat[start:stop] for start, stop in want.runs])

    def _fetched(self, wants: Sequence[Want]) -> list[Array]:
        """Read in one go."""
        grouped: dict[str, list[int]] = {}
        for number, want in enumerate(wants):
            grouped.setdefault(want.model, []).append(number)
        plans = [
            self.model(name).plan(
                [reader.Want(want.role, want.layer, elements=want.runs) for want in map(wants.__getitem__, numbers)]
            )
            for name, numbers in grouped.items()
        ]
        found: dict[int, Array] = {}
        for numbers, samples in zip(grouped.values(), reader.read_together(plans), strict=True):
            found |= {number: sample.stored for number, sample in zip(numbers, samples, strict=True)}
        return [found[number] for number in range(len(wants))]

    def stream(self, groups: Sequence[Sequence[Want]]) -> Iterator[list[Array]]:
        """Yield group after group; the next one is on its way while the caller works on this one."""
        ahead: Future[list[Array]] | None = None
        for number, group in enumerate(groups):
            current = ahead.result() if ahead else self.read(group)
            follows = number + 1 < len(groups)
            ahead = self.session.coordinate(partial(self.read, groups[number + 1])) if follows else None
            yield current

    # -- values ------------------------------------------------------------------------------------------------------------

    def raw(self, name: str, role: Role, layer: int | None) -> Array:
        """Return a tensor as stored.

        Raises
        ------
        Missing
            If the model does not have it.
        """
        part = self.part(name, role, layer)
        if (name, role, layer) not in self._read:
            self.read_ahead([Want(name, role, layer)])
        values = self._read[name, part.role, layer]
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise Missing(
                Text(
                    "{model}: {role} of layer {layer} holds values that are not finite",
                    model=name,
                    role=role.value,
                    layer=layer,
                )
            )
        return values

    def values(self, name: str, role: Role, layer: int | None) -> FloatArray:
        """Return a tensor in float64 as the model uses it (norm offsets added), out × in."""
        return self.raw(name, role, layer).astype(np.float64) + self.part(name, role, layer).offset

    def stack(self, name: str, role: Role, layers: Iterable[int] | None = None) -> tuple[tuple[int, ...], FloatArray]:
        """Return the layers that have the role, among `layers`, and their vectors as rows.

        Raises
        ------
        Missing
            If no layer has it, or the lengths differ.
        """
        wanted = None if layers is None else set(layers)
        chosen = tuple(layer for layer in self.layers(name, role) if wanted is None or layer in wanted)
        if not chosen:
            if wanted is None:
                raise Missing(Text("{model} has no tensor of the role {role}", model=name, role=role.value))
            asked = ", ".join(str(layer) for layer in sorted(wanted))
            raise Missing(
                Text("{model} has no {role} in any of the layers {layers}", model=name, role=role.value, layers=asked)
            )
        rows = [self.values(name, role, layer).ravel() for layer in chosen]
        if len({row.size for row in rows}) != 1:
            raise Missing(Text("{model}: the layers' {role} differ in length", model=name, role=role.value))
        return chosen, np.stack(rows)

    def pair(self, a: str, b: str, role: Role, layer: int) -> tuple[FloatArray, FloatArray]:
        """Return one layer of two models.

        Raises
        ------
        Missing
            If one does not have it, or the shapes differ.
        """
        left, right = self.values(a, role, layer), self.values(b, role, layer)
        require_same_shape(a, left, b, right)
        return left, right

    def stacks(self, a: str, b: str, role: Role) -> tuple[tuple[int, ...], FloatArray, FloatArray]:
        """Return the layers that both models have, and the vectors of each.

        Raises
        ------
        Missing
            If they share none, or the widths differ.
        """
        shared = sorted(set(self.layers(a, role)) & set(self.layers(b, role)))
        if self.request.layers is not None:
            shared = [layer for layer in shared if layer in self.request.layers]
        if not shared:
            raise Missing(Text("{a} and {b} share no layer with the role {role}", a=a, b=b, role=role.value))
        layers, left = self.stack(a, role, shared)
        _, right = self.stack(b, role, shared)
        require_same_shape(a, left, b, right)
        return layers, left, right


def require_same_shape(a: str, left: Array, b: str, right: Array) -> None:
    """Refuse to compare what has different widths: a model of another width is not comparable by element.

    Raises
    ------
    Missing
        If the last axes differ.
    """
    if left.shape[-1:] != right.shape[-1:] or left.ndim != right.ndim:
        raise Missing(
            Text(
                "{a} and {b} are not comparable: their vectors have {n} and {m} elements",
                a=a,
                b=b,
                n=left.shape[-1] if left.ndim else 0,
                m=right.shape[-1] if right.ndim else 0,
            )
        )


def set_stage(castings: Sequence[Casting], session: Session, request: Request, progress: Progress) -> Stage:
    """Open all models at once. One that cannot be opened is kept with its problem; parts that need it will say so."""
    progress("opening", 0, len(castings))
    jobs = [session.coordinate(partial(open_model, casting.reference, session)) for casting in castings]
    members = []
    for number, (casting, job) in enumerate(zip(castings, jobs, strict=True)):
        try:
            members.append(Member(casting.name, casting.reference, casting.known, job.result()))
        except KinprintError as error:
            members.append(Member(casting.name, casting.reference, casting.known, None, error.message))
        progress("opening", number + 1, len(castings))
    return Stage(session, tuple(members), request, progress)


def describe(member: Member, *, replica: bool) -> MemberOutcome:
    """Return what RESULTS.md lists of a model."""
    if member.model is None:
        return MemberOutcome(member.name, member.reference, None, None, None, None, None, replica, member.problem)
    summary = member.model.summary()
    return MemberOutcome(
        name=member.name,
        reference=member.known.repo if replica and member.known else member.reference,
        commit=summary.commit,
        architecture=summary.architecture,
        layers=summary.layers,
        width=summary.hidden,
        parameters=summary.parameters,
        replica=replica,
        problem=None,
        notes=summary.notes,
    )


def read_layers(text: str | None) -> tuple[int, ...] | None:
    """Read ``0,5,10-20`` as layer numbers, whatever the models have; None means the study's own.

    Raises
    ------
    BadSelection
        If the text is no list of layers.
    """
    chosen = parse_layers(text, MAX_LAYERS)
    return None if chosen is None else tuple(sorted(chosen))


def attempt(missing: list[Text], action: Callable[[], T], where: Text | None = None) -> T | None:
    """Return what one piece of a part gives; what is missing, or has no defined value, is noted and the rest goes on.

    `where` names the models, for an error that knows only two vectors, a and b.
    """
    try:
        return action()
    except Missing as error:
        missing.append(error.text)
    except DegenerateInput as error:
        said = Text("not defined here: {why}", why=error.message)
        missing.append(said if where is None else Text("{where}: {why}", where=where, why=said))
    return None


def each(missing: list[Text], items: Iterable[S], action: Callable[[S], T | None]) -> list[T]:
    """Return what `action` gives for each item it can be done on; see `attempt`."""
    found = [attempt(missing, partial(action, item)) for item in items]
    return [one for one in found if one is not None]


def sides(a: str, b: str) -> Text:
    """Return how an error's “a” and “b” are told apart, for `attempt`."""
    return Text("{a} (a) and {b} (b)", a=a, b=b)


def is_vector(stage: Stage, name: str, role: Role, layer: int) -> bool:
    """Whether the model has this tensor and it has one dimension."""
    return stage.holds(name, role, layer) and len(stage.part(name, role, layer).shape) == 1


def require_vector(stage: Stage, name: str, role: Role, layer: int) -> None:
    """Refuse, with `Missing`, a tensor that the model does not have, or that is a matrix."""
    if len(stage.part(name, role, layer).shape) != 1:
        raise Missing(Text("{role} is a matrix: this study compares vectors", role=role.value))
