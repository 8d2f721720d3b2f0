"""The catalog in one SQLite file: the contract, and what only a file can suffer."""

import sqlite3

import numpy as np
import pytest

from catalog.contract import CatalogContract
from kinprint.catalog import sqlite as sqlite_store
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.catalog.store import default_path, open_catalog
from kinprint.errors import BadReference, FormatError, NotFound, SchemaError, StorageError
from kinprint.fingerprints.recall import FAMILIES
from support.catalogs import make_item, some_vectors

FAMILY = next(iter(FAMILIES))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "catalog.db"


@pytest.fixture
def open_it(path):
    return lambda read_only=False: SqliteCatalog(path, read_only=read_only, wait_s=5.0)


class TestSqlite(CatalogContract):
    """The file keeps the contract."""


def alter(path, *statements):
    """Change a catalog behind its back."""
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    db.close()


def filled(open_it, count=4):
    items = [make_item(seed) for seed in range(count)]
    with open_it() as catalog:
        catalog.add_all(items)
    return items


def test_between_two_writes_a_catalog_is_one_file(path, open_it):
    filled(open_it)
    assert [found.name for found in path.parent.iterdir()] == ["catalog.db"]


def test_where_a_catalog_is(tmp_path, monkeypatch):
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    assert default_path(env) == tmp_path / "data" / "kinprint" / "catalog.db"
    with open_catalog(env=env) as found:
        assert found.place == str(default_path(env))
    with open_catalog(env=env | {"KINPRINT_CATALOG": str(tmp_path / "other.db")}) as found:
        assert found.place == str(tmp_path / "other.db")
    with open_catalog(tmp_path / "third.db", env=env | {"KINPRINT_CATALOG": str(tmp_path / "other.db")}) as found:
        assert found.place == str(tmp_path / "third.db")
    with pytest.raises(BadReference) as caught:
        open_catalog("mysql://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_reader_makes_no_file(path, open_it):
    with pytest.raises(NotFound, match="there is no catalog"):
        open_it(read_only=True)
    assert not path.exists()


def test_a_catalog_that_is_not_to_be_made(path):
    with pytest.raises(NotFound, match="there is no catalog"):
        open_catalog(path, make=False)
    assert not path.exists()
    with open_catalog(path):
        pass
    with open_catalog(path, make=False) as catalog:
        assert catalog.add(*make_item(1))


def test_other_files_are_not_catalogs(path, open_it):
    path.write_bytes(b"some text that is long enough to be looked at" * 100)
    with pytest.raises(FormatError, match="not a database"):
        open_it()
    path.unlink()
    alter(path, "CREATE TABLE things (x)")
    for read_only in (False, True):
        with pytest.raises(FormatError, match="not a catalog of kinprint"):
            open_it(read_only=read_only)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="not a catalog of kinprint"):
        open_it(read_only=True)
    with open_it() as catalog:  # a kill before the first page was written leaves an empty file
        assert catalog.count() == 0


def test_a_newer_version_is_refused_by_name(path, open_it):
    filled(open_it)
    alter(path, "PRAGMA user_version=2")
    with pytest.raises(SchemaError, match="version 2; this program knows up to 1"):
        open_it(read_only=True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "CREATE VIEW v AS SELECT * FROM entries",
        "ALTER TABLE failures ADD COLUMN more TEXT",
        "DROP TABLE gone",
        "CREATE INDEX i ON entries (seal)",
    ],
)
def test_a_strangers_schema_is_not_run(path, open_it, statement):
    filled(open_it)
    alter(path, statement)
    with pytest.raises(FormatError, match="its tables are not those of a catalog"):
        open_it()


def test_a_half_written_file_is_named(path, open_it):
    items = filled(open_it, 40)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"catalog\.db: .*malformed") as caught:
        open_it(read_only=True)
    assert "restore the file from an export" in caught.value.hint
    path.write_bytes(whole)
    with open_it(read_only=True) as catalog:
        assert [entry.key for entry in catalog.entries()] == [item.entry.key for item in items]


def test_a_schema_that_is_no_text_is_named(path, open_it):
    filled(open_it, 2)
    raw = path.read_bytes()
    assert raw.count(b"indexsqlite_autoindex_about_1about") == 1
    path.write_bytes(raw.replace(b"sqlite_autoindex_about_1about", b"sqlite_autoindex_ab\xefut_1about"))
    with pytest.raises(FormatError, match="no text"):
        open_it(read_only=True)


