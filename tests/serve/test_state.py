"""Jobs, what they tell, and keys: fair turns, limits, and nothing lost when the server ends."""

import sqlite3

import pytest

from kinprint.errors import KinprintError, SchemaError, StorageError
from kinprint.serve.options import ServeOptions
from kinprint.serve.service import Service
from kinprint.serve.state import ATTEMPTS, CANCELLED, DONE, FAILED, QUEUED, RUNNING, Busy, open_state
from kinprint.serve.stores import Unreachable


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request, tmp_path):
    """Open the same state again and again: a file's, or a database's. All are closed at the end."""
    states = []
    address = None
    if request.param == "postgres":
        address = request.getfixturevalue("postgres").url(request.getfixturevalue("database"))

    def open_it(folder=tmp_path / "state"):
        states.append(open_state(folder, address))
        return states[-1]

    yield open_it
    for state in states:
        state.close()


@pytest.fixture
def state(opened):
    return opened()


def add(state, client="x", **limits):
    return state.add("compare", {"a": "o/a", "b": "o/b"}, client, **{"most": 10, "most_of_client": 5} | limits)


def test_a_job_goes_from_the_queue_to_its_end_once(state):
    job = add(state)
    assert (job.state, job.ended) == (QUEUED, False)
    taken = state.take()
    assert (taken.id, taken.state) == (job.id, RUNNING)
    assert state.take() is None
    assert state.finish(job.id, DONE, summary={"class": "derived"})
    assert not state.finish(job.id, FAILED)
    found = state.job(job.id)
    assert (found.state, found.summary, found.ended) == (DONE, {"class": "derived"}, True)
    assert [item.id for item in state.recent(5)] == [job.id]


def test_turns_are_fair_between_clients(state):
    greedy = [add(state, "greedy") for _ in range(4)]
    late = add(state, "late")
    assert state.take().id == greedy[0].id
    assert state.take().id == late.id  # before the three that have waited longer
    state.finish(greedy[0].id, DONE)
    state.finish(late.id, DONE)
    assert state.take().id == greedy[1].id


def test_the_queue_and_each_clients_part_of_it_are_limited(state):
    for _ in range(5):
        add(state)
    with pytest.raises(Busy, match="5 jobs of yours"):
        add(state)
    for client in "abcde":
        add(state, client)
    with pytest.raises(Busy, match="10 jobs wait"):
        add(state, "new")
    state.finish(state.take().id, DONE)
    assert add(state, "new").state == QUEUED  # the place is free again


def test_what_ran_when_the_server_ended_is_queued_again_and_marked_after_some_times(opened):
    for attempt in range(1, ATTEMPTS + 1):
        state = opened()
        if attempt == 1:
            job = add(state)
            done = add(state)
            state.take()
            state.finish(job.id, DONE)
            job, done = done, job
        assert state.take().id == job.id
        state.close()  # without a word, as kill -9 would
        state = opened()
        assert state.recover() == 1
        found = state.job(job.id)
        assert found.state == (QUEUED if attempt < ATTEMPTS else FAILED)
        assert state.job(done.id).state == DONE
        state.close()
    assert "3 times" in found.error["message"]


def test_events_are_numbered_and_kept(opened):
    state = opened()
    job = add(state)
    for share in (0.1, 0.5):
        state.tell(job.id, {"share": share})
    other = add(state)
    state.tell(other.id, {"share": 0.9})
    state.close()
    state = opened()
    assert [(event.number, event.told) for event in state.events(job.id)] == [(1, {"share": 0.1}), (2, {"share": 0.5})]
    assert [event.told for event in state.events(job.id, after=1)] == [{"share": 0.5}]
    state.finish(job.id, CANCELLED)
    assert state.events(job.id)[-1].told["state"] == CANCELLED
    state.close()


def test_no_address_of_a_client_is_kept(tmp_path):
    state = open_state(tmp_path)
    client = state.client_of("203.0.113.77")
    add(state, client)
    assert client == state.client_of("203.0.113.77") != state.client_of("203.0.113.78")
    state.close()
    assert b"203.0.113" not in (tmp_path / "state.sqlite3").read_bytes()
    other = open_state(tmp_path / "other")
    assert other.client_of("203.0.113.77") != client  # each server has a salt of its own
    other.close()


def test_keys_are_kept_as_digests(opened, tmp_path):
    state = opened()
    key = state.add_key("laptop")
    assert len(key) > 40
    assert state.key_name(key) == "laptop"
    assert state.key_name(key[:-1]) is None
    assert state.key_name("laptop") is None
    with pytest.raises(StorageError, match="already"):
        state.add_key("laptop")
    assert [name for name, _ in state.all_keys()] == ["laptop"]
    state.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("state/*"))
    assert key.encode() not in stored
    assert key[4:].encode() not in stored
    state = opened()
    assert state.remove_key("laptop")
    assert not state.remove_key("laptop")
    assert state.key_name(key) is None
    state.close()


def test_a_state_of_another_version_is_refused(tmp_path):
    open_state(tmp_path).close()
    db = sqlite3.connect(tmp_path / "state.sqlite3")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SchemaError, match="version 99"):
        open_state(tmp_path)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot keep"):
        open_state(tmp_path / "file" / "state")


def test_the_last_jobs_are_found_by_kind_state_and_what_was_asked_for(state):
    first, second = add(state), add(state)
    search = state.add("search", {"model": "o/b"}, "x", most=10, most_of_client=5)
    for job in (first, second, search):
        state.take()
        state.finish(job.id, DONE, summary={"n": 1})
    assert [job.id for job in state.recent(5)] == [search.id, second.id, first.id]
    assert [job.id for job in state.recent(1, "compare")] == [second.id]
    assert [job.id for job in state.about("o/b", 5)] == [second.id, first.id]
    assert state.about("o/c", 5) == []
    assert state.latest("search", DONE, model="o/b").id == search.id
    assert state.latest("search", FAILED, model="o/b") is None
    assert state.latest("compare", a="o/a", b="o/b").id == second.id


def test_a_state_has_one_server(opened):
    one, two = opened(), opened()
    one.claim()
    with pytest.raises(StorageError, match="another server"):
        two._store.claim(0.2)
    one.close()
    two.claim()


def test_a_database_that_goes_away_and_comes_back(postgres, database, tmp_path):
    service = Service(ServeOptions(folder=tmp_path, state=postgres.url(database)))
    job = add(service.state)
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    postgres.execute(database, end)
    with pytest.raises(Unreachable, match="neither read nor kept"):
        service.state.job(job.id)
    assert service.job(job.id).state == QUEUED  # connected again
    postgres.execute(database, end)
    with pytest.raises(Unreachable):
        service.state.take()
    assert service.state.take().id == job.id
    other = open_state(tmp_path, postgres.url(database))
    with pytest.raises(StorageError, match="another server"):
        other._store.claim(0.2)  # the claim came back with the connection
    other.close()
    service.state.close()


def test_no_message_repeats_the_password_of_a_database(postgres, tmp_path):
    address = postgres.tcp_url("nowhere", "kin", "secret-word")
    with pytest.raises(KinprintError) as raised:
        open_state(tmp_path, address)
    assert "secret-word" not in f"{raised.value!r} {raised.value.__cause__!r}"
