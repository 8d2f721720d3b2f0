"""Print what a fingerprint file holds, which methods there are, and what two fingerprints say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from kinprint.render.content.blocks import STRONG, WARNING, Cell, Line, Table
from kinprint.render.content.cells import code, name, sentence, table, titled
from kinprint.render.content.evidence import methods_section
from kinprint.render.terminal.layout import print_blocks, print_sections
from kinprint.render.texts.words import DASH, Words


def print_fingerprint(description: Any, file: str, size: int, read: int, console: Console, *, lang: str = "en") -> None:
    """Print what was written, of which model, and which methods have no data in the file."""
    words = Words(lang)
    held = ", ".join(item.method for item in description.methods if item.reason is None) or DASH
    facts = {
        "col.model": name(description.model),
        "data.architecture": _built(description, words),
        "col.file": name(f"{file}, {words.size(size)}"),
        "col.read": Cell(words.size(read)),
        "settings.methods": name(held),
    }
    lines = [
        Line(f"{item.method}: {words.say('fingerprint.lacking')}: {words.engine(item.reason).text}", WARNING)
        for item in description.methods
        if item.reason is not None
    ]
    rows = [(Cell(words.say(key)), cell) for key, cell in facts.items()]
    made = table(words, words.say("fingerprint.title"), "fact value", rows)
    print_sections([titled(made, *lines)], console, words)


def print_catalogue(methods: Sequence[Mapping[str, Any]], console: Console, *, lang: str = "en") -> None:
    """List the methods: what they need, whether they work on fingerprint files, which changes do not affect them."""
    words = Words(lang)
    rows = [
        (
            code(item["method"]),
            _listed(item["needs"], words),
            Cell(words.say("yes" if item["portable"] else "no")),
            _listed(item["invariant_to"], words),
            sentence(words, item["summary"]),
        )
        for item in methods
    ]
    made = table(words, words.say("methods.title"), "method needs portable invariant_to summary", rows)
    print_sections([titled(made)], console, words)


def print_fingerprint_report(report: Any, console: Console, *, lang: str = "en") -> None:
    """Print both sides, the methods, and the conclusion last."""
    words = Words(lang)
    print_sections([titled(_sides(report, words)), methods_section(report.methods, words)], console, words)
    said = f"{words.label('class', report.class_)}: {words.engine(report.sentence).text}"
    print_blocks([Line(""), Line(said, STRONG)], console, words)


def _sides(report: Any, words: Words) -> Table:
    facts = [
        {
            "data.reference": name(side.reference),
            "tokenizer.kind": Cell(words.label("fingerprint.kind", side.kind)),
            "col.model": name(side.model),
            "data.architecture": _built(side, words),
            "fingerprint.digest": name(side.digest),
        }
        for side in (report.a, report.b)
    ]
    rows = [(Cell(words.say(key)), facts[0][key], facts[1][key]) for key in facts[0]]
    return table(words, words.say("fingerprint.both"), "fact a b", rows)


def _built(side: Any, words: Words) -> Cell:
    layers = words.say("head.layers", n=side.layers)
    return name(f"{side.architecture}, {layers}, {words.say('data.width')} {side.hidden}")


def _listed(names: Sequence[str], words: Words) -> Cell:
    return Cell(", ".join(words.engine(each).text for each in names) or DASH)
