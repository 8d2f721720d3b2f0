"""Delays of the local hub, noted and not waited for."""

import asyncio

import pytest


@pytest.fixture
def delays(monkeypatch):
    """What the hub would have waited, in order."""
    found = []
    call_later = asyncio.BaseEventLoop.call_later

    def note(loop, delay, callback, *arguments, **more):
        if callback.__qualname__.startswith("Connection."):
            found.append(delay)
            delay = 0
        return call_later(loop, delay, callback, *arguments, **more)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", note)
    return found
