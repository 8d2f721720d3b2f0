"""A small HTTP/1.1 server side for the local hub: keep-alive, byte ranges, and replies that may misbehave on purpose.

Written on ``asyncio.Protocol`` because benches share two cores between this server and the client under measurement:
a request costs some tens of microseconds here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from time import monotonic as clock
from typing import Protocol, cast
from urllib.parse import unquote

SLICE = 256 * 1024
"""Largest piece read from disk at once."""

_MAX_HEAD = 64 * 1024
_DRIBBLE_S = 0.02
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Incoming:
    """One parsed request; header names are lower-case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target without its query, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query, without its question mark."""
        return self.target.partition("?")[2]


@dataclass(slots=True)
class FileSlice:
    """A stretch of a file on disk, read lazily."""

    path: Path
    offset: int
    length: int


@dataclass(slots=True)
class Reply:
    """What goes back: a head, then ``body``, then ``file``, then ``tail``.

    The last fields describe misbehaviour and are only ever set by a fault.

    Attributes
    ----------
    close_after : int or None
        Close the connection after this many body bytes, whatever Content-Length says.
    stall_after : int or None
        Send this many body bytes, then nothing, keeping the connection open; -1 holds back the head as well.
    rate : float or None
        Bytes per second for the body.
    raw : bytes or None
        Send exactly this instead of an HTTP response and close; empty means close at once.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: FileSlice | None = None
    tail: bytes = b""
    close_after: int | None = None
    stall_after: int | None = None
    rate: float | None = None
    raw: bytes | None = None

    @property
    def length(self) -> int:
        """Body bytes in full, before any misbehaviour."""
        return len(self.body) + (self.file.length if self.file else 0) + len(self.tail)

    def head(self) -> bytes:
        """Return status line and headers as sent."""
        headers = self.headers
        if "Content-Length" not in headers:
            headers["Content-Length"] = str(self.length)
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Sent(Protocol):
    """The log entry of a request; the connection fills in what was sent."""

    status: int
    body_bytes: int


class Service(Protocol):
    """What a connection needs from its server."""

    connections: set[Connection]

    @property
    def latency_s(self) -> float:
        """Slept before each response."""

    @property
    def connect_latency_s(self) -> float:
        """Slept once before a connection's first response."""

    def answer(self, request: Incoming) -> tuple[Reply, Sent | None]:
        """Answer one request; None as log entry marks a control request, which carries no latency."""

    def is_control(self, request: Incoming) -> bool:
        """Tell whether the request is about the server itself."""

    def held(self, answer: Callable[[], None]) -> bool:
        """Tell whether the request waits for others; if so, `answer` is called when they have come."""


