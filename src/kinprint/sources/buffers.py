"""Recycle large buffers: hand them out again once no view of them is left.

A system fills new memory with zeros when it is first written to: on the machine that bench/local_read.py was written on, reading
into new memory took up to ten times as long as into memory that was in use before.
"""

import weakref

import numpy as np
import numpy.typing as npt

IDLE_BYTES = 128 << 20  # kept at most
_GRAIN = 1 << 20


class Recycler:
    """Hand out buffers that no view of any depth refers to any more. Thread-safe."""

    def __init__(self) -> None:
        # A dict and no lock: a buffer can come back in the middle of anything, whenever the last view of it dies.
        self._idle: dict[int, memoryview] = {}

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return a buffer with arbitrary content."""
        if not _GRAIN <= nbytes <= IDLE_BYTES:
            return np.empty(nbytes, dtype=np.uint8)
        memory = self._found(nbytes)
        if memory is None:
            memory = np.empty(-(-nbytes // _GRAIN) * _GRAIN, dtype=np.uint8).data
        # An array on a memoryview: all views of it keep this array alive, where those of an array that is a view of another
        # would keep that other one only.
        buffer = np.frombuffer(memory, dtype=np.uint8)
        weakref.finalize(buffer, self._give_back, memory).atexit = False
        return buffer[:nbytes]

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept and not in use."""
        return sum(map(len, list(self._idle.values())))

    def _found(self, nbytes: int) -> memoryview | None:
        for key, memory in list(self._idle.items()):
            if nbytes <= len(memory) <= nbytes + nbytes // 4 + _GRAIN and self._idle.pop(key, None) is not None:
                return memory  # if it was still there: another thread may have been faster
        return None

    def _give_back(self, memory: memoryview) -> None:
        if self.idle_bytes + len(memory) <= IDLE_BYTES:
            self._idle[id(memory)] = memory
