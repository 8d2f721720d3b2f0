"""Let the collector of reference cycles rest while many objects are made that stay."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_asking = 0  # how many want it at rest now


@contextmanager
def no_collection() -> Iterator[None]:
    """Look for no reference cycles while this lasts, in any thread. What nothing refers to is freed as ever.

    At every 700 new lists, dicts and tuples the collector goes through the young ones, and now and then through all there are. The
    headers of a large model are 100,000 of them, which stay and form no cycle.
    """
    global _asking  # of the process, as is the collector
    with _lock:
        ours = _asking > 0 or gc.isenabled()  # else somebody has switched it off, and will want to find it so
        _asking += ours
        if ours:
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            _asking -= ours
            if ours and _asking == 0:
                gc.enable()
