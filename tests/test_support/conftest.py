"""Delays of the local hub, noted and not waited for."""

import asyncio

import pytest

from support import http1


@pytest.fixture
def delays(monkeypatch):
    """What the hub would have waited, in order, by a clock that stands still."""
    found = []
    call_later = asyncio.BaseEventLoop.call_later

    def note(loop, delay, callback, *arguments, **more):
        if callback.__qualname__.startswith("Connection."):
            found.append(delay)
            delay = 0
        return call_later(loop, delay, callback, *arguments, **more)

    monkeypatch.setattr(http1, "clock", lambda: 0.0)
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", note)
    return found
