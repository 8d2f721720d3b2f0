"""Connections that are opened before there is a request for them: the next one uses them, if it may go there and they are alive."""

import socket
import time

import pytest
from urllib3.util import wait_for_read

from kinprint.formats.checkpoint import open_checkpoint
from kinprint.sources import http, private_network
from kinprint.sources.http import HttpClient, drain, origin_of
from kinprint.sources.http_connection import HttpConnections
from support.hub import HubServer

REPO = "owner/Small-Model"
HEADERS = {"User-Agent": "test"}


def until(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    assert true()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def ahead(request, session_for):
    """Open a connection ahead to a server, and wait for what a TLS server says first: the tickets of later sessions."""
    with HubServer(tls=request.param) as server:
        client = session_for(server, ca_file=str(server.ca_pem) if request.param else None)._client
        context = client._context() if request.param else None
        place, wire = origin_of(server.endpoint), HttpConnections(5.0, 5.0)
        wire.open_ahead(place, context, public=False)
        ((link,),) = wire._idle.values()
        if request.param:
            until(lambda: wait_for_read(link.sock, timeout=0.0))
        yield server, link, lambda: wire.get(place, "/api/models/none", HEADERS, context)
        wire.close()


def test_the_next_request_uses_it(ahead):
    server, link, get = ahead
    for _ in range(2):
        reply = get()
        assert reply._link is link
        drain(reply)
    assert server.stats()["connections"]["hub"] == 1


def test_one_that_the_server_gave_up_is_not_used(ahead):
    server, link, get = ahead
    until(lambda: len(server._origins["hub"].connections) == 1)
    (theirs,) = server._origins["hub"].connections
    server._loop.call_soon_threadsafe(theirs.abort)
    until(lambda: not server._origins["hub"].connections)
    reply = get()
    assert reply._link is not link
    assert link.sock.fileno() == -1
    assert reply.status == 401
    reply.close()


def test_where_the_first_shard_leads_the_others_are_awaited(hub, session_for, monkeypatch):
    reached = []
    monkeypatch.setattr(HttpClient, "reach", lambda _, url, count, *, begun_at: reached.append((url, count, begun_at)))
    open_checkpoint(REPO, session_for(hub))
    (described, one, _), (target, count, begun_at) = reached
    assert described.startswith(f"{hub.endpoint}/api/models/")
    assert (one, count) == (1, 2)  # for the look-up beside the index; for two shards
    assert target.startswith(hub.cdn)
    assert begun_at.startswith(f"{hub.endpoint}/{REPO}/resolve/")


def test_what_cannot_be_reached_ahead_is_told_by_the_request_alone(hub, session_for):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    client = session_for(hub)._client
    client.reach(nowhere, 3, begun_at=nowhere)
    with pytest.raises(http.TryAgain, match="NewConnectionError"):
        client.send(nowhere, begun_at=nowhere)


def test_a_redirect_into_the_network_is_not_reached_either(web, session_for, monkeypatch):
    real, connected = socket.getaddrinfo, []
    public = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *at, **how: public if host == "p.test" else real(host, *at, **how)
    )
    monkeypatch.setattr(private_network, "create_connection", lambda *args, **_: connected.append(args))
    client = session_for()._client
    client._open_ahead(origin_of(web.url), "http://p.test/x")
    assert connected == []
    assert not client._connections._idle


def test_behind_a_proxy_nothing_is_reached_directly(web, session_for, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = session_for()._client
    client.reach("http://models.test/x", 5, begun_at="http://models.test/x")
    assert client._openers.threads == 0
