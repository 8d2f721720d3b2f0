"""`kinprint study NAME…`: repeat published analyses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinprint.cli.help import command
from kinprint.cli.options import Reading, language_option, reading_options
from kinprint.cli.outputs import FOLDER, check_target
from kinprint.errors import NeedsExtra
from kinprint.results.options import split_names

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from kinprint.cli.progress import ProgressLine
    from kinprint.studies.opened import Request
    from kinprint.studies.outcome import Outcome
    from kinprint.studies.recipe import Study

ALL = "all"


@command("study")
@click.argument("names", nargs=-1, metavar="NAME…")
@click.option("--list", "listed", is_flag=True, help="Describe the studies.")
@click.option(
    "--models",
    multiple=True,
    metavar="MODEL[,MODEL…]",
    help="Models instead of the original ones; NAME=MODEL names one.",
)
@click.option("--replicas", is_flag=True, help="Run on synthetic replicas of the original models, offline.")
@click.option("--layers", help="Only these layers, such as 0,5,10-20.")
@click.option("--roles", help="Only these roles, comma-separated, where the study takes any.")
@click.option(
    "--out",
    type=FOLDER,
    help="Folder to write into; each of several studies gets its own in it [default: study-NAME].",
)
@language_option("Language of RESULTS.md.")
@click.option("--full", is_flag=True, help="The long settings of the original, where a study has shorter ones.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of every draw.")
@reading_options
def study_command(
    names: tuple[str, ...],
    listed: bool,
    models: tuple[str, ...],
    replicas: bool,
    layers: str | None,
    roles: str | None,
    out: Path | None,
    lang: str,
    full: bool,
    seed: int,
    reading: Reading,
) -> int:
    """Repeat published experiments on any models; write RESULTS.md, tables and figures.

    NAME is one of the studies that --list shows, or all. Without --models a study runs on the models of the original; with
    --replicas on synthetic replicas of them, which needs no network.
    """
    from kinprint.studies.recipe import all_studies

    known = all_studies()
    if listed or not names:
        for study in known.values():
            click.echo(f"{study.name:10} {study.title.render(lang)}: {study.summary.render(lang)}")
            click.echo(f"{'':10} models: {', '.join(study.models) or 'none'}; source: {study.source.render(lang)}")
        return 0
    studies = [known[name] for name in (known if ALL in names else dict.fromkeys(names))]
    if replicas and models:
        raise click.UsageError(
            "--replicas and --models exclude each other: replicas are made of the original models only"
        )
    from kinprint.arch.roles import role_named
    from kinprint.studies.opened import Request, read_layers
    from kinprint.studies.writing import write_index

    given = tuple(part for text in models for part in split_names(text))
    request = Request(
        layers=read_layers(layers),
        roles=tuple(map(role_named, split_names(roles))),
        full=full,
        replicas=replicas,
        seed=seed,
    )
    reading = replace(reading, no_cache=reading.no_cache or replicas)
    index = (out or Path()) / "study-index.md"
    if len(studies) > 1:
        check_target(index, (index.parent,))
    for study in studies:
        results = _folder(out, study, several=len(studies) > 1) / "RESULTS.md"
        check_target(results, (results.parent,))
    made = _run(studies, given, request, reading, out, lang)
    for outcome, target in made:
        _summarise(outcome, target, lang)
    if len(made) > 1:
        write_index([outcome for outcome, _ in made], [target for _, target in made], index, language=lang)
        click.echo(f"wrote {index}", err=True)
    return 0 if all(_found(outcome) for outcome, _ in made) else NOTHING_FOUND


def _run(
    studies: Sequence[Study], given: tuple[str, ...], request: Request, reading: Reading, out: Path | None, lang: str
) -> list[tuple[Outcome, Path]]:
    """Run the studies one after the other; return what each found, and the page that was written of it."""
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    from multiprocessing import get_context

    from kinprint.sources.session import Session
    from kinprint.studies.recipe import run_study
    from kinprint.studies.writing import write_outcome

    command = " ".join(["kinprint", *sys.argv[1:]])
    outcomes: list[Outcome] = []
    written: list[Future[Path]] = []
    with ExitStack() as stack:
        line = stack.enter_context(reading.progress())
        made = _replicas(studies, stack, request.seed, line) if request.replicas else {}
        # Figures take longer to draw than numbers to compute: the next study computes while those of this one are drawn.
        writer = stack.enter_context(ThreadPoolExecutor(1))
        pool: Executor = stack.enter_context(ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")))
        for study in studies:
            chosen = tuple(f"{name}={made[name]}" for name in study.models) if request.replicas else given
            folder = _folder(out, study, several=len(studies) > 1)
            with Session(reading.settings, on_traffic=line.traffic) as session:
                outcome = run_study(
                    study.name, session, models=chosen, request=request, progress=line.stage, folder=folder
                )
            written.append(writer.submit(write_outcome, outcome, folder, language=lang, command=command, pool=pool))
            outcomes.append(outcome)
        for number, job in enumerate(written):
            line.stage("drawing figures of study", number + 1, len(written))
            job.result()
    return [(outcome, job.result()) for outcome, job in zip(outcomes, written, strict=True)]


def _found(outcome: Outcome) -> bool:
    """Return whether a study found anything in models, or needs none; what it computes without them does not count."""
    if not outcome.models:
        return any(part.section.tables for part in outcome.parts)
    opened = any(member.problem is None for member in outcome.models)
    return opened and any(part.section.tables for part in outcome.parts if part.uses_models)


NOTHING_FOUND = 7  # as for models that share nothing comparable


def _folder(out: Path | None, study: Study, *, several: bool) -> Path:
    if out is None:
        return Path(f"study-{study.name}")
    return out / study.name if several else out


def _replicas(studies: Sequence[Study], stack: ExitStack, seed: int, line: ProgressLine) -> dict[str, Path]:
    """Write replicas of all models that the studies need; they are gone when the command ends."""
    import tempfile

    try:  # the lab makes them; the product does not import it
        write_replicas = import_module("kinprint.lab.replicas").write_replicas
    except ImportError as error:
        raise click.UsageError("--replicas needs kinprint.lab, which this installation does not have") from error
    names = tuple(dict.fromkeys(name for study in studies for name in study.models))
    parts = tuple(dict.fromkeys(part for study in studies for part in study.replica_parts))
    if not names:
        return {}
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kinprint-replicas-")))
    made: dict[str, Path] = write_replicas(root, names, parts=parts, seed=seed, progress=line.stage)
    return made


def _summarise(outcome: Outcome, target: Path, lang: str) -> None:
    for part, text in outcome.missing:
        click.echo(f"{outcome.study}: missing: {part.name}: {text.render(lang)}", err=True)
    figures = sum(len(part.section.pictures) for part in outcome.parts)
    if figures and find_spec("matplotlib") is None:
        why = NeedsExtra("drawing figures", extra="plot")
        click.echo(f"{outcome.study}: {figures} figures were not drawn: {why.message}; {why.hint}", err=True)
    click.echo(f"{outcome.study}: wrote {target}", err=True)
    click.echo(f"{outcome.study}: {outcome.finding.render(lang)}")
