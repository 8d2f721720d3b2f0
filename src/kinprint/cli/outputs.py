"""Where a report goes beside the terminal: the options, a look at the targets before the work, and the writing after it."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from kinprint.errors import NeedsExtra, StorageError

if TYPE_CHECKING:
    from kinprint.results.report import Report

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
PAIR_TABLES = ("measurements", "tests", "pairs")
ALL_PAIRS_TABLE = "verdicts"


@dataclass(frozen=True)
class Outputs:
    """Files to write, each None if it was not asked for."""

    out: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    cyclonedx: Path | None = None
    sarif: Path | None = None
    table: str | None = None  # by default the first of a pair's, or the only one of many models

    def check(self, further: Mapping[str, Path | None] | None = None) -> None:
        """Refuse targets that cannot be written, before anything is read.

        Parameters
        ----------
        further
            Other files that the command writes, by their options.

        Raises
        ------
        click.UsageError
            If two options name the same file.
        StorageError
            If a target cannot be written.
        NeedsExtra
            If a form needs a package that is not installed.
        """
        targets = self._targets() | {option: path for option, path in (further or {}).items() if path is not None}
        _refuse_same(targets)
        for path in targets.values():
            check_target(path)
        for target, option, package, extra in (
            (self.parquet, "--parquet", "pyarrow", "parquet"),
            (self.cyclonedx, "--cyclonedx", "cyclonedx", "bom"),
        ):
            if target is not None and importlib.util.find_spec(package) is None:
                raise NeedsExtra(option, extra=extra)

    def refuse_over(self, file: Path) -> None:
        """Refuse to write another form over the report that it is made from.

        Raises
        ------
        click.UsageError
            If an option names that file; --out, which would write the same report again, may.
        """
        for option, target in self._targets().items():
            if option != "--out" and _real(target) == _real(file):
                raise click.UsageError(f"{option} would overwrite {file}, which is read\n  next: name another file")

    def _targets(self) -> dict[str, Path]:
        """Return the files to be written, by their options."""
        named = {f"--{item.name}": getattr(self, item.name) for item in fields(self)}
        found = {option: path for option, path in named.items() if isinstance(path, Path)}
        if self.out is not None:
            found["--out"] = self.out / "report.json"
        return found

    @property
    def forms(self) -> list[str]:
        """The options given that write a form of a report, beside its JSON."""
        names = ("html", "markdown", "csv", "parquet", "cyclonedx", "sarif")
        return [f"--{name}" for name in names if getattr(self, name) is not None]

    def refuse_table_of_many(self, given: str) -> None:
        """Refuse the table of all pairs where there is one pair only.

        Raises
        ------
        click.UsageError
            If it was chosen; `given` says what there is.
        """
        if self.table == ALL_PAIRS_TABLE:
            raise click.UsageError(
                f"--table {ALL_PAIRS_TABLE} has a row for each pair of more than two models, and {given}\n"
                f"  next: choose {', '.join(PAIR_TABLES[:-1])} or {PAIR_TABLES[-1]}"
            )

    def write(self, report: Report, lang: str) -> None:
        """Write all that was asked for of a report on two models, and say where."""
        table = self.table or PAIR_TABLES[0]
        self.fill(
            {
                "--out": report.to_json,
                "--html": lambda: _html(report, lang),
                "--markdown": lambda: _markdown(report),
                "--csv": lambda: _csv(report, table),
                "--parquet": lambda: _parquet(report, table),
                "--cyclonedx": lambda: _bom(report),
                "--sarif": lambda: _sarif(report),
            }
        )

    def fill(self, makers: Mapping[str, Callable[[], bytes]]) -> None:
        """Write what was asked for, made by the maker of its option; each form's module is loaded only then."""
        for option, target in self._targets().items():
            save(target, makers[option]())


