"""`kinprint catalog …`: keep fingerprints of known models, with where they come from, and look after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinprint.cli.help import MODEL, HelpedGroup
from kinprint.cli.options import (
    ChosenCatalog,
    Printing,
    Reading,
    catalog_option,
    comparison_options,
    printing_options,
    reading_options,
)
from kinprint.cli.outputs import FILE, check_target
from kinprint.errors import FormatError, KinprintError
from kinprint.results.options import Options

if TYPE_CHECKING:
    from kinprint.catalog.entry import Problem
    from kinprint.catalog.store import Catalog
    from kinprint.sources.session import Session

STDIN = "-"
DEFAULT_SHOWN = 100
MODEL_BUDGET_BYTES = 64_000_000  # of each model that is added; a 106B repository takes less than half of it
DAMAGED = FormatError.exit_code
ERROR_CHARS = 1000  # of an error that is repeated in JSON


org_option = click.option(
    "--org",
    "owners",
    multiple=True,
    metavar="NAME",
    help="All models that an organisation or user has on the hub; may be repeated.",
)


@click.group("catalog", cls=HelpedGroup)
def catalog_command() -> None:
    """Keep fingerprints of known models in a catalog, to search among them."""


@catalog_command.command("add")
@click.argument("models", nargs=-1, type=MODEL, metavar="MODEL…")
@click.option(
    "--name", metavar="NAME", help="Name of the entry, for one model: instead of its repository's or folder's."
)
@org_option
@click.option("--replace", is_flag=True, help="Take the place of an entry with the same name and revision.")
@catalog_option
@comparison_options(
    "budget_bytes", "files", "bases", base=Options(budget_bytes=MODEL_BUDGET_BYTES), budget_of="of each model"
)
@printing_options
@reading_options
def add_command(
    models: tuple[str, ...],
    name: str | None,
    owners: tuple[str, ...],
    replace: bool,
    known: ChosenCatalog,
    chosen: dict[str, Any],
    printing: Printing,
    reading: Reading,
) -> int:
    """Add models: hub names, folders, files, fingerprint files (.kfp), or - for a list on standard input.

    Each model is entered by itself: one that cannot be read does not stop the others, and is noted (list --failures); an
    interrupt keeps what was added. The exit code is that of the first that failed.
    """
    from kinprint.render.terminal.catalog import print_added

    if not models and not owners:
        raise click.UsageError("give a MODEL, - for a list on standard input, or --org NAME")
    listed, (owned, unlisted) = list(_listed(models)), _owned(owners, reading)
    named = [*listed, *owned]
    if name is not None and len(named) + len(unlisted) != 1:
        raise click.UsageError(f"--name is for one model, and {len(named)} are given")
    with reading.session() as (session, line), _Adding(known, session, name) as adding:
        for owner, error in unlisted.items():
            adding.fail(owner, error, alone=not listed and len(owners) == 1)
        for at, model in enumerate(named):
            line.stage("adding", at, len(named))
            adding.add(model, replace=replace, alone=len(named) + len(unlisted) == 1, **chosen)
    printing.show_plain({"catalog": known.place, **adding.done}, partial(print_added, known.place, adding.done))
    return adding.code


class _Adding(ExitStack):
    """Enters models in a catalog one by one, and keeps count; where there is none, the first that can be read makes it."""

    def __init__(self, known: ChosenCatalog, session: Session, name: str | None) -> None:
        super().__init__()
        self.known, self.session, self.name = known, session, name
        self.done: dict[str, list[dict[str, Any]]] = {"added": [], "already": [], "failed": []}
        self.code = 0
        self._entered = set[str]()
        self._unnoted: list[tuple[str, KinprintError]] = []
        found = known.open_if_there()
        self._catalog = None if found is None else self.enter_context(found)

    def add(self, model: str, *, replace: bool, alone: bool, **chosen: Any) -> None:
        """Add a model; one that is `alone` and cannot be added ends the command."""
        from kinprint.catalog.adding import add_model, enter, fingerprint_model

        how: dict[str, Any] = {"name": self.name, "session": self.session, **chosen}
        try:
            item = fingerprint_model(model, **how) if self._catalog is None else None
        except KinprintError as error:
            self.fail(model, error, alone=alone, its_own=True)
            return
        if self._catalog is None:
            self._catalog = self.enter_context(self.known.open())
        try:
            add = (
                partial(add_model, self._catalog, model, **how) if item is None else partial(enter, self._catalog, item)
            )
            entry, new = add(replace=replace, kept=self._entered)
        except KinprintError as error:
            self.fail(model, error, alone=alone, its_own=True)
        else:
            self._entered.add(entry.key)
            told = {"name": entry.name, "revision": entry.revision, "key": entry.key}
            self.done["added" if new else "already"].append(told)
            self._note()

    def fail(self, what: str, error: KinprintError, *, alone: bool, its_own: bool = False) -> None:
        """Tell what failed; in the catalog it is noted where it is a model, whose `its_own` the error is."""
        from kinprint._util.plain import printable
        from kinprint.refs import public

        self.code = self.code or error.exit_code
        told = {"name": printable(public(what)), "error": printable(error.message, ERROR_CHARS)}
        self.done["failed"].append(told)
        if its_own:
            self._unnoted.append((what, error))
            self._note()
        if alone:
            raise error

    def _note(self) -> None:
        """Note what failed, as soon as there is a catalog."""
        from kinprint.catalog.adding import note_failure

        while self._catalog is not None and self._unnoted:
            model, error = self._unnoted.pop(0)
            note_failure(self._catalog, model, error, self.session, self.name)


def _listed(models: tuple[str, ...]) -> Iterator[str]:
    """Yield the models named, with those of a list on standard input: one a line, # begins a comment."""
    from kinprint.scan.wanted import lines_of

    for model in models:
        if model == STDIN:
            yield from lines_of(sys.stdin, "standard input")
        else:
            yield model


