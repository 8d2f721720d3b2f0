"""Buffers that are handed out again: never while anything looks at them, never more than so much kept."""

import gc
import random
import threading

import numpy as np
import pytest

from kinprint.sources.buffers import IDLE_BYTES, Recycler

MB = 1 << 20


def place(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again():
    memory = Recycler()
    first = memory.take(4 * MB)
    where = place(first)
    assert first.shape == (4 * MB,)
    del first
    assert memory.idle_bytes == 4 * MB
    again = memory.take(4 * MB - 17)
    assert place(again) == where
    assert again.shape == (4 * MB - 17,)
    assert memory.idle_bytes == 0


VIEWS = {
    "a slice of a slice": lambda taken: taken[3:][5:],
    "another type": lambda taken: taken[: 4 * 100].view(np.float32).reshape(10, 10)[2:],
    "a memoryview": lambda taken: taken.data[10:20],
    "an array of a memoryview": lambda taken: np.frombuffer(taken.data[8:16], np.uint16),
    "an array with a place": lambda taken: np.ndarray(5, "<u4", buffer=taken, offset=2),
    "a transposed view": lambda taken: taken.reshape(1024, -1).T,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_is_looked_at_is_not_handed_out(view):
    memory = Recycler()
    taken = memory.take(2 * MB)
    where = place(taken)
    seen = view(taken)
    del taken
    gc.collect()
    assert memory.idle_bytes == 0
    assert place(memory.take(2 * MB)) != where
    del seen
    gc.collect()
    assert memory.idle_bytes >= 2 * MB


def test_small_and_huge_buffers_are_new():
    memory = Recycler()
    for size in (0, 1, MB - 1, IDLE_BYTES + 1):
        assert memory.take(size).shape == (size,)
    assert memory.idle_bytes == 0


def test_no_more_is_kept_than_allowed():
    memory = Recycler()
    held = [memory.take(IDLE_BYTES // 4) for _ in range(7)]
    held.clear()
    assert memory.idle_bytes == IDLE_BYTES


def test_a_buffer_is_not_much_larger_than_what_is_asked_for():
    memory = Recycler()
    large = memory.take(20 * MB)
    where = place(large)
    del large
    assert place(memory.take(10 * MB)) != where
    assert place(memory.take(17 * MB)) == where


def test_threads_never_share_a_buffer():
    memory = Recycler()
    wrong = []

    def work(number):
        rng = random.Random(number)
        for turn in range(150):
            mine = memory.take(rng.choice((1, 2)) * MB)
            mine[::4096] = number
            mine[-1] = turn % 256
            if not (mine[:-1:4096] == number).all() or mine[-1] != turn % 256:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
