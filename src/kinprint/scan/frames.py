"""Messages between processes: a JSON head and any number of byte strings. Nothing is pickled, and every length is checked."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

LARGEST = 1 << 30  # bytes of one message; a block of fingerprints has some megabytes
LENGTH = 8


class Ended(Exception):
    """The other side has closed its end, in the middle of a message or before one."""


class TooLate(Exception):
    """No message came in time."""


@dataclass(frozen=True)
class Message:
    """What one process tells another."""

    head: dict[str, Any]
    parts: tuple[bytes, ...] = field(default=(), repr=False)


def pack(head: dict[str, Any], parts: Sequence[bytes] = ()) -> bytes:
    """Return a message as bytes, its length first."""
    text = orjson.dumps({"parts": [len(part) for part in parts], "head": head})
    body = b"".join([len(text).to_bytes(LENGTH, "little"), text, *parts])
    return len(body).to_bytes(LENGTH, "little") + body


def unpack(body: bytes) -> Message:
    """Read a message from its bytes, without the length before it; ValueError if it contradicts itself."""
    end = LENGTH + int.from_bytes(body[:LENGTH], "little")
    told = orjson.loads(body[LENGTH:end]) if LENGTH < end <= len(body) else None
    sizes = told.get("parts") if isinstance(told, dict) else None
    head = told.get("head") if isinstance(told, dict) else None
    if not isinstance(head, dict) or not isinstance(sizes, list):
        raise ValueError("not a message")  # noqa: TRY004 - of bytes, the value is wrong
    if any(type(size) is not int or size < 0 for size in sizes) or end + sum(sizes) != len(body):
        raise ValueError("a message whose parts do not add up")
    parts, at = [], end
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    return Message(head, tuple(parts))


def read_body(descriptor: int, due: float | None = None) -> bytes:
    """Read one message from a pipe, as bytes without their length; TooLate after the (monotonic) time `due`."""
    length = int.from_bytes(_read(descriptor, LENGTH, due), "little")
    if length > LARGEST:
        raise ValueError(f"a message of {length} bytes, expected at most {LARGEST}")
    return _read(descriptor, length, due)


def _read(descriptor: int, count: int, due: float | None) -> bytes:
    pieces = []
    while count:
        if due is not None:
            left = due - time.monotonic()
            if left <= 0.0 or not select.select([descriptor], [], [], left)[0]:
                raise TooLate
        piece = os.read(descriptor, min(count, 1 << 20))
        if not piece:
            raise Ended
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def write_all(descriptor: int, data: bytes) -> None:
    """Write a message to a pipe; Ended if nobody reads it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError as error:
        raise Ended from error
