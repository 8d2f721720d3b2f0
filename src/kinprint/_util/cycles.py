"""Let the collector of reference cycles rest while many objects are made that stay."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Collector(Protocol):
    """What is asked of `gc`."""

    def isenabled(self) -> bool:
        """Say whether it works."""

    def enable(self) -> None:
        """Let it work."""

    def disable(self) -> None:
        """Let it rest."""


class Rest:
    """The rest of a collector, for as long as anybody asks for it, in any thread."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._asking = 0  # how many want it at rest now

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Look for no reference cycles while this lasts. What nothing refers to is freed as ever.

        At every 700 new lists, dicts and tuples the collector goes through the young ones, and now and then through all there are.
        The headers of a large model are 100,000 of them, which stay and form no cycle.
        """
        with self._lock:
            # else somebody has switched it off, and will want to find it so
            ours = self._asking > 0 or self._collector.isenabled()
            self._asking += ours
            if ours:
                self._collector.disable()
        try:
            yield
        finally:
            with self._lock:
                self._asking -= ours
                if ours and self._asking == 0:
                    self._collector.enable()


no_collection = Rest(gc)  # of the process, as is the collector
