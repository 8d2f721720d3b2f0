"""The benches in their small sizes, run once for all tests, or before them by `make bench-quick` as CI does."""

import json
import os
import subprocess
import sys

import pytest

from support.places import ROOT

sys.path.append(str(ROOT))  # the benches are no part of the package
WRITTEN = os.environ.get("KINPRINT_BENCH_RESULTS")  # read now: tests run in a cleaned environment


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Return the reports of all benches by the name of the bench; of one with several, a list in order."""
    out = ROOT / WRITTEN if WRITTEN else tmp_path_factory.mktemp("bench") / "quick.json"
    if not WRITTEN:
        line = [sys.executable, "-m", "bench", "--quick", "--json", str(out)]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900)
        assert done.returncode in (0, 1), done.stderr  # 1: a goal was missed, which a busy machine may do
        assert out.exists(), done.stdout + done.stderr
        assert (done.returncode == 0) == all(report["passed"] for report in json.loads(out.read_text())["reports"])
    written = json.loads(out.read_text())
    assert set(written) == {"machine", "reports"}
    assert written["machine"]["cores"] >= 1
    found = {}
    for report in written["reports"]:
        assert set(report) == {"bench", "title", "passed", "rows", "goals", "notes", "facts"}
        assert report["passed"] == all(goal["met"] for goal in report["goals"] if goal["required"])
        found.setdefault(report["bench"], []).append(report)
    return found
