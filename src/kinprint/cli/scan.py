"""`kinprint scan LIST…`: enter thousands of models in a catalog, on this machine or on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinprint._util.records import dataclass
from kinprint.cli.catalog import MODEL_BUDGET_BYTES, org_option
from kinprint.cli.demo import bundled_models
from kinprint.cli.help import MODEL, command
from kinprint.cli.options import (
    ChosenCatalog,
    Printing,
    Reading,
    catalog_option,
    comparison_options,
    into,
    packing,
    printing_options,
    read_memory,
    reading_options,
)
from kinprint.results.options import Options

if TYPE_CHECKING:
    from kinprint.scan.workers import Workers

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Engine:
    """Where and how many at a time models are worked on."""

    workers: int | None
    scheduler: str | None
    memory: int | None
    timeout: float
    rate: float | None

    @contextmanager
    def start(self, work: str) -> Iterator[Workers]:
        """Start workers that do `work`, and end them."""
        from kinprint.scan.supervised import Limits
        from kinprint.scan.workers import LocalWorkers, usual_workers
        from kinprint.sources.pace import Pace

        limits = Limits(self.memory, self.timeout)
        if self.scheduler is None:
            with LocalWorkers(work, self.workers or usual_workers(), limits, Pace(self.rate)) as local:
                yield local
            return
        from kinprint.scan.cluster import DaskWorkers

        if self.workers is not None:
            raise click.UsageError("--workers is for this machine; a cluster has those that it has")
        with DaskWorkers(self.scheduler, work, limits, self.rate) as cluster:
            yield cluster


engine_options = packing(
    "engine",
    into(Engine),
    "Where it runs",
    click.option(
        "--workers",
        type=click.IntRange(1, 256),
        show_default="twice the cores",
        help="Processes on this machine, each with one model at a time.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on the Dask cluster of this scheduler, such as tcp://10.0.0.1:8786 (extra: cluster).",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        default="2GB",
        show_default=True,
        callback=read_memory,
        help="Memory that a process may take; a model that needs more is noted as failed (Linux).",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(1.0),
        default=900.0,
        show_default=True,
        metavar="SECONDS",
        help="End a model that takes longer, and note it as failed.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(0.01),
        metavar="N",
        show_default="10 for public hosts",
        help="Requests a second to one host, by all workers together.",
    ),
)
"""Adds the options of every command that starts workers, handed over as `engine`."""


@command("scan")
@click.argument("lists", nargs=-1, type=MODEL, metavar="LIST…")
@org_option
@click.option("--well-known", is_flag=True, help="Some 200 of the best-known open models of the hub, by name.")
@click.option("--starter", is_flag=True, help="The tiny models that come with kinprint: a first catalog, offline.")
@click.option("--again", is_flag=True, help="Read also what the catalog has, and replace it.")
@click.option("--retry-failed", is_flag=True, help="Try again what failed before for a reason that stays.")
@click.option(
    "--connections",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="Connections to one host at a time, by all workers together.",
)
@catalog_option
@comparison_options("budget_bytes", base=Options(budget_bytes=MODEL_BUDGET_BYTES), budget_of="of each model")
@engine_options
@printing_options
@reading_options
def scan_command(
    lists: tuple[str, ...],
    owners: tuple[str, ...],
    well_known: bool,
    starter: bool,
    again: bool,
    retry_failed: bool,
    connections: int,
    known: ChosenCatalog,
    chosen: dict[str, Any],
    engine: Engine,
    printing: Printing,
    reading: Reading,
) -> int:
    """Enter many models in a catalog: files with one model a line, - for standard input, hub names, folders of models.

    What the catalog has at the same commit is not read again, so a scan that was stopped goes on where it was. A model that
    cannot be read is noted with its error and stops nobody; the exit code is that of the first one in the list.
    """
    from kinprint.scan import wanted as found
    from kinprint.scan.fingerprinting import WORK
    from kinprint.scan.run import exit_code, scan

    if not (lists or owners or well_known or starter):
        raise click.UsageError("give a LIST of models, --org NAME, --well-known or --starter")
    bundled = [str(bundled_models())] if starter else []
    models = [*found.wanted([*lists, *bundled], sys.stdin), *(found.well_known() if well_known else ())]
    with reading.session() as (session, line):
        models = list(dict.fromkeys([*models, *found.wanted_of(owners, session)]))
        with known.open() as catalog, engine.start(WORK) as workers:
            report = scan(
                models,
                catalog,
                workers,
                options=Options(budget_bytes=chosen.get("budget_bytes", MODEL_BUDGET_BYTES)),
                offline=reading.offline,
                again=again,
                retry_failed=retry_failed,
                connections=connections,
                progress=line.stage,
            )
    printing.show(report)
    return exit_code(report)
