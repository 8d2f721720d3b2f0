"""Write report_v2.json: a report with layer grids, declarations, a ledger, methods, controls and a merge.

python tests/golden/make_report_v2.py, while the version that writes schema 2 is not yet released; then the file stays as it was
written, as report_v1.json and report_v1_annexes.json do, which programs before schema 2 wrote.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.reports import wide_models

HERE = Path(__file__).parent
OPTIONS = Options(
    rows=8,
    metrics=("cosine", "pearson", "shuffled_cosine", "ulp_distance"),
    controls=("other/base",),
    related=("base",),
    parents=("other/tuned",),
    methods=("norms",),
)


def golden_report() -> Report:
    """Compare two small models by relative names, so that no path of this machine is written."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        os.chdir(folder)
        try:
            wide_models(Path(), layers=3)
            wide_models(Path("other"), layers=3, seed=1)
            card = "---\nlicense: mit\nbase_model: base\nbase_model_relation: finetune\n---\n"
            Path("tuned/README.md").write_text(card, encoding="utf-8")
            return timeless(compare("base", "tuned", OPTIONS, settings=Settings()))
        finally:
            os.chdir(before)


def timeless(report: Report) -> Report:
    """Drop what tells local files apart: their times of modification, which no checkout keeps."""
    sides = [
        replace(side, files=tuple(replace(file, identity="") for file in side.files)) for side in (report.a, report.b)
    ]
    reads = tuple(replace(item, identity=None if item.identity is None else "") for item in report.reads)
    return replace(report, a=sides[0], b=sides[1], reads=reads)


if __name__ == "__main__":
    (HERE / "report_v2.json").write_bytes(golden_report().to_json() + b"\n")
