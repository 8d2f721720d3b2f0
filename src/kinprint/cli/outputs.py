"""Where a report goes beside the terminal: the options, a look at the targets before the work, and the writing after it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinprint.errors import StorageError
from kinprint.render.forms import ALL_PAIRS_TABLE, FORMS, PAIR_TABLES, REPORT_FORMS, make

if TYPE_CHECKING:
    from kinprint.results.report import Report
    from kinprint.results.tree import PairsReport

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class Outputs:
    """Files to write: the report's JSON into a folder, and other forms of it by their names."""

    out: Path | None = None
    forms: Mapping[str, Path] = field(default_factory=dict)
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
        for name in self.forms:
            FORMS[name].require()

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
        json = {} if self.out is None else {"--out": self.out / "report.json"}
        return json | {FORMS[name].option: path for name, path in self.forms.items()}

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

    def write(self, report: Report | PairsReport, lang: str) -> None:
        """Write all that was asked for of a report, and say where; each form's module is loaded only then."""
        if self.out is not None:
            save(self.out / "report.json", report.to_json())
        for name, target in self.forms.items():
            save(target, make(report, name, lang=lang, table=self.table if FORMS[name].tables else None))


class _Table(click.Choice[str]):
    """The tables there are; that of layers was called pairs, and still answers to it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert("layers" if value == "pairs" else value, param, ctx)


def report_outputs(function: F) -> F:
    """Add the options of every command that has a report to write, and hand them over as `outputs`."""

    @functools.wraps(function)
    def packed(**given: Any) -> Any:
        named = {form.name: given.pop(form.name) for form in REPORT_FORMS}
        forms = {name: path for name, path in named.items() if path is not None}
        outputs = Outputs(given.pop("out"), forms, given.pop("table"))
        holding = [form for form in REPORT_FORMS if form.tables]
        if outputs.table is not None and not any(form.name in forms for form in holding):
            # whoever gives it expects a file that is then not there
            raise click.UsageError(f"--table needs {' or '.join(f'{form.option} FILE' for form in holding)}")
        return function(outputs=outputs, **given)

    for option in (
        click.option(
            "--table",
            type=_Table([*PAIR_TABLES, ALL_PAIRS_TABLE]),
            help="What --csv and --parquet hold. Of two models: every measurement (the default), the tests of the evidence, or "
            "each layer against each. Of more: the verdicts of all pairs (the default, and all there is).",
        ),
        *(click.option(form.option, type=FILE, help=form.about) for form in reversed(REPORT_FORMS)),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json into this folder."
        ),
    ):
        packed = option(packed)
    return packed  # type: ignore[return-value]


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
