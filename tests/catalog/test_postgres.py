"""The shared catalog, against a real server: the contract, and what only a server can suffer."""

import logging
import threading
import traceback

import numpy as np
import pytest

from catalog.contract import CatalogContract
from kinprint.catalog import postgres as store
from kinprint.catalog.entry import Failure
from kinprint.catalog.store import open_catalog
from kinprint.errors import AccessDenied, BadReference, FormatError, KinprintError, NotFound, SchemaError, TransferError
from kinprint.fingerprints.recall import FAMILIES
from support.catalogs import ADDED, make_item, some_vectors
from support.postgres import PostgresServer

FAMILY = next(iter(FAMILIES))


@pytest.fixture
def open_it(postgres, database):
    return lambda read_only=False: open_catalog(postgres.url(database), read_only=read_only)


class TestPostgres(CatalogContract):
    """The server keeps the contract."""


def filled(open_it, count=4):
    items = [make_item(seed) for seed in range(count)]
    with open_it() as catalog:
        catalog.add_all(items)
    return items


def test_a_reader_makes_no_tables(open_it, postgres, database):
    with pytest.raises(NotFound, match="there is no catalog in postgresql://"):
        open_it(read_only=True)
    with pytest.raises(NotFound, match="there is no catalog in postgresql://"):
        open_catalog(postgres.url(database), make=False)
    import psycopg

    with psycopg.connect(postgres.url(database)) as db:
        assert db.execute("SELECT to_regnamespace('kinprint')").fetchone() == (None,)


def test_check_names_what_was_changed(open_it, postgres, database):
    filled(open_it, 8)
    postgres.execute(
        database,
        "UPDATE kinprint.fingerprints SET data = 'x' WHERE id = 1",
        f"UPDATE kinprint.recall_{FAMILY} SET v = (SELECT v FROM kinprint.recall_{FAMILY} WHERE id = 5) WHERE id = 2",
        "UPDATE kinprint.entries SET record = convert_to(replace(convert_from(record, 'UTF8'), 'mit', 'gpl'), 'UTF8')"
        " WHERE id = 3",
        "UPDATE kinprint.entries SET record = 'nonsense' WHERE id = 4",
        "DELETE FROM kinprint.fingerprints WHERE id = 5",
        "UPDATE kinprint.entries SET name = 'someone/else' WHERE id = 6",
    )
    with open_it(read_only=True) as catalog:
        found = [(problem.name, str(problem.what)) for problem in catalog.check()]
        with pytest.raises(FormatError, match="is damaged"):
            catalog.fingerprint(make_item(0).entry.key)
    assert [name for name, _ in found] == [*(f"maker/model-{n}" for n in range(5)), "someone/else"]
    assert found[0][1] == found[4][1] == "its fingerprint is damaged: the SHA-256 is not its key"
    assert found[1][1] == found[2][1] == "its record or its recall vectors changed in storage"
    assert found[5][1] == "its record belongs to another entry, maker/model-5"


