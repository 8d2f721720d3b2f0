"""Print what a fingerprint file holds, which methods there are, and what two fingerprints say."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from kinprint.render.content.blocks import STRONG, WARNING, Cell, Line
from kinprint.render.content.cells import code, facts_table, name, sentence, table, titled
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
    print_sections([titled(facts_table(words, "fingerprint.title", facts), *lines)], console, words)


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
    both = facts_table(words, "fingerprint.both", _facts(report.a, words), _facts(report.b, words))
    methods = methods_section(report.methods, words, lead="fingerprint.lead")
    print_sections([titled(both), methods], console, words)
    said = f"{words.label('class', report.class_)}: {words.engine(report.sentence).text}"
    print_blocks([Line(""), Line(said, STRONG)], console, words)


def _facts(side: Any, words: Words) -> dict[str, Cell]:
    return {
        "data.reference": name(side.reference),
        "tokenizer.kind": Cell(words.label("fingerprint.kind", side.kind)),
        "col.model": name(side.model),
        "data.architecture": _built(side, words),
        "fingerprint.digest": name(side.digest),
    }


def _built(side: Any, words: Words) -> Cell:
    layers = words.say("head.layers", n=side.layers)
    return name(f"{side.architecture}, {layers}, {words.say('data.width')} {side.hidden}")


def _listed(names: Sequence[str], words: Words) -> Cell:
    return Cell(", ".join(words.engine(each).text for each in names) or DASH)
