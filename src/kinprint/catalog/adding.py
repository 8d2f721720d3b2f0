"""Make the entry of a model: read it once, as far as its fingerprint needs, with what its card declares."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kinprint._util.files import read_whole
from kinprint._util.plain import printable
from kinprint._util.progress import Progress
from kinprint._version import __version__
from kinprint.catalog.entry import ERROR_CHARS, NAME_CHARS, Entry, Failure, Item, check_name, key_of
from kinprint.catalog.store import Catalog
from kinprint.errors import (
    BadSelection,
    BadSetting,
    FileTooLarge,
    FormatError,
    KinprintError,
    NeedsExtra,
    NotFound,
    OfflineError,
    StorageError,
)
from kinprint.fingerprints.file import FILE_CAP, SUFFIX, Fingerprint, from_bytes, to_bytes
from kinprint.fingerprints.recall import recall_vectors
from kinprint.fingerprints.report import fingerprint_of, methods_of, reading_options
from kinprint.model.cards import Card
from kinprint.model.model import Model, open_model
from kinprint.refs import path_text, public
from kinprint.results.options import Options
from kinprint.sources.session import Session, running
from kinprint.sources.settings import Settings

NOT_ITS_FAULT = (BadSelection, BadSetting, NeedsExtra, OfflineError, StorageError)
"""Errors that the model and its address have no part in, which are not noted of it."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fingerprint_model(
    model: str | Path,
    options: Options | None = None,
    *,
    name: str | None = None,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Item:
    """Read a model, or its fingerprint file, and return all that a catalog stores of it.

    Parameters
    ----------
    model : hub id, folder, file, URL, or a fingerprint file (``.kfp``).
    name : name of the entry, instead of the repository's or the folder's; BadSelection for one that no entry may have.
    options, settings, session, progress, chosen : as for `kinprint.make_fingerprint`.
    """
    text = path_text(model)
    _check_name(name)
    if text.endswith(SUFFIX):
        return _from_file(Path(text), name)
    wanted = reading_options(options, chosen, model)
    with running(wanted, settings, session) as run:
        opened = open_model(text, run)
        run.require_files()
        card = run.start(lambda: opened.card)  # one small file, beside the weights
        found = fingerprint_of(opened, methods_of(wanted), progress)
        return _item(found, name or _name(opened, run), card.result())


def add_model(
    catalog: Catalog,
    model: str | Path,
    *,
    name: str | None = None,
    replace: bool = False,
    kept: Collection[str] = (),
    **how: Any,
) -> tuple[Entry, bool]:
    """Enter a model in a catalog; return its entry, and whether it is new (or took the place of another).

    A hub repository whose commit is entered already is not read again. Without a commit a name alone tells nothing: the model is
    read, and BadSelection is raised if another one stands there under its name: with `replace` it is replaced, but for those
    whose keys are `kept`. `how` is passed on to `fingerprint_model`.
    A failure noted under the name that was asked for is forgotten.
    """
    _check_name(name)
    session, found, new = how.get("session"), None, False
    if session is not None and not replace:
        found = _standing(catalog, path_text(model), session, name, Options.of(None, **_chosen(how)))
    if found is None:
        found, new = enter(catalog, fingerprint_model(model, name=name, **how), replace=replace, kept=kept)
    asked = noted_name(path_text(model))
    if not new or asked != found.name:
        catalog.forget(asked, found.revision)
    return found, new


def enter(catalog: Catalog, item: Item, *, replace: bool = False, kept: Collection[str] = ()) -> tuple[Entry, bool]:
    """Enter what was made of a model; return its entry, and whether it is new. BadSelection if another has its name.

    No entry whose key is `kept` is replaced: of two folders of one name in one list, the second would undo the first.
    """
    there = catalog.stored(item.entry.name, item.entry.revision) if replace and kept else None
    if catalog.add(*item, replace=replace and (there is None or there.key not in kept)):
        return item.entry, True
    found = catalog.find(item.entry.name, item.entry.revision)
    if found is None:  # the same fingerprint, entered under another name
        return catalog.get(item.entry.key), False
    if found.revision is None and found.key != item.entry.key:
        said = f"another model is entered as {found.name!r} in {catalog.place}, and neither has a commit"
        raise BadSelection(said, hint="kinprint catalog add MODEL --name NAME enters it beside, --replace in its place")
    return found, False


