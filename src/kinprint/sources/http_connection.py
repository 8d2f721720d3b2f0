"""Send GET requests without a body over kept HTTP/1.1 connections, and read the replies.

urllib3 opens the connections, with its timeouts and its checks of certificates and names. What goes over them is written
and read here: its own way through pools, retries and e-mail headers takes more than half of a small range's CPU time, and the
interpreter lock makes all threads pay for it.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, Protocol

from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ProtocolError, SSLError
from urllib3.util import wait_for_read

from kinprint.sources.private_network import PublicConnection, PublicTlsConnection

DEFAULT_PORTS = {"http": 80, "https": 443}
_HEAD_CAP = 65_536
_RECEIVE = 65_536
_INTERIM_CAP = 8
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_END = re.compile(rb"\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_CHUNK_LINE_CAP = 4096
_TRAILER_CAP = 64
_HEADER_CAP = 256
_IDLE_CAP = 256  # connections kept in all: a hub may lead every file to another host
FAIR_PACE = 16_384  # bytes of a body that buy a second
_PLAIN_HOST = re.compile(r"[0-9a-z.-]+")
_PLAIN_TARGET = re.compile(r"/[0-9A-Za-z._~!$&'()*+,;=:@/%-]*(?:\?[0-9A-Za-z._~!$&'()*+,;=:@/?%-]*)?")


class Nonsense(ProtocolError):
    """A reply that contradicts itself: no later attempt will change what the server is."""


class Due:
    """The time that a request has, over all attempts and hops. What comes of a body at a fair pace buys more of it."""

    def __init__(self, seconds: float = 90.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._end = clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left; none or less if the time is over."""
        return self._end - self._clock()

    def within(self, timeout_s: float) -> float:
        """Return a timeout that ends no later than the time there is; ProtocolError if that is over."""
        if (left := self.left_s) <= 0.0:
            raise ProtocolError(self.over)
        return min(timeout_s, left)

    def extend(self, seconds: float) -> None:
        """Add time that was not the server's."""
        self._end += seconds

    @property
    def over(self) -> str:
        """The sentence for a request whose time is over."""
        return f"the {self.seconds:g} s for one request are over"

    def came(self, count: int) -> None:
        """Add time for bytes of a body: long ranges over slow lines may take what they need."""
        self._end += count / FAIR_PACE


class Response(Protocol):
    """The part of a reply that is used, whether read here or by urllib3."""

    status: int
    headers: HTTPHeaderDict

    def read1(self, amt: int, /) -> bytes:
        """Return what has come of the body, at most so much; nothing at its end."""

    def close(self) -> None:
        """Give the connection up."""


class ServerAddress(NamedTuple):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @property
    def server(self) -> str:
        """Host and port, which is how settings name a server."""
        return f"{self.host}:{self.port}"

    @property
    def header(self) -> str:
        """The value of the Host header."""
        return self.host if self.port == DEFAULT_PORTS.get(self.scheme) else self.server


def is_plain(place: ServerAddress, target: str) -> bool:
    """Whether host and target can be sent as they are, without any encoding."""
    return bool(_PLAIN_HOST.fullmatch(place.host) and _PLAIN_TARGET.fullmatch(target))


@contextmanager
def _closing_on_failure(connection: HTTPConnection | socket.socket) -> Iterator[None]:
    """Close a connection on any failure, and raise errors of the operating system as those of urllib3."""
    try:
        yield
    except BaseException as error:
        connection.close()
        if isinstance(error, ssl.SSLError):
            raise SSLError(error) from error
        if isinstance(error, OSError):
            raise ProtocolError(f"the connection broke: {error}") from error
        raise


