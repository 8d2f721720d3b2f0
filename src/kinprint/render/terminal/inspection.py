"""One model as terminal text: facts, tensors by role, norms by layer, tensors without a name."""

from __future__ import annotations

from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content.inspection import inspection_sections
from kinprint.render.terminal.layout import line, print_section
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection


def print_inspection(found: Inspection, console: Console, *, lang: str = "en") -> None:
    """Print one model; every tensor without a name is listed."""
    words = Words(lang)
    for section in inspection_sections(found, words):
        print_section(section, console, words)
    unmapped = found.model.unmapped
    line(console, "")
    if unmapped:
        line(console, words.say("inspect.unmapped", n=len(unmapped)), style="yellow")
        for name in unmapped:
            line(console, f"  {printable(name)}")
    else:
        line(console, words.say("inspect.all_named"))
    read = words.say("inspect.read", read=words.size(found.bytes_read), requests=found.requests)
    line(console, read, style="dim")
