"""Write report_v1.json, the report that every later version must still open: python tests/golden/make_report_v1.py.

Only for a new schema version (then under a new name): the file's point is that it stays.
"""

import os
from dataclasses import replace
from pathlib import Path

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPTIONS = Options(layers="0", roles=("input_norm", "post_attention_norm"))


def golden_report() -> Report:
    """Compare the demo pair from the repository's root, so that no path of this machine is written."""
    os.chdir(ROOT)
    report = compare("demo/models/base", "demo/models/finetune", OPTIONS, settings=Settings())
    # a local file is known by its time of modification, which a checkout does not keep
    sides = [
        replace(side, files=tuple(replace(file, identity="") for file in side.files)) for side in (report.a, report.b)
    ]
    return replace(report, a=sides[0], b=sides[1])


if __name__ == "__main__":
    (HERE / "report_v1.json").write_bytes(golden_report().to_json() + b"\n")
