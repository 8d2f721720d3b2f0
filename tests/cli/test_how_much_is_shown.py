"""The answer, the tables or JSON: what is printed of a comparison that was made, and of one that was saved."""

import json

from support.places import GOLDEN_REPORTS

SAVED = GOLDEN_REPORTS / "report_v2.json"


def test_saved_reports_have_the_tables_that_the_answer_names(inside):
    short = inside("report", SAVED, "--format", "text").out.splitlines()
    full = inside("report", SAVED, "--full").out.splitlines()
    assert short[0] == "Verdict: derived, further training"
    assert any("--full" in line for line in short)
    assert len(full) > 3 * len(short)


def test_json_that_was_asked_for_is_json(inside):
    assert json.loads(inside("report", SAVED, "--full", "--format", "json").out)["verdict"]["class"] == "derived"
