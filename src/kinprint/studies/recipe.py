"""What a study is, which there are, and how one is run.

A study is a folder of this package: its ``__init__`` has a `STUDY` made of parts, which are functions of a `StudyRun` that return a
`Section`. Beside it stand its figures (functions that take results and return a figure), what was published of it
(``claims.json``) and its sentences in other languages (``ko.json``).
"""

from __future__ import annotations

import pkgutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.arch import Role
from kinprint.errors import DegenerateInput, NeedsExtra
from kinprint.registry import Registry
from kinprint.sources.session import Session
from kinprint.studies.opened import ModelWant, Request, StudyRun, describe, open_run, read_layers
from kinprint.studies.outcome import Missing, Outcome, PartOutcome, Section
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
    """A recipe.

    Parameters
    ----------
    name, title, summary, source
        How it is called, what it shows, and which publication it repeats.
    models
        Names (in `kinprint.studies.studied_models.KNOWN`) of the models of the original; empty if it needs none.
    wants
        Tensors that are read before any part runs, together. Pure.
    parts
        What is done, in order. A part that cannot be done is reported; the others go on.
    replica_parts
        What the replicas have to hold for this study; see `kinprint.lab.replicas`.
    """

    name: str
    title: Text
    summary: Text
    source: Text
    models: tuple[str, ...]
    wants: Callable[[StudyRun], Iterable[ModelWant]]
    parts: tuple[Part, ...]
    replica_parts: tuple[str, ...] = ("norms",)


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

    Parameters
    ----------
    name
        One of those that ``kinprint study --list`` shows.
    models
        Models to run it on: references, or names with references; empty for the original ones.
    layers
        Layers to look at, as numbers or as text (``0,5,10-20``); None for the study's own.
    roles
        Roles to look at, such as ``input_norm``; empty for the study's own.
    full
        Whether to use the long settings of the original where the study has shorter ones.
    seed
        Seed of every draw.
    session
        How to read; one with the usual settings is made, and closed, if none is given.
    progress
        Called with (stage, done, total).
    """
    given = [f"{key}={value}" for key, value in models.items()] if isinstance(models, Mapping) else map(str, models)
    asked = read_layers(layers) if layers is None or isinstance(layers, str) else tuple(sorted(layers))
    request = Request(asked, tuple(Role(role) for role in roles), full, seed=seed)
    if session is not None:
        return run_study(name, session, models=tuple(given), request=request, progress=progress)
    with Session() as own:
        return run_study(name, own, models=tuple(given), request=request, progress=progress)


def run_study(
    name: str,
    session: Session,
    *,
    models: tuple[str, ...] = (),
    request: Request | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a study of that name on models (``NAME=REFERENCE``, a known name, or a reference); see `study`."""
    recipe, request, tell = all_studies()[name], request or Request(), progress or quiet
    started = time.monotonic()
    run = open_run(choose_models(models, recipe.models, replicas=request.replicas), session, request, tell)
    run.read_ahead(recipe.wants(run))
    parts = []
    for number, part in enumerate(recipe.parts):
        tell(part.name, number, len(recipe.parts))
        parts.append(PartOutcome(part.name, part.title, _run_part(part, run), part.uses_models))
    _distinct(parts)
    return Outcome(
        study=recipe.name,
        title=recipe.title,
        summary=recipe.summary,
        source=recipe.source,
        models=tuple(describe(one, replica=request.replicas) for one in run.models),
        parts=tuple(parts),
        settings={
            "kinprint": __version__,
            "seed": request.seed,
            "layers": None if request.layers is None else list(request.layers),
            "roles": [role.value for role in request.roles],
            "full": request.full,
            "replicas": request.replicas,
        },
        bytes_read=session.bytes_delivered,
        seconds=time.monotonic() - started,
    )


def _distinct(parts: Sequence[PartOutcome]) -> None:
    """Give tables and figures of one name (models a_b and c beside a and b_c) names of their own, also without capitals."""
    for kind in ("tables", "pictures"):
        seen: Counter[str] = Counter()
        for found in (getattr(part.section, kind) for part in parts):
            for number, item in enumerate(found):
                seen[item.name.casefold()] += 1
                if (count := seen[item.name.casefold()]) > 1:
                    found[number] = replace(item, name=f"{item.name}-{count}")


def _run_part(part: Part, run: StudyRun) -> Section:
    try:
        return part.run(run)
    except Missing as error:
        return Section(missing=[error.text])
    except DegenerateInput as error:
        return Section(missing=[Text("not defined here: {why}", why=error.reason)])
    except NeedsExtra as error:
        return Section(missing=[Text("{why}; {hint}", why=error.reason, hint=error.hint or "")])
