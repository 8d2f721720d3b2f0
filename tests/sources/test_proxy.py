"""Proxies named in the environment, as every other tool takes them."""

import threading
import traceback

import pytest

from kinprint.errors import KinprintError, TransferError
from kinprint.refs import ByteRange

WEIGHTS = "model-00001-of-00002.safetensors"


def read(session, url):
    buffer = bytearray(100)
    session.open_folder(url).open(WEIGHTS).read_into(ByteRange(0, 100), memoryview(buffer))
    return bytes(buffer)


@pytest.fixture
def proxy(web, model_folder):
    """Let the plain server stand in for a proxy: it is asked for whole addresses."""
    web.credentials = []

    def spoil(request):
        web.credentials.append(request.headers.get("Proxy-Authorization"))
        request.path = "/" + request.path.rpartition("/")[2]
        return False

    web.spoil = spoil
    return web


def test_proxy_is_used(proxy, session_for, monkeypatch, model_folder):
    monkeypatch.setenv("http_proxy", proxy.url)
    assert read(session_for(), "http://models.test/folder") == (model_folder / WEIGHTS).read_bytes()[:100]
    assert proxy.log == [(f"http://models.test/folder/{WEIGHTS}", "bytes=0-99")]
    assert proxy.credentials == [None]


def test_proxy_without_scheme_and_with_credentials(proxy, session_for, monkeypatch):
    monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "us%40er:pass@"))
    read(session_for(), "http://models.test/folder")
    assert proxy.credentials == ["Basic dXNAZXI6cGFzcw=="]


def test_no_proxy(proxy, session_for, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    proxy.spoil = None
    assert len(read(session_for(), proxy.url)) == 100


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("gopher://user:verysecret@127.0.0.1:9", "ProxySchemeUnknown"),
        ("http://user:verysecret@127.0.0.1:99999", "LocationParseError"),
        ("http://user:verysecret@[::1", "ValueError"),
    ],
)
def test_unusable_proxy_is_not_tried_twice(session_for, monkeypatch, proxy, words):
    monkeypatch.setenv("http_proxy", proxy)
    session = session_for()
    with pytest.raises(TransferError, match=rf"cannot be asked for: {words}") as caught:
        read(session, "http://models.test/folder")
    assert "HTTP_PROXY" in caught.value.hint
    assert session.traffic.retries == 0
    assert "verysecret" not in "".join(traceback.format_exception(caught.value))


def test_dead_proxy_is_named_without_its_password(session_for, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:verysecret@127.0.0.1:9")
    with pytest.raises(TransferError, match=r"ProxyError: .*proxy") as caught:
        read(session_for(attempts=1), "http://models.test/folder")
    assert "verysecret" not in str(caught.value)


LONG = b"HTTP/1.1 404 Not Found\r\nContent-Length: 60000\r\n\r\n"
DRIPS = {
    "head": (b"HTTP/1.1 404 No\r\nA: ", b"x"),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (LONG, b"x"),
}


@pytest.mark.parametrize(("first", "then"), DRIPS.values(), ids=DRIPS)
def test_what_drips_through_a_proxy_has_an_end(proxy, session_for, monkeypatch, first, then):
    """Each read ends in time; without an end of its own the whole would take as long as the server likes."""
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setattr("kinprint.sources.http._DRAIN_S", 0.2)
    sent, over = [], threading.Event()

    def drip(request):
        request.wfile.write(first)
        while not over.wait(0.05) and len(sent) < 200:
            request.wfile.write(then)
            request.wfile.flush()
            sent.append(then)
        request.close_connection = True
        return True

    proxy.spoil = drip
    with pytest.raises(KinprintError):
        read(session_for(attempts=1, read_timeout_s=0.4), "http://models.test/folder")
    over.set()
    assert len(sent) < 200


@pytest.mark.parametrize("length", ["-1", "abc", "1e3", "5, 6", "9" * 23])
def test_a_length_that_makes_no_sense_ends_it_at_once_through_a_proxy_too(proxy, session_for, monkeypatch, length):
    monkeypatch.setenv("http_proxy", proxy.url)

    def absurd(request):
        request.wfile.write(f"HTTP/1.1 206 Partial\r\nContent-Length: {length}\r\n\r\nhello".encode())
        request.close_connection = True
        return True

    proxy.spoil = absurd
    with pytest.raises(TransferError, match="the server breaks the protocol"):
        read(session_for(attempts=3), "http://models.test/folder")
    assert len(proxy.log) == 1


def test_the_body_of_a_redirect_that_drips_is_left_when_the_time_is_over(proxy, session_for, monkeypatch):
    monkeypatch.setenv("http_proxy", proxy.url)
    sent, over = [], threading.Event()

    def drip(request):
        request.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 60000\r\n\r\n")
        while not over.wait(0.05) and len(sent) < 90:
            request.wfile.write(b"x")
            request.wfile.flush()
            sent.append(b"x")
        request.close_connection = True
        return True

    proxy.spoil = drip
    with pytest.raises(TransferError) as caught:
        read(session_for(attempts=3, deadline_s=0.3), "http://models.test/folder")
    over.set()
    assert len(sent) < 90  # which would take most of the five seconds that other bodies have
    assert str(caught.value).count("for one request are over") == 1
