"""Text from strangers (tensor names, server messages) made safe to show."""

from collections.abc import Sequence


def printable(text: str, limit: int = 300) -> str:
    """Return `text` without control, direction-changing or other unprintable characters, cut to `limit`."""
    shown = str(text)[: limit + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(text) <= limit else shown[: limit - 1] + "…"


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers as runs: ``0–3, 7``."""
    runs: list[list[int]] = []
    for item in numbers:
        if runs and item == runs[-1][1] + 1:
            runs[-1][1] = item
        else:
            runs.append([item, item])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def short_names(labels: Sequence[str]) -> list[str]:
    """Return the last part of each label, or as many parts as it takes to tell them apart."""
    parts = [[piece for piece in label.rstrip("/").split("/") if piece not in ("", ".")] or [label] for label in labels]
    names = []
    for label, own in zip(labels, parts, strict=True):
        sizes = range(1, len(own) + 1)
        size = next((n for n in sizes if sum(own[-n:] == other[-n:] for other in parts) == 1), None)
        names.append(label if size is None else "/".join(own[-size:]))
    return names
