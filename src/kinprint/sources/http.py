"""Send HTTP requests with one pooled client: retries, redirects, and errors that say what to do.

Rules, each with a test: a token goes only to the endpoint's own origin, and only in chains that began there; a range must be
answered by 206 with the very Content-Range, length and entity tag expected; a 200 is refused before its body is read; https never
falls back to http; where strangers chose the address, no server of this machine's network is connected to (`private_network`).
"""

import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, SSLError

from kinprint._util.plain import printable
from kinprint._version import __version__
from kinprint.errors import AccessDenied, FileTooLarge, NotFound, OfflineError, SourceError, TransferError
from kinprint.refs import ByteRange, shown
from kinprint.sources import http_connection
from kinprint.sources.base import Traffic, not_here, too_large
from kinprint.sources.http_connection import DEFAULT_PORTS, Due, Nonsense, Response, ServerAddress
from kinprint.sources.pace import Gate, quota_spent_s, retry_after_s
from kinprint.sources.pool import DaemonPool
from kinprint.sources.private_network import ALLOW_LOCAL, POOLS, PrivateHost, is_private, kind_by_name
from kinprint.sources.settings import Settings
from kinprint.text import Text

T = TypeVar("T")

_REDIRECTS = {301, 302, 303, 307, 308}
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # worth another try; any other status is an answer
_BUSY = {429, 503}
_MAX_HOPS = 5
OFFLINE_HINT = "unset HF_HUB_OFFLINE or leave out --offline"
_DRAIN_CAP, _DRAIN_S = 262_144, 5.0  # a new connection costs less than what may have no end
_SLOWEST = 1000  # bytes a second; a server that drips slower is as good as stalled, though it never times out


