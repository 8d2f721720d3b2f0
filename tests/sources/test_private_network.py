"""Servers of this machine's network: told apart, and not connected to where a stranger chose the address."""

import ipaddress
import socket

import pytest

from kinprint.errors import SourceError, TransferError
from kinprint.refs import ByteRange
from kinprint.sources import http, private_network
from kinprint.sources.private_network import is_private, kind_by_name, kind_of
from support.hub import HubServer

WEIGHTS = "model-00001-of-00002.safetensors"
NOBODY = frozenset()


def read(session, url):
    buffer = bytearray(100)
    session.open_folder(url).open(WEIGHTS).read_into(ByteRange(0, 100), memoryview(buffer))
    return bytes(buffer)


def names(monkeypatch, *answers):
    """Let every name that ends in .test stand for the next of these addresses, and return the log of look-ups."""
    real, log, left = socket.getaddrinfo, [], list(answers)

    def look_up(host, port, *args, **kwargs):
        if not str(host).endswith(".test"):
            return real(host, port, *args, **kwargs)
        log.append(host)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return log


@pytest.fixture
def others(model_folder, web):
    """Lead whoever asks the plain server to another name of it, which is another server to whoever follows."""

    def lead(target):
        def spoil(request):
            web.reply(request, 302, b"", Location=f"{target}{request.path}")
            return True

        web.spoil = spoil

    return lead


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("10.0.0.1", "private"),
        ("192.168.1.1", "private"),
        ("172.31.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("::127.0.0.1", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        ("240.0.0.1", "reserved"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("8.8.8.8", None),
        ("2606:4700::1111", None),
        ("64:ff9b::8.8.8.8", None),
        ("::ffff:8.8.8.8", None),
    ],
)
def test_kinds_of_addresses(address, kind):
    assert kind_of(ipaddress.ip_address(address)) == kind
    assert is_private(address) is (kind is not None)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "intranet",
        "printer.local",
        "x.internal",
        "127.1",
        "0x7f000001",
        "2130706433",
        "[::1]",
        "a.LAN.",
        "x.localdomain",
        "%31%32%37.0.0.1",
        "%3169.254.169.254",
        "foo.loca%6c",
        "1.1.1.1%2ecorp.internal",
        "[fe80::1%25eth0]",
    ],
)
def test_names_that_are_near_by_themselves(host):
    assert kind_by_name(host) is not None


@pytest.mark.parametrize("host", ["models.test", "8.8.8.8", "local.test", "134744072"])
def test_names_that_may_be_anywhere(host):
    assert kind_by_name(host) is None


# -- connections ----------------------------------------------------------------------------------------------------------


def test_a_redirect_into_the_network_is_not_followed(web, model_folder, others, session_for):
    port = web.url.rpartition(":")[2]
    others(f"http://localhost:{port}/inner")
    session = session_for(private_servers=frozenset({f"127.0.0.1:{port}"}))
    with pytest.raises(SourceError, match="expected a public server, got one in the network of this machine") as caught:
        read(session, web.url)
    said = caught.value.message
    assert f"{web.url}/{WEIGHTS} leads to http://localhost:{port}/inner/{WEIGHTS}" in said
    assert "localhost (loopback)" in said
    assert "--allow-local" in said
    assert [path for path, _ in web.log] == [f"/{WEIGHTS}"]
    assert session.traffic.retries == 0


@pytest.mark.parametrize("start", ["public.test", "8.8.8.8"])
def test_a_redirect_from_a_public_address_is_not_followed_in_any_command(web, others, session_for, monkeypatch, start):
    """Without any list of servers, as compare and inspect run: the user named a public server, and nothing near."""
    log = names(monkeypatch, ["93.184.216.34"])
    http._is_private.cache_clear()
    client = session_for()._client
    assert client._must_be_public(http.origin_of("http://127.0.0.1:80/x"), f"http://{start}/x")
    assert not client._must_be_public(http.origin_of(f"http://{start}/y"), f"http://{start}/x")
    assert not client._must_be_public(http.origin_of("http://127.0.0.1:81/x"), web.url)  # near to near
    with pytest.raises(SourceError, match=r"leads into the network of this machine \(loopback\); not followed"):
        client.send(f"{web.url}/x", begun_at=f"http://{start}/x")
    assert log == (["public.test"] if start == "public.test" else [])


def test_a_connection_made_for_the_user_is_not_lent_to_a_redirect(web, model_folder, session_for, monkeypatch):
    names(monkeypatch, ["93.184.216.34"])
    session = session_for()
    read(session, web.url)  # leaves an idle connection to a server of this network
    with pytest.raises(SourceError, match="not followed"):
        session._client.send(f"{web.url}/x", begun_at="http://public.test/x")


def test_a_redirect_is_followed_where_the_user_named_the_server(web, model_folder, others, session_for):
    port = web.url.rpartition(":")[2]
    others(f"http://localhost:{port}/inner")
    with pytest.raises(TransferError, match="more than 5 redirects"):
        read(session_for(), web.url)


