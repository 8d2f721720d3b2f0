"""The hub, locally: a server that speaks the Hugging Face Hub's protocol on loopback, for tests and benches.

Two origins, each on a port of its own: the hub (model API, file resolution) and the CDN it redirects large files to.
Latency can be added per request and per connection, and faults injected (`support.faults`).

``python -m support.hub --repo owner/name=FOLDER --latency-ms 50`` runs it in a process of its own and prints
one line of JSON with its addresses when it is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from pathlib import Path
from types import TracebackType
from typing import Any

from support.faults import Fault, FaultBook, Struck
from support.http1 import Connection, Incoming, Reply, Sent
from support.hubroutes import Routes
from support.repositories import Repo, Snapshot

__all__ = ["Fault", "HubServer", "Request"]

_HOST = "127.0.0.1"
_CONTROL = ("/_stats", "/_reset")


@dataclass(slots=True)
class Request:
    """One request as the server saw it, and what it sent back.

    Attributes
    ----------
    origin : {"hub", "cdn"}
    path, query : str
        As sent, percent-encoded.
    file : str
        Logical name "owner/name/path/in/repo" of the file asked for, on either origin; empty for API requests.
    range : str or None
        The Range header.
    authorization : bool
        Whether an Authorization header came along; its raw value is ``authorization_value``.
    status : int
        0 where no response line was sent (dropped, stalled, garbage).
    body_bytes : int
        Body bytes handed to the network so far.
    """

    origin: str
    method: str
    path: str
    query: str
    file: str
    host: str
    range: str | None
    authorization: bool
    authorization_value: str | None
    user_agent: str
    status: int = 0
    body_bytes: int = 0


class _Origin:
    """One of the two origins, as its connections see it."""

    def __init__(self, name: str, server: HubServer) -> None:
        self.name = name
        self.connections: set[Connection] = set()
        self._server = server

    @property
    def latency_s(self) -> float:
        return self._server.latency_s

    @property
    def connect_latency_s(self) -> float:
        # TLS 1.3 costs a second round trip on top of TCP's.
        return self._server.connect_latency_s * (2 if self._server.tls else 1)

    def is_control(self, request: Incoming) -> bool:
        return self.name == "hub" and request.target in _CONTROL

    def held(self, answer: Callable[[], None]) -> bool:
        return self._server.held(answer)

    def answer(self, request: Incoming) -> tuple[Reply, Sent | None]:
        if self.is_control(request):
            return self._server.control(request), None
        return self._server.answer(self.name, request)


class HubServer:
    """A hub on loopback, run in a daemon thread; use it as a context manager.

    Parameters
    ----------
    latency_s : float
        Slept before each response, redirects included. May be changed while running.
    connect_latency_s : float
        Slept once per connection before its first response, twice with TLS. May be changed while running.
    tls : bool
        Serve both origins over TLS; clients must trust ``ca_pem``.
    token : str
        The one token with access to gated and private repositories. Any other is a user without access.
    invalid_tokens : iterable of str
        Tokens nobody has: 401 whatever is asked for.
    cdn_host : str
        Host name in the CDN's address: "localhost" makes the host differ from the hub's, not only the port.
    resolve_cache : bool
        Redirect regular files (307, relative) to ``/api/resolve-cache/…`` as the hub does since 2025.
    link_ttl_s : float
        Life of a CDN link.
    page_size : int
        Entries per page of the tree API.
    waves : iterable of int
        Answer the first requests only when so many of them wait, then so many; what comes after all waves does not wait.

    Raises
    ------
    RuntimeError
        On leaving the context, if the server itself failed on some request.
    """

    def __init__(
        self,
        *,
        latency_s: float = 0.0,
        connect_latency_s: float = 0.0,
        tls: bool = False,
        token: str = "hf_secret",
        invalid_tokens: frozenset[str] = frozenset(),
        cdn_host: str = _HOST,
        resolve_cache: bool = False,
        link_ttl_s: float = 3600.0,
        page_size: int = 1000,
        waves: Iterable[int] = (),
    ) -> None:
        self.latency_s = latency_s
        self.connect_latency_s = connect_latency_s
        self.tls = tls
        self.token = token
        self.endpoint = ""
        self.cdn = ""
        self.errors: list[str] = []
        self.waves = list(waves)
        self._waiting: list[Callable[[], None]] = []
        self._cdn_host = cdn_host
        self._routes = Routes(
            token=token,
            invalid_tokens=invalid_tokens,
            resolve_cache=resolve_cache,
            link_ttl_s=link_ttl_s,
            page_size=page_size,
        )
        self._faults = FaultBook()
        self._log: list[Request] = []
        self._origins = {"hub": _Origin("hub", self), "cdn": _Origin("cdn", self)}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ca_pem: Path | None = None

    def held(self, answer: Callable[[], None]) -> bool:
        """Keep a request until its wave is complete, then answer all of it; tell whether there is a wave to wait for."""
        if not self.waves:
            return False
        self._waiting.append(answer)
        if len(self._waiting) == self.waves[0]:
            ready, self._waiting = self._waiting, []
            del self.waves[0]
            for each in ready:
                each()
        return True

    # ---- life ----

    def __enter__(self) -> HubServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None and self.errors:
            raise RuntimeError("the local hub failed: " + "; ".join(self.errors))

    def start(self) -> None:
        """Bind both ports and serve."""
        context = self._certify() if self.tls else None
        scheme = "https" if self.tls else "http"
        sockets = {name: socket.create_server((_HOST, 0), backlog=512) for name in self._origins}
        self.endpoint = f"{scheme}://{_HOST}:{sockets['hub'].getsockname()[1]}"
        self.cdn = f"{scheme}://{self._cdn_host}:{sockets['cdn'].getsockname()[1]}"
        self._routes.endpoint, self._routes.cdn = self.endpoint, self.cdn
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(sockets, context, ready)), name="local-hub", daemon=True
        )
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the local hub did not start within 10 s")

    def stop(self) -> None:
        """Drop every connection, stalled ones included, and end the thread."""
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._thread = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    @property
    def ca_pem(self) -> Path:
        """The certificate of the authority to trust; exists while a TLS server runs.

        Raises
        ------
        RuntimeError
            Without TLS.
        """
        if self._ca_pem is None:
            raise RuntimeError("no certificate authority: start the server with tls=True")
        return self._ca_pem

    def _certify(self) -> ssl.SSLContext:
        import trustme

        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(_HOST, "localhost").configure_cert(context)
        self._scratch = tempfile.TemporaryDirectory(prefix="local-hub-")
        self._ca_pem = Path(self._scratch.name) / "ca.pem"
        authority.cert_pem.write_to_path(str(self._ca_pem))
        return context

    async def _serve(
        self, sockets: dict[str, socket.socket], context: ssl.SSLContext | None, ready: threading.Event
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        loop.set_exception_handler(self._note_failure)
        servers = []
        for name, origin in self._origins.items():
            servers.append(
                await loop.create_server(
                    lambda origin=origin: Connection(origin),
                    sock=sockets[name],
                    ssl=context,
                    backlog=512,
                )
            )
        ready.set()
        await self._stop.wait()
        # Python 3.11 leaks a connection whose task has not begun when its server closes: let each of them begin
        while any(
            iscoroutine(c := task.get_coro()) and getcoroutinestate(c) == CORO_CREATED for task in asyncio.all_tasks()
        ):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        for _ in range(100):
            alive = [connection for origin in self._origins.values() for connection in origin.connections]
            # a connection that is just being accepted is a task, and none of the origin's yet
            if not alive and asyncio.all_tasks() == {asyncio.current_task()}:
                break
            for connection in alive:
                connection.abort()
            await asyncio.sleep(0.001)
        # One more turn: aborted transports close their sockets in a callback of their own.
        await asyncio.sleep(0)

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Clients that hang up or refuse our certificate are the point of many tests, not failures of the server; nor
        # is a TLS handshake cut short by our own end.
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError | asyncio.CancelledError):
            return
        self.errors.append(f"{context.get('message')}: {error!r}")
        del loop

    # ---- contents ----

    def add_repo(
        self, repo_id: str, folder: Path | str, *, gated: bool = False, private: bool = False, commit: str | None = None
    ) -> str:
        """Publish a folder as a repository's ``main`` (anew, if it exists); return its commit id."""
        return self._publish(Repo(repo_id, gated=gated, private=private), "main", folder, commit)

    def add_revision(self, repo_id: str, revision: str, folder: Path | str, *, commit: str | None = None) -> str:
        """Publish a folder as another revision of a repository (or as a new ``main``); return its commit id."""
        return self._publish(self._routes.repos[repo_id], revision, folder, commit)

    def _publish(self, repo: Repo, revision: str, folder: Path | str, commit: str | None) -> str:
        if commit is not None and (len(commit) != 40 or set(commit) - set("0123456789abcdef")):
            raise ValueError(f"a commit id is 40 lower-case hexadecimal digits, got {commit!r}")
        snapshot = Snapshot.of(repo.repo_id, Path(folder), commit)
        self._routes.put(repo, revision, snapshot)
        return snapshot.commit

    def add_fault(self, fault: Fault) -> Fault:
        """Put a fault in force; returned for its counters."""
        self._faults.add(fault)
        return fault

    def clear_faults(self) -> None:
        """Behave again."""
        self._faults.clear()

    # ---- the log ----

    @property
    def requests(self) -> list[Request]:
        """What was asked since the last `reset`, in the order answered."""
        return list(self._log)

    def reset(self) -> None:
        """Forget the requests so far; faults and repositories stay."""
        self._log = []

    def stats(self) -> dict[str, Any]:
        """Return totals per origin."""
        log = self.requests
        return {
            "requests": {name: sum(entry.origin == name for entry in log) for name in self._origins},
            "bytes": {name: sum(e.body_bytes for e in log if e.origin == name) for name in self._origins},
            "connections": {name: len(origin.connections) for name, origin in self._origins.items()},
        }

    # ---- answering (in the server's thread) ----

    def control(self, request: Incoming) -> Reply:
        """Answer a request about the server itself."""
        if request.target == "/_reset":
            if request.method != "POST":
                return Reply(405)
            self.reset()
            return Reply(204)
        return Reply(200, {"Content-Type": "application/json"}, body=json.dumps(self.stats()).encode())

    def answer(self, origin: str, request: Incoming) -> tuple[Reply, Request]:
        """Answer, spoil where a fault says so, and log."""
        route = self._routes.hub if origin == "hub" else self._routes.cdn_reply
        reply, name = route(request)
        path = request.path
        if self._faults:
            own = self.endpoint if origin == "hub" else self.cdn
            struck = Struck(
                request=request,
                origin=origin,
                url=own,
                elsewhere=_renamed(own),
                again=lambda salt: route(request, salt)[0],
                expire=lambda: self._routes.revoke(path),
            )
            reply = self._faults.spoil(reply, struck, path, name)
        headers = request.headers
        authorization = headers.get("authorization")
        entry = Request(
            origin=origin,
            method=request.method,
            path=path,
            query=request.query,
            file=name,
            host=headers.get("host", ""),
            range=headers.get("range"),
            authorization=authorization is not None,
            authorization_value=authorization,
            user_agent=headers.get("user-agent", ""),
        )
        self._log.append(entry)
        return reply, entry


