"""Do a job, in a process of its own (kinprint.scan.worker): compare, verify, and write every form of the result.

Reports are rendered here too, so that the server itself handles nothing of a stranger's model but bytes and a summary.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinprint._util.files import write_whole
from kinprint._util.plain import printable
from kinprint.bundle import make_bundle, verify_bundle
from kinprint.bundle.access import Access
from kinprint.catalog.store import open_catalog
from kinprint.errors import NeedsExtra
from kinprint.fingerprints.file import SUFFIX
from kinprint.render.content.search import headline
from kinprint.render.forms import FORMS, PAIR_TABLES, REPORT_FORMS, SEARCH_TABLE, Form, found, make
from kinprint.render.page.first_screen import first_screen
from kinprint.render.page.markup import PageWords
from kinprint.render.page.report import report_html, search_html
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.results.search import SearchReport
from kinprint.scan.frames import Message
from kinprint.scan.worker import Parent
from kinprint.searching.run import search as find_relatives
from kinprint.serve.bar import service_bar
from kinprint.serve.references import argument, shown
from kinprint.sources.base import Traffic
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.text import LANGUAGES

TELL_S = 0.2  # between two messages of one stage
BUNDLE, VERIFICATION = "bundle.zip", "verification.json"
PAGE = "page.{lang}.html"
STAGES = {
    "opening": (0.0, 0.1),
    "measuring": (0.1, 0.3),
    "evidence": (0.3, 0.95),
    "search": (0.5, 0.95),
    "writing": (0.95, 1.0),
}
"""From where to where the stages of a comparison reach, about what they take of two small models; others are a whole each."""

for _form in REPORT_FORMS:  # loaded before the first job waits for them
    with suppress(ImportError):  # of an extra that is not installed
        found(_form.makers["Report"])
        importlib.import_module(_form.needs[0] if _form.needs else __name__)


class Teller:
    """Tells the server how far a job is, not too often."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._last, self._stage, self._bytes = parent, 0.0, "", 0

    def stage(self, stage: str, done: int, total: int) -> None:
        """Tell the stage, and the share of the whole that it stands for."""
        now = time.monotonic()
        if stage == self._stage and done < total and now - self._last < TELL_S:
            return
        self._stage, self._last = stage, now
        start, end = STAGES.get(stage, (0.0, 1.0))
        share = min(0.99, start + (end - start) * min(done, total) / max(total, 1))
        told = {"stage": printable(stage, 60), "share": round(share, 3), "bytes": self._bytes}
        self._parent.tell({"kind": "progress", "told": told})

    def traffic(self, traffic: Traffic) -> None:
        """Note the bytes read so far."""
        self._bytes = traffic.bytes_read


def do(task: Message, parent: Parent) -> Message:
    """Do one job: its kind, request, folders and limits are in the message's head."""
    head = task.head
    uploaded = str(head["request"].get("model", "")).endswith(SUFFIX)
    here = Path(head["uploads"] if uploaded else head["local"] or head["empty"])
    os.chdir(here)  # what is named relative to it is all that may be read of this machine
    return Message({"summary": JOBS[head["work"]](head, Teller(parent))})


def settings_of(head: dict[str, Any]) -> Settings:
    """Return how models are read: without the operator's token unless they allow it, and nothing of the own network but the hub."""
    settings = Settings.from_env()
    if not head["hub_token"]:
        settings = replace(settings, token=None, hub_cache=None)  # whose files may be of gated models
    return replace(settings, private_servers=Access(settings).private_servers_of_own_hub())


