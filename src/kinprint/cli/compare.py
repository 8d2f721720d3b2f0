"""`kinprint compare A B`."""

from __future__ import annotations

from pathlib import Path

import click

from kinprint.cli.fingerprint import compare_files, for_methods, is_fingerprint
from kinprint.cli.options import shared, split, which_weights

EXIT_CODES = {
    "no_evidence": 0,
    "not_testable": 7,
    "identical": 10,
    "derived": 11,
    "shares_components": 12,
    "shares_initialisation": 13,
}
"""What a script sees of the verdict; the codes of failures are in `kinprint.errors`."""


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json into this folder.")
@click.option("--summary", "brief", is_flag=True, help="Print the table by role only, not every layer and metric.")
@click.option("--control", "controls", multiple=True, metavar="MODEL", help="A model known to be unrelated to A.")
@click.option("--related", multiple=True, metavar="MODEL", help="A model known to be related to A.")
@click.option(
    "--parent", "parents", multiple=True, metavar="MODEL", help="A further model B may be a merge of, beside A."
)
@click.option("--deep", is_flag=True, help="Look for reordered neurons and residual dimensions in any case.")
@click.option(
    "--method",
    "methods",
    metavar="NAMES",
    help="Also run these fingerprint methods, comma-separated, or all (kinprint fingerprint --list). Local models are then read "
    "without a budget unless you give one.",
)
@click.option("--explain", is_flag=True, help="Show every rule behind the verdict, its inputs, and whether it fired.")
@click.option(
    "--null", type=click.Path(path_type=Path, dir_okay=False), help="Empirical null made by kinprint calibrate."
)
@click.option("--layers", help="Only these layers, such as 0,5,10-20.")
@click.option("--roles", help="Only these roles, comma-separated (see kinprint inspect).")
@click.option("--metrics", help="Only these metrics, comma-separated (docs/metrics.md).")
@click.option(
    "--rows", type=click.IntRange(1), default=32, show_default=True, help="Rows read of each matrix, at most."
)
@click.option("--experts", type=click.IntRange(0), default=1, show_default=True, help="Experts sampled in each layer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the Monte-Carlo permutations.")
@which_weights
@shared
def compare_command(
    a: str,
    b: str,
    out: Path | None,
    brief: bool,
    controls: tuple[str, ...],
    related: tuple[str, ...],
    parents: tuple[str, ...],
    deep: bool,
    methods: str | None,
    explain: bool,
    null: Path | None,
    layers: str | None,
    roles: str | None,
    metrics: str | None,
    rows: int,
    experts: int,
    seed: int,
    bases: tuple[str, ...],
    files: tuple[str, ...],
    budget: int | None,
    style: str,
    offline: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Compare models A and B, and say whether one derives from the other.

    Prints every metric beside its permutation null, the tests, and a verdict. The exit code tells the verdict: 0 no evidence,
    7 not testable, 10 identical, 11 derived, 12 shares components, 13 shares initialisation.

    A or B may be a fingerprint file (.kfp, see kinprint fingerprint). Then only methods that work on fingerprints are run, and
    there is no verdict: exit code 14 says that an exact test finds them related, 0 that none does, 7 that none could run.
    """
    if any(is_fingerprint(side) for side in (a, b)):
        return compare_files(
            a,
            b,
            split(methods),
            out,
            seed=seed,
            budget=budget,
            style=style,
            offline=offline,
            no_cache=no_cache,
            quiet=quiet,
        )
    from kinprint.cli.options import make_settings, wants_json
    from kinprint.cli.output import terminal, write_file, write_json
    from kinprint.cli.progress import ProgressLine
    from kinprint.comparison import compare
    from kinprint.evidence.examine import Inquiry
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
        Session(
            settings, budget_bytes=for_methods(budget, methods, a, b), on_traffic=line.traffic, bases=bases, files=files
        ) as session,
    ):
        inquiry = Inquiry(
            controls=controls, related=related, parents=parents, deep=deep, null=null, methods=split(methods)
        )
        report = compare(a, b, options, inquiry, session=session, progress=line.stage)
    data = report.to_json()
    if out is not None:
        target = write_file(out, "report.json", data)
        click.echo(f"wrote {target}", err=True)
    if wants_json(style):
        write_json(data)
    else:
        from kinprint.render.terminal import print_report

        print_report(report, terminal(), details=not brief, explain=explain)
    if report.status != OK and (report.verdict is None or report.verdict.class_ == "not_testable"):
        click.echo(f"error: {printable(report.reason or '', 700)}", err=True)
        click.echo(
            "  next: kinprint inspect shows what either model holds; see also --roles, --layers and --budget", err=True
        )
    return EXIT_CODES[report.verdict.class_] if report.verdict else 0
