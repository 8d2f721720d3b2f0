"""`kinprint search M`: the relatives of a model in a catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kinprint.cli.help import MODEL, command
from kinprint.cli.judging import EXIT_CODES, Judging, judging_options
from kinprint.cli.options import (
    ChosenCatalog,
    Printing,
    Reading,
    catalog_option,
    comparison_options,
    printing_options,
    reading_options,
)
from kinprint.cli.outputs import Outputs, outputs_of, tell

if TYPE_CHECKING:
    from kinprint.results.search import SearchReport

VERIFIED = 3  # relatives whose weights are compared where --fail-on asks for what only weights tell
OF_WEIGHTS = frozenset(EXIT_CODES) - {"no_evidence", "not_testable"}


@command("search")
@click.argument("model", type=MODEL)
@click.option(
    "--verify",
    type=click.IntRange(0),
    metavar="K",
    help=f"Compare the weights of the first K that are found, for a full verdict; {VERIFIED} if --fail-on names a verdict, else 0.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=10, show_default=True, help="Relatives that are proven and listed."
)
@click.option("--full", is_flag=True, help="Print all tables: the tests, and what proposed candidates.")
@catalog_option
@outputs_of("SearchReport")
@judging_options
@comparison_options("budget_bytes", "seed", "deep", "files", "bases")
@printing_options
@reading_options
def search_command(
    model: str,
    verify: int | None,
    limit: int,
    full: bool,
    known: ChosenCatalog,
    outputs: Outputs,
    judging: Judging,
    chosen: dict[str, Any],
    printing: Printing,
    reading: Reading,
) -> int:
    """List the relatives of MODEL in a catalog, best first, each with an exact p-value corrected for every entry searched.

    Two stages: short vectors propose candidates, exact tests on the stored fingerprints prove them. What looks alike without
    proof is listed apart. Kind and class are told from the weights alone (--verify). See kinprint catalog add.
    """
    from kinprint.searching.run import search

    outputs.check()
    asked = verify if verify is not None else VERIFIED if OF_WEIGHTS & set(judging.fail_on) else 0
    with known.open(read_only=True) as catalog, reading.session() as (session, line):
        how: dict[str, Any] = {"session": session, "progress": line.stage, **chosen}
        report = search(model, catalog, verify=asked, limit=limit, **how)
    written = outputs.write(report, printing.lang)
    printing.show(report, full=full)
    tell(written)
    return _judged(judging, report).code(report.findings, made=report.class_ != "not_testable")


def _judged(judging: Judging, report: SearchReport) -> Judging:
    """Return what to judge by: a relative whose weights could not be compared may be what was asked for, and fails too."""
    open_ = any(item.verified is None or item.verified.class_ is None for item in report.relatives)
    if open_ and OF_WEIGHTS & set(judging.fail_on):
        return replace(judging, fail_on=(*judging.fail_on, "related"))
    return judging
