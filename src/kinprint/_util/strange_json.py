"""JSON that strangers wrote."""

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
