"""The collector of reference cycles rests while somebody asks for it, and only then."""

import gc

import pytest

from kinprint._util.cycles import no_collection


@pytest.fixture(autouse=True)
def as_before():
    yield
    gc.enable()


def test_the_last_to_leave_lets_it_go_on():
    first, second = no_collection(), no_collection()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_goes_on_after_a_failure():
    with pytest.raises(ValueError, match="no model"), no_collection():
        raise ValueError("no model")
    assert gc.isenabled()


def test_one_that_was_switched_off_stays_off():
    gc.disable()
    with no_collection(), no_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()
