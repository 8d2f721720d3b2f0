"""Run the server until it is ended."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import uvicorn

from kinprint.errors import StorageError
from kinprint.serve.app import make_app
from kinprint.serve.options import ServeOptions

PATIENCE_S = 3  # for replies under way when the server is ended


def serve(options: ServeOptions, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` hears the address when it can be asked for. Port 0 takes any that is free."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    listening = _listen(host, port)
    number = listening.getsockname()[1]
    config = uvicorn.Config(
        make_app(options),
        log_config=None,
        access_log=False,  # addresses of people, and models that they look up, stay out of logs
        proxy_headers=bool(options.proxies),
        forwarded_allow_ips=list(options.proxies),
        server_header=False,
        timeout_graceful_shutdown=PATIENCE_S,
        timeout_keep_alive=30,
        limit_concurrency=2000,
        h11_max_incomplete_event_size=32_768,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce(f"http://{f'[{host}]' if ':' in host else host}:{number}/")

    Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        said = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise StorageError(said, hint="give another --port, or 0 for any that is free") from error
    made.listen(2048)
    return made
