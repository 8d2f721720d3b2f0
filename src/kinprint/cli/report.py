"""`kinprint report FILE`: a saved report in any form. `kinprint schema`: what its JSON looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kinprint._version import __version__
from kinprint.cli.options import Printing, printing_options
from kinprint.cli.outputs import Outputs, report_outputs
from kinprint.errors import FileTooLarge, FormatError, NotFound, SchemaError

MOST_BYTES = 512 << 20
WRITES = "kinprint compare A B --out FOLDER writes a report, FOLDER/report.json"


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@report_outputs
@click.option("--summary", "brief", is_flag=True, help="Print the table by role only, not every layer and metric.")
@click.option("--explain", is_flag=True, help="Show every rule behind the verdict, its inputs, and whether it fired.")
@printing_options
def report_command(file: Path, outputs: Outputs, brief: bool, explain: bool, printing: Printing) -> int:
    """Show a report that compare wrote (report.json, or an evidence bundle), or write it in another form.

    Nothing is read but the file, and nothing is computed anew.
    """
    from kinprint.cli.compare import show_report
    from kinprint.cli.pairs import refuse_table_of_pair
    from kinprint.results.report import Report
    from kinprint.results.tree import PAIRS_SCHEMA, PairsReport

    raw = _read(file)
    outputs.check()
    outputs.refuse_over(file)
    if _schema(raw, file) == PAIRS_SCHEMA:
        refuse_table_of_pair(outputs, file.parent, f"{file} is on all pairs of several models")
        with _naming(file):
            pairs = PairsReport.from_json(raw)
        outputs.write(pairs, printing.lang)
        printing.show(pairs, details=not brief)
        return 0
    outputs.refuse_table_of_many(f"{file} is on two models")
    with _naming(file):
        report = Report.from_json(raw)
    outputs.write(report, printing.lang)
    show_report(report, printing, brief=brief, explain=explain)
    return 0


def _schema(raw: bytes, file: Path) -> str:
    """Return the schema of a report that this version can read.

    Raises
    ------
    SchemaError
        If it is something else, or of another version.
    """
    import orjson

    from kinprint.results.report import READABLE, SCHEMA, SCHEMA_VERSION
    from kinprint.results.tree import PAIRS_SCHEMA, PAIRS_SCHEMA_VERSION

    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"{file}: no report of kinprint, which is JSON: {error}", hint=WRITES) from error
    schema, version = (data.get("schema"), data.get("schema_version")) if isinstance(data, dict) else (None, None)
    known = {SCHEMA: SCHEMA_VERSION, PAIRS_SCHEMA: PAIRS_SCHEMA_VERSION}
    if not isinstance(schema, str) or schema not in known:
        what = f"of schema {schema!r:.80}, not a report" if schema else "JSON, but no report of kinprint"
        raise SchemaError(f"{file}: {what}", hint=WRITES)
    if version not in READABLE:
        newer = isinstance(version, int) and version > known[schema]
        raise SchemaError(
            f"{file}: of schema {schema!r}, version {version!r:.20}; this kinprint ({__version__}) reads version {known[schema]}",
            hint="upgrade kinprint" if newer else "use the version of kinprint that wrote it, or compare again",
        )
    return schema


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Say which file it is that cannot be read, and what to do."""
    try:
        yield
    except (SchemaError, FormatError) as error:
        said = error.message if str(file) in error.message else f"{file}: {error.message}"
        raise type(error)(said, hint=error.hint or "the file is damaged or was edited; compare again") from error


def _read(file: Path) -> bytes:
    """Return the JSON of a report, from the file itself or from the bundle that it is."""
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise FileTooLarge(f"{file}: {size} bytes, more than the {MOST_BYTES} a report may have", hint=WRITES)
        raw = file.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file", hint=WRITES) from None
    except OSError as error:
        raise SchemaError(f"{file}: cannot be read: {error.strerror}", hint="see its permissions") from error
    if raw[:2] == b"PK":
        from kinprint.bundle import report_of

        with _naming(file):
            return report_of(file)
    return raw


@click.command("schema")
@click.argument("name", type=click.Choice(["report", "pairs", "tree", "inspection"]), default="report")
def schema_command(name: str) -> int:
    """Print the JSON Schema of what compare writes (report; of several models: pairs), or tree, or inspect."""
    from kinprint.cli.output import write_json
    from kinprint.results.schema import schemas

    write_json(schemas()[name].rstrip())
    return 0
