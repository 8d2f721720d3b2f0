"""The collector of reference cycles rests while somebody asks for it, and only then.

On a collector of the test's own: in a suite other threads may be opening models, for which the process's own one rests.
"""

import gc

import pytest

from kinprint._util import cycles


class Collector:
    """What `gc` says of itself, without its effect."""

    def __init__(self, working: bool = True) -> None:
        self.working = working

    def isenabled(self) -> bool:
        return self.working

    def enable(self) -> None:
        self.working = True

    def disable(self) -> None:
        self.working = False


def test_the_last_to_leave_lets_it_go_on():
    collector = Collector()
    rest = cycles.Rest(collector)
    first, second = rest(), rest()
    first.__enter__()
    second.__enter__()
    assert not collector.working
    first.__exit__(None, None, None)
    assert not collector.working
    second.__exit__(None, None, None)
    assert collector.working


def test_it_goes_on_after_a_failure():
    collector = Collector()
    with pytest.raises(ValueError, match="no model"), cycles.Rest(collector)():
        raise ValueError("no model")
    assert collector.working


def test_one_that_was_switched_off_stays_off():
    collector = Collector(working=False)
    rest = cycles.Rest(collector)
    with rest(), rest():
        assert not collector.working
    assert not collector.working


def test_the_one_that_rests_is_pythons_own():
    with cycles.no_collection():
        assert not gc.isenabled()
