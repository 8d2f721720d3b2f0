"""Misbehaviour on demand for the local hub: each kind is something seen from real servers, proxies or networks."""

from __future__ import annotations

import gzip
import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from support.http1 import FileSlice, Incoming, Reply

Kind = Literal[
    "status",
    "short-body",
    "ignore-range",
    "shifted-range",
    "wrong-total",
    "no-content-range",
    "long-body",
    "few-bytes",
    "changed-etag",
    "drop",
    "slow",
    "stall",
    "redirect-loop",
    "redirect-host",
    "expired-link",
    "garbage",
    "gzip",
]

_BODY = frozenset({"short-body", "slow"})
_RANGED = frozenset(
    {"ignore-range", "shifted-range", "wrong-total", "no-content-range", "long-body", "few-bytes", "gzip"}
)
_GZIP_LIMIT = 16 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Fault:
    """One kind of misbehaviour and where it strikes.

    A fault counts (``skip``, ``times``) only requests whose reply it can act on: a ranged kind waits for a 206 to a
    GET, a body kind for a file sent to a GET, "expired-link" for a good link to the CDN, "changed-etag" for a file or
    a redirect to one.

    Attributes
    ----------
    kind : str
        - "status": answer ``value`` (429, 503, 404, …) with an error body; see ``retry_after`` and ``error_code``
        - "short-body": close after ``value`` body bytes (default half), Content-Length unchanged
        - "ignore-range": 200 and the whole file
        - "shifted-range": another range, ``value`` bytes off (default 1), of the same length, with a truthful
          Content-Range; where the file has no room for it only the header is off
        - "wrong-total": Content-Range with a total ``value`` too large (default 1)
        - "no-content-range": 206 without it
        - "long-body": ``value`` bytes more than asked (default 16), Content-Length consistent with the body
        - "few-bytes": ``value`` bytes fewer than asked (default 1), Content-Length consistent with the body
        - "changed-etag": every matching reply carries other ETags (``skip=n``: from the n+1-th on)
        - "drop": close before any header
        - "slow": ``value`` body bytes a second (default 1000)
        - "stall": never answer; with ``value=n``, stop after n body bytes
        - "redirect-loop": 302 to the very same address
        - "redirect-host": 302 to the same path at ``value`` ("http://host:port"), default this origin by another name
        - "expired-link": 403, and so for every link to that file issued so far; a new resolve gives a good one
        - "garbage": ``value`` (bytes) in place of a response
        - "gzip": Content-Encoding: gzip on a ranged reply, body compressed
    match : str or re.Pattern
        Substring of, or pattern searched in, the path or the file's logical name "owner/name/path/in/repo".
    origin : {"hub", "cdn"} or None
        Where; None for both.
    times : int or None
        How often; None for ever.
    skip : int
        Leave that many matching requests alone first.
    value : object
        The kind's own quantity, see above.
    method : str or None
        Only requests of this method.
    fired : int
        How often it has struck so far.
    """

    kind: Kind
    match: str | re.Pattern[str] = ""
    origin: Literal["hub", "cdn"] | None = None
    times: int | None = 1
    skip: int = 0
    value: int | float | str | bytes | None = None
    method: str | None = None
    retry_after: float | None = None
    error_code: str | None = None
    fired: int = field(default=0, compare=False)
    seen: int = field(default=0, compare=False)

    def number(self, default: int) -> int:
        """Return ``value`` as a whole number."""
        return default if self.value is None else int(self.value)

    def hits(self, origin: str, method: str, path: str, file: str) -> bool:
        """Tell whether a request is of the kind meant, counts aside."""
        if self.origin not in (None, origin) or self.method not in (None, method):
            return False
        if isinstance(self.match, str):
            return self.match in path or self.match in file
        return self.match.search(path) is not None or self.match.search(file) is not None

    def applies(self, origin: str, method: str, reply: Reply) -> bool:
        """Tell whether there is anything for this kind to spoil in the proper reply."""
        bodily = self.kind in _BODY or self.kind in _RANGED or (self.kind == "stall" and self.value is not None)
        if bodily and method == "HEAD":
            return False
        if self.kind in _RANGED:
            return reply.status == 206 and reply.file is not None
        if bodily:
            return reply.file is not None
        if self.kind == "changed-etag":
            return reply.file is not None or "X-Linked-ETag" in reply.headers or reply.status == 412
        if self.kind == "expired-link":
            return origin == "cdn" and reply.status in (200, 206)
        return True


@dataclass(slots=True)
class Struck:
    """What a fault may need to know about the request it strikes."""

    request: Incoming
    origin: str
    url: str
    elsewhere: str
    again: Callable[[str], Reply]
    expire: Callable[[], Reply]


