"""Catalogs made by strangers: an export is merged whole or refused, a catalog's file opened, searched and checked, or refused."""

import hashlib
import shutil
import sqlite3
from contextlib import closing
from functools import cache

import orjson
import pytest

from kinprint.catalog.exchange import export_catalog, import_catalog
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.errors import KinprintError
from support.catalogs import make_item, some_vectors
from support.fuzzing import fuzz, spoil

EXPORTS, FILES = "spoilt exports through catalog import", "spoilt catalogs through search and check"
WORDS = (b"[]", b"{}", b"null", b'"', b"-1", b"1e999", b"\n", b'"entries":0', b'"bytes":1')
ODD = (
    None,
    [],
    {},
    "",
    "x",
    "{x}",
    "\x1b[31m",
    "../x",
    "a" * 5000,
    -1,
    0,
    1,
    7,
    1.5,
    10**12,
    2**63 - 1,
    True,
    [1],
    [["a", 1]],
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a sound catalog, its export, and an empty catalog."""
    folder = tmp_path_factory.mktemp("catalogs")
    with SqliteCatalog(folder / "sound.db") as catalog:
        catalog.add_all([make_item(seed) for seed in range(4)])
        export_catalog(catalog, folder / "sound.kcat")
    with SqliteCatalog(folder / "empty.db"):
        pass
    return folder


@cache
def pieces(raw):
    """Return the lines and fingerprints of an export."""
    head, _, rest = raw.partition(b"\n")
    entries = []
    while b'"entries"' not in (line := rest.partition(b"\n")[0])[:12]:
        size = orjson.loads(line)["bytes"]
        data = rest[len(line) + 1 :][:size]
        entries.append((line, data))
        rest = rest[len(line) + 1 + size :]
    return head, entries


def odd_record(rng, line):
    """Return an entry's line with something odd in it."""
    told = orjson.loads(line)
    record = told["record"]  # or whatever an earlier change put there
    place = record if isinstance(record, dict) and rng.random() < 0.85 else told
    key = rng.choice([*sorted(place), "other"])
    place[key] = rng.choice(ODD)
    if rng.random() < 0.1:
        del place[key]
    return orjson.dumps(told)


def odd_export(rng, raw):
    """Return an export whose digest fits: records or fingerprints changed, entries left out, repeated or in another order."""
    if rng.random() < 0.3:
        return spoil(raw, rng, words=WORDS)
    head, entries = pieces(raw)
    entries = list(entries)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(entries))
        line, data = entries[at]
        match rng.randrange(6):
            case 0:
                entries[at] = line, spoil(data, rng)
            case 1:
                entries.insert(rng.randrange(len(entries)), entries[at])
            case 2:
                entries[at] = line, entries[rng.randrange(len(entries))][1]
            case _:
                entries[at] = odd_record(rng, line), data
    head = spoil(head, rng, words=WORDS) if rng.random() < 0.1 else head
    body = head + b"\n" + b"".join(line + b"\n" + data for line, data in entries)
    last = {
        "entries": len(entries),
        "sha256": hashlib.sha256(body).hexdigest(),
        "signature": rng.choice((None, "x", 7)),
    }
    return body + orjson.dumps(last) + b"\n"


def import_campaign(place, folder, first, cases):
    """Import strangers' exports; return how many were refused. What was refused left nothing, what was merged is sound."""
    raw, file, target = (place / "sound.kcat").read_bytes(), folder / "x.kcat", folder / "catalog.db"

    def attempt(export):
        file.write_bytes(export)
        shutil.copyfile(place / "empty.db", target)
        with SqliteCatalog(target) as catalog:
            try:
                done = import_catalog(catalog, file)
            except KinprintError:
                assert catalog.count() == 0
                raise
            assert catalog.count() == done.added
            assert done.signature in ("none", "not checked")
            assert list(catalog.check()) == []

    return fuzz(attempt, lambda rng: odd_export(rng, raw), seed=12, first=first, cases=cases, part=EXPORTS)


def odd_catalog(rng, raw, target):
    """Return a catalog's file with spoilt bytes, or with odd values under its own schema."""
    if rng.random() < 0.6:
        return spoil(raw, rng, words=(b"\xff" * 8, b"\0" * 8), most=6)
    target.write_bytes(raw)
    with closing(sqlite3.connect(target)) as db, db:
        for _ in range(rng.randint(1, 3)):
            table, column = rng.choice(COLUMNS)
            value = rng.choice((b"", b"\xff\xfe", "x", "\x1b[31m", -1, 2**62, 1.5, b"{}", "a" * 5000))
            db.execute(
                f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % 2 OR 1"
                if table != "vectors"
                else f"UPDATE OR IGNORE vectors SET {column} = ?",
                (value,),
            )
    return target.read_bytes()


COLUMNS = [
    *(("entries", name) for name in ("key", "name", "revision", "record", "seal")),
    *(("about", "value"), ("fingerprints", "data"), ("vectors", "data"), ("vectors", "family"), ("vectors", "id")),
]


def file_campaign(place, folder, first, cases):
    """List, search and check strangers' catalogs; return how many were refused."""
    raw, target, made = (place / "sound.db").read_bytes(), folder / "catalog.db", folder / "made.db"

    def attempt(data):
        target.write_bytes(data)
        with SqliteCatalog(target, read_only=True, wait_s=0.1) as catalog:
            problems = list(catalog.check())
            found = catalog.nearest(some_vectors(1), 3)
            assert all(-1.001 <= item.cosine <= 1.001 for item in found) or problems
            assert catalog.stats().stored_bytes == len(data)
            for entry in catalog.entries():
                catalog.fingerprint(entry.key)
        with SqliteCatalog(target, wait_s=0.1) as catalog:
            catalog.reindex()
            assert problems or list(catalog.check()) == []

    return fuzz(attempt, lambda rng: odd_catalog(rng, raw, made), seed=13, first=first, cases=cases, part=FILES)


@pytest.mark.slow
def test_a_sample_of_spoilt_catalogs(place, tmp_path):
    assert 20 < import_campaign(place, tmp_path, 10**6, 40) < 40
    assert 5 < file_campaign(place, tmp_path, 10**6, 40) < 40


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_spoilt_catalogs(place, tmp_path, part):
    assert 400 < import_campaign(place, tmp_path, 1000 * part, 1000) < 1000
    assert 100 < file_campaign(place, tmp_path, 1000 * part, 1000) < 1000


def test_what_is_spoilt_is_sound(place, tmp_path):
    head, entries = pieces((place / "sound.kcat").read_bytes())
    assert (b"kinprint.catalog" in head, len(entries)) == (True, 4)
    shutil.copyfile(place / "empty.db", tmp_path / "c.db")
    with SqliteCatalog(tmp_path / "c.db") as catalog:
        assert import_catalog(catalog, place / "sound.kcat").added == 4
