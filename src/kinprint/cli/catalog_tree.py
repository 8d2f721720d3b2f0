"""`kinprint catalog tree`: the family graph of a whole catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinprint.cli.catalog import tell_damaged
from kinprint.cli.help import command
from kinprint.cli.options import ChosenCatalog, Printing, Reading, catalog_option, printing_options, reading_options
from kinprint.cli.outputs import FILE, check_target, refuse_one_for_two, save
from kinprint.cli.scan import Engine, engine_options

if TYPE_CHECKING:
    from kinprint.catalog.entry import Problem


@command("tree")
@click.option("--graphml", type=FILE, help="Write the graph for Gephi, yEd, Cytoscape, networkx.")
@click.option("--json", "as_json", type=FILE, help="Write all data as JSON.")
@click.option(
    "--candidates",
    type=click.IntRange(0),
    metavar="K",
    show_default="all pairs of up to 60 entries, then 10",
    help="Test each entry against the K nearest in each kind of recall vector, and what is declared; 0: all pairs.",
)
@catalog_option
@engine_options
@printing_options
@reading_options
def tree_command(
    graphml: Path | None,
    as_json: Path | None,
    candidates: int | None,
    known: ChosenCatalog,
    engine: Engine,
    printing: Printing,
    reading: Reading,
) -> int:
    """Show the families in a catalog: clusters, relations with p-values, declared against measured.

    Exact tests on the stored fingerprints, corrected for all pairs. A relation has no direction here: fingerprints do not show
    which of two models came first, and what cards declare is shown as declared.
    """
    from kinprint.render.forms import make
    from kinprint.scan.all_pairs import WORK, catalog_graph

    given = {"graphml": graphml, "json": as_json}
    targets = {form: target for form, target in given.items() if target is not None}
    refuse_one_for_two({f"--{form}": target for form, target in targets.items()})
    with known.open(read_only=True) as catalog, reading.progress() as line:
        for target in targets.values():
            check_target(target)
        with engine.start(WORK) as workers:
            problems: list[Problem] = []
            graph = catalog_graph(catalog, workers, candidates=candidates, problems=problems, progress=line.stage)
    for form, target in targets.items():
        save(target, make(graph, form, lang=printing.lang))
    printing.show(graph)
    return tell_damaged(problems)