class Connection(asyncio.Protocol):
    """One client connection: requests are answered in order, one at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._busy = False
        self._paused = False
        self._timer: asyncio.Handle | None = None
        self._reply: Reply | None = None
        self._sent: Sent | None = None
        self._position = 0
        self._ready_at = 0.0
        self._close = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note when the connection may first be answered."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=SLICE)
        self._service.connections.add(self)
        self._ready_at = clock() + self._service.connect_latency_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything still to be sent."""
        self._cancel()
        self._reply = None
        self.transport = None
        self._service.connections.discard(self)

    def abort(self) -> None:
        """Drop the connection at once."""
        self._cancel()
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Stop reading from disk until the client has taken what it was sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on with the body."""
        self._paused = False
        if self._reply is not None and self._timer is None:
            self._pump()

    def data_received(self, data: bytes) -> None:
        """Collect bytes; answer as soon as a request is complete."""
        self._buffer += data
        if not self._busy:
            self._next()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        request = self._parse()
        if request is None or self.transport is None:
            return
        self._busy = True
        self._close = request.headers.get("connection", "").lower() == "close"
        if self._service.held(lambda: self._answer(request)):
            return
        delay = max(0.0, self._ready_at - clock()) + self._service.latency_s
        if delay > 0 and not self._service.is_control(request):
            self._timer = self._loop.call_later(delay, self._answer, request)
        else:
            self._answer(request)

    def _parse(self) -> Incoming | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                self._refuse(431)
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                words = []
                break
            headers[name.lower()] = value.strip()
        length = headers.get("content-length", "0")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not length.isascii() or not length.isdigit():
            self._refuse(400)
            return None
        if "transfer-encoding" in headers:
            self._refuse(411)
            return None
        total = end + 4 + int(length)
        if len(self._buffer) < total:
            return None
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        return Incoming(words[0], words[1], headers, body)

    def _refuse(self, status: int) -> None:
        if self.transport is not None:
            self._busy = True
            self.transport.write(Reply(status, {"Connection": "close"}).head())
            self.transport.close()

    def _answer(self, request: Incoming) -> None:
        self._timer = None
        answered = False
        try:
            reply, sent = self._service.answer(request)
            self._start(request, reply, sent)
            answered = True
        finally:
            # A bug in the server must reach the client as a dropped connection, never as a silent hang.
            if not answered:
                self.abort()

    def _start(self, request: Incoming, reply: Reply, sent: Sent | None) -> None:
        transport = self.transport
        if transport is None:
            return
        if sent is not None:
            sent.status = 0 if reply.raw is not None or reply.stall_after == -1 else reply.status
        if reply.raw is not None:
            transport.write(reply.raw)
            transport.close()
            return
        if reply.stall_after == -1:
            return
        if self._close:
            reply.headers["Connection"] = "close"
        head = reply.head()
        self._sent = sent
        self._position = 0
        if request.method == "HEAD" or reply.length == 0:
            transport.write(head)
            self._finish()
            return
        self._reply = reply
        if reply.rate is None:
            self._pump(head)
        else:
            transport.write(head)
            self._dribble()

    def _read(self, reply: Reply, limit: int) -> bytes:
        """Return at most ``limit`` body bytes from the current position on."""
        position = self._position
        if position < len(reply.body):
            return reply.body[position : position + limit]
        position -= len(reply.body)
        if reply.file is not None:
            if position < reply.file.length:
                wanted = min(limit, reply.file.length - position)
                fd = os.open(reply.file.path, os.O_RDONLY)
                try:
                    return os.pread(fd, wanted, reply.file.offset + position)
                finally:
                    os.close(fd)
            position -= reply.file.length
        return reply.tail[position : position + limit]

    def _step(self, reply: Reply, limit: int, head: bytes = b"") -> bool:
        """Send one piece; return False when the body is over (or must not go on)."""
        transport = self.transport
        assert transport is not None
        stops = [stop for stop in (reply.close_after, reply.stall_after) if stop is not None]
        limit = min([limit, *(stop - self._position for stop in stops)])
        try:
            piece = self._read(reply, limit) if limit > 0 else b""
        except OSError as error:
            # The file went away: the client must not wait for the rest, and the server reports it at the end
            # (under another type, as asyncio takes every OSError for the network's).
            self.abort()
            raise RuntimeError(f"cannot read a served file: {error!r}") from error
        self._position += len(piece)
        if self._sent is not None:
            self._sent.body_bytes += len(piece)
        if head or piece:
            transport.write(head + piece if head else piece)
        if self._position >= reply.length:
            self._finish()
            return False
        if reply.stall_after is not None and self._position >= reply.stall_after:
            self._reply = None
            return False
        if not piece or (reply.close_after is not None and self._position >= reply.close_after):
            # Either told to, or the file on disk is shorter than it was when added.
            self._reply = None
            transport.close()
            return False
        return True

    def _pump(self, head: bytes = b"") -> None:
        self._timer = None
        reply = self._reply
        if reply is None or self.transport is None:
            return
        if reply.rate is not None:
            self._dribble()
            return
        if self._step(reply, SLICE, head) and not self._paused:
            # One slice per turn of the loop, so that one big body does not starve the other connections.
            self._timer = self._loop.call_soon(self._pump)

    def _dribble(self) -> None:
        self._timer = None
        reply = self._reply
        if reply is None or reply.rate is None or self.transport is None or self._paused:
            return
        step = max(1, int(reply.rate * _DRIBBLE_S))
        if self._step(reply, step):
            self._timer = self._loop.call_later(step / reply.rate, self._dribble)

    def _finish(self) -> None:
        self._reply = None
        self._sent = None
        transport = self.transport
        if transport is None:
            return
        if self._close:
            transport.close()
            return
        self._busy = False
        if self._buffer:
            self._timer = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._timer = None
        if not self._busy:
            self._next()


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return (first, last) of a single byte range, None where the header is to be ignored (RFC 9110, 14.2).

    Raises
    ------
    ValueError
        If the range is well-formed but cannot be satisfied (answered with 416).
    """
    unit, equals, spec = header.partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip() != "bytes" or not equals or not dash or not (first or last):
        return None
    if not (first or "0").isdecimal() or not (last or "0").isdecimal():
        return None
    if not first:
        count = min(int(last), size)
        if count == 0:
            raise ValueError("empty suffix range")
        return size - count, size - 1
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise ValueError("range starts beyond the end")
    return start, end


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in [item.strip() for item in header.split(",")]


def serve_file(request: Incoming, path: Path, size: int, etag: str, headers: dict[str, str]) -> Reply:
    """Answer GET or HEAD for a file: ranges, If-Match, If-None-Match and If-Range included."""
    headers = {"Accept-Ranges": "bytes", "ETag": etag, **headers}
    asked = request.headers
    if "if-match" in asked and not _matches(asked["if-match"], etag):
        return Reply(412, headers)
    if "if-none-match" in asked and _matches(asked["if-none-match"], etag):
        return Reply(304, headers)
    header = asked.get("range")
    if header is not None and "if-range" in asked and asked["if-range"].strip() != etag:
        header = None
    if header is None:
        return Reply(200, headers, file=FileSlice(path, 0, size))
    try:
        span = parse_range(header, size)
    except ValueError:
        headers["Content-Range"] = f"bytes */{size}"
        return Reply(416, headers)
    if span is None:
        return Reply(200, headers, file=FileSlice(path, 0, size))
    first, last = span
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Reply(206, headers, file=FileSlice(path, first, last - first + 1))


def segments(path: str) -> list[str]:
    """Split a path into decoded segments; an encoded slash stays inside its segment."""
    return [unquote(part) for part in path.strip("/").split("/")]
