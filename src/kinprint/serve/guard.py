"""Stand before every request: which host is asked for, who asks and how often, how much they send; and the headers of every reply.

One layer of plain ASGI: what starlette offers for it makes two tasks for every request.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from kinprint.serve.options import Limits, ServeOptions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cache-control": b"no-store",
}
"""Of every reply that does not say otherwise."""

READS = frozenset({"GET", "HEAD", "OPTIONS"})
CLIENTS = 20_000  # that are remembered; whoever asked longest ago is forgotten


class _TooLarge(Exception):
    pass


class Buckets:
    """So many requests a minute for each client, and as many at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_s, self._clock = float(per_minute), per_minute / 60.0, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one; return 0, or the seconds until there is one."""
        now = self._clock()
        left, at = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_s)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._left[client] = (left - 1.0 if wait == 0.0 else left, now)
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return wait


class Guard:
    """The layer around the application."""

    def __init__(self, app: App, options: ServeOptions) -> None:
        limits: Limits = options.limits
        self._app, self._most = app, limits.body_bytes
        self._hosts = frozenset(host.lower() for host in options.hosts)
        self._reads, self._writes = Buckets(limits.reads_per_minute), Buckets(limits.writes_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets here
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        send = _with_headers(send)
        refused = self._refused(scope, headers)
        if refused is not None:
            await _refuse(send, *refused)
            return
        scope["client_name"] = client_name(scope)
        started = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, _counted(receive, self._most), sending)
        except _TooLarge:
            if not started:
                await _refuse(send, 413, self._too_large)

    @property
    def _too_large(self) -> str:
        return f"a request may have {self._most:,} bytes"

    def _refused(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | tuple[int, str, float] | None:
        """Return status and reason of a refusal."""
        host = headers.get(b"host", "")
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
        if name not in self._hosts and "*" not in self._hosts:
            # a stranger's page may reach this machine under a name of its own
            return 421, "this server is not asked for under this name"
        writes = scope["method"] not in READS
        if writes and _from_elsewhere(headers, host):
            return 403, "this request was made by a page of another site"
        length = headers.get(b"content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > self._most:
            return 413, self._too_large
        wait = (self._writes if writes else self._reads).take(client_name(scope))
        return (429, "too many requests", wait) if wait else None


def client_name(scope: Scope) -> str:
    """Return who asks: an address, of IPv6 the network that one household has."""
    found = str((scope.get("client") or ("unknown", 0))[0])
    try:
        address = ipaddress.ip_address(found)
    except ValueError:
        return found
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return found


def _from_elsewhere(headers: dict[bytes, str], host: str) -> bool:
    """Whether a browser says that another site's page made this request; programs say nothing, and have no rights to borrow."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get(b"origin")
    return origin is not None and origin.partition("://")[2].lower() != host.lower()


def _counted(receive: Receive, most: int) -> Receive:
    seen = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _TooLarge
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {key.lower() for key, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(item for item in HEADERS.items() if item[0] not in own)]
        await send(message)

    return sending


async def _refuse(send: Send, status: int, said: str, wait_s: float = 0.0) -> None:
    body = orjson.dumps({"error": {"class": "Refused", "message": said, "hint": None}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if wait_s:
        headers.append((b"retry-after", str(int(wait_s) + 1).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