def test_check_names_what_was_changed(path, open_it):
    items = filled(open_it, 9)
    other = make_item(70).fingerprint
    rotated = np.roll(items[2].vectors[FAMILY], 1).tobytes()
    alter(
        path,
        ("UPDATE fingerprints SET data = ? WHERE id = 1", (other,)),
        "UPDATE fingerprints SET data = x'00' WHERE id = 2",
        ("UPDATE vectors SET data = ? WHERE id = 3 AND family = ?", (rotated, FAMILY)),
        ("UPDATE vectors SET data = x'00' WHERE id = 4 AND family = ?", (FAMILY,)),
        "UPDATE entries SET record = replace(record, 'mit', 'gpl') WHERE id = 5",
        "UPDATE entries SET record = 'nonsense' WHERE id = 6",
        "UPDATE entries SET name = 'someone/else' WHERE id = 7",
        "DELETE FROM fingerprints WHERE id = 8",
    )
    with open_it(read_only=True) as catalog:
        found = [(problem.name, str(problem.what)) for problem in catalog.check()]
    assert found == [
        ("maker/model-0", "its fingerprint is damaged: the SHA-256 is not its key"),
        ("maker/model-1", "its fingerprint is damaged: the SHA-256 is not its key"),
        ("maker/model-2", "its record or its recall vectors changed in storage"),
        ("maker/model-3", found[3][1]),
        ("maker/model-4", "its record or its recall vectors changed in storage"),
        ("maker/model-5", found[5][1]),
        ("someone/else", "its record belongs to another entry, maker/model-6"),
        ("maker/model-7", "its fingerprint is damaged: the SHA-256 is not its key"),
    ]
    assert "of 1 bytes" in found[3][1]
    assert found[5][1].startswith("its record cannot be read")


def test_a_damaged_fingerprint_is_not_handed_out(path, open_it):
    items = filled(open_it)
    alter(path, "UPDATE fingerprints SET data = x'0011' WHERE id = 1")
    with open_it(read_only=True) as catalog:
        with pytest.raises(FormatError, match="is damaged"):
            catalog.fingerprint(items[0].entry.key)
        assert catalog.fingerprint(items[1].entry.key) == items[1].fingerprint


def test_a_flipped_bit_anywhere_is_found_or_harmless(path, open_it):
    """Every page is hit in turn: the catalog is refused, check names it, or everything comes out as it went in."""
    items = filled(open_it, 6)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    outcomes = {"refused": 0, "named": 0, "same": 0}
    for at in rng.integers(100, len(whole), 120).tolist():
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        try:
            with open_it(read_only=True) as catalog:
                problems = list(catalog.check())
                if problems:
                    outcomes["named"] += 1
                    continue
                assert sorted(catalog.entries(), key=lambda e: e.key) == sorted(
                    (item.entry for item in items), key=lambda e: e.key
                )
                for item in items:
                    assert catalog.fingerprint(item.entry.key) == item.fingerprint
                outcomes["same"] += 1
        except (FormatError, SchemaError):
            outcomes["refused"] += 1
    assert outcomes["named"] + outcomes["refused"] >= 30  # the others hit free space inside pages


def test_a_writer_that_waits_too_long_says_why(path, open_it):
    filled(open_it)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with SqliteCatalog(path, wait_s=0.05) as catalog:
            assert catalog.count() == 4
            with pytest.raises(StorageError, match="locked") as caught:
                catalog.add(*make_item(9))
        assert "another process" in caught.value.hint
    finally:
        blocker.close()


def test_a_full_disk_leaves_what_was_there(path, open_it):
    items = filled(open_it)
    with open_it() as catalog:
        pages = catalog._pragma("page_count")
        catalog._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StorageError, match="full") as caught:
            catalog.add_all([make_item(seed) for seed in range(10, 40)])
        assert "free some space" in caught.value.hint
        assert [entry.key for entry in catalog.entries()] == [item.entry.key for item in items]
        catalog._db.execute("PRAGMA max_page_count=1000000")
        assert catalog.add(*make_item(10))
        assert list(catalog.check()) == []


def test_a_file_that_may_only_be_read_is_read(path, open_it, monkeypatch):
    items = filled(open_it)
    monkeypatch.setattr(sqlite_store.os, "access", lambda *_: False)  # root may write everywhere
    with open_it(read_only=True) as catalog:
        assert catalog.nearest(items[0].vectors, 1)[0].key == items[0].entry.key
        catalog._db.execute("PRAGMA query_only=OFF")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            catalog._db.execute("DELETE FROM entries")


# -- the side file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def side(path, monkeypatch):
    """A side file is made from the fourth entry on."""
    monkeypatch.setattr(sqlite_store, "_TAIL", 3)
    return path.with_name("catalog.db.recall")


def recalled(catalog, items):
    """Return whether each item is its own nearest, in every family."""
    return [
        all(catalog.nearest({family: vector}, 1)[0].key == item.entry.key for family, vector in item.vectors.items())
        for item in items
    ]


def test_a_side_file_is_made_and_gives_the_same_answers(open_it, side, monkeypatch):
    """Who adds makes it: who searches may only read."""
    items = filled(open_it, 30)
    query, made = some_vectors(500), side.read_bytes()
    with open_it(read_only=True) as catalog:
        found = catalog.nearest(query, 10)
        assert catalog._tail == {}
    side.unlink()
    with open_it(read_only=True) as catalog:
        assert catalog.nearest(query, 10) == found
        assert catalog._tail != {}
    assert not side.exists()
    with open_it() as catalog:
        assert catalog.nearest(query, 10) == found
        assert catalog._tail == {}
        assert all(recalled(catalog, items))
    assert len(side.read_bytes()) == len(made)


