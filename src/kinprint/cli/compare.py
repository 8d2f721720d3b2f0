"""`kinprint compare A B …`: compare two models, or all pairs of more."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinprint.cli import options
from kinprint.cli.fingerprint import compare_files, is_fingerprint
from kinprint.cli.help import MODEL, command, in_group
from kinprint.cli.judging import NAMES, Judging, judging_options
from kinprint.cli.options import Printing, Reading
from kinprint.cli.output import terminal, write_json
from kinprint.cli.outputs import FILE, WRITTEN, Outputs, report_outputs, save, tell
from kinprint.render.forms import ALL_PAIRS_TABLE, FORMS
from kinprint.results.options import Options, options_of

if TYPE_CHECKING:
    from kinprint.results.report import Report


@command("compare")
@click.argument("models", nargs=-1, required=True, type=MODEL, metavar="MODEL MODEL…")
@report_outputs
@in_group(
    WRITTEN,
    click.option("--bundle", type=FILE, help="Write an evidence bundle, which kinprint verify checks."),
    click.option("--bundle-bytes", is_flag=True, help="Put the bytes that were read into the bundle as well."),
)
@judging_options(NAMES)
@options.showing_options
@options.comparison_options()
@options.printing_options
@options.reading_options
def compare_command(
    models: tuple[str, ...],
    outputs: Outputs,
    bundle: Path | None,
    bundle_bytes: bool,
    judging: Judging,
    showing: dict[str, bool],
    chosen: dict[str, Any],
    printing: Printing,
    reading: Reading,
) -> int:
    """Compare two models, and say whether one derives from the other; or all pairs of more than two.

    Prints the answer: verdict, reasons in plain words, the raw cosine beside what shuffling gives, and what was not tested.

    One of two models may be a fingerprint file (.kfp, see kinprint fingerprint). Then only methods that work on fingerprints
    are run, and there is no verdict but "related" (exit code 14 with --exit-code).

    Of more than two models every pair is compared, within --budget each (32MB a pair unless you give one, not 128MB); the
    report holds the matrix of verdicts, the groups and the proposed family tree, in every form but a bundle.
    """
    if len(models) < 2:
        raise click.UsageError(f"expected two models or more, got {len(models)}")
    if any(is_fingerprint(side) for side in models):
        if len(models) > 2:
            raise click.UsageError("fingerprint files are compared two at a time")
        others = {"--bundle": bundle, "--fail-on": judging.fail_on}
        asked = [*(FORMS[name].option for name in outputs.forms), *(name for name in others if others[name])]
        if asked:
            why = "a comparison of fingerprint files has no verdict"
            raise click.UsageError(f"{asked[0]} needs the models themselves: {why}")
        found = compare_files(models[0], models[1], chosen, outputs.out, printing, reading)
        return judging.code([found], made=found != "not_testable")
    outputs.check({"--bundle": bundle})
    if chosen.get("null"):
        outputs.refuse_over(Path(chosen["null"]))
    if len(models) > 2:
        given: dict[str, object] = {"--bundle": bundle, "--bundle-bytes": bundle_bytes, "--explain": showing["explain"]}
        given |= {"--exit-code": judging.exit_code}
        _refuse_pair_options(chosen, [name for name, value in given.items() if value], len(models), outputs)
        return _compare_all_pairs(models, chosen, outputs, printing, reading, brief=showing["brief"], judging=judging)
    outputs.refuse_table_of_many("two were given")
    if bundle_bytes and bundle is None:
        raise click.UsageError("--bundle-bytes needs --bundle FILE")
    tell(outputs.room_for(bundle))
    report = _compare_pair(models[0], models[1], chosen, reading, bundle, enclose=bundle_bytes)
    written = ([f"wrote {bundle}"] if bundle else []) + outputs.write(report, printing.lang)
    made = show_report(report, printing, page="html" in outputs.forms, **showing)
    tell(written)
    findings = [report.verdict.class_] if report.verdict else []
    findings += [report.declared.state] if report.declared else []
    return judging.code(findings, made=made)


def _compare_pair(
    a: str, b: str, chosen: dict[str, Any], reading: Reading, bundle: Path | None, *, enclose: bool
) -> Report:
    with reading.session() as (session, line):
        if bundle is None:
            from kinprint.comparison.pipeline import compare
            from kinprint.sources.ledger import Ledger

            with session.recording(Ledger()):
                return compare(a, b, session=session, progress=line.stage, **chosen)
        from kinprint.bundle import make_bundle

        return make_bundle(bundle, a, b, enclose=enclose, session=session, progress=line.stage, **chosen)


def show_report(
    report: Report,
    printing: Printing,
    *,
    full: bool = False,
    brief: bool = False,
    explain: bool = False,
    page: bool = False,
) -> bool:
    """Print a report, its answer or its tables; return whether anything was compared, and say on stderr why not."""
    from kinprint._util.plain import printable
    from kinprint.results.measurements import OK

    if printing.json:
        write_json(report.to_json() if full else report.short_json())
    elif printing.style == "text" and not (full or brief or explain):
        from kinprint.render.terminal.answer import print_answer

        print_answer(report, terminal(piped_width=None), page=page, lang=printing.lang)
    else:
        measured = full or brief or printing.style != "text"
        printing.show(report, details=not brief, measured=measured, explain=explain)
    if report.status == OK or not (report.verdict is None or report.verdict.class_ == "not_testable"):
        return True
    click.echo(f"error: {printable(report.reason or '', 700)}", err=True)
    hint = "kinprint inspect shows what either model holds; see also --roles, --layers and --budget"
    click.echo(f"  next: {hint}", err=True)
    return False


def _compare_all_pairs(
    models: tuple[str, ...],
    chosen: dict[str, Any],
    outputs: Outputs,
    printing: Printing,
    reading: Reading,
    *,
    brief: bool,
    judging: Judging,
) -> int:
    """Compare every pair, write and print what was found, and return the exit code."""
    from kinprint.tree import compare_many

    def keep(a: int, b: int, report: Report) -> None:
        if outputs.out is not None:
            # whichever of the two was compared to the other, so that the file can be found by their numbers
            one, two = sorted((a + 1, b + 1))
            save(outputs.out / "pairs" / f"{one}-{two}.json", report.to_json(), made=True)

    with reading.session() as (session, line):
        report = compare_many(models, on_report=keep, session=session, progress=line.stage, **chosen)
    written = outputs.write(report, printing.lang)
    printing.show(report, details=not brief)
    tell(written)
    standing = [pair for pair in report.pairs if pair.stands]
    found = [pair.class_ for pair in standing] + [pair.declared.state for pair in standing if pair.declared]
    return judging.code(found)


def _refuse_pair_options(chosen: dict[str, Any], further: list[str], count: int, outputs: Outputs) -> None:
    """Refuse options that only a comparison of two models has, and say how to have what they would give."""
    folder = outputs.out or Path("OUT")
    way = "compare the pair alone, or " + ("" if outputs.out is not None else "give --out OUT, then ")
    refuse_table_of_pair(outputs, folder, f"{count} models were given", way)
    given = [described.flag for _, described in options_of(Options, chosen) if described.pair_only] + further
    if not given:
        return
    option, later = given[0], "compare the pair alone"
    if option == "--explain":
        later = f"{way}{_of_saved_pair(folder, option)}"
    raise click.UsageError(f"{option} is for a comparison of two models, and {count} were given\n  next: {later}")


def refuse_table_of_pair(outputs: Outputs, folder: Path, given: str, way: str = "") -> None:
    """Refuse the tables of a pair where there are many (`given`), and say how to have them from its own report in `folder`."""
    if outputs.table in (None, ALL_PAIRS_TABLE):
        return
    form = next(FORMS[name].option for name in outputs.forms if FORMS[name].tables)
    command = _of_saved_pair(folder, "--table", outputs.table, form, "FILE")
    raise click.UsageError(f"--table {outputs.table} is of one pair, and {given}\n  next: {way}{command}")


def _of_saved_pair(folder: Path, *options: str) -> str:
    """Return the command that shows or writes one pair of many, for example the first, from its own report in `folder`."""
    return shlex.join(["kinprint", "report", str(folder / "pairs" / "1-2.json"), *options])