class _Link:
    """An open connection, and bytes that were received and not asked for yet."""

    def __init__(
        self, kept_as: tuple[ServerAddress, bool], connection: HTTPConnection, timeout_s: float, due: Due
    ) -> None:
        with _closing_on_failure(connection):
            connection.connect()
        assert connection.sock is not None
        self.kept_as = kept_as  # its server, and whether it was made sure to be a public one
        self.sock = connection.sock
        self.due = due  # of the request that it serves now
        self.timeout_s = timeout_s
        self.patience_s = 2.0 * timeout_s  # for a head or the line before a chunk, however it trickles in
        self.rest = b""

    def take(self, amount: int) -> bytes:
        """Return at most `amount` bytes: of those left over, else the next to come; none if the server has closed."""
        if not self.rest:
            return self._receive(min(amount, 1 << 20))
        data, self.rest = self.rest[:amount], self.rest[amount:]
        return data

    def _receive(self, amount: int) -> bytes:
        self.sock.settimeout(self.due.within(self.timeout_s))
        return self.sock.recv(amount)

    def line(self) -> bytes:
        """Receive a line of a chunked body."""
        end = self.until(_LINE_END, _CHUNK_LINE_CAP).end()
        line, self.rest = self.rest[:end], self.rest[end:]
        return line

    def until(self, end: re.Pattern[bytes], cap: int) -> re.Match[bytes]:
        """Receive until what is left over contains `end`, or raise."""
        seen = 0
        deadline = time.monotonic() + self.patience_s
        while (found := end.search(self.rest, max(0, seen - 4))) is None:
            seen = len(self.rest)
            if len(self.rest) > cap:
                raise ProtocolError(f"more than {cap} bytes of reply, and no end of the headers")
            more = self._receive(_RECEIVE)
            if time.monotonic() > deadline:
                raise ProtocolError(f"the headers of a reply took more than {self.patience_s:g} s")
            if not more:
                said = f"the server closed the connection after {len(self.rest)} bytes of a reply's headers"
                raise ProtocolError(said)
            self.rest += more
            if not self.rest.startswith(b"HTTP/1."[: len(self.rest)]) and end is _HEAD_END:
                raise ProtocolError("the reply is not HTTP")
        return found


def _is_silent(sock: socket.socket) -> bool:
    """Whether nothing has come over a connection that is not in use; TLS servers send tickets for later ones, which are nothing."""
    if not wait_for_read(sock, timeout=0.0):
        return True
    if not isinstance(sock, ssl.SSLSocket):
        return False
    sock.settimeout(0.0)
    try:
        sock.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        pass
    return False