@pytest.mark.parametrize("tail", ["", "?é"])  # sent by ourselves, and by urllib3
@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["192.0.2.1", "127.0.0.1"], ["8.8.8.8", "10.0.0.1"]])
def test_a_public_name_of_a_private_address(web, session_for, monkeypatch, addresses, tail):
    log = names(monkeypatch, addresses)
    connected = []
    monkeypatch.setattr(private_network, "create_connection", lambda *args, **_: connected.append(args))
    with pytest.raises(SourceError, match=r"models\.test \((loopback|private)\)") as caught:
        read(session_for(private_servers=NOBODY), f"http://models.test/{WEIGHTS}{tail}")
    assert "127.0.0.1" not in str(caught.value)
    assert "10.0.0.1" not in str(caught.value)
    assert len(log) == 1
    assert (web.log, connected) == ([], [])


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1"])
def test_addresses_by_number(session_for, host, scheme):
    with pytest.raises(SourceError, match="loopback"):
        read(session_for(private_servers=NOBODY), f"{scheme}://{host}:9")


@pytest.mark.parametrize("tail", ["", "?é"])
def test_the_address_that_was_checked_is_the_one_connected_to(web, model_folder, session_for, monkeypatch, tail):
    """A name that is looked up again stands for something else: there is no second look."""
    log = names(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    connected, port = [], int(web.url.rpartition(":")[2])

    def connect(address, timeout, **_):
        connected.append(address)
        return socket.create_connection(("127.0.0.1", port), 5.0)

    monkeypatch.setattr(private_network, "create_connection", connect)
    assert len(read(session_for(private_servers=NOBODY), f"http://models.test/{WEIGHTS}{tail}")) == 100
    assert connected == [("8.8.8.8", 80)]
    assert log == ["models.test"]


def test_certificates_are_those_of_the_name(model_folder, session_for, monkeypatch):
    """Although a number is connected to."""
    with HubServer(tls=True) as server:
        server.add_repo("owner/name", model_folder)
        port = int(server.endpoint.rpartition(":")[2])
        monkeypatch.setattr(private_network, "_look_up", lambda *_: [ipaddress.ip_address("8.8.8.8")])
        monkeypatch.setattr(
            private_network, "create_connection", lambda *_, **__: socket.create_connection(("127.0.0.1", port))
        )
        session = session_for(private_servers=NOBODY, ca_file=str(server.ca_pem), endpoint=f"https://localhost:{port}")
        assert WEIGHTS in session.open_folder("hf://owner/name").names
        session = session_for(
            private_servers=NOBODY, ca_file=str(server.ca_pem), endpoint=f"https://models.test:{port}"
        )
        with pytest.raises(TransferError, match=r"the TLS connection failed.*models\.test"):
            session.open_folder("hf://owner/name")


def test_what_cannot_be_reached(session_for, monkeypatch):
    names(monkeypatch, ["8.8.8.8", "8.8.4.4"])
    tried = []

    def fail(address, *_, **__):
        tried.append(address[0])
        raise TimeoutError if len(tried) % 2 == 0 else ConnectionRefusedError("refused")

    monkeypatch.setattr(private_network, "create_connection", fail)
    with pytest.raises(TransferError, match="ConnectTimeoutError"):
        read(session_for(private_servers=NOBODY, attempts=1), "http://models.test")
    assert tried == ["8.8.8.8", "8.8.4.4"]
    monkeypatch.setattr(socket, "getaddrinfo", _no_such_name)
    with pytest.raises(TransferError, match="NameResolutionError"):
        read(session_for(private_servers=NOBODY, attempts=1), "http://models.test")
    assert not is_private("models.test")
    assert is_private("intranet")


def _no_such_name(*_args, **_kwargs):
    raise socket.gaierror(socket.EAI_NONAME, "no such name")


# -- proxies --------------------------------------------------------------------------------------------------------------


def test_a_proxy_of_the_network_is_used(web, model_folder, session_for, monkeypatch):
    """The user named it; what names stand for, it alone knows."""

    def spoil(request):
        request.path = "/" + request.path.rpartition("/")[2]
        return False

    web.spoil = spoil
    log = names(monkeypatch, ["127.0.0.1"])
    monkeypatch.setenv("http_proxy", web.url)
    assert len(read(session_for(private_servers=NOBODY), "http://models.test/folder")) == 100
    assert web.log == [(f"http://models.test/folder/{WEIGHTS}", "bytes=0-99")]
    assert log == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]", "intranet", "127.1", "x.localhost", "%310.0.0.1"])
def test_a_proxy_is_not_asked_for_what_is_near_by_name(web, session_for, monkeypatch, host):
    monkeypatch.setenv("http_proxy", web.url)
    with pytest.raises(SourceError, match="in the network of this machine"):
        read(session_for(private_servers=NOBODY), f"http://{host}/folder")
    assert web.log == []