def report_outputs(function: F) -> F:
    """Add the options of every command that has a report to write, and hand them over as `outputs`."""

    @functools.wraps(function)
    def packed(**given: Any) -> Any:
        outputs = Outputs(**{item.name: given.pop(item.name) for item in fields(Outputs)})
        _refuse_idle(outputs)
        return function(outputs=outputs, **given)

    for option in (
        click.option(
            "--table",
            type=click.Choice([*PAIR_TABLES, ALL_PAIRS_TABLE]),
            help="What --csv and --parquet hold. Of two models: every measurement (the default), the tests of the evidence, or "
            "all pairs of layers. Of more: the verdicts of all pairs (the default, and all there is).",
        ),
        click.option("--sarif", type=FILE, help="Write findings for code-scanning tools (SARIF 2.1.0)."),
        click.option("--cyclonedx", type=FILE, help="Write a CycloneDX ML-BOM with pedigree and verdicts."),
        click.option("--parquet", type=FILE, help="Write a Parquet table (see --table)."),
        click.option("--csv", type=FILE, help="Write a CSV table (see --table)."),
        click.option("--markdown", type=FILE, help="Write the report as Markdown."),
        click.option("--html", type=FILE, help="Write the report as one HTML file that needs no network."),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json into this folder."
        ),
    ):
        packed = option(packed)
    return packed  # type: ignore[return-value]


def _refuse_idle(outputs: Outputs) -> None:
    """Refuse options that would do nothing: whoever gives one expects a file that is then not there."""
    context = click.get_current_context()
    for option, forms in (("table", ("csv", "parquet")),):
        chosen = context.get_parameter_source(option) is not ParameterSource.DEFAULT
        if chosen and all(getattr(outputs, form) is None for form in forms):
            raise click.UsageError(f"--{option} needs {' or '.join(f'--{form} FILE' for form in forms)}")


def _refuse_same(targets: Mapping[str, Path]) -> None:
    seen: dict[str, str] = {}
    for option, target in targets.items():
        first = seen.setdefault(_real(target), option)
        if first != option:
            raise click.UsageError(f"{first} and {option} both name {target}\n  next: name a file for each")


def _real(target: Path) -> str:
    """Return what tells one file from another, whether they exist or not."""
    return os.path.normcase(os.path.realpath(target))


def check_target(target: Path) -> None:
    """Refuse a file that cannot be written: a comparison may take minutes, and its result must have a place to go.

    Raises
    ------
    StorageError
        If it is a folder, or no folder above it can be written to.
    """
    if target.is_dir():
        raise StorageError(f"cannot write {target}: it is a folder", hint="name a file")
    above = target.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    why = _why_not(above)
    if why is not None:
        raise StorageError(f"cannot write {target}: {above} {why}", hint="name another file")


def _why_not(folder: Path) -> str | None:
    """Return why no file can be made in a folder, or None; some folders refuse what their permissions allow."""
    from kinprint._util.files import try_folder

    if not folder.is_dir():
        return "is no folder"
    problem = try_folder(folder)
    return None if problem is None else f"cannot be written to: {problem}"


def save(target: Path, data: bytes) -> None:
    """Write one file whole, and say so."""
    from kinprint._util.files import write_whole

    write_whole(target, data)
    click.echo(f"wrote {target}", err=True)


def _html(report: Report, lang: str) -> bytes:
    from kinprint.render.page import page_html

    return page_html(report, lang=lang)


def _markdown(report: Report) -> bytes:
    from kinprint.render.markdown.report import report_markdown

    return report_markdown(report).encode()


def _csv(report: Report, table: str) -> bytes:
    from kinprint.render.tables.report import report_csv

    return report_csv(report, table)


def _parquet(report: Report, table: str) -> bytes:
    from kinprint.render.tables.report import report_parquet

    return report_parquet(report, table)


def _bom(report: Report) -> bytes:
    from kinprint.render.bom.report import report_cyclonedx

    return report_cyclonedx(report)


def _sarif(report: Report) -> bytes:
    from kinprint.render.sarif.report import report_sarif

    return report_sarif(report)
