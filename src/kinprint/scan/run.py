"""Scan: enter many models in a catalog. Processes read them; this one alone writes, each model in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinprint import errors
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint.catalog.adding import enter, now
from kinprint.catalog.entry import ERROR_CHARS, NAME_CHARS, Failure
from kinprint.catalog.store import Catalog
from kinprint.errors import BadSelection, FormatError
from kinprint.refs import public
from kinprint.results.options import Options
from kinprint.results.plain_json import write_json
from kinprint.results.scan import SCAN_VERSION, ScanFailure, ScanReport
from kinprint.scan.engine import Job, Rate, work_off
from kinprint.scan.fingerprinting import item_from
from kinprint.scan.frames import Message, pack
from kinprint.scan.wanted import Wanted
from kinprint.scan.worker import error_of
from kinprint.scan.workers import Workers

CONNECTIONS = 32  # to one host at a time, by all workers together
LASTING = frozenset(
    {"FormatError", "UnsupportedDtype", "NotComparable", "BudgetExceeded", "FileTooLarge", "MemoryError"}
)
"""Errors that the same commit will give again, so that they are not tried again by themselves."""


@dataclass
class _Tally:
    """What has been done so far."""

    added: int = 0
    known: int = 0
    failed_before: int = 0
    failed: list[ScanFailure] = field(default_factory=list)
    cpu_s: float = 0.0
    requests: int = 0
    retries: int = 0
    network_bytes: int = 0
    bytes_read: int = 0
    fingerprint_bytes: int = 0

    @property
    def done(self) -> int:
        return self.added + self.known + self.failed_before + len(self.failed)


def scan(
    models: Sequence[Wanted],
    catalog: Catalog,
    workers: Workers,
    *,
    options: Options | None = None,
    offline: bool = False,
    again: bool = False,
    retry_failed: bool = False,
    connections: int = CONNECTIONS,
    progress: Progress = quiet,
) -> ScanReport:
    """Fingerprint models on `workers` and enter them in `catalog`, which nobody else needs to write to meanwhile.

    A model that stands there at the commit that it has now is not read again (`again`: it is, and replaced), nor one that
    failed at this commit for a reason that stays (`retry_failed`: it is). An interrupt loses what is under way and nothing else.
    """
    began, tally, rate = time.monotonic(), _Tally(), Rate()
    how = {"offline": offline, "connections": max(1, connections // max(1, workers.width))}
    chosen = write_json(options or Options(), indent=False)
    failed = {} if retry_failed or again else {(item.name, item.revision): item for item in catalog.failures()}

    def jobs() -> Iterator[Job[Wanted]]:
        for model in models:
            if not again and model.commit is not None and catalog.find(model.model, model.commit) is not None:
                tally.known += 1
            elif model.commit is not None and _lasts(failed.get((model.model, model.commit))):
                tally.failed_before += 1
            else:
                yield Job(model, pack(_head(model, catalog, how, again=again), [chosen]))

    def tell(_under_way: int) -> None:
        progress(f"scan, {rate.per_s:.3g} models/s", tally.done, len(models))

    interrupted = False
    try:
        for model, answer in work_off(jobs(), workers, tell):
            _count(tally, answer)
            _enter(catalog, model, answer, tally, again=again)
            rate.count()
    except KeyboardInterrupt:
        interrupted = True
    return ScanReport(
        schema=ScanReport.SCHEMA,
        schema_version=SCAN_VERSION,
        catalog=catalog.place,
        where=workers.where,
        workers=workers.width,
        wanted=len(models),
        added=tally.added,
        known=tally.known,
        failed_before=tally.failed_before,
        failed=tuple(tally.failed),
        seconds=time.monotonic() - began,
        cpu_seconds=tally.cpu_s,
        requests=tally.requests,
        retries=tally.retries,
        network_bytes=tally.network_bytes,
        bytes_read=tally.bytes_read,
        fingerprint_bytes=tally.fingerprint_bytes,
        interrupted=interrupted,
    )


def _lasts(failure: Failure | None) -> bool:
    return failure is not None and failure.error.partition(":")[0] in LASTING


def _head(model: Wanted, catalog: Catalog, how: dict[str, Any], *, again: bool) -> dict[str, Any]:
    """Return the head of a model's task, with the commits of it that need not be read again."""
    known: list[str] = []
    if model.commit is None and not again:
        latest = catalog.find(model.model)
        known = [latest.revision] if latest is not None and latest.revision is not None else []
    return {"model": model.reference, "known": known, **how}


def _count(tally: _Tally, answer: Message) -> None:
    for name in ("requests", "retries", "network_bytes", "bytes_read"):
        setattr(tally, name, getattr(tally, name) + int(answer.head.get(name, 0)))
    tally.cpu_s += float(answer.head.get("cpu_s", 0.0))


def _enter(catalog: Catalog, model: Wanted, answer: Message, tally: _Tally, *, again: bool) -> None:
    """Enter what came of a model, or the reason why nothing did."""
    told = answer.head.get("error")
    if told is None and answer.head.get("known"):
        tally.known += 1
        return
    if told is None:
        try:
            item = item_from(answer, model.model)
            new = enter(catalog, item, replace=again)[1]
        except (FormatError, BadSelection) as error:
            told = error_of(error)
        else:
            tally.added += new
            tally.known += not new
            tally.fingerprint_bytes += len(item.fingerprint) if new else 0
            return
    _note(catalog, model, told, tally)


def _note(catalog: Catalog, model: Wanted, told: dict[str, Any], tally: _Tally) -> None:
    name = printable(public(model.model), NAME_CHARS)
    error = printable(f"{told['class']}: {told['message']}", ERROR_CHARS)
    catalog.fail(Failure(name, model.commit, error, now()))
    tally.failed.append(ScanFailure(name, model.commit, error, told.get("hint")))


def exit_code(report: ScanReport) -> int:
    """Return 0, or the exit code of the first error, 7 for what a limit of memory or time, or a crash, ended."""
    if report.interrupted:
        return 130
    if not report.failed:
        return 0
    kind = getattr(errors, report.failed[0].error.partition(":")[0], None)
    return int(kind.exit_code) if isinstance(kind, type) and issubclass(kind, errors.KinprintError) else 7
