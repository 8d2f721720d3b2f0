"""Run `kinprint compare --deep` on two members, as one more method: on model folders, as a user runs it."""

import json
import tempfile
import time
from functools import cache
from pathlib import Path

from kinprint.comparison.pipeline import compare
from kinprint.errors import KinprintError
from kinprint.lab.lineage.scoring import MethodOutcome
from kinprint.lab.zoo.store import Zoo
from kinprint.results.findings import DERIVED, IDENTICAL, NOT_TESTABLE, SHARES_COMPONENTS, SHARES_INITIALISATION
from kinprint.results.options import Options
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

VERDICT = "verdict"
VERDICT_VERSION = 2  # to be raised when the engine comes to other verdicts: kept results then do not count
VALUES = {IDENTICAL: 1.0, DERIVED: 1.0, SHARES_COMPONENTS: 0.5, SHARES_INITIALISATION: 0.5}
"""Value of a verdict in the table; no evidence is 0. Sharing parts or a start is no accusation, and no acquittal."""


@cache
def _true_kinds() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(Path(__file__).with_name("true_kinds.json").read_text(encoding="utf-8"))
    return found


def tells_what_was_done(attack: str, kind: str) -> bool:
    """Whether the sentence of a kind is true of an attack; of several in a row, of one of them. Heavy training names mixing too."""
    return kind in {name for step in attack.split("+") for name in _true_kinds()[step]}


def judge(zoo: Zoo, a: str, b: str, *, seed: int = 0) -> MethodOutcome:
    """Write both members to a folder and run the comparison on them; the note is the verdict's class and kind."""
    with tempfile.TemporaryDirectory(prefix="kinprint-zoo-") as place:
        folders = [Path(place) / side for side in ("a", "b")]
        for folder, name in zip(folders, (a, b), strict=True):
            zoo.write(name, folder)
        began = time.perf_counter()
        try:
            with Session(Settings(offline=True, range_cache=None)) as session:
                report = compare(
                    str(folders[0]),
                    str(folders[1]),
                    Options(budget_bytes=None, metrics=("pearson",), seed=seed, deep=True),
                    session=session,
                )
        except KinprintError as error:
            return MethodOutcome(VERDICT, a, b, None, None, error.message, time.perf_counter() - began, 0)
        seconds = time.perf_counter() - began
    verdict = report.verdict
    if verdict is None or verdict.class_ == NOT_TESTABLE:
        reason = report.reason or (verdict.sentence if verdict is not None else "no verdict")
        return MethodOutcome(VERDICT, a, b, None, None, reason, seconds, report.bytes_read)
    note = verdict.class_ if verdict.kind is None else f"{verdict.class_} {verdict.kind}"
    value = VALUES.get(verdict.class_, 0.0)
    return MethodOutcome(VERDICT, a, b, value, verdict.log10_p, None, seconds, report.bytes_read, note)