class FaultBook:
    """The faults in force; safe to change from another thread while the server runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Put a fault in force."""
        with self._lock:
            self._faults = [*self._faults, fault]

    def clear(self) -> None:
        """Lift them all."""
        with self._lock:
            self._faults = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def spoil(self, reply: Reply, struck: Struck, path: str, file: str) -> Reply:
        """Apply every fault that strikes this request, in the order added."""
        for fault in self._faults:
            if not fault.hits(struck.origin, struck.request.method, path, file):
                continue
            if not fault.applies(struck.origin, struck.request.method, reply):
                continue
            with self._lock:
                fault.seen += 1
                if fault.seen <= fault.skip or (fault.times is not None and fault.fired >= fault.times):
                    continue
                fault.fired += 1
            reply = _KINDS[fault.kind](fault, reply, struck)
        return reply


def _status(fault: Fault, _reply: Reply, _struck: Struck) -> Reply:
    status = fault.number(503)
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if status == 429 or fault.retry_after is not None:
        wait = 1.0 if fault.retry_after is None else fault.retry_after
        headers["Retry-After"] = f"{wait:g}"
        if status == 429:
            headers["RateLimit"] = f'"resolvers";r=0;t={math.ceil(wait)}'
            headers["RateLimit-Policy"] = '"fixed window";"resolvers";q=3000;w=300'
    if fault.error_code is not None:
        headers["X-Error-Code"] = fault.error_code
    return Reply(status, headers, body=b'{"error":"injected fault"}')


def _short_body(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    reply.close_after = min(fault.number(reply.length // 2), reply.length - 1)
    return reply


def _file(reply: Reply) -> FileSlice:
    assert reply.file is not None
    return reply.file


def _total(reply: Reply) -> int:
    return int(reply.headers["Content-Range"].rpartition("/")[2])


def _ignore_range(_fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    size = _total(reply)
    headers = {name: value for name, value in reply.headers.items() if name != "Content-Range"}
    return Reply(200, headers, file=FileSlice(_file(reply).path, 0, size))


def _shifted_range(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    body, total, shift = _file(reply), _total(reply), fault.number(1)
    if body.offset + body.length + shift > total and body.offset >= shift:
        shift = -shift
    first = body.offset + shift
    reply.headers["Content-Range"] = f"bytes {first}-{first + body.length - 1}/{total}"
    if first >= 0 and first + body.length <= total:
        reply.file = FileSlice(body.path, first, body.length)
    return reply


def _wrong_total(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    total = _total(reply)
    span = reply.headers["Content-Range"].rpartition("/")[0]
    reply.headers["Content-Range"] = f"{span}/{total + fault.number(1)}"
    return reply


def _no_content_range(_fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    del reply.headers["Content-Range"]
    return reply


def _long_body(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    reply.tail = b"\x00" * fault.number(16)
    return reply


def _few_bytes(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    body = _file(reply)
    reply.file = FileSlice(body.path, body.offset, max(0, body.length - fault.number(1)))
    return reply


def _changed_etag(_fault: Fault, _reply: Reply, struck: Struck) -> Reply:
    # Answered anew rather than relabelled, so that If-Match and If-Range see the changed file too.
    return struck.again("changed")


def _drop(_fault: Fault, _reply: Reply, _struck: Struck) -> Reply:
    return Reply(0, raw=b"")


def _slow(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    reply.rate = float(fault.number(1000))
    return reply


def _stall(fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    reply.stall_after = -1 if fault.value is None else min(fault.number(0), reply.length - 1)
    return reply


def _redirect_loop(_fault: Fault, _reply: Reply, struck: Struck) -> Reply:
    return Reply(302, {"Location": struck.url + struck.request.target})


def _redirect_host(fault: Fault, _reply: Reply, struck: Struck) -> Reply:
    base = struck.elsewhere if fault.value is None else str(fault.value)
    return Reply(302, {"Location": base.rstrip("/") + struck.request.target})


def _expired_link(_fault: Fault, _reply: Reply, struck: Struck) -> Reply:
    return struck.expire()


def _garbage(fault: Fault, _reply: Reply, _struck: Struck) -> Reply:
    raw = fault.value if isinstance(fault.value, bytes) else b"SMTP ready \xff\xfe\r\n\r\n"
    return Reply(0, raw=raw)


def _gzip(_fault: Fault, reply: Reply, _struck: Struck) -> Reply:
    body = _file(reply)
    fd = os.open(body.path, os.O_RDONLY)
    try:
        plain = os.pread(fd, min(body.length, _GZIP_LIMIT), body.offset)
    finally:
        os.close(fd)
    return Reply(206, {**reply.headers, "Content-Encoding": "gzip"}, body=gzip.compress(plain, mtime=0))


_KINDS: dict[Kind, Callable[[Fault, Reply, Struck], Reply]] = {
    "status": _status,
    "short-body": _short_body,
    "ignore-range": _ignore_range,
    "shifted-range": _shifted_range,
    "wrong-total": _wrong_total,
    "no-content-range": _no_content_range,
    "long-body": _long_body,
    "few-bytes": _few_bytes,
    "changed-etag": _changed_etag,
    "drop": _drop,
    "slow": _slow,
    "stall": _stall,
    "redirect-loop": _redirect_loop,
    "redirect-host": _redirect_host,
    "expired-link": _expired_link,
    "garbage": _garbage,
    "gzip": _gzip,
}
