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
from kinprint.refs import ModelRef
from kinprint.results.options import Options
from kinprint.results.plain_json import build
from kinprint.scan.frames import Message
from kinprint.scan.worker import Parent
from kinprint.sources.base import Folder
from kinprint.sources.pace import Gate
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

KNOWN, HOPELESS = "known", "hopeless"  # what the commit of a model alone can tell of it
WORK = "kinprint.scan.fingerprinting:work"
PATIENCE_S = 900.0  # for one request: a host that is busy asks for minutes, which count as its own time


def work(task: Message, parent: Parent) -> Message:
    """Fingerprint one model, unless the commit that it has now is known, or known to fail; the commit is told in any case."""
    head = task.head
    options = build(Options, orjson.loads(task.parts[0]))
    session = _session(_settings(head), parent)
    before = _costs(session)
    session.opened.clear()
    try:
        if head[KNOWN] or head[HOPELESS]:
            commit = session.open_folder(head["model"]).provenance.commit
            settled = next((how for how in (KNOWN, HOPELESS) if commit in head[how]), None)
            if settled is not None:
                return Message({"settled": settled})
        item = fingerprint_model(head["model"], options, session=session)
        return Message({"families": list(item.vectors)}, _parts(item))
    finally:
        costs = {name: count - before[name] for name, count in _costs(session).items()}
        parent.aside = costs | {"commit": session.opened[0].provenance.commit if session.opened else None}


class _Session(Session):
    """A session that remembers what it opened: first the model asked for, then perhaps the base of an adapter."""

    def __init__(self, settings: Settings, gate: Gate) -> None:
        super().__init__(settings, gate=gate)
        self.opened: list[Folder] = []

    def open_folder(self, reference: str | ModelRef) -> Folder:
        """Return the files of a model."""
        folder = super().open_folder(reference)
        self.opened.append(folder)
        return folder


@lru_cache(maxsize=1)
def _session(settings: Settings, parent: Parent) -> _Session:
    """Return one session for all models of this process: connections to the hub are made once."""
    return _Session(settings, parent)


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
