"""Define what the operator of a server chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kinprint.results.options import DEFAULT_BUDGET_BYTES

NOBODY, KEYS, ANYONE = "nobody", "keys", "anyone"
MAY_START = (NOBODY, KEYS, ANYONE)
"""Who may start jobs: nobody (read only), whoever has an API key, anyone who reaches the server."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Limits:
    """What one client, one job and all of them may take."""

    workers: int = 1  # jobs that run at a time
    queued: int = 200  # jobs that wait, in all
    queued_of_client: int = 20
    job_s: float = 300.0  # before a job is ended
    job_memory_bytes: int = 4 << 30
    budget_bytes: int = DEFAULT_BUDGET_BYTES  # that one job may read of models
    body_bytes: int = 1 << 20  # of a request
    reads_per_minute: int = 1200  # of one client
    writes_per_minute: int = 30
    streams: int = 200  # open streams of progress, in all
    streams_of_client: int = 12


@dataclass(frozen=True)
class ServeOptions:
    """Choices of the operator.

    Attributes
    ----------
    folder : where jobs, events, results and keys are kept.
    hosts : names under which the server may be asked for; others are refused, as they may be a stranger's name for this machine.
    may_start : who may start jobs, one of `MAY_START`.
    local : a folder whose models may be named, or None; no other path of this machine may.
    catalog : the catalog to search, as `kinprint catalog` takes it, or None for no search.
    families : the catalog's graph, as ``kinprint catalog tree --json`` writes it, or None for what cards declare.
    state : address of a PostgreSQL database that keeps jobs and keys, or None for a file in the folder.
    hub_token : whether jobs may use the operator's token of the hub: then strangers see what the token can read.
    proxies : addresses of proxies whose word on who asks is believed.
    """

    folder: Path
    hosts: tuple[str, ...] = LOOPBACK
    may_start: str = ANYONE
    local: Path | None = None
    catalog: str | None = None
    families: Path | None = None
    state: str | None = None
    hub_token: bool = False
    proxies: tuple[str, ...] = ()
    limits: Limits = Limits()