def _owned(owners: tuple[str, ...], reading: Reading) -> tuple[list[str], dict[str, KinprintError]]:
    """Return all models that organisations or users have on the hub, at their commits, and whose cannot be listed."""
    found: list[str] = []
    failed: dict[str, KinprintError] = {}
    if owners:
        with reading.session() as (session, _):
            for owner in dict.fromkeys(owners):
                try:
                    models = session.models_of(owner)
                except KinprintError as error:
                    failed[owner] = error
                else:
                    found += [one.repo if one.commit is None else f"{one.repo}@{one.commit}" for one in models]
    return found, failed


@catalog_command.command("list")
@click.option("--contains", default="", metavar="TEXT", help="Only entries whose names hold this text.")
@click.option(
    "--most", type=click.IntRange(1), default=DEFAULT_SHOWN, show_default=True, help="Print so many; JSON: all."
)
@click.option("--failures", "failed", is_flag=True, help="List the models that could not be entered, with the reason.")
@catalog_option
@printing_options
def list_command(contains: str, most: int, failed: bool, known: ChosenCatalog, printing: Printing) -> int:
    """List the entries, in the order they were added; damaged ones are named, exit code 6 then."""
    from kinprint.render.terminal.catalog import print_entries, print_failures

    with known.open(read_only=True) as catalog:
        if failed:
            noted = [item for item in catalog.failures() if contains.lower() in item.name.lower()]
            listed = noted if printing.json else noted[:most]
            printing.show_plain(listed, partial(print_failures, catalog.place, listed, len(noted) - len(listed)))
            return 0
        problems: list[Problem] = []
        found = catalog.entries(contains=contains, problems=problems)
        shown = list(found) if printing.json else list(islice(found, most))
        more = sum(1 for _ in found)
        printing.show_plain(shown, partial(print_entries, catalog.place, shown, more))
    return tell_damaged(problems)


def tell_damaged(problems: list[Problem]) -> int:
    """Name the entries that are damaged, which stop no other; return the exit code for that."""
    for problem in problems:
        click.echo(
            f"{problem.name} {str(problem.key)[:12]}: {problem.what}; remove it and add the model again", err=True
        )
    return DAMAGED if problems else 0


@catalog_command.command("show")
@click.argument("entry")
@click.option("-o", "--out", type=FILE, help="Write its fingerprint to this file (.kfp).")
@catalog_option
@printing_options
def show_command(entry: str, out: Path | None, known: ChosenCatalog, printing: Printing) -> None:
    """Show all that is known of an ENTRY, named by name, name@revision or key."""
    from kinprint._util.files import write_whole
    from kinprint.catalog.entry import as_plain
    from kinprint.catalog.store import chosen_entry
    from kinprint.fingerprints.file import from_bytes
    from kinprint.fingerprints.recall import recall_vectors
    from kinprint.render.terminal.catalog import print_entry

    with known.open(read_only=True) as catalog:
        if out is not None:
            check_target(out)
        found = chosen_entry(catalog, entry)
        data = catalog.fingerprint(found.key)
    if out is not None:
        write_whole(out, data)
    families = list(recall_vectors(from_bytes(data, found.name)))
    facts = as_plain(found) | {"fingerprint_bytes": len(data), "families": families}
    printing.show_plain(facts, partial(print_entry, found, len(data), families))


