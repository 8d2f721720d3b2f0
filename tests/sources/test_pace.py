"""The pace that all workers share, and a client that keeps to it."""

import threading

import pytest

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.sources.http import HttpClient
from kinprint.sources.pace import BURST, FIRST_HOLD_S, LONGEST_HOLD_S, PUBLIC_PER_S, Pace, quota_spent_s
from kinprint.sources.session import Session
from support.hub import Fault

REPO = "owner/Small-Model"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_requests_are_so_many_a_second_after_a_burst(clock):
    pace = Pace(4.0, burst=3, clock=clock)
    assert [pace.turn_s("a.test") for _ in range(6)] == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75])
    assert pace.turn_s("b.test") == 0.0
    clock.now += 10.0
    assert [pace.turn_s("a.test") for _ in range(4)] == pytest.approx([0, 0, 0, 0.25])


def test_public_hosts_have_the_hubs_limit_and_the_own_network_has_none(clock):
    pace = Pace(clock=clock)
    assert {pace.turn_s("127.0.0.1") for _ in range(BURST + 10)} == {0.0}
    waits = [pace.turn_s("8.8.8.8") for _ in range(BURST + 10)]
    assert waits == pytest.approx([0.0] * BURST + [(n + 1) / PUBLIC_PER_S for n in range(10)])


def test_a_host_that_asks_for_time_gets_it_from_everybody(clock):
    pace = Pace(100.0, clock=clock)
    pace.hold("a.test", 30.0)
    assert pace.turn_s("a.test") == pytest.approx(30.0)
    assert pace.turn_s("b.test") == 0.0
    clock.now += 20.0
    assert pace.held_s("a.test") == pytest.approx(10.0)
    pace.hold("a.test", 5.0)  # less than it asked for before
    assert pace.held_s("a.test") == pytest.approx(10.0)
    pace.hold("a.test", 1e9)
    assert pace.held_s("a.test") == LONGEST_HOLD_S


def test_refusals_without_a_time_are_given_more_each_time(clock):
    pace = Pace(clock=clock)
    for expected in (1.0, 2.0, 4.0):
        pace.hold("127.0.0.1", None)
        pace.hold("127.0.0.1", None)  # another request that was under way: the same refusal
        assert pace.held_s("127.0.0.1") == pytest.approx(expected * FIRST_HOLD_S)
        clock.now += expected * FIRST_HOLD_S
    clock.now += 1000.0
    pace.hold("127.0.0.1", None)
    assert pace.held_s("127.0.0.1") == pytest.approx(FIRST_HOLD_S)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ('"resolvers";r=2998;t=172', None),
        ('"resolvers";r=0;t=172', 172.0),
        ('"api";r=0;t=12, "resolvers";r=0;t=40', 40.0),
        ("", None),
        ("r=0", None),
        ("r=-1;t=4", None),
        ("r=0;t=99999999999999999999", None),
    ],
)
def test_a_spent_quota_is_read(header, seconds):
    assert quota_spent_s(header) == seconds


class Watched(Pace):
    """A pace whose waiting is seen and not done."""

    def __init__(self):
        super().__init__(1000.0)
        self.asked, self.held = [], []

    def turn_s(self, host):
        self.asked.append(host)
        return 0.0

    def hold(self, host, seconds):
        self.held.append((host, seconds))


def test_every_request_asks_and_refusals_are_told(hub, settings_for):
    gate = Watched()
    hub.add_fault(Fault(kind="status", value=429, retry_after=0.02, times=1))
    hub.add_fault(Fault(kind="status", value=503, times=1, skip=3))
    with Session(settings_for(hub), gate=gate) as session:
        assert open_checkpoint(REPO, session).tensors
    assert len(gate.asked) == len(hub.requests)
    assert gate.held == [("127.0.0.1", 0.02), ("127.0.0.1", None)]


def test_a_client_waits_for_its_turn_and_for_what_is_asked_meanwhile(settings_for):
    class Slow(Watched):
        def __init__(self):
            super().__init__()
            self.waits = [0.01, 0.02, 0.0]

        def turn_s(self, host):
            return self.waits.pop(0)

        def held_s(self, host):
            return self.waits.pop(0)

    gate = Slow()
    stop = threading.Event()
    client = HttpClient(settings_for(None), traffic=None, stop=stop, gate=gate)
    client._wait_for_turn(gate, "a.test")
    assert gate.waits == []
    stop.set()
    gate.waits = [60.0]
    client._wait_for_turn(gate, "a.test")  # a run that is stopped does not wait
    assert gate.waits == []
