"""Which Korean the project does not write: the words docs/glossary.md rules out, and spaces before % and units."""

import re
from functools import cache

from support.places import ROOT

HANGUL = re.compile(r"[가-힣]")
_SPACED = re.compile(r"[\d}] (?:%|[kKMGT]i?B(?![A-Za-z]))")


@cache
def unwanted_words() -> list[tuple[str, re.Pattern[str]]]:
    """Return pairs of a Korean term and a pattern of what is not said for it, from the glossary's last table."""
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## 쓰지 않는 말")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    # a word of one syllable is part of many others (층: 심층), so it counts only where a word begins
    return [
        (term, re.compile(rf"(?<![가-힣]){word}" if len(word) == 1 else re.escape(word)))
        for term, words, *_ in rows[2:]
        for word in words.split(", ")
    ]


def wrong_korean(*texts: str) -> list[str]:
    """Return the texts with a word or a spacing that the project does not use."""
    patterns = [_SPACED, *(pattern for _, pattern in unwanted_words())]
    return [text for text in texts if HANGUL.search(text) and any(pattern.search(text) for pattern in patterns)]
