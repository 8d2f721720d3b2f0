"""`kinprint tree M1 M2 …`: propose a family tree."""

from pathlib import Path
from typing import Any

import click

from kinprint.cli.help import MODEL, command
from kinprint.cli.options import Printing, Reading, comparison_options, printing_options, reading_options
from kinprint.cli.outputs import FOLDER, check_target, save
from kinprint.render.forms import make
from kinprint.results.options import PAIR_BUDGET_BYTES, Options


@command("tree")
@click.argument("models", nargs=-1, type=MODEL, metavar="MODEL MODEL…")
@click.option("--out", type=FOLDER, help="Write tree.json and tree.svg into this folder.")
@click.option("--summary", "brief", is_flag=True, help="Print the drawing only, not the evidence of each edge.")
@click.option(
    "--trust-metadata", is_flag=True, help="Let what model cards and configs declare turn edges; it never makes one."
)
@click.option(
    "--max-models",
    type=click.IntRange(2),
    default=40,
    show_default=True,
    help="Refuse more models than this: all pairs are compared.",
)
@comparison_options(
    "budget_bytes",
    "seed",
    "deep",
    "files",
    "bases",
    base=Options(budget_bytes=PAIR_BUDGET_BYTES),
    budget_of="of each pair",
)
@printing_options
@reading_options
def tree_command(
    models: tuple[str, ...],
    out: Path | None,
    brief: bool,
    trust_metadata: bool,
    max_models: int,
    chosen: dict[str, Any],
    printing: Printing,
    reading: Reading,
) -> int:
    """Propose a family tree of several models.

    Every pair is compared, within --budget each, and only pairs that the tests find related can be joined. Which of two
    came first is a hypothesis from hints (grids, zeros, repeated layers, experts, vocabularies, merges); an edge stays
    undirected where they do not suffice. What cards and configs declare is shown, and counts only with --trust-metadata.
    """
    from kinprint.tree import build_tree

    chosen |= {"trust_metadata": trust_metadata, "max_models": max_models}
    targets = {form: out / f"tree.{form}" for form in ("json", "svg")} if out is not None else {}
    for target in targets.values():
        check_target(target, (target.parent,))
    with reading.session() as (session, line):
        tree = build_tree(models, session=session, progress=line.stage, **chosen)
    for form, target in targets.items():
        save(target, make(tree, form, lang=printing.lang), made=True)
    printing.show(tree, details=not brief)
    return 0
