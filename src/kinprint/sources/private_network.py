"""Tell which hosts are in the network of this machine, and make connections that do not lead there.

An address that a stranger wrote can lead to servers that only this machine can reach: by itself, by a redirect, or by a name that
stands for something else when it is looked up a second time. So the check stands where the connection is made: a name is looked up
once, every address it has is checked, and one of these very addresses is connected to. Before that nothing is sent. Where urllib3
itself reads the head of a reply, it has no more time for all of it than for one read.
"""

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from urllib3 import HTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import create_connection

from kinprint.text import Text

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

ALLOW_LOCAL = Text("give --allow-local, if you trust whoever made the bundle")

_LOCAL_ENDS = (".local", ".localhost", ".localdomain", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address


class PrivateHost(Exception):
    """A host (first argument) is in the network of this machine, of a kind (second), and was not asked. Stays in this package."""


def kind_of(address: Address) -> str | None:
    """Say what makes an address one of this machine or its network, None if it is public."""
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and address in _NAT64:
            within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return kind_of(within)
        if address.is_site_local:
            return "private"
    for kind in ("loopback", "link_local", "multicast", "unspecified", "reserved"):
        if getattr(address, f"is_{kind}"):
            return kind.replace("_", "-")
    return None if address.is_global else "private"


def kind_by_name(host: str) -> str | None:
    """Say what makes a host one of this machine or its network by what it is called alone, None if nothing does."""
    host = host.strip("[]").rstrip(".").lower()
    if "%" in host and ":" not in host:
        return "written with %"  # other programs read another host in such a name
    try:
        return kind_of(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:  # 127.1 and 0x7f000001 are addresses too, to whoever connects to them
        return kind_of(ipaddress.IPv4Address(socket.inet_aton(host)))
    except (OSError, UnicodeError, ValueError):
        return "local" if "." not in host or host.endswith(_LOCAL_ENDS) else None


def is_private(host: str) -> bool:
    """Whether a host is this machine or in its own network, by its address or by what its name stands for now."""
    try:
        found = _look_up(host, None)
    except (OSError, UnicodeError):  # behind a proxy nothing may be known here; then the name alone decides
        return kind_by_name(host) is not None
    return any(kind_of(address) for address in found)


def _look_up(host: str, port: int | None) -> list[Address]:
    answers = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers]


def _connect(connection: HTTPConnection) -> socket.socket:
    """Connect as urllib3 does, but look the name up once, and only to a public address; its errors are urllib3's."""
    host, failed = connection.host, OSError("the name has no address")
    try:
        found = _look_up(host, connection.port)
    except socket.gaierror as error:
        raise NameResolutionError(host, connection, error) from error
    # one address of many is enough: whoever made the name may hope that it is the one taken
    kind = next((kind for address in found if (kind := kind_of(address))), None)
    if kind is not None:
        raise PrivateHost(host, kind)
    for address in found:
        try:
            return create_connection(
                (str(address), connection.port),
                connection.timeout,
                source_address=connection.source_address,
                socket_options=connection.socket_options,
            )
        except OSError as error:
            failed = error
    if isinstance(failed, TimeoutError):
        raise ConnectTimeoutError(connection, f"Connection to {host} timed out") from failed
    raise NewConnectionError(connection, f"Failed to establish a new connection: {failed}") from failed


@contextmanager
def _in_time(connection: HTTPConnection) -> Iterator[None]:
    """Hang up if the head of a reply takes longer than one read may: urllib3 would wait for each byte of it anew."""

    def hang_up() -> None:
        with suppress(OSError, AttributeError):  # closed meanwhile
            connection.sock.shutdown(socket.SHUT_RDWR)

    late = threading.Timer(connection.timeout or 0.0, hang_up)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


class _Timely(HTTPConnection):
    """A connection for urllib3's own way of reading, on which heads do not drip."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        with _in_time(self):
            return super().getresponse()

    def _tunnel(self) -> None:
        with _in_time(self):
            super()._tunnel()


class _TimelyTls(_Timely, HTTPSConnection):
    """The same with TLS."""


class PublicConnection(_Timely):
    """A connection that leads out of this machine's network, or nowhere."""

    _new_conn = _connect


class PublicTlsConnection(_TimelyTls):
    """The same with TLS: certificates are those of the name, whichever address was taken."""

    _new_conn = _connect


def _pools(plain: type[HTTPConnection], secure: type[HTTPSConnection]) -> dict[str, type[HTTPConnectionPool]]:
    return {
        "http": type("Pool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("TlsPool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


POOLS = {False: _pools(_Timely, _TimelyTls), True: _pools(PublicConnection, PublicTlsConnection)}
"""For urllib3's `PoolManager.pool_classes_by_scheme`, by whether public servers alone may be asked."""