class TryAgain(Exception):
    """One attempt failed in a way that may pass. Never leaves this package."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


@lru_cache(maxsize=256)  # asked three times a request, and 8 µs each
def origin_of(url: str) -> ServerAddress:
    """Return scheme, host and port: the unit of trust for a token."""
    parts = urlsplit(url)
    # For some readers the host ends at a backslash, for others it does not: whom would the token reach?
    if "\\" in parts.netloc:
        raise ValueError("a backslash in the name of a host")
    return ServerAddress(parts.scheme, (parts.hostname or "").lower(), parts.port or DEFAULT_PORTS.get(parts.scheme, 0))


_is_private = lru_cache(maxsize=256)(is_private)


class HttpClient:
    """A pooled client shared by all threads of a run."""

    clock = staticmethod(time.monotonic)

    def __init__(self, settings: Settings, traffic: Traffic, stop: threading.Event, gate: Gate | None = None) -> None:
        self.settings = settings
        self._gate = gate
        self.traffic = traffic
        self._stop = stop
        self._trusted = origin_of(settings.endpoint)
        self._jitter = random.Random()  # noqa: S311  spreads retries; nothing secret or reproducible hangs on it
        timeouts = settings.connect_timeout_s, settings.read_timeout_s
        self._connections = http_connection.HttpConnections(*timeouts)
        # by proxy, whether with TLS, and whether for public servers alone
        self._managers: dict[tuple[str | None, bool, bool], urllib3.PoolManager] = {}
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._thread = threading.local()  # a thread has one request at a time
        self._proxies = urllib.request.getproxies()
        self._openers = DaemonPool(settings.connections)

    def send(self, url: str, *, begun_at: str, span: ByteRange | None = None) -> Response:
        """Send one request, without following redirects. The body is left unread.

        `begun_at` is where the redirects began that led to `url`: a stranger's redirect to the endpoint must not use its token.
        """
        if self.settings.offline:
            raise OfflineError(not_here(shown(url)), hint=OFFLINE_HINT)
        headers = {"User-Agent": f"kinprint/{__version__}", "Accept-Encoding": "identity"}
        if span is not None:
            headers["Range"] = f"bytes={span.start}-{span.end - 1}"
        if self._gate is not None:
            self._wait_for_turn(self._gate, origin_of(url).host)
        self.traffic.add(requests=1)
        try:
            if origin_of(url) == origin_of(begun_at) == self._trusted and self.settings.token:
                headers["Authorization"] = f"Bearer {self.settings.token}"
            reply = self._request(url, headers, begun_at)
            if self._gate is not None:
                _tell_refusal(self._gate, origin_of(url).host, reply)
            return self._without_token(reply) if "Authorization" in headers else reply
        except PrivateHost as error:
            by_redirect = self.settings.private_servers is None
            raise _private_host_error(error, url, begun_at, by_redirect=by_redirect) from error
        except SSLError as error:
            if not isinstance(error.args[0] if error.args else None, ssl.SSLCertVerificationError):
                raise TryAgain(_describe(error)) from error  # a handshake cut short may pass
            hint = "if your network has its own certificate authority, point SSL_CERT_FILE at its bundle"
            raise TransferError(f"{shown(url)}: the TLS connection failed: {error}", hint=hint) from error
        except ValueError as error:  # an address or a proxy that urllib3 cannot use: no later try will change that
            # Such errors quote the address, the proxy's password included; nor may a traceback repeat it.
            hint = "check the address, and the proxy if one is set (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)"
            raise TransferError(f"{shown(url)}: cannot be asked for: {_without_addresses(error)}", hint=hint) from None
        except (Nonsense, InvalidHeader) as error:
            why = self.hidden(_describe(error))
            raise TransferError(f"{shown(url)}: the server breaks the protocol: {why}") from None
        except HTTPError as error:
            raise TryAgain(_describe(error)) from error

    def reach(self, url: str, count: int, *, begun_at: str) -> None:
        """Begin to open connections to where requests for `url` go soon. What fails is left for them to meet and to tell."""
        place = origin_of(url)
        if self._proxy(place.scheme, urlsplit(url).netloc) is None and http_connection.is_plain(place, "/"):
            for _ in range(min(count, self.settings.connections)):
                self._openers.submit(lambda: self._open_ahead(place, begun_at))

    def _open_ahead(self, place: ServerAddress, begun_at: str) -> None:
        context = self._context() if place.scheme == "https" else None
        with suppress(HTTPError, OSError, SourceError, PrivateHost):
            self._connections.open_ahead(place, context, public=self._must_be_public(place, begun_at))

    def _wait_for_turn(self, gate: Gate, host: str) -> None:
        """Wait until the pace that all workers share allows a request; such waiting is not the request's own time."""
        wait = gate.turn_s(host)
        while wait > 0.0 and not self._stop.wait(wait):
            self.due.extend(wait)
            wait = gate.held_s(host)  # the host may have asked for more time meanwhile

    def hidden(self, text: str) -> str:
        """Return what a server said without the token, should it repeat it."""
        return text.replace(self.settings.token, "[token]") if self.settings.token else text

    def _without_token(self, reply: Response) -> Response:
        """Take the token out of a reply's headers: what a server echoes must not reach a message, a report or the cache."""
        for name, value in list(reply.headers.items()):
            if self.hidden(value) != value:
                reply.headers[name] = self.hidden(value)
        return reply

    def refuse_echo(self, label: str, url: str, body: bytes | bytearray | memoryview) -> None:
        """Refuse a body from where the token was sent, if it holds it: reports and the cache keep what is read."""
        token = self.settings.token
        if token and origin_of(url) == self._trusted and token.encode() in bytes(body):
            said = f"{label}: the reply repeats the token that was sent; refused"
            raise TransferError(said, hint="renew the token, and do not trust this server")

    @property
    def due(self) -> Due:
        """The time that this thread's request has."""
        return getattr(self._thread, "due", None) or Due(self.settings.deadline_s, self.clock)

    def _must_be_public(self, place: ServerAddress, begun_at: str) -> bool:
        """Whether no server of this machine's network may be asked: where strangers chose the address, by bundle or redirect."""
        allowed = self.settings.private_servers
        if allowed is not None:
            return place.server not in allowed
        start = origin_of(begun_at)
        return place != start and not _is_private(start.host)

    def _request(self, url: str, headers: dict[str, str], begun_at: str) -> Response:
        parts = urlsplit(url)
        proxy = self._proxy(parts.scheme, parts.netloc)
        secure = "https" in (parts.scheme, urlsplit(proxy or "").scheme)
        context = self._context() if secure else None
        place = origin_of(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        public = self._must_be_public(place, begun_at)
        if proxy is None and http_connection.is_plain(place, target):
            return self._connections.get(place, target, headers, context, self.due, public=public)
        if public and proxy is not None and (kind := kind_by_name(place.host)):
            raise PrivateHost(place.host, kind)  # what other names stand for, the proxy alone knows
        manager = self._manager(proxy, context, public=public and proxy is None)
        # The place that was checked is the place that is asked: no other reader gets to read the address again.
        reply: Response
        if proxy is None:
            pool = manager.connection_from_host(place.host, place.port, place.scheme)
            reply = pool.urlopen("GET", target, headers=headers, **self._options())
        else:
            host = f"[{place.host}]" if ":" in place.host else place.host
            port = "" if place.port == DEFAULT_PORTS.get(place.scheme) else f":{place.port}"
            address = f"{place.scheme}://{host}{port}{target}"
            reply = manager.request("GET", address, headers=headers, **self._options())
        try:
            http_connection.stated_length(
                reply.status, reply.headers
            )  # urllib3 reads on to the end where it makes no sense
        except Nonsense:
            reply.close()
            raise
        return reply

    def _options(self) -> dict[str, Any]:
        """Return how urllib3 is to ask: once, for the head alone, within the time that is left."""
        connect, read = map(self.due.within, (self.settings.connect_timeout_s, self.settings.read_timeout_s))
        timeout = urllib3.Timeout(connect=connect, read=read)
        return {"redirect": False, "retries": False, "preload_content": False, "timeout": timeout}

    def _context(self) -> ssl.SSLContext:
        """Return one TLS context for all connections, made when the first needs it: loading it takes 50 ms."""
        trusted = self.settings.ca_file
        try:
            with self._lock:
                if self._tls is None:
                    folder = trusted if trusted and Path(trusted).is_dir() else None
                    self._tls = ssl.create_default_context(cafile=None if folder else trusted, capath=folder)
                return self._tls
        except OSError as error:  # ssl.SSLError is one too
            hint = "SSL_CERT_FILE, REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE must name a file of certificates, or be unset"
            said = f"the certificates in {trusted} cannot be used: {error.strerror or error}"
            raise SourceError(said, hint=hint) from error

    def _proxy(self, scheme: str, netloc: str) -> str | None:
        proxy = self._proxies.get(scheme) or self._proxies.get("all")
        if not proxy or urllib.request.proxy_bypass(netloc):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def _manager(self, proxy: str | None, context: ssl.SSLContext | None, *, public: bool) -> urllib3.PoolManager:
        at = proxy, context is not None, public
        given: dict[str, Any] = {"maxsize": self.settings.connections, "ssl_context": context}
        with self._lock:
            if at not in self._managers and proxy is None:
                self._managers[at] = urllib3.PoolManager(num_pools=16, **given)
            elif at not in self._managers and proxy is not None:
                user = unquote(urlsplit(proxy).netloc.rpartition("@")[0])
                headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
                self._managers[at] = urllib3.ProxyManager(proxy, proxy_headers=headers, **given)
            self._managers[at].pool_classes_by_scheme = POOLS[public]
            return self._managers[at]

    def retrying(self, label: str, attempt: Callable[[], T]) -> T:
        """Run `attempt` until it succeeds, fails for good, or tries, time or the run's retries are used up."""
        why, number, settings = "", 0, self.settings
        due = self._thread.due = Due(settings.deadline_s, self.clock)
        while number < settings.attempts:
            if self._stop.is_set():
                raise SourceError(f"{label}: stopped")
            number += 1
            try:
                return attempt()
            except TryAgain as again:
                why, wait = self.hidden(again.reason), again.after_s
                self.traffic.add(retries=1)
                if wait is not None and wait > min(settings.max_retry_after_s, due.left_s):
                    hint = "try again later, or set HF_TOKEN: signed-in users have higher limits"
                    said = f"{label}: {why}, and the server asks to wait {wait:.0f} s"
                    raise TransferError(said, hint=hint) from again
                if wait is None:
                    wait = settings.backoff_s * 2 ** (number - 1) * (0.75 + 0.5 * self._jitter.random())
                if self.traffic.retries >= settings.retries:
                    why += f"; the {settings.retries} retries of this run are used up"
                    break
                if wait >= due.left_s:
                    why += "" if due.over in why else f"; {due.over}"
                    break
                if number < settings.attempts:
                    self._stop.wait(wait)
        kept = "; ranges already read are kept in the cache" if self.settings.range_cache else ""
        said = Text("{label}: gave up after {n} attempts; the last failed with: {why}", label=label, n=number, why=why)
        raise TransferError(said, hint=f"check the connection and try again{kept}")

    def follow(
        self, url: str, label: str, learn: Callable[[Response], None], *, begun_at: str, span: ByteRange | None = None
    ) -> tuple[Response, str]:
        """Send a request and follow redirects, each of which `learn` sees; return the reply and the address that gave it."""
        hops = 0
        while is_redirect(reply := self.send(url, begun_at=begun_at, span=span)):
            hops += 1
            learn(reply)
            url = self.next_hop(url, reply, hops, label)
        return reply, url

    def next_hop(self, url: str, reply: Response, hops: int, label: str) -> str:
        """Return where a redirect leads, after checking that it may be followed. The reply is spent."""
        stated = reply.headers.get("Location") or ""
        spend(reply, self.due.left_s)
        try:
            target = urljoin(url, stated)
            origin = origin_of(target)
        except ValueError as error:
            raise TransferError(f"{label}: redirected to an address that cannot be read") from error
        if hops >= _MAX_HOPS:
            raise TransferError(f"{label}: more than {_MAX_HOPS} redirects, the last to {shown(target)}")
        if origin.scheme not in DEFAULT_PORTS or not origin.host:
            raise TransferError(f"{label}: redirected to {shown(target)!r}, which is not an http(s) address")
        if urlsplit(url).scheme == "https" and origin.scheme != "https":
            raise TransferError(f"{label}: redirected from https to plain http ({shown(target)}); refused")
        return target

    def get_small(self, url: str, *, label: str, cap: int) -> tuple[bytes, str]:
        """Fetch a whole small file or API reply, at most `cap` bytes; return it with its tag, if any."""
        body, replies = self._get_whole(url, label, cap)
        tags = [reply.headers.get("X-Linked-ETag") for reply in replies[:-1]] + [replies[-1].headers.get("ETag")]
        return body, plain_tag(next(filter(None, tags), ""))

    def get_linked(self, url: str, *, label: str, cap: int) -> tuple[bytes, str]:
        """Fetch a page of an API reply, at most `cap` bytes; return it with its Link header, which tells of the next page."""
        body, replies = self._get_whole(url, label, cap)
        return body, replies[-1].headers.get("Link", "")

    def _get_whole(self, url: str, label: str, cap: int) -> tuple[bytes, list[Response]]:
        """Return a body with all replies on the way to it, the last being its own."""

        def attempt() -> tuple[bytes, list[Response]]:
            replies: list[Response] = []
            reply, _ = self.follow(url, label, replies.append, begun_at=url)
            if reply.status != 200:
                raise status_error(reply, label=label, has_token=bool(self.settings.token))
            body = self._whole_body(reply, label, cap)
            self.refuse_echo(label, url, body)
            return body, [*replies, reply]

        return self.retrying(label, attempt)

    def _whole_body(self, reply: Response, label: str, cap: int) -> bytes:
        declared = content_length(reply)
        if declared is not None and declared > cap:
            reply.close()
            raise FileTooLarge(too_large(label, declared, cap))
        reply = http_connection.decoded(reply)  # some proxies compress whatever they were asked
        body = bytearray()
        began = self.clock()
        while chunk := read_some(reply, 1 << 20):
            body += chunk
            self.check_pace(reply, began, len(body), len(chunk))
            self.traffic.add(network_bytes=len(chunk))
            if len(body) > cap:
                reply.close()
                raise FileTooLarge(f"{label}: sends more than the {cap} bytes allowed here")
        if declared is not None and len(body) != declared and "Content-Encoding" not in reply.headers:
            raise TryAgain(f"the body ended after {len(body)} of {declared} bytes")
        return bytes(body)

    def check_pace(self, reply: Response, began: float, count: int, latest: int) -> None:
        """Give up on a body that drips, which no timeout between two packets would notice, or that nobody waits for."""
        # `count` bytes have come since it `began`, the `latest` just now.
        elapsed, due = self.clock() - began, self.due
        due.came(latest)
        drips = elapsed > self.settings.read_timeout_s and count < elapsed * _SLOWEST
        if self._stop.is_set() or drips or due.left_s <= 0.0:
            reply.close()
            raise TryAgain(f"only {count} bytes came in {elapsed:.1f} s")

    def close(self) -> None:
        """Close all idle connections."""
        self._openers.close(wait=False)
        self._connections.close()
        for manager in self._managers.values():
            manager.clear()


def is_redirect(reply: Response) -> bool:
    """Whether the reply sends the client elsewhere."""
    return reply.status in _REDIRECTS


def spend(reply: Response, most_s: float = _DRAIN_S) -> None:
    """Use up a short body so that its connection can serve again; give the connection up if the body is long."""
    length = content_length(reply)
    if length is not None and length <= 65536:
        drain(reply, most_s)
    else:
        reply.close()


def drain(reply: Response, most_s: float = _DRAIN_S) -> None:
    """Use up the rest of a short body, so that its connection can serve again; give it up if that breaks or takes long."""
    seen, began = 0, time.monotonic()
    with suppress(HTTPError, OSError):
        while data := reply.read1(_DRAIN_CAP):
            seen += len(data)
            if seen > _DRAIN_CAP or time.monotonic() - began > min(most_s, _DRAIN_S):
                break
        else:
            return
    reply.close()


def content_length(reply: Response) -> int | None:
    """Return the declared length of the body, if it is declared as a number."""
    return whole_number(reply.headers.get("Content-Length", ""))


def whole_number(text: str) -> int | None:
    """Read a size from a header; None for anything no file could have."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def plain_tag(text: str) -> str:
    """Return an entity tag without its quotes and weakness mark."""
    return text.removeprefix("W/").strip('"')


def read_some(reply: Response, amount: int) -> bytes:
    """Read up to `amount` bytes of a body; failures of the connection become TryAgain."""
    try:
        return reply.read1(amount)  # what has come, so that the pace can be watched
    except (HTTPError, OSError) as error:
        reply.close()
        raise TryAgain(_describe(error)) from error


def status_error(reply: Response, *, label: str, has_token: bool) -> Exception:
    """Turn an unwanted status into the exception to raise: TryAgain if it may pass, else one that says what to do."""
    status = reply.status
    retry_after = reply.headers.get("Retry-After", "")
    code = reply.headers.get("X-Error-Code", "")
    said = printable(reply.headers.get("X-Error-Message", ""))
    spend(reply)
    if status in _PASSING:
        return TryAgain(f"HTTP {status}", retry_after_s(retry_after))
    if code == "RepoNotFound" or (status == 401 and code != "GatedRepo" and not has_token):
        hint = None if has_token else "check the spelling; if the repository is private, set HF_TOKEN"
        missing = Text("{label}: no such repository, or it is private (HTTP {status})", label=label, status=status)
        return NotFound(missing, hint=hint)
    if code == "RevisionNotFound":
        missing = Text("{label}: the repository has no such revision", label=label)
        return NotFound(missing, hint="give a branch, a tag or a commit that exists")
    if code == "GatedRepo" or status in (401, 403):
        hint = "accept the model's terms on its page, then set HF_TOKEN to a token of that account"
        if has_token and status == 401:
            hint = "the token in use was refused: renew HF_TOKEN, or unset it if the model is public"
        elif has_token:
            hint = "the token in use has no access: accept the model's terms on its page with the token's account"
        denied = Text("{label}: access denied (HTTP {status})", label=label, status=status)
        return AccessDenied(_with_reason(denied, said), hint=hint)
    if status in (404, 410):
        missing = Text("{label}: no such file (HTTP {status})", label=label, status=status)
        return NotFound(missing, hint="check the spelling of the address and the file")
    strange = Text("{label}: unexpected reply HTTP {status}", label=label, status=status)
    return TransferError(_with_reason(strange, said))


def _tell_refusal(gate: Gate, host: str, reply: Response) -> None:
    """Keep everybody back from a host that says it has had enough, or that this was the last request it allows for now."""
    if reply.status in _BUSY:
        gate.hold(host, retry_after_s(reply.headers.get("Retry-After", "")))
    elif (left := quota_spent_s(reply.headers.get("RateLimit", ""))) is not None:
        gate.hold(host, left)


def _with_reason(what: Text, why: str) -> Text:
    return Text("{what}: {why}", what=what, why=why) if why else what


def _private_host_error(error: PrivateHost, url: str, begun_at: str, *, by_redirect: bool) -> SourceError:
    """Say that a server is not asked. The numeric address is not told: it may be a secret of this network."""
    host, kind = error.args
    way = shown(url) if url == begun_at else Text("{a} leads to {b}", a=shown(begun_at), b=shown(url))
    if by_redirect:
        leads = Text(
            "{way}: a public address leads into the network of this machine ({kind}); not followed", way=way, kind=kind
        )
        return SourceError(leads, hint="fetch the file yourself and give its path, if you trust whoever leads there")
    said = Text(
        "{way}: expected a public server, got one in the network of this machine, {host} ({kind}), which is not asked "
        "because a bundle leads there; {hint}",
        way=way,
        host=printable(host),
        kind=kind,
        hint=ALLOW_LOCAL,
    )
    return SourceError(said)


def _describe(error: BaseException) -> str:
    text = printable(str(error).split("(Caused by")[0].strip())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _without_addresses(error: ValueError) -> str:
    """Describe an error that may quote an address, by its kind alone if it does."""
    text = _describe(error)
    return type(error).__name__ if "@" in text or "?" in text or "Bearer" in text else text
