"""`kinprint compare A B C …`: all pairs of more than two models."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kinprint.cli.judging import exit_code
from kinprint.cli.options import Reading, wants_json
from kinprint.cli.outputs import Outputs, save

if TYPE_CHECKING:
    from kinprint.family import PairsReport
    from kinprint.results import Report
    from kinprint.selection import Options


def compare_all_pairs(
    models: tuple[str, ...],
    options: Options,
    outputs: Outputs,
    reading: Reading,
    *,
    deep: bool,
    brief: bool,
    fail_on: tuple[str, ...] | None,
) -> int:
    """Compare every pair, write and print what was found, and return the exit code."""
    from kinprint.tree import PAIR_BUDGET_BYTES, compare_many
    from kinprint.tree.many import PAIR_METRICS

    # A budget that nobody chose is the tree's for each pair: the one for two models would be multiplied by their number.
    chosen = click.get_current_context().get_parameter_source("budget") is not ParameterSource.DEFAULT
    budget = reading.budget if chosen else PAIR_BUDGET_BYTES

    def keep(a: int, b: int, report: Report) -> None:
        if outputs.out is not None:
            # whichever of the two was compared to the other, so that the file can be found by their numbers
            one, two = sorted((a + 1, b + 1))
            save(outputs.out / "pairs" / f"{one}-{two}.json", report.to_json())

    with reading.session(None) as (session, line):
        report = compare_many(
            models,
            replace(options, metrics=options.metrics or PAIR_METRICS),
            on_report=keep,
            budget_bytes=budget,
            deep=deep,
            seed=options.seed,
            session=session,
            progress=line.stage,
        )
    write_pairs(report, outputs)
    show_pairs(report, reading.style, brief=brief)
    standing = [pair for pair in report.pairs if pair.stands]
    found = [pair.class_ for pair in standing] + [pair.declared.state for pair in standing if pair.declared]
    return 0 if fail_on is None else exit_code(found, fail_on)


def refuse_pair_options(given: list[str], count: int, outputs: Outputs) -> None:
    """Refuse options that only a comparison of two models has, and say how to have what they would give.

    Raises
    ------
    click.UsageError
        If there are any.
    """
    if not given:
        return
    option, later = given[0], "compare the pair alone"
    if option in (*outputs.pair_only, "--explain"):
        later += ", or " if outputs.out is not None else ", or give --out OUT, then "
        later += of_saved_pair(outputs.out or Path("OUT"), option)
    raise click.UsageError(f"{option} is for a comparison of two models, and {count} were given\n  next: {later}")


def of_saved_pair(folder: Path, option: str) -> str:
    """Return the command that makes a form of one pair of many, for example the first, from its own report in `folder`."""
    value = [] if option == "--explain" else ["FILE"]
    return shlex.join(["kinprint", "report", str(folder / "pairs" / "1-2.json"), option, *value])


def write_pairs(report: PairsReport, outputs: Outputs) -> None:
    """Write the forms that a report on many models has."""
    if outputs.out is not None:
        save(outputs.out / "report.json", report.to_json())
    if outputs.html is not None:
        from kinprint.render.page.many import pairs_html

        save(outputs.html, pairs_html(report, lang=outputs.lang))
    if outputs.markdown is not None:
        from kinprint.render.pairs_markdown import pairs_markdown

        save(outputs.markdown, pairs_markdown(report).encode())


def show_pairs(report: PairsReport, style: str, *, brief: bool) -> None:
    """Print the report as tables or JSON."""
    from kinprint.cli.output import terminal, write_json

    if wants_json(style):
        write_json(report.to_json())
    else:
        from kinprint.render.pairs import print_pairs

        print_pairs(report, terminal(), details=not brief)
