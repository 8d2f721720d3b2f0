"""`kinprint search M`: the relatives of a model in a catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinprint._util.plain import printable
from kinprint.cli.help import MODEL, command
from kinprint.cli.judging import DECLARED_CODES, EXIT_CODES, SEARCH_NAMES, Judging, judging_options
from kinprint.cli.options import (
    ChosenCatalog,
    Printing,
    Reading,
    catalog_option,
    comparison_options,
    printing_options,
    reading_options,
)
from kinprint.cli.outputs import FOLDER, Outputs, outputs_of, tell
from kinprint.results.options import SEARCH_OPTIONS, USUAL_LIMIT

if TYPE_CHECKING:
    from kinprint.results.search import SearchReport

VERIFIED = 3  # relatives whose weights are compared where --fail-on asks for what only weights tell
OF_WEIGHTS = frozenset({*EXIT_CODES, *DECLARED_CODES}) - {"no_evidence", "not_testable"}


@command("search")
@click.argument("model", type=MODEL)
@click.option(
    "--verify",
    type=click.IntRange(0),
    metavar="K",
    help=f"Compare the weights of the first K that are found, for a full verdict; {VERIFIED} if --fail-on names a verdict, else 0.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=USUAL_LIMIT,
    show_default=True,
    help="Relatives that are proven and listed.",
)
@click.option(
    "--local",
    type=FOLDER,
    metavar="DIR",
    help="Where models of this machine that are in the catalog lie, each under its name.",
)
@click.option("--full", is_flag=True, help="Print all tables: the tests, and what proposed candidates.")
@catalog_option
@outputs_of("SearchReport")
@judging_options(SEARCH_NAMES)
@comparison_options(*SEARCH_OPTIONS, budget_of="of the model, and again in each comparison of --verify")
@printing_options
@reading_options
def search_command(
    model: str,
    verify: int | None,
    limit: int,
    local: Path | None,
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

    asked = verify if verify is not None else VERIFIED if OF_WEIGHTS & set(judging.fail_on) else 0
    with known.open(read_only=True) as catalog, reading.session() as (session, line):
        outputs.check()
        how: dict[str, Any] = {"session": session, "progress": line.stage, **chosen}
        report = search(model, catalog, verify=asked, limit=limit, local=local, **how)
    written = outputs.write(report, printing.lang)
    printing.show(report, full=full)
    tell(written)
    open_ = _open(judging, report)
    if open_:  # as the gate's own reason, told even to those who asked for no progress
        names = ", ".join(sorted({printable(name, 60) for each in open_.values() for name in each}))
        click.echo(f"weights not compared, so not ruled out: {names} (--verify, --local, --limit)", err=True)
    judging = replace(judging, fail_on=(*judging.fail_on, *open_))
    return judging.code((*report.findings, *open_), made=report.class_ != "not_testable")


def _open(judging: Judging, report: SearchReport) -> dict[str, list[str]]:
    """Return what fails a gate beside what it asks for, and names: whose weights were not compared may be what was asked for.

    A proven relative is "related" then; what looks alike, what was not listed, or is named by the card where cards are asked
    for, "not judged".
    """
    asked, found = OF_WEIGHTS & set(judging.fail_on), dict[str, list[str]]()
    for item in report.found if asked else ():
        known = item.verified is not None and item.verified.class_ not in (None, "not_testable")
        if not known and (item.class_ != "named" or asked & set(DECLARED_CODES)):
            found.setdefault("related" if item.class_ == "related" else "not_judged", []).append(item.name)
    if asked and report.not_listed:
        found.setdefault("not_judged", []).append(f"{report.not_listed} not listed")
    return dict(sorted(found.items(), reverse=True))
