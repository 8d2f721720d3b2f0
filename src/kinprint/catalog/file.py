"""The file of a catalog: its tables, what may stand at its place, and what SQLite's errors mean for who uses it."""

import sqlite3
from pathlib import Path

from kinprint._util.files import is_folder, is_there, make_folder, remember_in_use
from kinprint.catalog.store import DEFAULT_NAME, no_catalog
from kinprint.errors import FormatError, KinprintError, NotFound, StorageError

SIDE = ".recall"  # ends the name of the file of arrays beside it
PATH_CHARS = 4096  # of a path that is shown: longer than any path, so that what is no text in it is all that changes
DAMAGED = "restore the file from an export or a copy; without one make a new catalog and add the models again"

APPLICATION, VERSION = 0x6B696E70, 1
SCHEMA = {
    "about": "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "entries": "CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
    " revision TEXT NOT NULL, record BLOB NOT NULL, seal TEXT NOT NULL, UNIQUE (name, revision))",
    "fingerprints": "CREATE TABLE fingerprints (id INTEGER PRIMARY KEY REFERENCES entries (id), data BLOB NOT NULL)",
    "vectors": "CREATE TABLE vectors (family TEXT NOT NULL, id INTEGER NOT NULL REFERENCES entries (id),"
    " data BLOB NOT NULL, PRIMARY KEY (family, id)) WITHOUT ROWID",
    "failures": "CREATE TABLE failures (name TEXT NOT NULL, revision TEXT NOT NULL, error TEXT NOT NULL,"
    " added TEXT NOT NULL, PRIMARY KEY (name, revision))",
    "gone": "CREATE TABLE gone (id INTEGER PRIMARY KEY)",  # entries that a side file may still hold
}


def prepare_place(path: Path, *, make: bool) -> None:
    """See that a catalog can be opened at a path, or made there; from now on nothing else is written over any of its files."""
    if is_folder(path):
        raise NotFound(f"{path} is a folder; a catalog is one file", hint=f"name one, such as {path / DEFAULT_NAME}")
    if not is_there(path):
        if not make:
            raise no_catalog(f"at {path}")
        make_folder(path.parent)
    for beside in ("", "-journal", SIDE):
        remember_in_use(path.with_name(path.name + beside), f"part of the catalog {path}")


def told(error: sqlite3.Error, place: str) -> KinprintError:
    """Return an error of the library as one that says what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        hint = "name another file with --catalog; if this one was a catalog, restore it from an export or a copy"
        return FormatError(f"{place} is not a catalog of kinprint: {error}", hint=hint)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_TOOBIG):
        return FormatError(f"{place}: {error}", hint=DAMAGED)
    hint = "free some space, or name another file with --catalog"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        hint = "another process writes to it; try again when it is done"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        hint = "check who owns the file and its folder, or name another with --catalog"
    return StorageError(f"{place}: {error}", hint=hint)
