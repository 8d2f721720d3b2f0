"""`kinprint compare A B`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinprint.cli.fingerprint import compare_files, for_methods, is_fingerprint
from kinprint.cli.judging import exit_code, fail_on_option
from kinprint.cli.options import Reading, shared, split, which_weights
from kinprint.cli.outputs import FILE, Outputs, report_outputs
from kinprint.cli.pairs import compare_all_pairs, refuse_pair_options

if TYPE_CHECKING:
    from kinprint.comparison.selection import Options
    from kinprint.evidence.examine import Inquiry
    from kinprint.results.report import Report


@click.command("compare")
@click.argument("models", nargs=-1, required=True, metavar="MODEL MODEL…")
@report_outputs
@click.option("--bundle", type=FILE, help="Write an evidence bundle, which kinprint verify checks.")
@click.option("--bundle-bytes", is_flag=True, help="Put the bytes that were read into the bundle as well.")
@fail_on_option
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
    models: tuple[str, ...],
    outputs: Outputs,
    bundle: Path | None,
    bundle_bytes: bool,
    fail_on: tuple[str, ...] | None,
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
    """Compare two models, and say whether one derives from the other; or all pairs of more than two.

    Prints every metric beside its permutation null, the tests, and a verdict. The exit code tells the verdict: 0 no evidence,
    7 not testable, 10 identical, 11 derived, 12 shares components, 13 shares initialisation. With --fail-on it is 0 unless
    one of the findings named there was made; then that finding's code (15 undeclared, 16 declared-not-shown, 17 no-evidence,
    18 not-judged).

    One of two models may be a fingerprint file (.kfp, see kinprint fingerprint). Then only methods that work on fingerprints
    are run, and there is no verdict: exit code 14 says that an exact test finds them related, 0 that none does, 7 that none
    could run.

    Of more than two models every pair is compared, within --budget each (32MB a pair unless you give one, not 128MB); the
    report holds the matrix of verdicts, the groups and the proposed family tree, in every form but a bundle, and the exit code is
    0 unless --fail-on says otherwise.
    """
    from kinprint.comparison.selection import Options, checked_roles

    options = Options(
        rows=rows, experts=experts, layers=layers, roles=checked_roles(split(roles)), metrics=split(metrics), seed=seed
    )
    reading = Reading(budget, style, bases, files, offline, no_cache, quiet)
    if len(models) < 2:
        raise click.UsageError(f"expected two models or more, got {len(models)}")
    if any(is_fingerprint(side) for side in models):
        if len(models) > 2:
            raise click.UsageError("fingerprint files are compared two at a time")
        if asked := [*outputs.forms, *(["--bundle"] if bundle else []), *(["--fail-on"] if fail_on else [])]:
            raise click.UsageError(
                f"{asked[0]} needs the models themselves: a comparison of fingerprint files has no verdict"
            )
        return compare_files(models[0], models[1], split(methods), outputs.out, reading, seed=seed)
    outputs.check({"--bundle": bundle})
    if len(models) > 2:
        given: dict[str, object] = {
            "--control": controls,
            "--related": related,
            "--parent": parents,
            "--method": methods,
            "--null": null,
        }
        given |= {"--bundle": bundle, "--bundle-bytes": bundle_bytes, "--explain": explain}
        refuse_pair_options([name for name, value in given.items() if value], len(models), outputs)
        return compare_all_pairs(models, options, outputs, reading, deep=deep, brief=brief, fail_on=fail_on)
    outputs.refuse_table_of_many("two were given")
    from kinprint.evidence.examine import Inquiry

    inquiry = Inquiry(controls=controls, related=related, parents=parents, deep=deep, null=null, methods=split(methods))
    report = _compare_pair(models, options, inquiry, reading, Bundle(bundle, bundle_bytes))
    outputs.write(report)
    show_report(report, style, brief=brief, explain=explain)
    found = [report.verdict.class_] if report.verdict else []
    found += [report.declared.state] if report.declared else []
    return exit_code(found, fail_on)


@dataclass(frozen=True)
class Bundle:
    """Where an evidence bundle goes, and whether it encloses the bytes."""

    path: Path | None
    enclose: bool


def _compare_pair(
    models: tuple[str, ...], options: Options, inquiry: Inquiry, reading: Reading, bundle: Bundle
) -> Report:
    from kinprint.comparison.pipeline import compare
    from kinprint.sources.ledger import Ledger

    if bundle.enclose and bundle.path is None:
        raise click.UsageError("--bundle-bytes needs --bundle FILE")
    a, b = models
    budget = for_methods(reading.budget, ",".join(inquiry.methods), a, b)
    with Ledger(keep=bundle.enclose) as ledger:
        with reading.session(budget, ledger) as (session, line):
            report = compare(a, b, options, inquiry, session=session, progress=line.stage)
        if bundle.path is not None:
            from kinprint.bundle import write_bundle

            write_bundle(bundle.path, report, ledger, enclose=bundle.enclose, null=inquiry.null)
            click.echo(f"wrote {bundle.path}", err=True)
    return report


def show_report(report: Report, style: str, *, brief: bool, explain: bool) -> None:
    """Print a report as tables or JSON, and on stderr why nothing could be compared, if so."""
    from kinprint._util.plain import printable
    from kinprint.cli.options import wants_json
    from kinprint.cli.output import terminal, write_json
    from kinprint.results.measurements import OK

    if wants_json(style):
        write_json(report.to_json())
    else:
        from kinprint.render.terminal.report import print_report

        print_report(report, terminal(), details=not brief, explain=explain)
    if report.status != OK and (report.verdict is None or report.verdict.class_ == "not_testable"):
        click.echo(f"error: {printable(report.reason or '', 700)}", err=True)
        click.echo(
            "  next: kinprint inspect shows what either model holds; see also --roles, --layers and --budget", err=True
        )
