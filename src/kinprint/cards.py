"""The front matter of a model card: what it declares of a model's origin and licence.

No YAML reader: a card is hostile input, and two spellings of a few keys are all that is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CARD = "README.md"
CARD_CAP = 1 << 20
SHOWN = 200
MOST = 8
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Card:
    """What a card says, each entry cut to a length that can be shown."""

    base_models: tuple[str, ...] = ()
    relation: str | None = None
    licence: str | None = None


def read_card(text: str) -> Card:
    """Return what the front matter says; a card without one says nothing."""
    front = _FRONT.match(text.replace("\r\n", "\n"))
    if front is None:
        return Card()
    lines = front[1].split("\n")
    licence = _first(lines, "license")
    # "other" and "unknown" point to another key, as the hub wants it
    named = _first(lines, "license_name") if licence in (None, "other", "unknown") else None
    return Card(tuple(_values(lines, "base_model"))[:MOST], _first(lines, "base_model_relation"), named or licence)


def _first(lines: Sequence[str], key: str) -> str | None:
    return next(iter(_values(lines, key)), None)


def _values(lines: Sequence[str], key: str) -> list[str]:
    """Return the entries of a key of the outermost level: one value, or a list in either of YAML's spellings."""
    for number, line in enumerate(lines):
        found, colon, value = line.partition(":")
        if found != key or not colon:
            continue
        value = value.split(" #")[0].strip()
        if value.startswith("["):
            return [name for part in value.strip("[]").split(",") if (name := _plain(part))]
        return [_plain(value)] if _plain(value) else list(_listed(lines[number + 1 :]))
    return []


def _listed(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        item = line.strip()
        if not item.startswith("-"):
            return
        if name := _plain(item[1:].split(" #")[0]):
            yield name


def _plain(text: str) -> str:
    return text.strip().strip("\"'").strip()[:SHOWN]
