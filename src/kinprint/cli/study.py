"""`kinprint study NAME`."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from kinprint.cli.options import split


@click.command("study")
@click.argument("name", required=False)
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
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder to write into [default: study-NAME]."
)
@click.option(
    "--lang", type=click.Choice(["en", "ko"]), default="en", show_default=True, help="Language of RESULTS.md."
)
@click.option("--full", is_flag=True, help="The long settings of the original, where a study has shorter ones.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of every draw.")
@click.option("--offline", is_flag=True, help="Use only what is on this machine (like HF_HUB_OFFLINE=1).")
@click.option("--no-cache", is_flag=True, help="Neither use nor fill the range cache.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def study_command(
    name: str | None,
    listed: bool,
    models: tuple[str, ...],
    replicas: bool,
    layers: str | None,
    roles: str | None,
    out: Path | None,
    lang: str,
    full: bool,
    seed: int,
    offline: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Repeat a published experiment on any models; write RESULTS.md, tables and figures.

    NAME is one of the studies that --list shows. Without --models it runs on the models of the original; with --replicas on
    synthetic replicas of them, which needs no network.
    """
    import kinprint.studies.catalogue  # noqa: F401 - registers the studies
    from kinprint.studies.recipe import STUDIES

    if listed or name is None:
        for study in STUDIES.values():
            click.echo(f"{study.name:10} {study.title.render(lang)}: {study.summary.render(lang)}")
            click.echo(f"{'':10} models: {', '.join(study.models) or 'none'}; source: {study.source.render(lang)}")
        return 0
    study = STUDIES[name]
    from kinprint.arch import Role
    from kinprint.cli.options import make_settings
    from kinprint.cli.progress import ProgressLine
    from kinprint.selection import checked_roles
    from kinprint.sources.session import Session
    from kinprint.studies.recipe import run_study
    from kinprint.studies.stage import Request, read_layers
    from kinprint.studies.writing import write_outcome

    if replicas and models:
        raise click.UsageError(
            "--replicas and --models exclude each other: replicas are made of the original models only"
        )
    chosen = tuple(part for text in models for part in split(text))
    request = Request(
        layers=read_layers(layers),
        roles=tuple(Role(role) for role in checked_roles(split(roles))),
        full=full,
        replicas=replicas,
        seed=seed,
    )
    settings = make_settings(offline=offline, no_cache=no_cache or replicas)
    folder = out or Path(f"study-{name}")
    with ExitStack() as stack:
        line = stack.enter_context(ProgressLine(enabled=False if quiet else None))
        if replicas and study.models:
            from kinprint.studies.replicas import write_replicas

            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kinprint-replicas-")))
            made = write_replicas(root, study.models, parts=study.replica_parts, seed=seed, progress=line.stage)
            chosen = tuple(f"{member}={path}" for member, path in made.items())
        session = stack.enter_context(Session(settings, on_traffic=line.traffic))
        outcome = run_study(name, session, models=chosen, request=request, progress=line.stage)
        target = write_outcome(outcome, folder, language=lang, command=_command(), progress=line.stage)
    checks = [check for check in outcome.checks if check.trust != "wrong" and check.agrees is not None]
    if checks:
        agreeing = sum(check.agrees is True for check in checks)
        click.echo(f"{agreeing} of {len(checks)} published figures agree with the measured ones", err=True)
    for part, text in outcome.missing:
        click.echo(f"missing: {part.name}: {text.render(lang)}", err=True)
    click.echo(f"wrote {target} in {outcome.seconds:.0f} s of work, figures not counted", err=True)
    return 0 if any(part.section.tables for part in outcome.parts) else 7


def _command() -> str:
    return " ".join(["kinprint", *sys.argv[1:]])
