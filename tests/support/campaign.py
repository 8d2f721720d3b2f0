"""The campaign of faults: how many were tried, and how many did harm.

A test that tries many cases counts them (`tried`); of some files each test is a case. tests/conftest.py adds up what all workers
report, prints the table, and puts its lines into the file that KINPRINT_CAMPAIGN names, as `make nightly` does with
docs/reliability.md. Each line there says at which commit it was made; parts that were not run keep theirs.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.places import ROOT

_SERVERS = ("remote_protocol", "retries", "token_safety", "http_connection", "private_network", "proxy")
_BUNDLES = ("verify_tampering", "hostile_bundles", "forged_records", "bundles_of_strangers")
FILES: Mapping[str, str] = {
    **{f"tests/sources/test_{name}.py": "faulty servers, one kind each" for name in _SERVERS},
    **{f"tests/bundle/test_{name}.py": "tampered bundles" for name in _BUNDLES},
    "tests/formats/test_growth.py": "growth",
}
"""Files of which each test is a case, and their part."""

COUNTS: Counter[tuple[str, str]] = Counter()
"""Cases of the test that runs: by part, and "tried" or "failed"."""
_PLACE = re.compile(r"(?<=<!-- campaign -->\n).*(?=<!-- end of the campaign -->)", re.DOTALL)
_HEAD = ["| part | tried | survived | failed |", "|---|---|---|---|"]


def tried(part: str, count: int = 1, *, failed: int = 0) -> None:
    """Count cases of a part, and those that did harm."""
    COUNTS[part, "tried"] += count
    COUNTS[part, "failed"] += failed


def table(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the lines of the table."""
    lines = list(_HEAD)
    for part in sorted({part for part, _ in counts}):
        all_cases, bad = counts[part, "tried"], counts.get((part, "failed"), 0)
        lines.append(f"| {part} | {all_cases:,} | {all_cases - bad:,} | {bad:,} |")
    return lines


def keep(file: Path, lines: Sequence[str], commit: str) -> None:
    """Put the lines of a table into the one of a file, each in the place of the last one on its part, with the commit."""
    before = file.read_text(encoding="utf-8")
    place = _PLACE.search(before)
    assert place is not None, f"{file} has no place for a table"
    new = [f"{line} {commit} |" for line in lines[len(_HEAD) :]]
    rows = {row.split("|")[1]: row for row in [*place[0].splitlines()[len(_HEAD) :], *new]}
    made = "\n".join([f"{_HEAD[0]} commit |", f"{_HEAD[1]}---|", *(rows[part] for part in sorted(rows))]) + "\n"
    file.write_text(_PLACE.sub(lambda _: made, before), encoding="utf-8")


def commit() -> str:
    """Return the short name of the commit that is checked out; one with changes says so."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
