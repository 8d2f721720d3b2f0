"""Reading of what is at hand: in pieces, by several threads, and failures are those of a single reader."""

import threading

import numpy as np
import pytest

from kinprint.errors import BudgetExceeded, SourceChanged, SourceError
from kinprint.refs import ByteRange
from kinprint.sources.base import Buffer
from kinprint.sources.session import PIECE_BYTES


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large.bin"
    data = np.random.default_rng(1).bytes(5 * PIECE_BYTES + 77)
    path.write_bytes(data)
    return path, data


def opened(session, path):
    return session.open_folder(str(path.parent)).open(path.name)


class Noting(Buffer):
    """A sink that remembers who filled what, and takes its time."""

    works = True

    def __init__(self, size):
        super().__init__(memoryview(bytearray(size)))
        self.pieces, self.threads = [], set()

    def filled(self, at, room):
        self.pieces.append((at, len(room)))
        self.threads.add(threading.get_ident())


def test_every_byte_is_read_once(session_for, large):
    session, (path, data) = session_for(), large
    source, sink = opened(session, path), Noting(len(data) - 5)
    session.read_through([(source, ByteRange(5, len(data)), sink, 0)])
    assert bytes(sink.memory) == data[5:]
    edges = sorted(sink.pieces)
    assert [at for at, _ in edges] == [number * PIECE_BYTES for number in range(6)]
    assert sum(length for _, length in edges) == len(data) - 5
    assert session.traffic.local_bytes == len(data) - 5


def test_many_small_ranges(session_for, large):
    session, (path, data) = session_for(), large
    source = opened(session, path)
    spans = [ByteRange(at, at + 100 + at % 7) for at in range(0, len(data) - 200, 5000)]
    found = session.read([(source, span) for span in spans])
    assert [bytes(each) for each in found] == [data[span.start : span.end] for span in spans]


def test_nothing_to_read(session_for, large):
    session, (path, _) = session_for(), large
    assert session.read([]) == []
    assert bytes(session.read([(opened(session, path), ByteRange(3, 3))])[0]) == b""


def test_a_failure_is_raised_and_ends_the_reading(session_for, large):
    session, (path, data) = session_for(), large
    source = opened(session, path)
    path.write_bytes(data[: 2 * PIECE_BYTES])
    with pytest.raises((SourceError, SourceChanged)):
        session.read([(source, ByteRange(0, len(data)))])
    with pytest.raises(SourceError, match=f"ends at byte {3 * PIECE_BYTES}, expected at least {5 * PIECE_BYTES}$"):
        session.read([(source, ByteRange(PIECE_BYTES * 3, PIECE_BYTES * 5))] * 3)


def test_a_sink_that_fails_is_heard(session_for, large):
    session, (path, data) = session_for(), large

    class Failing(Buffer):
        def filled(self, at, room):
            raise ZeroDivisionError(at)

    sink = Failing(memoryview(bytearray(len(data))))
    with pytest.raises(ZeroDivisionError):
        session.read_through([(opened(session, path), ByteRange(0, len(data)), sink, 0)])


def test_the_budget_holds_before_anything_is_read(session_for, large):
    path, data = large
    session = session_for(budget_bytes=1000)
    with pytest.raises(BudgetExceeded):
        session.read([(opened(session, path), ByteRange(0, len(data)))])
    assert session.traffic.local_bytes == 0
