"""`kinprint report FILE`: show a saved report in any form. `kinprint schema`: print the JSON schema of results."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kinprint.cli.help import command
from kinprint.cli.options import Printing, printing_options, showing_options
from kinprint.cli.output import write_json
from kinprint.cli.outputs import Outputs, report_outputs, tell
from kinprint.errors import KinprintError, SchemaError


@command("report")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@report_outputs
@showing_options
@printing_options
def report_command(file: Path, outputs: Outputs, showing: dict[str, bool], printing: Printing) -> int:
    """Show a report that compare wrote (report.json, or an evidence bundle), or write it in another form.

    A tree, an inspection or a search that was saved as JSON is shown too.

    Nothing is read but the file, and nothing is computed anew.
    """
    from kinprint.cli.compare import refuse_table_of_pair, show_report
    from kinprint.results.loading import load
    from kinprint.results.report import Report
    from kinprint.results.search import SearchReport
    from kinprint.results.tree import PairsReport

    report = load(file)
    outputs.check()
    outputs.refuse_over(file)
    if isinstance(report, PairsReport):
        refuse_table_of_pair(outputs, file.parent, f"{file} is on all pairs of several models")
    elif isinstance(report, Report):
        outputs.refuse_table_of_many(f"{file} is on two models")
    elif not isinstance(report, SearchReport) and (outputs.forms or outputs.out is not None):
        raise click.UsageError(f"{file} is no report of a comparison, so it has no such form")
    with _of_a_stranger(file):
        written = (
            outputs.write(report, printing.lang) if isinstance(report, PairsReport | Report | SearchReport) else []
        )
        if isinstance(report, Report):
            show_report(report, printing, page="html" in outputs.forms, **showing)
        else:
            pairs, found = isinstance(report, PairsReport), isinstance(report, SearchReport)
            how = {"details": not showing["brief"]} if pairs else {"full": showing["full"]} if found else {}
            printing.show(report, **how)
    tell(written)
    return 0


@contextmanager
def _of_a_stranger(file: Path) -> Iterator[None]:
    """Say that a file is wrong, where what it holds fits the schema and not itself: a layer that no table has, say."""
    from kinprint.results.loading import naming

    with naming(file):
        try:
            yield
        except (KinprintError, OSError, click.ClickException, click.Abort):
            raise
        except Exception as error:
            raise SchemaError(f"cannot be shown: {type(error).__name__}: {error}") from error


@command("schema")
@click.argument("name", type=click.Choice(["report", "pairs", "tree", "inspection", "search"]), default="report")
def schema_command(name: str) -> int:
    """Print the JSON Schema of what compare writes (report; of several models: pairs), or tree, inspect or search."""
    from kinprint.results.schema import schemas

    write_json(schemas()[name].rstrip())
    return 0
