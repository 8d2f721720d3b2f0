"""Scan: enter many models in a catalog. Processes read them; this one alone writes, each model in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kinprint import errors
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint.catalog.adding import NOT_ITS_FAULT, enter, noted_name, now
from kinprint.catalog.entry import ERROR_CHARS, Entry, Failure
from kinprint.catalog.store import Catalog, is_text
from kinprint.errors import BadSelection, FormatError, KinprintError
from kinprint.refs import parse_ref
from kinprint.results.options import Options
from kinprint.results.plain_json import write_json
from kinprint.results.scan import SCAN_VERSION, ScanFailure, ScanReport
from kinprint.scan.engine import Job, Rate, work_off
from kinprint.scan.fingerprinting import HOPELESS, KNOWN, item_from
from kinprint.scan.frames import Message, pack
from kinprint.scan.wanted import Wanted
from kinprint.scan.worker import error_of
from kinprint.scan.workers import Workers

CONNECTIONS = 32  # to one host at a time, by all workers together
LASTING = frozenset(
    {"FormatError", "UnsupportedDtype", "NotComparable", "BudgetExceeded", "FileTooLarge", "MemoryError"}
)
"""Errors that the same commit will give again, so that they are not tried again by themselves."""

_NOT_NOTED = frozenset(error.__name__ for error in NOT_ITS_FAULT)


@dataclass
class _Tally:
    """What has been done so far."""

    added: int = 0
    known: int = 0
    failed_before: int = 0
    failed: dict[int, ScanFailure] = field(default_factory=dict)  # by their places in the list
    entered: set[str] = field(default_factory=set)  # keys, which `again` must not replace once more
    cpu_s: float = 0.0
    requests: int = 0
    retries: int = 0
    network_bytes: int = 0
    bytes_read: int = 0
    fingerprint_bytes: int = 0

    @property
    def done(self) -> int:
        return self.added + self.known + self.failed_before + len(self.failed)


class _Notes:
    """What the catalog notes of models that could not be entered, under the names that they were asked for by."""

    def __init__(self, catalog: Catalog, *, heeded: bool) -> None:
        self._catalog, self._heeded = catalog, heeded
        self._noted: dict[str, dict[str | None, bool]] = {}  # whether what went wrong at a commit stays
        for item in catalog.failures():
            self._noted.setdefault(item.name, {})[item.revision] = _lasts(item.error)

    def hopeless(self, model: Wanted) -> list[str]:
        """Return the commits of a model that need not be tried again."""
        noted = self._noted.get(noted_name(model.model), {}) if self._heeded else {}
        return [commit for commit, lasts in noted.items() if lasts and commit is not None]

    def note(self, model: Wanted, commit: str | None, error: str) -> None:
        """Note an error, at the commit if that is known: what was noted without one is told better now.

        What the model has no part in is not noted.
        """
        if error.partition(":")[0] in _NOT_NOTED:
            return
        name = noted_name(model.model)
        if commit is not None:
            self.forget(model, None)
        self._catalog.fail(Failure(name, commit, error, now()))
        self._noted.setdefault(name, {})[commit] = _lasts(error)

    def forget(self, model: Wanted, commit: str | None) -> None:
        """Forget what is noted of a model at a commit, and without one; most have nothing, and cost nothing."""
        name = noted_name(model.model)
        noted = self._noted.get(name, {})
        if commit in noted or None in noted:
            self._catalog.forget(name, commit)
            for one in (commit, None):
                noted.pop(one, None)


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
    What failed is reported in the order of `models`, whichever was done first.
    """
    began, tally, rate = time.monotonic(), _Tally(), Rate()
    how = {"offline": offline, "connections": max(1, connections // max(1, workers.width))}
    chosen = write_json(options or Options(), indent=False)
    notes = _Notes(catalog, heeded=not (retry_failed or again))

    def jobs() -> Iterator[Job[tuple[int, Wanted]]]:
        for place, model in enumerate(models):
            hopeless = notes.hopeless(model)
            if not is_text(model.model):
                tally.failed[place] = _refused(model, notes)
            elif not again and model.commit is not None and _find(catalog, model.model, model.commit) is not None:
                tally.known += 1
            elif model.commit in hopeless:
                tally.failed_before += 1
            else:
                head = {KNOWN: _known(model, catalog, again=again), HOPELESS: hopeless, **how}
                yield Job((place, model), pack({"model": model.reference, **head}, [chosen]))

    def tell(_under_way: int) -> None:
        progress(f"scan, {rate.per_s:.3g} models/s", tally.done, len(models))

    interrupted = False
    try:
        for (place, model), answer in work_off(jobs(), workers, tell):
            _count(tally, answer)
            failure = _enter(catalog, model, answer, tally, notes, again=again)
            if failure is not None:
                tally.failed[place] = failure
            rate.count()
    except KeyboardInterrupt:
        interrupted = True
    return _report(catalog, workers, len(models), tally, seconds=time.monotonic() - began, interrupted=interrupted)


def _report(
    catalog: Catalog, workers: Workers, wanted: int, tally: _Tally, *, seconds: float, interrupted: bool
) -> ScanReport:
    return ScanReport(
        schema=ScanReport.SCHEMA,
        schema_version=SCAN_VERSION,
        catalog=catalog.place,
        where=workers.where,
        workers=workers.width,
        wanted=wanted,
        added=tally.added,
        known=tally.known,
        failed_before=tally.failed_before,
        failed=tuple(tally.failed[place] for place in sorted(tally.failed)),
        seconds=seconds,
        cpu_seconds=tally.cpu_s,
        requests=tally.requests,
        retries=tally.retries,
        network_bytes=tally.network_bytes,
        bytes_read=tally.bytes_read,
        fingerprint_bytes=tally.fingerprint_bytes,
        interrupted=interrupted,
    )


def _lasts(error: str) -> bool:
    return error.partition(":")[0] in LASTING


def _known(model: Wanted, catalog: Catalog, *, again: bool) -> list[str]:
    """Return the commits of a model that need not be read again; none where its own is known, and looked up already."""
    name = _entry_name(model.model) if model.commit is None and not again else None
    latest = None if name is None else _find(catalog, name)
    return [latest.revision] if latest is not None and latest.revision is not None else []


def _entry_name(asked: str) -> str | None:
    """Return what an entry of the hub is called, whatever tag is asked for; None for what is elsewhere, or nowhere."""
    try:
        ref = parse_ref(asked, endpoint="")
    except KinprintError:
        return None
    return "/".join(filter(None, (ref.repo, ref.file))) or None


def _refused(model: Wanted, notes: _Notes) -> ScanFailure:
    """Note a model whose name no entry can have, and no process can be told."""
    said = "BadReference: a name that is no text in UTF-8"
    notes.note(model, None, said)
    return ScanFailure(noted_name(model.model), None, said, "rename the folder or file, or enter it with catalog add")


def _find(catalog: Catalog, name: str, revision: str | None = None) -> Entry | None:
    """Return an entry; a damaged one ends no scan, and is read again."""
    try:
        return catalog.find(name, revision)
    except FormatError:
        return None


def _count(tally: _Tally, answer: Message) -> None:
    for name in ("requests", "retries", "network_bytes", "bytes_read"):
        setattr(tally, name, getattr(tally, name) + int(answer.head.get(name, 0)))
    tally.cpu_s += float(answer.head.get("cpu_s", 0.0))


def _enter(
    catalog: Catalog, model: Wanted, answer: Message, tally: _Tally, notes: _Notes, *, again: bool
) -> ScanFailure | None:
    """Enter what came of a model; return the reason why nothing did, which is noted."""
    told, commit = answer.head.get("error"), model.commit or answer.head.get("commit")
    settled = answer.head.get("settled")  # by the commit alone
    if told is None and settled is None:
        try:
            item = item_from(answer, model.model)
            new = enter(catalog, item, replace=again, kept=tally.entered)[1]
        except (FormatError, BadSelection) as error:
            told = error_of(error)
        else:
            tally.entered.add(item.entry.key)
            tally.added += new
            tally.known += not new
            tally.fingerprint_bytes += len(item.fingerprint) if new else 0
    if told is not None:
        said = printable(f"{told['class']}: {told['message']}", ERROR_CHARS)
        notes.note(model, commit, said)
        return ScanFailure(noted_name(model.model), commit, said, told.get("hint"))
    tally.known += settled == KNOWN
    tally.failed_before += settled == HOPELESS
    notes.forget(model, None if settled == HOPELESS else commit)
    return None


def exit_code(report: ScanReport) -> int:
    """Return 0, or the exit code of the first error, 7 for what a limit of memory or time, or a crash, ended."""
    if report.interrupted:
        return 130
    if not report.failed:
        return 0
    kind = getattr(errors, report.failed[0].error.partition(":")[0], None)
    return int(kind.exit_code) if isinstance(kind, type) and issubclass(kind, errors.KinprintError) else 7
