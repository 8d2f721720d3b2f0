"""The work of a scan's process: read one model as far as its fingerprint needs, and hand back all that a catalog stores of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import Item, from_record, packed, to_record, unpacked
from kinprint.errors import FormatError
from kinprint.results.options import Options
from kinprint.results.plain_json import build
from kinprint.scan.frames import Message
from kinprint.scan.worker import Parent
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

WORK = "kinprint.scan.fingerprinting:work"
PATIENCE_S = 900.0  # for one request: a host that is busy asks for minutes, which count as its own time


def work(task: Message, parent: Parent) -> Message:
    """Fingerprint one model, unless the commit that it has now is known."""
    head = task.head
    options = build(Options, orjson.loads(task.parts[0]))
    session = _session(_settings(head), parent)
    before = _costs(session)
    try:
        if head["known"] and session.open_folder(head["model"]).provenance.commit in head["known"]:
            return Message({"known": True})
        item = fingerprint_model(head["model"], options, session=session)
        return Message({"families": list(item.vectors)}, _parts(item))
    finally:
        parent.costs = {name: count - before[name] for name, count in _costs(session).items()}


@lru_cache(maxsize=1)
def _session(settings: Settings, parent: Parent) -> Session:
    """Return one session for all models of this process: connections to the hub are made once."""
    return Session(settings, gate=parent)


def _costs(session: Session) -> dict[str, int]:
    traffic = session.traffic
    return {
        "requests": traffic.requests,
        "network_bytes": traffic.network_bytes,
        "bytes_read": session.bytes_delivered,
        "retries": traffic.retries,
    }


def _settings(head: dict[str, Any]) -> Settings:
    """Take the settings of this machine: its token and certificates; what the command line chose comes with the task."""
    own = Settings.from_env()
    return replace(
        own,
        offline=own.offline or bool(head["offline"]),
        # what a scan reads it reads once: keeping it would only push out of the cache what is needed again
        range_cache=None,
        concurrency=head["connections"],
        deadline_s=max(own.deadline_s, PATIENCE_S),
        max_retry_after_s=PATIENCE_S,
        retries=sys.maxsize,  # of one request they are few; thousands of models have no number of them in common
    )


def _parts(item: Item) -> tuple[bytes, ...]:
    return (to_record(item.entry), item.fingerprint, *map(packed, item.vectors.values()))


def item_from(answer: Message, where: str) -> Item:
    """Return what a process made of a model; the store checks every part of it."""
    families = answer.head.get("families", [])
    if len(answer.parts) != 2 + len(families):
        raise FormatError(f"{where}: the worker sent {len(answer.parts)} parts, expected {2 + len(families)}")
    record, fingerprint, *vectors = answer.parts
    made = {name: unpacked(raw, name) for name, raw in zip(families, vectors, strict=True)}
    return Item(from_record(record, where), fingerprint, made)
