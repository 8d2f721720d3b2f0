"""Replies byte by byte: framing, reuse of connections, and everything that is no HTTP/1.1."""

import socket
import threading
import zlib
from contextlib import suppress
from types import SimpleNamespace

import pytest
from urllib3.exceptions import NewConnectionError, ProtocolError

from kinprint.sources.http import drain
from kinprint.sources.http_connection import (
    FAIR_PACE,
    Due,
    HttpConnections,
    ServerAddress,
    decoded,
    is_plain,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Scripted:
    """A server that answers the n-th request with the n-th script: pieces to send, None to hang up."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.connections = 0
        self.asked = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = ServerAddress("http", "127.0.0.1", self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with link, suppress(ConnectionError):  # a client may hang up in the middle of a reply
                self._converse(link)

    def _converse(self, link):
        while self.scripts:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                more = link.recv(4096)
                if not more:
                    return
                request += more
            self.asked.append(request)
            for piece in self.scripts.pop(0):
                if piece is None:
                    return
                link.sendall(piece)

    def close(self):
        self._listening.close()


@pytest.fixture
def ask():
    """Build a server of scripts, and a function that asks it over one wire."""
    servers, wire = [], HttpConnections(5.0, 5.0)

    def build(*scripts):
        servers.append(Scripted(*scripts))
        return servers[-1], lambda: wire.get(servers[-1].place, "/a?b=c", {"Range": "bytes=0-4"}, None)

    yield build
    wire.close()
    for server in servers:
        server.close()


def body(reply):
    data = b""
    while chunk := reply.read1(3):
        data += chunk
    return data


def test_request_and_reply(ask):
    server, get = ask([b"HTTP/1.1 206 Partial\r\nContent-Length:5 \r\nX-A: 1\r\nx-a:\t2\r\n\r\nhello"])
    reply = get()
    assert (reply.status, reply.headers["X-A"], reply.headers.get("x-none", "")) == (206, "1, 2", "")
    assert body(reply) == b"hello"
    place = f"127.0.0.1:{server.place.port}".encode()
    assert server.asked == [b"GET /a?b=c HTTP/1.1\r\nHost: " + place + b"\r\nRange: bytes=0-4\r\n\r\n"]


def test_usual_ports_are_not_named():
    hosts = [
        ServerAddress("http", "h", 80).header,
        ServerAddress("https", "h", 443).header,
        ServerAddress("https", "h", 80).header,
    ]
    assert hosts == ["h", "h", "h:80"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pieces_of_any_size(ask, size):
    whole = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nLong: a\r\n  b\r\nContent-Length: 5\r\n\r\nhello"
    _, get = ask([whole[at : at + size] for at in range(0, len(whole), size)])
    reply = get()
    assert (reply.headers["Long"], body(reply)) == ("a b", b"hello")


def test_bare_line_ends(ask):
    _, get = ask([b"HTTP/1.0 200\nContent-Length: 2\n\nhi"])
    assert body(get()) == b"hi"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
TWO_LENGTHS = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n")


@pytest.mark.parametrize("size", [1, 1000])
def test_chunks(ask, size):
    whole = CHUNKED + b"4;x=y\r\nhell\r\n001\r\no\r\n0\r\nTrailer: t\r\n\r\n"
    server, get = ask([whole[at : at + size] for at in range(0, len(whole), size)], [OK])
    assert body(get()) == b"hello"
    assert body(get()) == b"hello"
    assert server.connections == 1


def test_two_statements_of_length_end_the_connection(ask):
    server, get = ask([TWO_LENGTHS + b"5\r\nhello\r\n0\r\n\r\n"], [OK])
    assert body(get()) == b"hello"
    assert body(get()) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("encoding", [b"gzip", b"gzip, chunked", b"chunked, chunked", b"xchunked"])
def test_other_transfer_encodings_are_refused(ask, encoding):
    _, get = ask([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + encoding + b"\r\nContent-Length: 2\r\n\r\nhello", None])
    with pytest.raises(ProtocolError, match="encoding"):
        get()


def test_the_identity_encoding_is_none(ask):
    _, get = ask([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"])
    assert body(get()) == b"hello"


def test_trailers_without_end_are_refused(ask):
    _, get = ask([CHUNKED + b"0\r\n" + b"a: b\r\n" * 100 + b"\r\n"])
    reply = get()
    with pytest.raises(ProtocolError, match="trailers"):
        body(reply)
    reply.close()


def test_draining_gives_up_on_a_long_body(ask):
    long = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 900_000
    server, get = ask([long], [OK])
    drain(get())
    assert body(get()) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("rest", [b"zz\r\n", b"-1\r\n", b"3\r\nabcd\r\n", b"5\r\nab", b"2\r\nab\r\n", b"1" * 5000])
def test_broken_chunks(ask, rest):
    _, get = ask([CHUNKED + rest, None])
    reply = get()
    with pytest.raises(ProtocolError):
        body(reply)
    reply.close()


def test_connections_are_kept(ask):
    server, get = ask([OK], [b"HTTP/1.1 204 No Content\r\n\r\n"], [b"HTTP/1.1 304 Not\r\n\r\n"], [OK], [OK])
    assert [body(get()) for _ in range(3)] == [b"hello", b"", b""]
    drain(get())
    assert body(get()) == b"hello"
    assert server.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        [
            OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        ],  # more than declared must not answer the next request
        [OK, None],
        [OK.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), None],
        [OK.replace(b"1.1", b"1.0"), None],
        [b"HTTP/1.1 200 OK\r\n\r\nhello", None],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", None],  # too short: its reader will notice
    ],
)
def test_connections_are_not_kept(ask, first):
    server, get = ask(first, [OK])
    assert body(get()) == b"hello"
    if first[-1] is None:
        threading.Event().wait(0.05)  # for the end of the connection to arrive
    assert body(get()) == b"hello"
    assert server.connections == 2


def test_giving_up_a_body(ask):
    server, get = ask([OK[:-2]], [OK])
    reply = get()
    assert reply.read1(2) == b"he"
    reply.close()
    reply.close()
    assert reply.read1(2) == b""
    assert body(get()) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([None], "closed the connection after 0 bytes"),
        ([b"HTTP/1.1 200 OK\r\nA: b", None], "closed the connection after 21 bytes"),
        ([b"SSH-2.0-OpenSSH\r\n"], "not HTTP"),
        ([b"HTTP/2 200\r\n\r\n"], "not HTTP"),
        ([b"HTTP/1.1 2x0 OK\r\n\r\n"], "begins with"),
        ([b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], "header line 'no colon'"),
        ([b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n"], "header line"),
        ([b"HTTP/1.1 200 OK\r\nA: x\0y\r\n\r\n"], "header line"),
        ([b"HTTP/1.1 200 OK\r\nA: x\ry\r\n\r\n"], "header line"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"], "more than one Content-Length"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello"], "the Content-Length '-5'"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello"], "the Content-Length '0x5'"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello"], "the Content-Length ''"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"A: " + b"b" * 8000 + b"\r\n"] * 20], "no end of the headers"),
        ([b"HTTP/1.1 103 Early\r\n\r\n" * 9], "interim"),
    ],
)
def test_what_is_no_reply(ask, script, words):
    _, get = ask(script)
    with pytest.raises(ProtocolError, match=words):
        get()


def test_a_length_said_twice_is_one_length(ask):
    _, get = ask([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"])
    assert body(get()) == b"hello"


class Dripping:
    """A socket that gives one byte at a time, and a clock that goes on by a second with each."""

    def __init__(self, data):
        self.data, self.now, self.timeouts = data, 0.0, []

    def settimeout(self, seconds):
        self.timeouts.append(seconds)

    def recv(self, _amount):
        self.now += 1.0
        byte, self.data = self.data[:1], self.data[1:]
        return byte

    def sendall(self, _data):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nA: " + b"x" * 500, b"HTTP/1.1 100 Continue\r\n\r\n" * 8])
def test_headers_that_drip_end_with_the_deadline(monkeypatch, head):
    wire, dripping = HttpConnections(5.0, 30.0), Dripping(head)
    link = SimpleNamespace(sock=dripping, connect=lambda: None, close=lambda: None)
    monkeypatch.setattr("kinprint.sources.http_connection.HTTPConnection", lambda *_args, **_more: link)
    with pytest.raises(ProtocolError, match="the 90 s for one request are over"):
        wire.get(ServerAddress("http", "h", 80), "/", {}, None, Due(90.0, lambda: dripping.now))
    assert dripping.now == 90.0
    assert min(dripping.timeouts) == 1.0  # of the last second
    assert max(dripping.timeouts) == 30.0


def test_bytes_of_a_body_buy_time():
    now = [0.0]
    due = Due(90.0, lambda: now[0])
    due.came(10 * FAIR_PACE)
    assert due.left_s == 100.0
    now[0] = 100.0
    with pytest.raises(ProtocolError, match="are over"):
        due.within(5.0)


def test_silence_times_out():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wire = HttpConnections(5.0, 0.05)
        with pytest.raises(ProtocolError, match=r"timed out"):
            wire.get(ServerAddress("http", "127.0.0.1", silent.getsockname()[1]), "/", {}, None)
        wire.close()


def test_nobody_listens():
    with pytest.raises(NewConnectionError):
        HttpConnections(5.0, 5.0).get(ServerAddress("http", "127.0.0.1", 9), "/", {}, None)


def test_a_closed_wire_keeps_nothing(ask):
    wire = HttpConnections(5.0, 5.0)
    server, _ = ask([OK], [OK])
    reply = wire.get(server.place, "/", {}, None)
    wire.close()
    assert body(reply) == b"hello"
    assert body(wire.get(server.place, "/", {}, None)) == b"hello"
    assert server.connections == 2


def test_decoding(ask):
    packed = zlib.compress(b"hello" * 100)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(packed)}\r\nContent-Encoding: deflate\r\n\r\n".encode()
    server, get = ask([head + packed], [OK])
    assert body(decoded(get())) == b"hello" * 100
    assert body(decoded(get())) == b"hello"
    assert server.connections == 1


@pytest.mark.parametrize(
    ("host", "target", "plain"),
    [
        ("cdn.example-1.test", "/a/b%20c?X-Sig=a/b~c&d=%2B?", True),
        ("h", "/a b", False),
        ("h", "/a\r\nX: y", False),
        ("h", "/é", False),
        ("h", "/a?b#c", False),
        ("h", "*", False),
        ("h\n", "/", False),
        ("::1", "/", False),
        ("é.test", "/", False),
        ("", "/", False),
    ],
)
def test_what_is_sent_as_it_is(host, target, plain):
    assert is_plain(ServerAddress("http", host, 80), target) is plain
