"""`kinprint report FILE`: a saved report in any form. `kinprint schema`: what its JSON looks like."""

from __future__ import annotations

from pathlib import Path

import click

from kinprint.cli.options import AUTO_HELP
from kinprint.cli.outputs import Outputs, report_outputs
from kinprint.errors import FileTooLarge, NotFound, SchemaError

MOST_BYTES = 512 << 20


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@report_outputs
@click.option("--summary", "brief", is_flag=True, help="Print the table by role only, not every layer and metric.")
@click.option("--explain", is_flag=True, help="Show every rule behind the verdict, its inputs, and whether it fired.")
@click.option("--format", "style", type=click.Choice(["auto", "table", "json"]), default="auto", help=AUTO_HELP)
def report_command(file: Path, outputs: Outputs, brief: bool, explain: bool, style: str) -> int:
    """Show a report that compare wrote (report.json, or an evidence bundle), or write it in another form.

    Nothing is read but the file, and nothing is computed anew.
    """
    from kinprint.cli.allpairs import show_pairs, write_pairs
    from kinprint.cli.compare import show_report
    from kinprint.family import PAIRS_SCHEMA, PairsReport
    from kinprint.results import Report

    raw = _read(file)
    outputs.check()
    if PAIRS_SCHEMA.encode() in raw[:200]:
        if outputs.pair_only:
            raise click.UsageError(
                f"{outputs.pair_only[0]} is for a report on two models, and {file} is on all pairs of several"
            )
        pairs = PairsReport.from_json(raw)
        write_pairs(pairs, outputs)
        show_pairs(pairs, style, brief=brief)
        return 0
    report = Report.from_json(raw)
    outputs.write(report)
    show_report(report, style, brief=brief, explain=explain)
    return 0


def _read(file: Path) -> bytes:
    """Return the JSON of a report, from the file itself or from the bundle that it is."""
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise FileTooLarge(f"{file}: {size} bytes, more than the {MOST_BYTES} a report may have")
        raw = file.read_bytes()
    except FileNotFoundError:
        raise NotFound(
            f"{file}: no such file", hint="kinprint compare A B --out FOLDER writes FOLDER/report.json"
        ) from None
    except OSError as error:
        raise SchemaError(f"{file}: cannot be read: {error.strerror}") from error
    if raw[:2] == b"PK":
        from kinprint.bundle import report_of

        return report_of(file)
    return raw


@click.command("schema")
@click.argument("name", type=click.Choice(["report", "pairs", "tree", "inspection"]), default="report")
def schema_command(name: str) -> int:
    """Print the JSON Schema of what compare writes (report; of several models: pairs), or tree, or inspect."""
    from kinprint.cli.output import write_json
    from kinprint.schema import published

    write_json(published()[f"{name}-v1.json"].rstrip())
    return 0
