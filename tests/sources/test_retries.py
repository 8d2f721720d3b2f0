"""Passing trouble is retried, within the advice of the server and the deadline of a request."""

import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from kinprint.errors import TransferError
from kinprint.sources import pace
from support.hub import Fault
from support.remote import REPO, WEIGHTS, fault, read


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": kind, "value": value, "origin": origin}
        for kind, value in [
            *(("status", code) for code in (408, 429, 500, 502, 503, 504)),
            ("drop", None),
            ("garbage", None),
        ]
        for origin in ("hub", "cdn")
    ]
    + [{"kind": "short-body", "value": value, "origin": "cdn"} for value in (None, 0)],
    ids=lambda fields: f"{fields['origin']}-{fields['kind']}{fields['value'] or ''}",
)
def test_passing_trouble(hub, session, source, data, fields):
    struck = hub.add_fault(Fault(match=WEIGHTS, times=2, retry_after=0.01, **fields))
    assert read(source) == data[:1000]
    assert struck.fired == 2
    assert session.traffic.retries == 2


@pytest.mark.parametrize("kind", ["drop", "garbage", "short-body"])
def test_giving_up(hub, session, source, kind):
    fault(hub, kind, origin="cdn", times=None)
    with pytest.raises(TransferError, match=r"gave up after 3 attempts; the last failed with: ") as caught:
        read(source)
    assert WEIGHTS in caught.value.message
    assert caught.value.hint == "check the connection and try again"  # without a cache nothing is kept
    assert sum(request.origin == "cdn" for request in hub.requests) == 3


def test_giving_up_names_the_status(hub, source):
    fault(hub, "status", value=503, times=None)
    with pytest.raises(TransferError, match=r"gave up after 3 attempts; the last failed with: HTTP 503"):
        read(source)


def test_giving_up_with_a_cache(hub, session_for, tmp_path):
    source = session_for(hub, range_cache=tmp_path / "r").open_folder(REPO).open(WEIGHTS)
    fault(hub, "drop", origin="cdn", times=None)
    with pytest.raises(TransferError, match="gave up after 3 attempts") as caught:
        read(source)
    assert "ranges already read are kept in the cache" in caught.value.hint


@pytest.fixture
def waits_of(monkeypatch):
    """Note how long a session would wait before each new attempt, and do not wait."""

    def note(session):
        found = []
        monkeypatch.setattr(session._stop, "wait", found.append)
        return found

    return note


def test_retry_after_is_honoured(hub, session, source, data, waits_of):
    fault(hub, "status", value=429, retry_after=0.3, origin="cdn")
    waits = waits_of(session)
    assert read(source) == data[:1000]
    assert waits == [0.3]


def test_without_advice_waits_double(hub, session, source, waits_of):
    fault(hub, "drop", origin="cdn", times=None)
    waits = waits_of(session)
    with pytest.raises(TransferError, match="gave up after 3 attempts"):
        read(source)
    first, second = waits
    assert 0.0075 <= first <= 0.0125  # a hundredth of a second (settings_for), spread by a quarter
    assert 0.015 <= second <= 0.025


def test_retry_after_as_a_date(web, session_for, data, waits_of, monkeypatch):
    now, refused = 1_700_000_000.0, []
    monkeypatch.setattr(pace, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))

    def spoil(request):
        if refused:
            return False
        refused.append(request.path)
        web.reply(request, 503, b"", Retry_After=formatdate(now + 3000, usegmt=True))
        return True

    web.spoil = spoil
    session = session_for(max_retry_after_s=4000, deadline_s=4000)
    source, waits = session.open_folder(web.url).open(WEIGHTS), waits_of(session)
    assert read(source) == data[:1000]
    assert waits == [3000.0]


def test_retry_after_too_long(hub, session, source, waits_of):
    fault(hub, "status", value=429, retry_after=9000, origin="hub", times=None)
    waits = waits_of(session)
    with pytest.raises(TransferError, match=r"HTTP 429, and the server asks to wait 9000 s") as caught:
        read(source)
    assert waits == []
    assert "HF_TOKEN" in caught.value.hint


