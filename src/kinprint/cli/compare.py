"""`kinprint compare A B`."""

from __future__ import annotations

from pathlib import Path

import click

from kinprint.cli.options import shared, split

NOTHING_COMPARABLE = 7


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json into this folder.")
@click.option("--summary", "brief", is_flag=True, help="Print the table by role only, not every layer and metric.")
@click.option("--layers", help="Only these layers, such as 0,5,10-20.")
@click.option("--roles", help="Only these roles, comma-separated (see kinprint inspect).")
@click.option("--metrics", help="Only these metrics, comma-separated (docs/metrics.md).")
@click.option(
    "--rows", type=click.IntRange(1), default=32, show_default=True, help="Rows read of each matrix, at most."
)
@click.option("--experts", type=click.IntRange(0), default=1, show_default=True, help="Experts sampled in each layer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the Monte-Carlo permutations.")
@shared
def compare_command(
    a: str,
    b: str,
    out: Path | None,
    brief: bool,
    layers: str | None,
    roles: str | None,
    metrics: str | None,
    rows: int,
    experts: int,
    seed: int,
    budget: int | None,
    style: str,
    offline: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Compare models A and B: every metric, by role and layer, beside its permutation null.

    States the evidence and draws no conclusion.
    """
    from kinprint.cli.options import make_settings, wants_json
    from kinprint.cli.output import terminal, write_file, write_json
    from kinprint.cli.progress import ProgressLine
    from kinprint.comparison import compare
    from kinprint.plain import printable
    from kinprint.results import OK
    from kinprint.selection import Options, checked_roles
    from kinprint.sources.session import Session

    options = Options(
        rows=rows, experts=experts, layers=layers, roles=checked_roles(split(roles)), metrics=split(metrics), seed=seed
    )
    settings = make_settings(offline=offline, no_cache=no_cache)
    with (
        ProgressLine(enabled=False if quiet else None) as line,
        Session(settings, budget_bytes=budget, on_traffic=line.traffic) as session,
    ):
        report = compare(a, b, options, session=session, progress=line.stage)
    data = report.to_json()
    if out is not None:
        target = write_file(out, "report.json", data)
        click.echo(f"wrote {target}", err=True)
    if wants_json(style):
        write_json(data)
    else:
        from kinprint.render.terminal import print_report

        print_report(report, terminal(), details=not brief)
    if report.status != OK:
        click.echo(f"error: {printable(report.reason or '', 700)}", err=True)
        click.echo(
            "  next: kinprint inspect shows what either model holds; see also --roles, --layers and --budget", err=True
        )
        return NOTHING_COMPARABLE
    return 0
