"""Reports that tests of pages share, read from golden data: making one takes seconds."""

from pathlib import Path

import pytest

from kinprint.results import Report

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="session")
def golden_report() -> Report:
    """A derived pair with every field filled."""
    return Report.from_json((GOLDEN / "report_v1_annexes.json").read_bytes())


@pytest.fixture(scope="session")
def old_report() -> Report:
    """A report written before grids, declarations and reads existed."""
    return Report.from_json((GOLDEN / "report_v1.json").read_bytes())
