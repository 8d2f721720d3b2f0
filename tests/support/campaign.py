"""The campaign of faults: how many were tried, and how many did harm.

A test that tries many cases counts them (`tried`); of some files each test is a case. tests/conftest.py adds up what all workers
report, prints the table, and puts it into the file that KINPRINT_CAMPAIGN names, as `make nightly` does with docs/reliability.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

_SERVERS = ("remote_protocol", "token_safety", "http_connection", "private_network")
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


def tried(part: str, count: int = 1, *, failed: int = 0) -> None:
    """Count cases of a part, and those that did harm."""
    COUNTS[part, "tried"] += count
    COUNTS[part, "failed"] += failed


def table(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the lines of the table."""
    lines = ["| part | tried | survived | failed |", "|---|---|---|---|"]
    for part in sorted({part for part, _ in counts}):
        all_cases, bad = counts[part, "tried"], counts.get((part, "failed"), 0)
        lines.append(f"| {part} | {all_cases:,} | {all_cases - bad:,} | {bad:,} |")
    return lines


def keep(file: Path, lines: Iterable[str]) -> None:
    """Put the table into a file, in the place of the last one."""
    before = file.read_text(encoding="utf-8")
    made = "\n".join(lines) + "\n"
    assert _PLACE.search(before), f"{file} has no place for a table"
    file.write_text(_PLACE.sub(lambda _: made, before), encoding="utf-8")
