"""Print what the range cache holds, by model."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from kinprint.render.content.cells import count, figure, name, table, titled
from kinprint.render.terminal.layout import print_sections
from kinprint.render.texts.words import DASH, Words


def print_cache(cache: Mapping[str, Any], console: Console, *, lang: str = "en") -> None:
    """Print the files of the cache, with their ranges and bytes summed by model."""
    words = Words(lang)
    models: dict[str, Counter[str]] = {}
    for file in cache["files"]:
        commit = str(file.get("commit") or "")[:8]
        model = f"{file['repo']}@{commit}" if file.get("repo") else str(file.get("url") or DASH)
        models.setdefault(model, Counter()).update(files=1, ranges=file["ranges"], stored=file["stored_bytes"])
    sizes = {"size": words.size(cache["stored_bytes"]), "most": words.size(cache["cap_bytes"])}
    rows = [
        (name(model), count(of["files"]), count(of["ranges"]), figure(words.size(of["stored"]), of["stored"]))
        for model, of in sorted(models.items())
    ]
    title = words.say("cache.title", folder=cache["folder"], **sizes)
    print_sections([titled(table(words, title, "model file# spans# bytes#", rows))], console, words)