def _renamed(url: str) -> str:
    """Return the same origin under loopback's other name."""
    return url.replace("localhost", _HOST) if "localhost" in url else url.replace(_HOST, "localhost")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.hub", description="A local hub for tests.")
    parser.add_argument("--repo", action="append", default=[], metavar="OWNER/NAME=FOLDER", help="may be repeated")
    parser.add_argument("--owner", action="append", default=[], metavar="OWNER=FOLDER", help="each folder in it is one")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to each response")
    parser.add_argument("--connect-latency-ms", type=float, default=0.0, help="added once per connection")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--ca-out", type=Path, help="where to write the authority's certificate (with --tls)")
    parser.add_argument("--token", default="hf_secret")
    parser.add_argument("--cdn-host", default=_HOST)
    parser.add_argument("--resolve-cache", action="store_true")
    parser.add_argument("--ignore-stdin", action="store_true", help="do not quit when standard input closes")
    return parser.parse_args(argv)


def _await_end_of_input(done: threading.Event) -> None:
    # Not through sys.stdin: its lock, held by a thread that waits, makes the interpreter abort at exit.
    while os.read(0, 4096):
        continue
    done.set()


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM, SIGINT or the end of standard input."""
    options = _arguments(argv)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    server = HubServer(
        latency_s=options.latency_ms / 1e3,
        connect_latency_s=options.connect_latency_ms / 1e3,
        tls=options.tls,
        token=options.token,
        cdn_host=options.cdn_host,
        resolve_cache=options.resolve_cache,
    )
    with server:
        commits = {}
        for item in options.repo:
            repo_id, _, folder = item.partition("=")
            commits[repo_id] = server.add_repo(repo_id, folder)
        for item in options.owner:
            owner, _, folder = item.partition("=")
            for path in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
                commits[f"{owner}/{path.name}"] = server.add_repo(f"{owner}/{path.name}", path)
        ready = {"endpoint": server.endpoint, "cdn": server.cdn, "commit": commits}
        if options.tls and options.ca_out is not None:
            options.ca_out.write_bytes(server.ca_pem.read_bytes())
            ready["ca"] = str(options.ca_out)
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        if not options.ignore_stdin:
            threading.Thread(target=_await_end_of_input, args=(done,), daemon=True).start()
        done.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
