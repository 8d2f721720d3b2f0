"""Writing and checking a report: the HTML page of two 48-layer models, its size, and the verification of an evidence bundle.

The page is made as a user gets it, at the end of a comparison: the first call in the process counts, with the import of the
template engine and the compiling of templates. Two models of 48 layers have all layer pairs of nine roles and every metric
of 435 tensors in their report. A bundle is verified offline, from the bytes that it holds: every hash is checked and every
statistic computed anew, so that it takes about as long as the comparison did; both are shown, and what verification takes beside
the comparison that it repeats. The best of three runs counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.common import Cell, Goal, Report, finish, median, parser, timed
from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.results.report import Report as Comparison
from kinprint.sources.ledger import Ledger
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.reports import wide_models

DEMO = Path(__file__).resolve().parents[1] / "demo" / "models"
LAYERS, QUICK_LAYERS = 48, 6
PAGE_S, PAGE_MB, VERIFY_S, BESIDE_S = 0.4, 3.0, 2.0, 0.4
QUICK = 5  # times as long may a quick run take, beside whatever else this machine does
RATIO = 2.0  # verification over comparison: it does the same and hashes, and a busy machine slows both
TIMES = 3
BEFORE = {"HTML": 0.949, "verification": 4.69}  # seconds for 48 layers, first time, of early November 2026
Row = dict[str, Cell]


def page(report: Comparison, lang: str) -> bytes:
    """Return the page; the import is part of it."""
    from kinprint.render.page.report import report_html

    return report_html(report, lang=lang)


def _row(what: str, of: str, first: float, again: float | None, size: int | None) -> Row:
    figures: Row = {"first s": round(first, 3), "again s": None if again is None else round(again, 3)}
    return {"what": what, "of": of} | figures | {"MB": None if size is None else round(size / 1e6, 3)}


def pages(report: Comparison, folder: Path, slack: float) -> tuple[list[Row], list[Goal]]:
    """Write the page in both languages, cold and again, and the JSON beside it."""
    rows: list[Row] = []
    goals: list[Goal] = []
    depth = f"{report.a.layers} layers"
    for lang in ("en", "ko"):
        path = folder / f"report.{lang}.html"

        def write(path: Path = path, lang: str = lang) -> int:
            return path.write_bytes(page(report, lang))

        cold, size = timed(write)
        rows.append(_row(f"HTML, {lang}", depth, cold, _again(write), size))
        before = BEFORE["HTML"] if report.a.layers == LAYERS and lang == "en" else None
        goals.append(Goal(f"HTML of {depth}, {lang}: first writing", cold, "<=", slack * PAGE_S, "s", before=before))
        goals.append(Goal(f"HTML of {depth}, {lang}: size", size / 1e6, "<=", PAGE_MB, "MB"))

    def raw() -> int:
        return len(report.to_json())

    cold, size = timed(raw)
    return [*rows, _row("JSON", depth, cold, _again(raw), size)], goals


def _again(function: Callable[[], object]) -> float:
    return median([timed(function)[0] for _ in range(TIMES)])


def verify(path: Path) -> tuple[float, float]:
    """Verify a bundle offline; return how long it took, and how long without the comparison that it repeats."""
    from kinprint.bundle import verify_bundle, verifying

    spent = []

    def repeated(*args: Any, **chosen: Any) -> Comparison:
        took, report = timed(lambda: compare(*args, **chosen))
        spent.append(took)
        return report

    with patch.object(verifying, "compare", repeated):
        wall, found = timed(lambda: verify_bundle(path, offline=True))
    if found.outcome != "verified":
        raise SystemExit(f"{path.name} was not verified: {found.sentence}")
    return wall, wall - sum(spent)


def bundle(a: Path, b: Path, options: Options, folder: Path, slack: float) -> tuple[list[Row], list[Goal], Comparison]:
    """Compare, write a bundle with its bytes, and verify it offline `TIMES` times."""
    from kinprint.bundle import write_bundle

    path = folder / f"{b.name}.zip"
    with Ledger(keep=True) as ledger, Session(Settings(), ledger=ledger) as session:
        took, report = timed(lambda: compare(str(a), str(b), options, session=session))
        wrote, _ = timed(lambda: write_bundle(path, report, ledger, enclose=True))
    walls, beside = zip(*(verify(path) for _ in range(TIMES)), strict=True)
    of = f"{report.a.layers} layers, {sum(len(item.measurements) for item in report.comparisons):,} measurements"
    rows = [
        _row("comparison", of, took, None, None),
        _row("bundle", of, wrote, None, path.stat().st_size),
        _row("verification", of, walls[0], median(walls[1:]), None),
        _row("verification, beside the comparison", of, beside[0], median(beside[1:]), None),
    ]
    name = f"verification of a bundle, {of}"
    before = BEFORE["verification"] if report.a.layers == LAYERS else None
    goals = [
        Goal(name, min(walls), "<=", slack * VERIFY_S, "s", before=before),
        Goal(f"{name}: beside the comparison", min(beside), "<=", slack * BESIDE_S, "s"),
        Goal(f"{name}: times the comparison", min(walls) / took, "<=", RATIO),
    ]
    return rows, goals, report


def measure(*, quick: bool) -> Report:
    """Compare, write and check: the demo pair, and two deep models."""
    with tempfile.TemporaryDirectory(prefix="bench-reports-") as made:
        folder = Path(made)
        a, b = wide_models(folder, layers=QUICK_LAYERS if quick else LAYERS)
        options = Options(metrics=("cosine", "pearson") if quick else ())
        slack = QUICK if quick else 1
        rows, goals, _ = bundle(DEMO / "base", DEMO / "finetune", Options(), folder, slack)
        deep, deep_goals, report = bundle(a, b, options, folder, slack)
        more, page_goals = pages(report, folder, slack)
    note = (
        f"The deep report has {len(report.grids)} grids of {report.a.layers} × {report.b.layers} layer pairs. The first HTML "
        "includes the import of the template engine. Verification computes everything anew, so it takes as long as the "
        "comparison."
    )
    return Report("reports", "Reports and bundles", (*rows, *deep, *more), (*page_goals, *goals, *deep_goals), (note,))


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.reports", __doc__).parse_args(argv)
    return finish([measure(quick=asked.quick)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