def test_entries_beyond_the_side_file_and_removed_ones(open_it, side):
    items = filled(open_it, 30)
    with open_it() as catalog:
        catalog.nearest(items[0].vectors, 1)
        made = side.read_bytes()
        later = [make_item(seed) for seed in range(100, 103)]
        catalog.add_all(later)
        catalog.remove(items[3].entry.key)
        catalog.add(*items[4], replace=True)
        found = recalled(catalog, [*items[:3], items[4], *later])
        assert all(found)
        assert catalog.nearest(items[3].vectors, 1)[0].key != items[3].entry.key
        assert side.read_bytes() == made
        asked = []
        catalog._db.set_trace_callback(asked.append)
        with open_it(read_only=True) as fresh:
            assert catalog.families() == fresh.families() == [(family, 32) for family in sorted(FAMILIES)]
        assert not any("count" in query and "vectors" in query for query in asked)  # of a million entries a gigabyte
        catalog.add_all([make_item(seed) for seed in range(200, 230)])
        catalog.nearest(items[0].vectors, 1)
        assert side.read_bytes() != made


@pytest.mark.parametrize("damage", ["deleted", "truncated", "emptied", "another", "grown"])
def test_a_side_file_that_is_not_ours_is_not_used(open_it, side, tmp_path, damage):
    items = filled(open_it, 30)
    with open_it() as catalog:
        catalog.nearest(items[0].vectors, 1)
    whole = side.read_bytes()
    if damage == "deleted":
        side.unlink()
    elif damage == "another":
        with SqliteCatalog(tmp_path / "other.db") as other:
            other.add_all([make_item(seed) for seed in range(300, 330)])
            other.nearest(items[0].vectors, 1)
        side.write_bytes((tmp_path / "other.db.recall").read_bytes())
    else:
        side.write_bytes({"truncated": whole[:-8], "emptied": b"", "grown": whole + b"\0"}[damage])
    for read_only in (True, False):
        with open_it(read_only=read_only) as catalog:
            assert all(recalled(catalog, items))
            assert list(catalog.check()) == []


def test_check_finds_a_damaged_side_file(open_it, side):
    items = filled(open_it, 30)
    with open_it() as catalog:
        catalog.nearest(items[0].vectors, 1)
    whole = bytearray(side.read_bytes())
    whole[1 << 16] ^= 1
    side.write_bytes(whole)
    with open_it() as catalog:
        assert [str(problem.what) for problem in catalog.check()] == [
            "the side file catalog.db.recall is damaged; delete it"
        ]


def test_a_side_file_of_an_older_copy_is_not_used(open_it, side, path):
    """A catalog restored from a copy goes on with the same numbers for other entries."""
    filled(open_it, 10)
    copy = path.read_bytes()
    with open_it() as catalog:
        catalog.add_all([make_item(seed) for seed in range(100, 120)])
        catalog.nearest(some_vectors(1), 1)
    assert side.exists()
    path.write_bytes(copy)
    later = [make_item(seed) for seed in range(200, 220)]
    with open_it(read_only=False) as catalog:
        catalog.add_all(later)
        assert all(recalled(catalog, later))


def test_no_room_for_a_side_file_is_no_failure(open_it, side, monkeypatch):
    def full(*_):
        raise StorageError("disk full")

    monkeypatch.setattr(sqlite_store, "write_side_file", full)
    items = filled(open_it, 10)
    with open_it() as catalog:
        assert all(recalled(catalog, items))
        assert catalog.add(*make_item(50))
    assert not side.exists()


def test_recall_vectors_of_another_version_wait_for_a_new_index(path, open_it):
    filled(open_it)
    alter(path, "UPDATE about SET value = '0' WHERE name = 'recall_version'")
    with open_it() as catalog:
        for use in (lambda: catalog.nearest(some_vectors(1), 1), lambda: catalog.add(*make_item(9))):
            with pytest.raises(SchemaError, match="recall vectors are of version 0") as caught:
                use()
            assert "reindex" in caught.value.hint
        assert catalog.count() == 4
        catalog.reindex()
        assert catalog.add(*make_item(9))
        assert list(catalog.check()) == []


def test_a_damaged_fingerprint_is_named_by_a_new_index_and_stops_no_other(path, open_it):
    filled(open_it)
    alter(path, "UPDATE fingerprints SET data = zeroblob(length(data)) WHERE id = 2")
    alter(path, "DELETE FROM fingerprints WHERE id = 3")
    with open_it() as catalog:
        names = [entry.name for entry in catalog.entries()]
        sound = sum(name not in names[1:3] for name in names)
        done, problems = catalog.reindex()
        assert [problem.name for problem in problems] == names[1:3]
        assert "SHA-256 is not its key" in problems[0].what
        assert done <= sound
        assert {problem.name for problem in catalog.check()} == set(names[1:3])