@catalog_command.command("remove")
@click.argument("entries", nargs=-1, required=True, metavar="ENTRY…")
@catalog_option
def remove_command(entries: tuple[str, ...], known: ChosenCatalog) -> None:
    """Remove entries, named by name, name@revision or key; if one of them is not there, none is removed."""
    from kinprint._util.plain import printable
    from kinprint.catalog.store import chosen

    with known.open(make=False) as catalog:
        found = {stored.key: stored for stored in (chosen(catalog, text) for text in entries)}
        for key, stored in found.items():  # whose records may be damaged
            catalog.remove(key)
            click.echo(f"removed {printable(stored.name)} {printable(key, 12)}", err=True)


@catalog_command.command("export")
@click.argument("target", type=FILE, metavar="FILE")
@click.option("--contains", default="", metavar="TEXT", help="Only entries whose names hold this text.")
@click.option("--sign", "key", type=FILE, metavar="KEY", help="Sign with this private Ed25519 key (extra: sign).")
@catalog_option
@printing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def export_command(
    target: Path, contains: str, key: Path | None, known: ChosenCatalog, printing: Printing, quiet: bool
) -> int:
    """Write the catalog to one FILE that can be published, and merged into other catalogs.

    Entries whose records or fingerprints cannot be read are left out and named; exit code 6 then.
    """
    from kinprint.catalog.exchange import export_catalog
    from kinprint.render.terminal.catalog import print_exchange

    with known.open(read_only=True) as catalog, _progress(quiet) as line:
        check_target(target)
        done = export_catalog(catalog, target, contains=contains, key=key, tell=line.stage)
    printing.show_plain(done, partial(print_exchange, done))
    return DAMAGED if done.skipped else 0


@catalog_command.command("import")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--replace", is_flag=True, help="Take entries of the same name and revision from FILE.")
@click.option("--key", type=FILE, metavar="KEY", help="FILE must be signed by this public Ed25519 key (extra: sign).")
@click.option("--digest", metavar="SHA256", help="FILE must have this digest, published by its maker.")
@catalog_option
@printing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def import_command(
    file: Path,
    replace: bool,
    key: Path | None,
    digest: str | None,
    known: ChosenCatalog,
    printing: Printing,
    quiet: bool,
) -> None:
    """Merge an exported FILE, all of it or nothing; every fingerprint is checked, and indexed anew."""
    from kinprint.catalog.exchange import check_export, import_catalog
    from kinprint.render.terminal.catalog import print_exchange

    with _progress(quiet) as line, ExitStack() as opened:
        catalog = known.open_if_there()
        if catalog is None:  # none is made for a file that will be refused
            check_export(file, key=key, digest=digest, tell=line.stage)
            catalog = known.open()
        opened.enter_context(catalog)
        done = import_catalog(catalog, file, replace=replace, key=key, digest=digest, tell=line.stage)
    printing.show_plain(done, partial(print_exchange, done))


def _progress(quiet: bool) -> Any:
    from kinprint.cli.progress import ProgressLine

    return ProgressLine(enabled=False if quiet else None)


@catalog_command.command("stats")
@catalog_option
@printing_options
def stats_command(known: ChosenCatalog, printing: Printing) -> None:
    """Show the catalog in numbers: entries, architectures, licences, bytes."""
    from kinprint.render.terminal.catalog import print_stats

    with known.open(read_only=True) as catalog:
        found = catalog.stats()
    printing.show_plain(found, partial(print_stats, found))


@catalog_command.command("check")
@catalog_option
@printing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def check_command(known: ChosenCatalog, printing: Printing, quiet: bool) -> int:
    """Read every entry, hold it against its digests, and name those that are damaged; exit code 6 if any is."""
    from kinprint.render.terminal.catalog import print_check

    with known.open(read_only=True) as catalog, _progress(quiet) as line:
        problems = list(catalog.check(line.stage))
        checked = _count(catalog)
    facts = {"catalog": catalog.place, "entries": checked, "problems": problems}
    printing.show_plain(facts, partial(print_check, catalog.place, checked, problems))
    return DAMAGED if problems else 0


def _count(catalog: Catalog) -> int:
    try:
        return catalog.count()
    except KinprintError:  # the list of entries itself is damaged, which is one of the problems found
        return 0


@catalog_command.command("reindex")
@catalog_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def reindex_command(known: ChosenCatalog, quiet: bool) -> int:
    """Compute all recall vectors anew from the stored fingerprints, without reading a model.

    A damaged entry is named and stops no other; exit code 6 if there is any.
    """
    with known.open(make=False) as catalog, _progress(quiet) as line:
        done, problems = catalog.reindex(line.stage)
    code = tell_damaged(problems)
    click.echo(f"{done} entries have recall vectors in {catalog.place}", err=True)
    return code


@catalog_command.command("index")
@catalog_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def index_command(known: ChosenCatalog, quiet: bool) -> None:
    """Make a search in a large catalog fast: after many entries were added to a shared one; a file does it by itself."""
    with known.open(make=False) as catalog, _progress(quiet) as line:
        catalog.index(line.stage)
