"""Define, list and run studies.

A study is a folder of this package: its ``__init__`` has a `STUDY` made of parts, which are functions of a `StudyRun` that return a
`Section`. Beside it stand its figures (functions that take results and return a figure), what was published of it
(``claims.json``) and its sentences in other languages (``ko.json``).
"""

import itertools
import pkgutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.arch import Role
from kinprint.registry import Registry
from kinprint.sources.session import Session
from kinprint.studies.opened import ModelWant, Request, StudyRun, attempt, describe, open_run, read_layers
from kinprint.studies.outcome import Outcome, PartOutcome, Section
from kinprint.studies.studied_models import choose_models
from kinprint.text import Text


@dataclass(frozen=True)
class Part:
    """One experiment or figure of a study; ``uses_models`` is False for what is drawn or computed without any."""

    name: str
    title: Text
    run: Callable[[StudyRun], Section]
    uses_models: bool = True


@dataclass(frozen=True)
class Study:
    """A published analysis and its parts, run in order. A part that cannot be done is reported; the others go on."""

    name: str
    title: Text
    summary: Text
    source: Text  # the publication that is repeated
    models: tuple[str, ...]  # those of the original, by their names in `studied_models.KNOWN`; empty if none is needed
    wants: Callable[[StudyRun], Iterable[ModelWant]]  # tensors that are read together before any part runs
    parts: tuple[Part, ...]
    replica_parts: tuple[str, ...] = ("norms",)  # what replicas have to hold; see `kinprint.lab.replicas`


@cache
def all_studies() -> Registry[Study]:
    """Return every study: each folder of this package has one."""
    found: Registry[Study] = Registry("study")
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.ispkg:
            made: Study = import_module(f"kinprint.studies.{module.name}").STUDY
            found.add(made.name, made)
    return found


def study(
    name: str,
    models: Sequence[str | Path] | Mapping[str, str | Path] = (),
    *,
    layers: str | Sequence[int] | None = None,
    roles: Sequence[str] = (),
    full: bool = False,
    seed: int = 0,
    session: Session | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a study and return what it found: tables, published figures beside measured ones, pictures.

    `name` is one that ``kinprint study --list`` shows. `models` are references, or names with references; `layers` numbers, or text
    such as ``0,5,10-20``; `roles` such as ``input_norm``: what is not given is the original's. `full` asks for the original's
    long settings where the study has shorter ones; `seed` is that of every draw. Models are read through `session`, or one
    made for this run. `progress` is called with (stage, done, total).
    """
    given = [f"{key}={value}" for key, value in models.items()] if isinstance(models, Mapping) else map(str, models)
    asked = read_layers(layers) if layers is None or isinstance(layers, str) else tuple(sorted(layers))
    request = Request(asked, tuple(Role(role) for role in roles), full, seed=seed)
    with Session() if session is None else nullcontext(session) as reading:
        return run_study(name, reading, models=tuple(given), request=request, progress=progress)


def run_study(
    name: str,
    session: Session,
    *,
    models: tuple[str, ...] = (),
    request: Request | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> Outcome:
    """Run a study of that name on models (``NAME=REFERENCE``, a known name, or a reference); see `study`.

    In `folder` a study of hours keeps what it has done, and goes on from it.
    """
    recipe, request, tell = all_studies()[name], request or Request(), progress or quiet
    started = time.monotonic()
    run = open_run(choose_models(models, recipe.models, replicas=request.replicas), session, request, tell)
    run.folder = folder
    run.read_ahead(recipe.wants(run))
    parts = []
    for number, part in enumerate(recipe.parts):
        tell(part.name, number, len(recipe.parts))
        missing: list[Text] = []
        section = attempt(missing, partial(part.run, run)) or Section(missing=missing)
        parts.append(PartOutcome(part.name, part.title, section, part.uses_models))
    _distinct(parts)
    described = tuple(describe(one, replica=request.replicas) for one in run.models)
    settings = {"kinprint": __version__} | asdict(request) | {"roles": [role.value for role in request.roles]}
    taken = session.bytes_delivered, time.monotonic() - started
    return Outcome(recipe.name, recipe.title, recipe.summary, recipe.source, described, tuple(parts), settings, *taken)


def _distinct(parts: Sequence[PartOutcome]) -> None:
    """Give tables and figures of one name, but for capitals, names of their own: their files would overwrite each other."""
    for kind in ("tables", "pictures"):
        seen: set[str] = set()
        for found in (getattr(part.section, kind) for part in parts):
            for number, item in enumerate(found):
                names = itertools.chain([item.name], (f"{item.name}-{count}" for count in itertools.count(2)))
                name = next(name for name in names if name.casefold() not in seen)
                seen.add(name.casefold())
                found[number] = replace(item, name=name)
