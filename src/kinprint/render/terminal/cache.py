"""The range cache as terminal text: what it holds, by model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console

from kinprint.render.content.blocks import Section, count, figure, name, table
from kinprint.render.terminal.layout import print_section
from kinprint.render.texts.words import Words


def print_cache(
    folder: str,
    cap_bytes: int,
    files: Iterable[tuple[Mapping[str, object], int, int]],
    console: Console,
    *,
    lang: str = "en",
) -> None:
    """Print the files of the cache: for each what it is of, ranges and bytes, summed by model."""
    words = Words(lang)
    models: dict[str, list[int]] = {}
    for facts, ranges, stored in files:
        commit = str(facts.get("commit") or "")[:8]
        model = f"{facts['repo']}@{commit}" if facts.get("repo") else str(facts.get("url") or "–")
        totals = models.setdefault(model, [0, 0, 0])
        totals[:] = [total + more for total, more in zip(totals, (1, ranges, stored), strict=True)]
    total = sum(stored for _, _, stored in models.values())
    title = words.say("cache.title", folder=folder, size=words.size(total), most=words.size(cap_bytes))
    rows = [
        (name(model), count(files), count(ranges), figure(words.size(stored), stored))
        for model, (files, ranges, stored) in sorted(models.items())
    ]
    print_section(Section(title, (table(words, title, "model file# spans# bytes#", rows),)), console, words)
