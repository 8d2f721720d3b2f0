"""What a study is, the registry of studies, and how one is run.

To add a study, write one module with a `Study` made of parts (functions of a `Stage` that return a `Section`), and name it
in `kinprint.studies.all_studies`. Figures are functions in `kinprint.studies.figures` that take results and return a figure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kinprint._version import __version__
from kinprint.errors import DegenerateInput, NeedsExtra
from kinprint.registry import Registry
from kinprint.sources.session import Session
from kinprint.studies.opened import Progress, Request, Stage, Want, describe, set_stage
from kinprint.studies.outcome import Missing, Outcome, PartOutcome, Section
from kinprint.studies.studied_models import cast
from kinprint.text import Text


@dataclass(frozen=True)
class Part:
    """One experiment or figure of a study; ``uses_models`` is False for what is drawn or computed without any."""

    name: str
    title: Text
    run: Callable[[Stage], Section]
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
    wants: Callable[[Stage], Iterable[Want]]
    parts: tuple[Part, ...]
    replica_parts: tuple[str, ...] = ("norms",)


STUDIES: Registry[Study] = Registry("study")


def run_study(
    name: str,
    session: Session,
    *,
    models: tuple[str, ...] = (),
    request: Request | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a study and return what it found; `kinprint.studies.writing.write_outcome` writes it.

    Parameters
    ----------
    name : a study in `STUDIES`.
    session : where and how to read.
    models : models to run it on (``NAME=REFERENCE``, a known name, or a reference); empty for the original ones.
    request : layers, roles, settings.
    progress : called with (stage, done, total).
    """
    import kinprint.studies.all_studies  # noqa: F401 - registers the studies

    study = STUDIES[name]
    request = request or Request()
    tell = progress or _quiet
    started = time.monotonic()
    stage = set_stage(cast(models, study.models, replicas=request.replicas), session, request, tell)
    stage.read_ahead(study.wants(stage))
    parts = []
    for number, part in enumerate(study.parts):
        tell(part.name, number, len(study.parts))
        parts.append(PartOutcome(part.name, part.title, _run_part(part, stage), part.uses_models))
    _distinct(parts)
    return Outcome(
        study=study.name,
        title=study.title,
        summary=study.summary,
        source=study.source,
        members=tuple(describe(member, replica=request.replicas) for member in stage.members),
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
        for part in parts:
            found = getattr(part.section, kind)
            for number, item in enumerate(found):
                seen[item.name.casefold()] += 1
                count = seen[item.name.casefold()]
                if count > 1:
                    found[number] = replace(item, name=f"{item.name}-{count}")


def _run_part(part: Part, stage: Stage) -> Section:
    try:
        return part.run(stage)
    except Missing as error:
        return Section(missing=[error.text])
    except DegenerateInput as error:
        return Section(missing=[Text("not defined here: {why}", why=error.message)])
    except NeedsExtra as error:
        return Section(missing=[Text("{why}; {hint}", why=error.message, hint=error.hint or "")])


def _quiet(_stage: str, _done: int, _total: int) -> None:
    pass