def test_many_writers_enter_each_model_once(open_it):
    with open_it():
        pass
    added, failed = [], []

    def write(start):
        try:
            with open_it() as catalog:
                for seed in range(start, start + 6):
                    item = make_item(seed % 9)
                    if catalog.add(*item):
                        added.append(item.entry.key)
        except KinprintError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(start,)) for start in range(0, 9, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with open_it(read_only=True) as catalog:
        assert sorted(added) == sorted(entry.key for entry in catalog.entries())
        assert catalog.count() == 9
        assert list(catalog.check()) == []


def test_several_who_open_an_empty_database_make_its_tables_once(open_it):
    opened, failed = [], []

    def work():
        try:
            with open_it() as catalog:
                opened.append(catalog.count())
        except KinprintError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert opened == [0] * 5


def test_a_migration_keeps_what_is_there_and_happens_once(open_it, monkeypatch):
    items = filled(open_it)
    step = "ALTER TABLE kinprint.failures ADD COLUMN more int DEFAULT 7; CREATE TABLE kinprint.later (x int)"
    monkeypatch.setattr(store, "MIGRATIONS", (*store.MIGRATIONS, step))
    with pytest.raises(SchemaError, match="version 1; this program knows 2") as caught:
        open_it(read_only=True)
    assert "open it for writing once" in caught.value.hint
    for _ in range(2):
        with open_it() as catalog:
            assert [entry.key for entry in catalog.entries()] == [item.entry.key for item in items]
            assert catalog._all("SELECT count(*) FROM kinprint.later") == [(0,)]
    monkeypatch.undo()
    for read_only in (True, False):
        with pytest.raises(SchemaError, match="version 2; this program knows 1"):
            open_it(read_only=read_only)


def test_a_migration_that_fails_changes_nothing(open_it, monkeypatch):
    filled(open_it)
    monkeypatch.setattr(store, "MIGRATIONS", (*store.MIGRATIONS, "DROP TABLE kinprint.failures; SELECT 1/0"))
    with pytest.raises(TransferError, match="division by zero"):
        open_it()
    monkeypatch.undo()
    with open_it() as catalog:
        assert catalog.count() == 4
        assert catalog.failures() == []


def reader(postgres, database, password="pw"):
    """Make a user who may read the catalog, and return the address."""
    user = f"reader_{database}"
    postgres.execute(
        database,
        f"CREATE USER {user} PASSWORD '{password}'",
        f"GRANT USAGE ON SCHEMA kinprint TO {user}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA kinprint TO {user}",
    )
    return postgres.tcp_url(database, user, password)


def test_a_user_who_may_only_read(open_it, postgres, database):
    items = filled(open_it)
    address = reader(postgres, database)
    with open_catalog(address, read_only=True) as catalog:
        assert catalog.nearest(items[2].vectors, 1)[0].key == items[2].entry.key
        assert list(catalog.check()) == []
        assert catalog.stats().entries == 4
    with open_it() as catalog:
        catalog.reindex()
        later = make_item(5)
        catalog.add(*later)
    with open_catalog(address, read_only=True) as catalog:  # its rights are those that it had
        assert catalog.nearest(later.vectors, 1)[0].key == later.entry.key
    with open_catalog(address) as catalog:  # asked to write, the server refuses
        for write in (
            lambda: catalog.add(*make_item(9)),
            lambda: catalog.remove(items[0].entry.key),
            lambda: catalog.fail(Failure("a/b", None, "x", ADDED)),
        ):
            with pytest.raises(AccessDenied, match="may not do that"):
                write()
        assert catalog.count() == 5
    postgres.execute(database, f"DROP OWNED BY reader_{database}", f"DROP USER reader_{database}")


def test_a_server_that_goes_away_in_the_middle(postgres):
    with PostgresServer() as server:
        server.execute("postgres", "CREATE DATABASE c")
        catalog = open_catalog(server.url("c"))
        assert catalog.add(*make_item(1))

        def items():
            yield make_item(2)
            server.stop(at_once=True)
            yield make_item(3)

        with pytest.raises(TransferError, match="postgresql://") as caught:
            catalog.add_all(items())
        assert "what was confirmed is stored" in caught.value.hint
        with pytest.raises(TransferError):
            catalog.count()
        with pytest.raises(TransferError, match="cannot connect"):
            open_catalog(server.url("c"))
        catalog.close()
        server.start()
        with open_catalog(server.url("c")) as again:
            assert [entry.name for entry in again.entries()] == ["maker/model-1"]
            assert again.add_all([make_item(2), make_item(3)]) == 2
            assert list(again.check()) == []


def test_no_message_log_or_traceback_holds_a_password(open_it, postgres, database, caplog):
    filled(open_it)
    caplog.set_level(logging.DEBUG)
    good = reader(postgres, database, password="s3cret")
    shown = []

    def attempt(address, work=lambda catalog: catalog.count()):
        try:
            with open_catalog(address) as catalog:
                shown.extend((repr(catalog), catalog.place, str(catalog.stats())))
                work(catalog)
        except KinprintError as error:
            shown.extend((str(error), repr(error), "".join(traceback.format_exception(error))))
            return error
        return None

    port = postgres.port
    user = f"reader_{database}"
    assert attempt(good) is None
    assert isinstance(attempt(good, lambda catalog: catalog.add(*make_item(9))), AccessDenied)
    assert isinstance(attempt(good.replace("s3cret", "s3cretwrong")), AccessDenied)
    assert isinstance(attempt(good.replace(database, "absent").replace("reader_absent", user)), NotFound)
    assert isinstance(attempt(f"postgresql://{user}:s3cret@127.0.0.1:1/{database}"), TransferError)
    for odd in (
        f"postgresql://{user}:s3cret@127.0.0.1:{port}port/{database}",
        f"postgresql://{user}:s3cret@127.0.0.1:999999/{database}",
        f"postgresql://{user}:s3cret@[::1/{database}",
        f"postgresql://{user}:s3cret@127.0.0.1:{port}/{database}?nonsense=s3cret",
        f"postgresql://{user}:s3cret@127.0.0.1:{port}/{database}?sslmode=s3cret",
        f"postgresql://{user}:s3cret%zz@127.0.0.1:{port}/{database}",
        f"postgres://{user}:s3cret/@127.0.0.1:{port}/{database}",
        f"POSTGRESQL://{user}:s3cret@127.0.0.1:{port}/{database}",
    ):
        assert attempt(odd) is not None, odd
    everything = "\n".join((*shown, caplog.text))
    assert "s3cret" not in everything
    assert user not in "\n".join(text for text in shown if "may not do that" not in text)
    postgres.execute(database, f"DROP OWNED BY {user}", f"DROP USER {user}")


def test_addresses_are_shown_without_what_is_secret():
    cases = {
        "postgresql://u:p@db.example:5433/models?password=p": "postgresql://db.example:5433/models",
        "postgresql://u@/models?host=/run/x": "postgresql:///models",
        "postgresql:///m?host=127.0.0.1&port=9": "postgresql://127.0.0.1:9/m",
        "postgresql://db.example/m?hostaddr=192.0.2.1&dbname=n": "postgresql://192.0.2.1/n",
        "postgresql://u:p@[2001:db8::1]:5433/m": "postgresql://[2001:db8::1]:5433/m",
        "postgresql://u%40x:p%2Fq@db.example/m": "postgresql://db.example/m",
        "postgres://db.example": "postgresql://db.example",
    }
    assert {address: store.shown_address(address) for address in cases} == cases
    for odd in ("u:p@host:port/x", "u:1/s@host/x", "u:/s@host/x", "h/x?password=s@t", "h/x#s@t", "u:s@t@host/x"):
        with pytest.raises(BadReference) as caught:
            store.shown_address(f"postgresql://{odd}")
        assert "@" not in caught.value.message.replace("user@host", "")


def test_lists_find_nearly_all_and_small_catalogs_have_none(open_it, monkeypatch):
    items = filled(open_it, 300)
    query = some_vectors(900)
    with open_it() as catalog:
        exact = catalog.nearest(query, 10)
        catalog.index()
        assert (catalog._about("probes"), catalog.recall_is_exact) == ("", True)
        monkeypatch.setattr(store, "_LEAST_INDEXED", 100)
        catalog.index()
        assert (catalog._about("probes"), catalog.recall_is_exact) == ("1", False)
        monkeypatch.setattr(store, "_PROBES_SHARE", 1.0)  # all lists: nothing is lost
        catalog.index()
        catalog._all("SELECT set_config('enable_seqscan', 'off', false)")  # three hundred rows are read faster without
        assert catalog.nearest(query, 10) == exact
        assert len(catalog._lookers) == 2
        alone = {FAMILY: query[FAMILY]}  # more connections than families to look through
        assert catalog.nearest(alone, 10) == [one for one in exact if one.family == FAMILY]
        for item in items[::29]:
            assert catalog.nearest(item.vectors, 1)[0].key == item.entry.key
        assert catalog.add(*make_item(900))
        assert catalog.nearest(query, 1)[0].key == make_item(900).entry.key
        plan = catalog._all(
            f"EXPLAIN SELECT id FROM kinprint.recall_{FAMILY} ORDER BY v <#> %s::vector LIMIT 3",
            store._literal(np.asarray(query[FAMILY])),
        )
        assert any("lists_" in str(line) for line in plan)


def test_a_server_without_another_connection_is_searched_by_one(open_it, monkeypatch):
    filled(open_it, 120)
    monkeypatch.setattr(store, "_LEAST_INDEXED", 100)
    monkeypatch.setattr(store, "_PROBES_SHARE", 1.0)

    def full():
        raise TransferError("no connection is left")

    with open_it() as catalog:
        catalog.index()
        monkeypatch.setattr(catalog, "_connect", full)
        one = catalog.nearest(some_vectors(900), 10)
        assert (len(catalog._lookers), len(one)) == (1, 10 * len(FAMILIES))
    with open_it(read_only=True) as catalog:
        assert catalog.nearest(some_vectors(900), 10) == one
        assert len(catalog._lookers) == 2


def test_vectors_of_another_version_wait_for_a_new_index(open_it, postgres, database):
    filled(open_it)
    older = "TRUNCATE kinprint.recall_rows; ALTER TABLE kinprint.recall_rows ALTER COLUMN v TYPE vector(5)"
    postgres.execute(
        database,
        "UPDATE kinprint.about SET value = '0' WHERE name = 'recall_version'",
        older,
        "DROP TABLE kinprint.recall_gram",
    )
    with open_it() as catalog:
        for use in (lambda: catalog.nearest(some_vectors(1), 1), lambda: catalog.add(*make_item(9))):
            with pytest.raises(SchemaError, match="recall vectors are of version 0"):
                use()
        catalog.reindex()
        assert catalog.add(*make_item(9))
        assert list(catalog.check()) == []