def compare(head: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """Compare two models, and store bundle, report, page and all other forms whole or not at all."""
    request = head["request"]
    options = Options(budget_bytes=head["budget_bytes"], deep=bool(request.get("deep")))
    a, b = (argument(request[side]) for side in ("a", "b"))
    with storing(Path(head["target"])) as folder:
        with Session(settings_of(head), on_traffic=teller.traffic) as session:
            report = make_bundle(folder / BUNDLE, a, b, options, session=session, progress=teller.stage)
        names = [*write_forms(report, folder, PAIR_TABLES, teller), BUNDLE]
        known = [shown(request[side]) for side in ("a", "b")]
        bars = {lang: service_bar(PageWords(lang), head["id"], names, known, verify=True) for lang in LANGUAGES}
        for lang in LANGUAGES:
            write_whole(folder / PAGE.format(lang=lang), report_html(report, lang, bars=bars))
    return summary_of(report) | {"files": names}


def search(head: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """Look for the relatives of a model, or of an uploaded fingerprint, in the operator's catalog."""
    model, options = argument(head["request"]["model"]), Options(budget_bytes=head["budget_bytes"])
    with (
        storing(Path(head["target"])) as folder,
        open_catalog(head["catalog"], read_only=True) as catalog,
        Session(settings_of(head), on_traffic=teller.traffic) as session,
    ):
        found_here = find_relatives(model, catalog, options, session=session, progress=teller.stage)
        # where the operator keeps the catalog is nobody's business
        report = replace(found_here, catalog=Path(catalog.place).name)
        names = write_forms(report, folder, (SEARCH_TABLE,), teller)
        known = [] if model.endswith(SUFFIX) else [shown(head["request"]["model"])]
        bars = {lang: service_bar(PageWords(lang), head["id"], names, known, verify=False) for lang in LANGUAGES}
        for lang in LANGUAGES:
            write_whole(folder / PAGE.format(lang=lang), search_html(report, lang, bars=bars))
    return {
        "model": printable(report.query.name, 200),
        "class": report.class_,
        "entries": report.entries,
        "relatives": [
            {
                "name": printable(one.name, 200),
                "key": one.key,
                "class": one.class_,
                "log10_p": one.log10_p,
                "declared": one.declared,
            }
            for one in report.found
        ],
        "headline": {lang: headline(report, PageWords(lang)) for lang in LANGUAGES},
        "files": names,
    }


@contextmanager
def storing(target: Path) -> Iterator[Path]:
    """Give a folder to fill, which becomes `target` if all goes well."""
    folder = target.with_name(f".{target.name}.making")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def write_forms(report: Report | SearchReport, folder: Path, tables: Sequence[str], teller: Teller) -> list[str]:
    """Write every form of a report that can be made here; return the names of files that are offered."""
    kind = type(report).__name__
    wanted: list[tuple[Form, str | None, str | None]] = [(FORMS["json"], None, None)]
    for form in (form for form in REPORT_FORMS if kind in form.makers):
        held: tuple[str | None, ...] = tuple(tables) if form.tables else (None,)
        langs: tuple[str | None, ...] = LANGUAGES if form.name in ("html", "markdown") else (None,)
        wanted += [(form, table, lang) for table in held for lang in langs]
    names = []
    for number, (form, table, lang) in enumerate(wanted):
        teller.stage("writing", number, len(wanted) + 1)
        try:
            data = make(report, form.name, lang=lang or LANGUAGES[0], table=table)
        except NeedsExtra:
            continue
        names.append(file_name(form, table, lang))
        write_whole(folder / names[-1], data)
    return names


def file_name(form: Form, table: str | None, lang: str | None) -> str:
    """Return the name under which a form is offered."""
    stem = ".".join(["report" if table in (None, "measurements") else table, *([lang] if lang else [])])
    return f"{stem}{form.suffixes[0]}"


def summary_of(report: Report) -> dict[str, Any]:
    """Return what the server itself shows of a report: plain text, safe to keep."""
    verdict = report.verdict
    screens = {lang: first_screen(report, PageWords(lang)) for lang in LANGUAGES}
    return {
        "a": printable(report.a.reference, 200),
        "b": printable(report.b.reference, 200),
        "class": verdict.class_ if verdict else None,
        "kind": verdict.kind if verdict else None,
        "log10_p": verdict.log10_p if verdict else None,
        "light": screens[LANGUAGES[0]]["light"],
        "headline": {lang: str(screen["headline"]) for lang, screen in screens.items()},
        "declared": report.declared.state if report.declared else None,
        "bytes_read": report.bytes_read,
        "made_by": f"kinprint {printable(report.run.kinprint, 40)}",
        "started": printable(report.run.started, 40),
        "commits": [printable(side.commit, 64) if side.commit else None for side in (report.a, report.b)],
    }


def verify(head: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """Verify the bundle of a stored result, and keep what was found beside it."""
    folder = Path(head["target"])
    made = verify_bundle(folder / BUNDLE, settings=settings_of(head), progress=teller.stage)
    write_whole(folder / VERIFICATION, made.to_json())
    return {"outcome": made.outcome, "of": head["request"]["result"]}


JOBS: dict[str, Callable[[dict[str, Any], Teller], dict[str, Any]]] = {
    "compare": compare,
    "search": search,
    "verify": verify,
}
"""What can be asked for."""
