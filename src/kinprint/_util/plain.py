"""Text from strangers (tensor names, server messages) made safe to show."""

from __future__ import annotations


def printable(text: str, limit: int = 300) -> str:
    """Return `text` without control, direction-changing or other unprintable characters, cut to `limit`."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return shown if len(text) <= limit else shown[: limit - 1] + "…"