class HttpConnections:
    """Connections, kept by the server they lead to, for several threads."""

    def __init__(self, connect_timeout_s: float, read_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._idle: dict[tuple[ServerAddress, bool], list[_Link]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(
        self,
        place: ServerAddress,
        target: str,
        headers: dict[str, str],
        context: ssl.SSLContext | None,
        due: Due | None = None,
        *,
        public: bool = False,
    ) -> Response:
        """Ask for `target`, which `is_plain`, in the time that is `due`, and return the reply, body unread.

        Raises urllib3's exceptions; and PrivateHost if only a `public` server may be asked, and this is none.
        """
        lines = [f"GET {target} HTTP/1.1", f"Host: {place.header}", *(f"{k}: {v}" for k, v in headers.items())]
        request = "\r\n".join([*lines, "\r\n"]).encode("ascii")
        due = due or Due()
        link = self._reusable((place, public)) or self._connect(place, context, due, public=public)
        link.due = due
        with _closing_on_failure(link.sock):
            link.sock.settimeout(due.within(self._read_timeout_s))
            link.sock.sendall(request)
            return self._read_head(link)

    def open_ahead(self, place: ServerAddress, context: ssl.SSLContext | None, *, public: bool) -> None:
        """Open one more connection, and keep it for whoever asks next. Raises as `get` does."""
        self.release(self._connect(place, context, Due(), public=public))

    def _connect(self, place: ServerAddress, context: ssl.SSLContext | None, due: Due, *, public: bool) -> _Link:
        timeout_s = due.within(self._connect_timeout_s)
        plain, secure = (PublicConnection, PublicTlsConnection) if public else (HTTPConnection, HTTPSConnection)
        if context is None:
            connection = plain(place.host, place.port, timeout=timeout_s)
        else:
            connection = secure(place.host, place.port, timeout=timeout_s, ssl_context=context)
        return _Link((place, public), connection, self._read_timeout_s, due)

    def release(self, link: _Link) -> None:
        """Keep a connection whose reply has been read to its end."""
        with self._lock:
            if not self._closed and sum(map(len, self._idle.values())) < _IDLE_CAP:
                self._idle.setdefault(link.kept_as, []).append(link)
                return
        link.sock.close()

    def close(self) -> None:
        """Close all idle connections, and those in use as they become idle."""
        with self._lock:
            self._closed = True
            for link in chain.from_iterable(self._idle.values()):
                link.sock.close()
            self._idle.clear()

    def _reusable(self, kept_as: tuple[ServerAddress, bool]) -> _Link | None:
        while True:
            with self._lock:
                idle = self._idle.get(kept_as)
                if not idle:
                    return None
                link = idle.pop()
            if _is_silent(link.sock):
                return link
            link.sock.close()  # nothing was asked, so whatever came is an end or not to be believed

    def _read_head(self, link: _Link) -> Response:
        for _ in range(_INTERIM_CAP):
            end = link.until(_HEAD_END, _HEAD_CAP)
            head, link.rest = link.rest[: end.start()].decode("latin-1"), link.rest[end.end() :]
            first, *lines = re.sub(r"\n[ \t]+", " ", head.replace("\r\n", "\n")).split("\n")
            found = _STATUS.fullmatch(first)
            if found is None:
                raise ProtocolError(f"the reply begins with {first[:80]!r}, not with a status")
            if found[2][0] != "1" or found[2] == "101":  # else an interim reply: the real one follows
                break
        else:
            raise ProtocolError(f"{_INTERIM_CAP} interim replies, and no final one")
        if len(lines) > _HEADER_CAP:
            raise ProtocolError(f"the reply has {len(lines)} headers")
        headers = HTTPHeaderDict()
        for line in lines:
            name, mark, value = line.partition(":")
            if not mark or not _HEADER_NAME.fullmatch(name) or "\r" in value or "\0" in value:
                raise ProtocolError(f"the reply has the header line {line[:80]!r}")
            headers.add(name, value.strip(" \t"))
        wish = headers.get("Connection", "").lower()
        keep = "close" not in wish and (found[1] == "1" or "keep-alive" in wish)
        return _Reply(self, link, int(found[2]), headers, keep=keep)


def stated_length(status: int, headers: HTTPHeaderDict) -> int | None:
    """Return the length of the body, None if only its end will tell."""
    if status in (204, 304):
        return 0
    if "Content-Length" not in headers:
        return None
    stated = {text.strip() for text in headers["Content-Length"].split(",")}
    if len(stated) > 1:
        raise Nonsense(f"the reply has more than one Content-Length: {headers['Content-Length'][:80]!r}")
    text = stated.pop()
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise Nonsense(f"the reply has the Content-Length {text[:80]!r}")
    return int(text)


def decoded(reply: Response) -> Response:
    """Return the reply such that a compressed body is read decompressed, as replies of urllib3 are already."""
    if not isinstance(reply, _Reply) or reply.headers.get("Content-Encoding", "identity").lower() == "identity":
        return reply
    body: Any = reply  # which reads as a file does, as far as urllib3's decoders ask
    return HTTPResponse(body=body, headers=reply.headers, status=reply.status, preload_content=False)


class _Reply:
    """A reply whose head has been read."""

    def __init__(
        self, connections: HttpConnections, link: _Link, status: int, headers: HTTPHeaderDict, *, keep: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self._connections = connections
        self._link: _Link | None = link
        # two statements of length may be read two ways, so nothing follows on such a connection
        self._keep = keep and not ("Transfer-Encoding" in headers and "Content-Length" in headers)
        encoding = headers.get("Transfer-Encoding", "").strip().lower().removeprefix("identity")
        if encoding not in ("", "chunked"):
            raise ProtocolError(f"the reply is sent in the encoding {encoding[:80]!r}: expected none, or chunks")
        self._chunked = encoding == "chunked"
        # How much is still to come of the body, or of the current chunk; None until the connection ends.
        self._left: int | None = 0 if self._chunked else stated_length(status, headers)
        if self._left == 0 and not self._chunked:
            self._end()

    def read1(self, amt: int, /) -> bytes:
        """Return what has come of the body, at most so much; nothing at its end."""
        link = self._link
        if link is None:
            return b""
        if self._chunked and self._left == 0 and not self._next_chunk(link):
            return b""
        data = link.take(amt if self._left is None else min(amt, self._left))
        if not data:  # the server has closed; whether too early, the caller can tell
            if self._chunked:
                raise ProtocolError("the connection ended within a chunk")
            self.close()
        elif self._left is not None:
            self._left -= len(data)
            if self._chunked and self._left == 0:
                if link.line() not in (b"\n", b"\r\n"):
                    raise ProtocolError("a chunk is longer than it says")
            elif self._left == 0:
                self._end()
        return data

    read = read1

    @property
    def closed(self) -> bool:
        """Whether nothing more can be read."""
        return self._link is None

    def close(self) -> None:
        """Give the connection up."""
        link, self._link = self._link, None
        if link is not None:
            link.sock.close()

    def _end(self) -> None:
        """Hand back the connection, unless it is to be closed or the server sent more than it declared."""
        link = self._link
        # TLS may have decrypted bytes that nobody asked for, which the socket does not show
        more = link is not None and isinstance(link.sock, ssl.SSLSocket) and link.sock.pending() > 0
        if link is None or not self._keep or link.rest or more:
            self.close()
            return
        self._link = None
        self._connections.release(link)

    def _next_chunk(self, link: _Link) -> bool:
        """Read the line before a chunk; after the last one also the trailers."""
        line = link.line()
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise ProtocolError(f"a chunk begins with {line[:80]!r}")
        self._left = int(size[1], 16)
        if self._left:
            return True
        for _ in range(_TRAILER_CAP):
            if link.line() in (b"\n", b"\r\n"):
                self._end()
                return False
        raise ProtocolError(f"more than {_TRAILER_CAP} trailers after the last chunk")
