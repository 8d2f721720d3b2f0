"""Write reports to files: the options, a check of the targets before the work, and the writing after it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinprint._util.records import dataclass
from kinprint.cli.options import F, packing
from kinprint.errors import StorageError
from kinprint.refs import is_weights
from kinprint.render.forms import ALL_PAIRS_TABLE, FORMS, PAIR_TABLES, REPORT_FORMS, make

if TYPE_CHECKING:
    from kinprint.results.report import Report
    from kinprint.results.search import SearchReport
    from kinprint.results.tree import PairsReport

WRITTEN = "What is written"  # title of options in help
FILE, FOLDER = click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path, file_okay=False)


@dataclass(frozen=True)
class Outputs:
    """Files to write: the report's JSON into a folder, and other forms of it by their names."""

    out: Path | None = None
    forms: Mapping[str, Path] = field(default_factory=dict)
    table: str | None = None  # by default the first of a pair's, or the only one of many models

    def check(self, further: Mapping[str, Path | None] | None = None) -> None:
        """Refuse targets that cannot be written, before anything is read, also `further` files, by their options."""
        targets = self._targets() | {option: path for option, path in (further or {}).items() if path is not None}
        refuse_one_for_two(targets)
        made = (self.out, *self.out.parents) if self.out is not None else ()
        for target in targets.values():
            check_target(target, made)
        for name in self.forms:
            FORMS[name].require()

    def refuse_over(self, file: Path) -> None:
        """Refuse to write another form over the report that it is made from; --out, which writes the same again, may."""
        for option, target in self._targets().items():
            if option != "--out" and _real(target) == _real(file):
                raise click.UsageError(f"{option} would overwrite {file}, which is read\n  next: name another file")

    def _targets(self) -> dict[str, Path]:
        json = {} if self.out is None else {"--out": self.out / "report.json"}
        return json | {FORMS[name].option: path for name, path in self.forms.items()}

    def refuse_table_of_many(self, given: str) -> None:
        """Refuse the table of all pairs where there is one pair only; `given` says what there is."""
        if self.table == ALL_PAIRS_TABLE:
            raise click.UsageError(
                f"--table {ALL_PAIRS_TABLE} has a row for each pair of more than two models, and {given}\n"
                f"  next: choose {', '.join(PAIR_TABLES[:-1])} or {PAIR_TABLES[-1]}"
            )

    def room_for(self, file: Path | None) -> list[str]:
        """Make the folder of --out now if `file`, which is written before the report, lies in it; return what was made."""
        if file is None or self.out is None or file.parent.exists():
            return []
        return _made(self.out)

    def write(self, report: Report | PairsReport | SearchReport, lang: str) -> list[str]:
        """Write all that was asked for of a report, and return where; each form's module is loaded only then."""
        said = [] if self.out is None else _write(self.out / "report.json", report.to_json(), made=True)
        for name, target in self.forms.items():
            said += _write(target, make(report, name, lang=lang, table=self.table if FORMS[name].tables else None))
        return said


def _outputs(given: dict[str, Any]) -> Outputs:
    named = {form.name: given.pop(form.name) for form in REPORT_FORMS}
    forms = {name: path for name, path in named.items() if path is not None}
    outputs = Outputs(given.pop("out"), forms, given.pop("table"))
    holding = [form for form in REPORT_FORMS if form.tables]
    if outputs.table is not None and not any(form.name in forms for form in holding):
        # the option alone would write no file
        raise click.UsageError(f"--table needs {' or '.join(f'{form.option} FILE' for form in holding)}")
    return outputs


_OUT = "Write report.json into this folder."


def outputs_of(kind: str) -> Callable[[F], F]:
    """Add the options for every form that a kind of result has, handed over as `outputs`; of tables there is one."""
    forms = [form for form in FORMS.values() if kind in form.makers and form.suffixes and form.name != "json"]

    def pack(given: dict[str, Any]) -> Outputs:
        named = {form.name: given.pop(form.name) for form in forms}
        return Outputs(given.pop("out"), {name: path for name, path in named.items() if path is not None})

    about = {form.name: form.about.replace(" (see --table)", "") for form in forms}
    options = [click.option(form.option, type=FILE, help=about[form.name]) for form in forms]
    return packing("outputs", pack, WRITTEN, click.option("--out", type=FOLDER, help=_OUT), *options)


