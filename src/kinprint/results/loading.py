"""Open a saved report, report on many models, tree or inspection, from JSON or an evidence bundle."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinprint._util.files import read_whole
from kinprint._util.strange_json import parse_json
from kinprint._version import __version__
from kinprint.errors import FileTooLarge, FormatError, NotFound, SchemaError
from kinprint.results.inspection import Inspection
from kinprint.results.report import Report
from kinprint.results.result import MOST_BYTES, READABLE, SCHEMA_VERSION
from kinprint.results.search import SearchReport
from kinprint.results.tree import FamilyTree, PairsReport

WRITES = "kinprint compare A B --out FOLDER writes a report, FOLDER/report.json"
_PAGE, _PAGE_BYTES = (b"<!doctype html", b"<html"), 1000  # how a page begins, and within which bytes
Loaded = Report | PairsReport | FamilyTree | Inspection | SearchReport
KINDS: dict[str, type[Loaded]] = {
    kind.SCHEMA: kind for kind in (Report, PairsReport, FamilyTree, Inspection, SearchReport)
}
"""What can be opened, by its schema."""


def load(path: str | Path) -> Loaded:
    """Open JSON of a report, of a report on many models, of a tree or of an inspection, or the report of an evidence bundle.

    Raise NotFound without such a file; SchemaError or FormatError for other content, an unknown version or damage.
    """
    file = Path(path)
    raw = _read(file)
    kind = KINDS[_schema(raw, file)]
    with naming(file):
        return kind.from_json(raw)


def _schema(raw: bytes, file: Path) -> str:
    if raw[:_PAGE_BYTES].lstrip().lower().startswith(_PAGE):
        said = f"{file}: this is a page, which is for readers; expected the JSON of a report"
        raise SchemaError(said, hint=f"its JSON is saved with --out: {WRITES}")
    try:
        data = parse_json(raw)
    except ValueError as error:
        raise SchemaError(f"{file}: no report of kinprint, which is JSON: {error}", hint=WRITES) from error
    schema, version = (data.get("schema"), data.get("schema_version")) if isinstance(data, dict) else (None, None)
    if not isinstance(schema, str) or schema not in KINDS:
        what = f"of schema {schema!r:.80}, not a report" if schema else "JSON, but no report of kinprint"
        raise SchemaError(f"{file}: {what}", hint=WRITES)
    if version not in READABLE:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        raise SchemaError(
            f"{file}: of schema {schema!r}, version {version!r:.20}; this kinprint ({__version__}) reads version {SCHEMA_VERSION}",
            hint="upgrade kinprint" if newer else "use the version of kinprint that wrote it, or compare again",
        )
    return schema


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Name the file in errors, with a next step."""
    try:
        yield
    except (SchemaError, FormatError) as error:
        said = error.message if str(file) in error.message else f"{file}: {error.message}"
        raise type(error)(said, hint=error.hint or "the file is damaged or was edited; compare again") from error


def _read(file: Path) -> bytes:
    """Return the JSON of a result, from the file itself or from the bundle that it is."""
    try:
        raw = read_whole(file, MOST_BYTES)
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file", hint=WRITES) from None
    except FileTooLarge:
        raise
    except OSError as error:
        raise SchemaError(f"{file}: cannot be read: {error.strerror}", hint="see its permissions") from error
    if raw[:2] == b"PK":  # bundles stand above results, so they are looked up when one is opened
        with naming(file):
            inside: bytes = importlib.import_module("kinprint.bundle").report_of(file)
            return inside
    return raw
