"""Each fault of the local hub does what it says, to the requests it is meant for and no others."""

import gzip
import http.client
import re
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest

from support.hub import Fault, HubServer
from support.layouts import write_checkpoint

REPO = "owner/model"
WEIGHTS = "model.safetensors"


@pytest.fixture
def content(tmp_path):
    weights = np.random.default_rng(5).standard_normal((64, 32)).astype(np.float32)
    (path,) = write_checkpoint(tmp_path / "repo", {"w": weights}, {"model_type": "llama"})
    return path.read_bytes()


@pytest.fixture
def hub(content, tmp_path):
    with HubServer() as server:
        server.add_repo(REPO, tmp_path / "repo")
        yield server


def fetch(url, method="GET", timeout=5, **headers):
    """One request, no redirects followed: (status, headers, body)."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=timeout)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{where.path}?{where.query}", headers=names)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def link(hub):
    return fetch(f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}")[1]["Location"]


def ranged(hub, first=100, last=199, **headers):
    return fetch(link(hub), Range=f"bytes={first}-{last}", **headers)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503, 504])
def test_status(hub, content, status):
    fault = hub.add_fault(Fault(kind="status", value=status, origin="cdn", times=2))
    assert [ranged(hub)[0] for _ in range(3)] == [status, status, 206]
    assert fault.fired == 2
    assert [entry.status for entry in hub.requests if entry.origin == "cdn"] == [status, status, 206]


def test_too_many_requests_says_when_to_return(hub):
    hub.add_fault(Fault(kind="status", value=429, retry_after=3))
    headers = fetch(f"{hub.endpoint}/api/models/{REPO}")[1]
    assert headers["Retry-After"] == "3"
    assert headers["RateLimit"] == '"resolvers";r=0;t=3'


def test_skip_match_method_and_clear(hub):
    hub.add_fault(Fault(kind="status", value=500, match=re.compile(r"model\.safe"), origin="cdn", skip=1, times=None))
    assert [ranged(hub)[0] for _ in range(3)] == [206, 500, 500]
    assert fetch(f"{hub.endpoint}/{REPO}/resolve/main/config.json")[0] == 200
    hub.clear_faults()
    assert ranged(hub)[0] == 206
    hub.add_fault(Fault(kind="status", value=500, method="HEAD", times=None))
    assert (ranged(hub)[0], fetch(link(hub), "HEAD")[0]) == (206, 500)


def test_body_faults_wait_for_a_body(hub):
    fault = hub.add_fault(Fault(kind="short-body", match=WEIGHTS))
    address = link(hub)
    fetch(address, "HEAD")
    assert fault.fired == 0
    with pytest.raises(http.client.IncompleteRead):
        fetch(address)
    assert fault.fired == 1


@pytest.mark.parametrize("value", [None, 0, 30])
def test_short_body(hub, content, value):
    hub.add_fault(Fault(kind="short-body", value=value))
    with pytest.raises(http.client.IncompleteRead) as cut:
        ranged(hub)
    sent = 50 if value is None else value
    assert cut.value.partial == content[100 : 100 + sent]
    assert cut.value.expected == 100 - sent
    assert hub.requests[-1].body_bytes == sent


def test_ignore_range(hub, content):
    hub.add_fault(Fault(kind="ignore-range"))
    status, headers, body = ranged(hub)
    assert (status, body) == (200, content)
    assert "Content-Range" not in headers


@pytest.mark.parametrize(("first", "last", "moved"), [(100, 199, 8), (-100, -1, -8)])
def test_shifted_range(hub, content, first, last, moved):
    first, last = first % len(content), last % len(content)
    hub.add_fault(Fault(kind="shifted-range", value=8))
    status, headers, body = ranged(hub, first, last)
    assert (status, body) == (206, content[first + moved : last + moved + 1])
    assert headers["Content-Range"] == f"bytes {first + moved}-{last + moved}/{len(content)}"


def test_content_range_faults(hub, content):
    hub.add_fault(Fault(kind="wrong-total", value=5))
    assert ranged(hub)[1]["Content-Range"] == f"bytes 100-199/{len(content) + 5}"
    hub.add_fault(Fault(kind="no-content-range"))
    status, headers, body = ranged(hub)
    assert (status, body) == (206, content[100:200])
    assert "Content-Range" not in headers


@pytest.mark.parametrize(("kind", "expected"), [("long-body", 116), ("few-bytes", 99)])
def test_wrong_length_with_a_consistent_header(hub, content, kind, expected):
    hub.add_fault(Fault(kind=kind))
    status, headers, body = ranged(hub)
    assert (status, len(body), headers["Content-Length"]) == (206, expected, str(expected))
    assert body[:99] == content[100:199]
    assert headers["Content-Range"] == f"bytes 100-199/{len(content)}"


def test_changed_etag(hub):
    hub.add_fault(Fault(kind="changed-etag", origin="cdn", skip=2, times=None))
    etags = [ranged(hub)[1]["ETag"] for _ in range(4)]
    assert etags[0] == etags[1] != etags[2] == etags[3]
    assert ranged(hub, If_Match=etags[0])[0] == 412
    assert ranged(hub, If_Match=etags[3])[0] == 206
    assert ranged(hub, If_Range=etags[0])[0] == 200


def test_changed_etag_on_the_hub(hub):
    url = f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}"
    before = fetch(url, "HEAD")[1]["X-Linked-ETag"]
    hub.add_fault(Fault(kind="changed-etag", origin="hub"))
    after = fetch(url, "HEAD")[1]["X-Linked-ETag"]
    assert before != after
    assert len(before) == len(after)


def test_drop_and_garbage(hub):
    hub.add_fault(Fault(kind="drop", origin="cdn"))
    with pytest.raises(http.client.RemoteDisconnected):
        ranged(hub)
    hub.add_fault(Fault(kind="garbage", origin="cdn"))
    with pytest.raises(http.client.BadStatusLine):
        ranged(hub)
    assert [entry.status for entry in hub.requests if entry.origin == "cdn"] == [0, 0]
    assert ranged(hub)[0] == 206


def test_slow(hub, content, delays):
    hub.add_fault(Fault(kind="slow", value=500))
    assert ranged(hub)[2] == content[100:200]
    assert delays == [0.02] * 9  # ten pieces of ten bytes


def test_stall_and_shutdown(content, tmp_path):
    with HubServer() as hub:
        hub.add_repo(REPO, tmp_path / "repo")
        hub.add_fault(Fault(kind="stall", origin="cdn"))
        address = link(hub)
        with pytest.raises(TimeoutError):
            fetch(address, timeout=0.2)
        hub.add_fault(Fault(kind="stall", origin="cdn", value=10))
        where = urlsplit(address)
        connection = http.client.HTTPConnection(where.netloc, timeout=0.3)
        connection.request("GET", f"{where.path}?{where.query}")
        reply = connection.getresponse()
        assert reply.read(10) == content[:10]
        with pytest.raises(TimeoutError):
            reply.read(1)
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where.hostname, where.port), timeout=1)


def test_redirects(hub):
    url = f"{hub.endpoint}/{REPO}/resolve/main/{WEIGHTS}"
    hub.add_fault(Fault(kind="redirect-loop", origin="hub", times=2))
    for _ in range(2):
        status, headers, _ = fetch(url)
        assert (status, headers["Location"].rstrip("?")) == (302, url)
    hub.add_fault(Fault(kind="redirect-host", origin="hub"))
    status, headers, _ = fetch(url, Authorization="Bearer hf_secret")
    assert (status, urlsplit(headers["Location"]).hostname) == (302, "localhost")
    assert fetch(headers["Location"])[0] == 302
    assert [(entry.host.split(":")[0], entry.authorization) for entry in hub.requests[-2:]] == [
        ("127.0.0.1", True),
        ("localhost", False),
    ]
    hub.add_fault(Fault(kind="redirect-host", origin="hub", value="http://elsewhere.invalid"))
    assert fetch(url)[1]["Location"].startswith("http://elsewhere.invalid/owner/model/resolve/")


def test_expired_link(hub):
    old, older = link(hub), link(hub)
    hub.add_fault(Fault(kind="expired-link", match=WEIGHTS))
    assert [fetch(address)[0] for address in (old, old, older)] == [403, 403, 403]
    assert ranged(hub)[0] == 206


def test_gzip(hub, content):
    hub.add_fault(Fault(kind="gzip"))
    status, headers, body = ranged(hub)
    assert (status, headers["Content-Encoding"]) == (206, "gzip")
    assert gzip.decompress(body) == content[100:200]
    assert headers["Content-Range"] == f"bytes 100-199/{len(content)}"


def test_a_failure_of_the_server_is_reported(content, tmp_path):
    server = HubServer()
    server.start()
    server.add_repo(REPO, tmp_path / "repo")
    server.add_fault(Fault(kind="status", value="not a number"))
    with pytest.raises(http.client.RemoteDisconnected):
        fetch(f"{server.endpoint}/{REPO}/resolve/main/config.json")
    with pytest.raises(RuntimeError, match="ValueError"):
        server.__exit__(None, None, None)


def test_a_file_that_vanishes_is_reported(content, tmp_path):
    server = HubServer()
    server.start()
    server.add_repo(REPO, tmp_path / "repo")
    (tmp_path / "repo" / WEIGHTS).unlink()
    with pytest.raises(http.client.RemoteDisconnected):
        ranged(server)
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        server.__exit__(None, None, None)