report_outputs = packing(
    "outputs",
    _outputs,
    WRITTEN,
    click.option("--out", type=FOLDER, help=_OUT),
    *(click.option(form.option, type=FILE, help=form.about) for form in REPORT_FORMS),
    click.option(
        "--table",
        type=click.Choice([*PAIR_TABLES, ALL_PAIRS_TABLE]),
        help="What --csv and --parquet hold. Of two models: every measurement (the default), the tests of the evidence, or "
        "each layer against each. Of more: the verdicts of all pairs (the default, and all there is).",
    ),
)
"""Adds the options of every command that has a report to write, handed over as `outputs`."""


def refuse_one_for_two(targets: Mapping[str, Path]) -> None:
    """Refuse two options that name one file: the second would overwrite what the first wrote."""
    seen: dict[str, str] = {}
    for option, target in targets.items():
        first = seen.setdefault(_real(target), option)
        if first != option:
            raise click.UsageError(f"{first} and {option} both name {target}\n  next: name a file for each")


def _real(target: Path) -> str:
    """Return the real path of a file, whether it exists or not."""
    return os.path.normcase(os.path.realpath(target))


def check_target(target: Path, made: Collection[Path] = ()) -> None:
    """Raise StorageError for a file that cannot be written: a comparison may take minutes, and its result needs a place.

    `made` are folders that will be there when it is written; no other is made on the way to a file.
    """
    from kinprint._util.files import refuse_in_use, try_folder, written_through

    refuse_in_use(target)
    if written_through(target):
        return
    _refuse_model_file(target)
    above = target.absolute().parent
    if not above.exists() and target.parent not in made:
        hint = f"{shlex.join(['mkdir', '-p', str(target.parent)])} makes it; or name another file"
        raise StorageError(f"cannot write {target}: there is no folder {target.parent}", hint=hint)
    while not above.exists() and above != above.parent:
        above = above.parent
    # some folders refuse what their permissions allow
    problem = try_folder(above) if above.is_dir() else None
    if problem is not None or not above.is_dir():
        why = "is no folder" if problem is None else f"cannot be written to: {problem}"
        raise StorageError(f"cannot write {target}: {above} {why}", hint="name another file")


def _refuse_model_file(target: Path) -> None:
    """Refuse to replace weights, or what lies beside weights and belongs to a model, whether it is read or not."""
    if not target.exists():
        return
    real = Path(os.path.realpath(target))
    beside = any(fnmatchcase(real.name, pattern) for pattern in _BESIDE_WEIGHTS)
    if is_weights(real.name) or (beside and any(is_weights(file.name) for file in real.parent.iterdir())):
        raise StorageError(f"cannot write {target}: it is a file of a model", hint="name another file")


_BESIDE_WEIGHTS = ("README.md", "*config.json", "*.index.json", "*token*.*", "vocab.*", "merges.txt", "chat_template.*")


def save(target: Path, data: bytes, *, made: bool = False) -> None:
    """Write one file whole, and say so; with `made` the folder is made if it is missing, which is said too."""
    tell(_write(target, data, made=made))


def _write(target: Path, data: bytes, *, made: bool = False) -> list[str]:
    from kinprint._util.files import write_whole
    from kinprint._util.plain import printable

    folder = _made(target.parent) if made else []
    write_whole(target, data)
    return [*folder, f"wrote {printable(str(target), 4000)}"]


def _made(folder: Path) -> list[str]:
    from kinprint._util.files import make_folder
    from kinprint._util.plain import printable

    return [f"made the folder {printable(str(folder), 4000)}"] if make_folder(folder) else []


def tell(written: Iterable[str]) -> None:
    """Say on stderr what was written where."""
    for line in written:
        click.echo(line, err=True)
