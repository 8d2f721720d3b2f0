"""Work that is counted, not timed: how many calls a function makes does not depend on how busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_most_calls(limit: int) -> Iterator[list[int]]:
    """Fail as soon as the block has made more than `limit` calls of functions, C ones included; yield the running count.

    Only calls of this thread count (`support.fuzzing.MemorySession` starts no other). What never returns from one call (a
    regular expression, a matrix product) is not seen.
    """
    count = [0]

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1
            assert count[0] <= limit, f"more than {limit} calls"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(before)


def calls_of(function: Callable[[], object]) -> int:
    """Return how many calls a function makes."""
    with at_most_calls(sys.maxsize) as count:
        function()
    return count[0]
