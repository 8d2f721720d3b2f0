"""`kinprint compare A B C …`: all pairs of more than two models."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinprint.cli.judging import Judging
from kinprint.cli.options import Printing, Reading
from kinprint.cli.outputs import Outputs, save, tell
from kinprint.render.forms import ALL_PAIRS_TABLE, FORMS
from kinprint.results.options import Options, options_of

if TYPE_CHECKING:
    from kinprint.results.report import Report


def compare_all_pairs(
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


def refuse_pair_options(chosen: dict[str, Any], further: list[str], count: int, outputs: Outputs) -> None:
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