@pytest.mark.parametrize("date", ["Fri, 31 Dec 99999 23:59:59 GMT", "Thu, 01 Jan 0000 00:00:00 GMT", "0" * 500])
def test_retry_after_beyond_the_calendar(web, session_for, data, waits_of, date):
    refused = []

    def spoil(request):
        refused.append(request.path)
        if len(refused) == 1:
            web.reply(request, 503, b"", Retry_After=date)
        return len(refused) == 1

    web.spoil = spoil
    session = session_for()
    source, waits = session.open_folder(web.url).open(WEIGHTS), waits_of(session)
    assert read(source) == data[:1000]
    assert len(waits) == 1


class Clock:
    """Time that passes by waiting alone, or by a step at every look."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def timed(session_for, hub, monkeypatch):
    def build(clock, **settings):
        session = session_for(hub, **settings)
        session._client.clock = clock
        monkeypatch.setattr(session._stop, "wait", clock.wait)
        return session

    return build


def test_all_waits_of_a_request_fit_its_deadline(hub, timed):
    clock = Clock()
    session = timed(clock, attempts=100, deadline_s=90.0)
    source = session.open_folder(REPO).open(WEIGHTS)
    asked = fault(hub, "status", value=503, retry_after=40, origin="cdn", times=None)
    with pytest.raises(TransferError, match="asks to wait 40 s"):
        read(source)
    assert clock.now <= 90.0
    assert asked.fired == 3  # at 0, 40 and 80 s; a third wait would end at 120 s


def test_waits_without_advice_fit_the_deadline_too(hub, timed):
    clock = Clock()
    source = timed(clock, attempts=100, backoff_s=1.0, deadline_s=90.0).open_folder(REPO).open(WEIGHTS)
    fault(hub, "drop", origin="cdn", times=None)
    with pytest.raises(TransferError, match=r"gave up after [4-8] attempts; .*the 90 s for one request are over"):
        read(source)
    assert clock.now <= 90.0


def test_time_that_passes_in_exchanges_counts(hub, timed):
    clock = Clock(step=4.0)  # a server that drips: every look at the clock is later
    source = timed(clock, attempts=100, deadline_s=90.0).open_folder(REPO).open(WEIGHTS)
    fault(hub, "drop", origin="cdn", times=None)
    with pytest.raises(TransferError, match="the 90 s for one request are over"):
        read(source)
    assert clock.now < 130.0


def test_a_run_has_so_many_retries(hub, session_for):
    session = session_for(hub, attempts=5, retries=7, backoff_s=0.0)
    source = session.open_folder(REPO).open(WEIGHTS)
    fault(hub, "drop", origin="cdn", times=None)
    with pytest.raises(TransferError, match="gave up after 5 attempts"):
        read(source)
    with pytest.raises(TransferError, match=r"gave up after 2 attempts; .*the 7 retries of this run are used up"):
        read(source)
    with pytest.raises(TransferError, match="gave up after 1 attempts"):
        read(source)


def test_stalled_server(hub, session_for):
    source = session_for(hub, read_timeout_s=0.2, attempts=2).open_folder(REPO).open(WEIGHTS)
    stalled = fault(hub, "stall", origin="cdn", times=None)
    with pytest.raises(TransferError, match=r"gave up after 2 attempts.*timed out"):
        read(source)
    assert stalled.fired == 2


def test_server_that_stalls_midway(hub, session_for, data):
    source = session_for(hub, read_timeout_s=0.2).open_folder(REPO).open(WEIGHTS)
    fault(hub, "stall", origin="cdn", value=100)
    assert read(source) == data[:1000]


def test_server_that_drips(hub, session_for):
    # Some bytes always come before the timeout: only the pace gives it away.
    source = session_for(hub, read_timeout_s=0.2, attempts=2).open_folder(REPO).open(WEIGHTS)
    fault(hub, "slow", origin="cdn", value=200, times=None)
    with pytest.raises(TransferError, match=r"gave up after 2 attempts.*only [0-9]+ bytes came in"):
        read(source, 0, 10_000)
    assert sum(request.body_bytes for request in hub.requests if request.origin == "cdn") < 5_000