def _check_name(name: str | None) -> None:
    try:
        if name is not None:
            check_name(name, None, "--name")
    except FormatError as error:
        raise BadSelection(error.message, hint="choose another name") from error


def _chosen(how: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in how.items() if key not in ("session", "settings", "progress", "options")}


def _standing(catalog: Catalog, model: str, session: Session, name: str | None, options: Options) -> Entry | None:
    """Return the entry of a hub repository at the commit that it has now, or None: one request instead of many."""
    if model.endswith(SUFFIX) or options.files:
        return None
    ref = session.find(model)
    if ref.kind != "hub" or ref.repo is None:
        return None
    commit = session.open_folder(ref).provenance.commit
    own = name or (f"{ref.repo}/{ref.file}" if ref.file else ref.repo)
    return None if commit is None else catalog.find(own, commit)


def _from_file(path: Path, name: str | None) -> Item:
    try:
        raw = read_whole(path, FILE_CAP)
    except FileTooLarge as error:
        raise FormatError(error.message, hint="this is no fingerprint file") from error
    except OSError as error:
        said = f"cannot read the fingerprint {path}: {error.strerror}"
        raise NotFound(said, hint="kinprint fingerprint MODEL makes one") from error
    found = from_bytes(raw, path.name)
    return _item(found, name, Card()) if name else item_of(raw, found, Card(), now())


def _item(found: Fingerprint, name: str, card: Card) -> Item:
    """Make an item of a new fingerprint, which gets the name of its entry."""
    named = replace(found, description=replace(found.description, model=name[:NAME_CHARS]))
    raw = to_bytes(named)
    return item_of(raw, from_bytes(raw, name), card, now())


def item_of(raw: bytes, found: Fingerprint, card: Card, added: str) -> Item:
    """Make an item of a fingerprint file and what it holds."""
    told = found.description
    entry = Entry(
        key=key_of(raw),
        name=told.model,
        revision=told.commit,
        architecture=told.architecture,
        layers=told.layers,
        hidden=told.hidden,
        parameters=told.parameters,
        files=told.files,
        licence=None if card.licence is None else printable(card.licence, NAME_CHARS),
        declared_bases=tuple(printable(base, NAME_CHARS) for base in card.base_models),
        added=added,
        made_by=f"kinprint {__version__}",
    )
    return Item(entry, raw, recall_vectors(found))


def _name(model: Model, session: Session) -> str:
    """Name an entry: the repository, with its file where one was asked for; the folder or file; the address."""
    where = model.checkpoint.provenance
    if where.kind in ("folder", "file"):
        return printable(Path(where.location).resolve().name, NAME_CHARS)
    ref = session.find(where.reference)
    if ref.repo is None:
        return printable(public(where.reference), NAME_CHARS)
    file = ref.file or next((name for name in session.files if name in session.files_found), None)
    return f"{ref.repo}/{file}" if file else ref.repo


def note_failure(catalog: Catalog, model: str, error: KinprintError, session: Session, name: str | None = None) -> None:
    """Note why a model could not be entered, under what its entry would be called: once it is entered the note goes.

    What the model or its address has no part in is not noted: a wrong option, a full disk, a missing extra, --offline.
    """
    if model.strip() and not isinstance(error, NOT_ITS_FAULT):
        catalog.fail(_failure(model, error, session, name))


def _failure(model: str, error: KinprintError, session: Session, name: str | None) -> Failure:
    try:
        ref = session.find(model)
    except KinprintError:  # it names nothing
        return failure_of(name or model, error)
    commit = ref.revision if ref.revision is not None and _COMMIT.fullmatch(ref.revision) else None
    own = ref.path.resolve().name if ref.path is not None else ref.repo and "/".join(filter(None, (ref.repo, ref.file)))
    return failure_of(name or own or model, error, commit)


def failure_of(name: str, error: Exception, revision: str | None = None) -> Failure:
    """Note why a model could not be entered; of an address nothing that may be secret, of the error its class and message."""
    said = error.message if isinstance(error, KinprintError) else str(error)
    text = printable(f"{type(error).__name__}: {said}", ERROR_CHARS)
    return Failure(noted_name(name), revision, text, now())


def noted_name(asked: str) -> str:
    """Return the name under which it is noted that a model could not be entered: as it was asked for, without secrets."""
    return printable(public(asked), NAME_CHARS)


def now() -> str:
    """Return the time, UTC, to a second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
