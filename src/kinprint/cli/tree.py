"""`kinprint tree M1 M2 …`."""

from __future__ import annotations

from pathlib import Path

import click

from kinprint.cli.options import AUTO_HELP, read_budget, which_weights


@click.command("tree")
@click.argument("models", nargs=-1, metavar="MODEL MODEL…")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write tree.json and tree.svg into this folder."
)
@click.option("--summary", "brief", is_flag=True, help="Print the drawing only, not the evidence of each edge.")
@click.option("--deep", is_flag=True, help="Look for reordered neurons and residual dimensions in every pair.")
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
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of resampling and permutations.")
@click.option(
    "--budget",
    callback=read_budget,
    default="32MB",
    show_default=True,
    metavar="SIZE",
    help="Read at most this much for each pair, headers and tokenizers included; none for no limit.",
)
@click.option("--format", "style", type=click.Choice(["auto", "table", "json"]), default="auto", help=AUTO_HELP)
@click.option("--offline", is_flag=True, help="Use only what is on this machine (like HF_HUB_OFFLINE=1).")
@click.option("--no-cache", is_flag=True, help="Neither use nor fill the range cache.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@which_weights
def tree_command(
    models: tuple[str, ...],
    out: Path | None,
    brief: bool,
    deep: bool,
    trust_metadata: bool,
    max_models: int,
    seed: int,
    budget: int | None,
    style: str,
    offline: bool,
    no_cache: bool,
    quiet: bool,
    bases: tuple[str, ...],
    files: tuple[str, ...],
) -> int:
    """Propose a family tree of several models.

    Every pair is compared, and only pairs that the tests find related can be joined. Which of two came first is a hypothesis
    from hints (grids, zeros, repeated layers, experts, vocabularies, merges); an edge stays undirected where they do not
    suffice. What cards and configs declare is shown, and counts only with --trust-metadata.
    """
    from kinprint.cli.options import make_settings, wants_json
    from kinprint.cli.output import terminal, write_file, write_json
    from kinprint.cli.progress import ProgressLine
    from kinprint.sources.session import Session
    from kinprint.tree import build_tree

    settings = make_settings(offline=offline, no_cache=no_cache)
    with (
        ProgressLine(enabled=False if quiet else None) as line,
        Session(settings, on_traffic=line.traffic, bases=bases, files=files) as session,
    ):
        tree = build_tree(
            models,
            budget_bytes=budget,
            deep=deep,
            trust_metadata=trust_metadata,
            max_models=max_models,
            seed=seed,
            session=session,
            progress=line.stage,
        )
    data = tree.to_json()
    if out is not None:
        from kinprint.render.drawing.tree_svg import tree_svg

        for name, content in (("tree.json", data), ("tree.svg", tree_svg(tree))):
            click.echo(f"wrote {write_file(out, name, content)}", err=True)
    if wants_json(style):
        write_json(data)
    else:
        from kinprint.render.terminal.tree import print_tree

        print_tree(tree, terminal(), details=not brief)
    return 0
