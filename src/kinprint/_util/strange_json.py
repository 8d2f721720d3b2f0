"""JSON that strangers wrote."""

import json
from collections import Counter
from typing import Any


def parse_json(raw: bytes) -> Any:
    """Parse JSON; ValueError if it is none, or denser in lists and objects than any sound file.

    An empty list takes three bytes of text and sixty of memory. The densest sound file is a tokenizer's list of merges, with ten
    bytes for each.
    """
    import orjson  # here: `kinprint --help` reads the options of reports, and must not wait for it

    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets > len(raw) / 8 + 4096:
        raise ValueError(f"it has {brackets} opening brackets in {len(raw)} bytes, expected at most one in 8")
    return orjson.loads(raw)


def repeated_key(raw: bytes) -> str | None:
    """Return a key that stands twice in one object, of which readers keep one or the other; None if there is none."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        found.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    json.loads(raw, object_pairs_hook=look)
    return found[0] if found else None
