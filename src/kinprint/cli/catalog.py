"""`kinprint catalog …`: keep fingerprints of known models, with where they come from, and look after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
    from kinprint.catalog.store import Catalog

STDIN = "-"
DEFAULT_SHOWN = 100
MODEL_BUDGET_BYTES = 64_000_000  # of each model that is added; a 106B repository takes less than half of it
DAMAGED = FormatError.exit_code


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
@comparison_options("budget_bytes", "files", "bases", base=Options(budget_bytes=MODEL_BUDGET_BYTES))
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

    Each model is entered by itself: one that cannot be read does not stop the others, and an interrupt keeps what was added.
    The exit code is that of the first that failed.
    """
    from kinprint.catalog.adding import add_model
    from kinprint.render.terminal.catalog import print_added

    if not models and not owners:
        raise click.UsageError("give a MODEL, - for a list on standard input, or --org NAME")
    named = [*_listed(models), *_owned(owners, reading)]
    if name is not None and len(named) != 1:
        raise click.UsageError(f"--name is for one model, and {len(named)} are given")
    done: dict[str, list[dict[str, Any]]] = {"added": [], "already": [], "failed": []}
    code = 0
    with known.open() as catalog, reading.session() as (session, line):
        for at, model in enumerate(named):
            line.stage("adding", at, len(named))
            try:
                entry, new = add_model(catalog, model, name=name, replace=replace, session=session, **chosen)
            except KinprintError as error:
                if len(named) == 1:
                    raise
                code = code or error.exit_code
                done["failed"].append({"name": _public(model), "error": error.message})
            else:
                done["added" if new else "already"].append(
                    {"name": entry.name, "revision": entry.revision, "key": entry.key}
                )
        place = catalog.place
    printing.show_plain({"catalog": place, **done}, partial(print_added, place, done))
    return code


def _public(model: str) -> str:
    from kinprint.refs import public

    return public(model)


def _listed(models: tuple[str, ...]) -> Iterator[str]:
    """Yield the models named, with those of a list on standard input: one a line, # begins a comment."""
    for model in models:
        if model != STDIN:
            yield model
            continue
        for written in sys.stdin:
            text = written.partition("#")[0].strip()
            if text:
                yield text


def _owned(owners: tuple[str, ...], reading: Reading) -> Iterator[str]:
    """Yield all models that organisations or users have on the hub, at their commits."""
    if owners:
        with reading.session() as (session, _):
            for model in (model for owner in owners for model in session.models_of(owner)):
                yield model.repo if model.commit is None else f"{model.repo}@{model.commit}"


@catalog_command.command("list")
@click.option("--contains", default="", metavar="TEXT", help="Only entries whose names hold this text.")
@click.option(
    "--most", type=click.IntRange(1), default=DEFAULT_SHOWN, show_default=True, help="Print so many; JSON: all."
)
@click.option("--failures", "failed", is_flag=True, help="List the models that could not be entered, with the reason.")
@catalog_option
@printing_options
def list_command(contains: str, most: int, failed: bool, known: ChosenCatalog, printing: Printing) -> None:
    """List the entries, in the order they were added."""
    from kinprint.render.terminal.catalog import print_entries, print_failures

    with known.open(read_only=True) as catalog:
        if failed:
            noted = [item for item in catalog.failures() if contains.lower() in item.name.lower()]
            printing.show_plain(noted, partial(print_failures, catalog.place, noted))
            return
        found = catalog.entries(contains=contains)
        shown = list(found) if printing.json else list(islice(found, most))
        more = sum(1 for _ in found)
        printing.show_plain(shown, partial(print_entries, catalog.place, shown, more))


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

    if out is not None:
        check_target(out)
    with known.open(read_only=True) as catalog:
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
    from kinprint.catalog.store import chosen_entry

    with known.open() as catalog:
        found = {entry.key: entry for entry in (chosen_entry(catalog, text) for text in entries)}
        for key, entry in found.items():
            catalog.remove(key)
            click.echo(f"removed {entry.name} {key[:12]}", err=True)


@catalog_command.command("export")
@click.argument("target", type=FILE, metavar="FILE")
@click.option("--contains", default="", metavar="TEXT", help="Only entries whose names hold this text.")
@click.option("--sign", "key", type=FILE, metavar="KEY", help="Sign with this private Ed25519 key (extra: sign).")
@catalog_option
@printing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def export_command(
    target: Path, contains: str, key: Path | None, known: ChosenCatalog, printing: Printing, quiet: bool
) -> None:
    """Write the catalog to one FILE that can be published, and merged into other catalogs."""
    from kinprint.catalog.exchange import export_catalog
    from kinprint.render.terminal.catalog import print_exchange

    check_target(target)
    with known.open(read_only=True) as catalog, _progress(quiet) as line:
        done = export_catalog(catalog, target, contains=contains, key=key, tell=line.stage)
    printing.show_plain(done, partial(print_exchange, done))


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
    from kinprint.catalog.exchange import import_catalog
    from kinprint.render.terminal.catalog import print_exchange

    with known.open() as catalog, _progress(quiet) as line:
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
def reindex_command(known: ChosenCatalog, quiet: bool) -> None:
    """Compute all recall vectors anew from the stored fingerprints, without reading a model."""
    with known.open() as catalog, _progress(quiet) as line:
        done = catalog.reindex(line.stage)
    click.echo(f"{done} entries have recall vectors in {catalog.place}", err=True)


@catalog_command.command("index")
@catalog_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def index_command(known: ChosenCatalog, quiet: bool) -> None:
    """Make a search in a large catalog fast: after many entries were added to a shared one; a file does it by itself."""
    with known.open() as catalog, _progress(quiet) as line:
        catalog.index(line.stage)
