"""Print what a catalog holds, and what was done to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content.blocks import STRONG, WARNING, Cell, Line
from kinprint.render.content.cells import count, facts_table, figure, name, sentence, table, titled
from kinprint.render.terminal.layout import print_blocks, print_sections
from kinprint.render.texts.words import DASH, Words

_SHORT = 12  # letters of keys and commits that are shown


def print_entries(place: str, entries: Sequence[Any], more: int, console: Console, *, lang: str = "en") -> None:
    """Print entries, one a line; `more` of them were left out."""
    words = Words(lang)
    rows = [
        (
            name(entry.name),
            Cell((entry.revision or DASH)[:_SHORT]),
            name(entry.architecture),
            figure(words.parameters(entry.parameters), entry.parameters),
            name(entry.licence),
            name(", ".join(entry.declared_bases)),
            Cell(entry.added[:10]),
            Cell(entry.key[:_SHORT]),
        )
        for entry in entries
    ]
    title = words.say("catalog.title", place=place, n=f"{len(entries) + more:,}")
    columns = "model revision architecture- parameters# licence- bases- added- key"
    further = [Line(words.say("catalog.more", n=f"{more:,}"))] if more else []
    print_sections([titled(table(words, title, columns, rows), *further)], console, words)


def print_entry(entry: Any, size: int, families: Sequence[str], console: Console, *, lang: str = "en") -> None:
    """Print all that is known of one entry."""
    words = Words(lang)
    facts = {
        "col.model": name(entry.name),
        "col.revision": name(entry.revision),
        "col.key": name(entry.key),
        "data.architecture": name(entry.architecture),
        "catalog.layers": count(entry.layers),
        "catalog.hidden": count(entry.hidden),
        "col.parameters": figure(words.parameters(entry.parameters), entry.parameters),
        "col.licence": name(entry.licence),
        "catalog.bases": name(", ".join(entry.declared_bases)),
        "catalog.fingerprint": figure(words.size(size), size),
        "catalog.families": name(", ".join(families)),
        "catalog.added": Cell(f"{entry.added}, {printable(entry.made_by, 80)}"),
    }
    rows = [(name(file), name(identity)) for file, identity in entry.files]
    files = table(words, words.say("catalog.files"), "file identity", rows)
    shown = facts_table(words, "catalog.entry", facts)
    print_sections([titled(shown), titled(files)], console, words)


def print_added(place: str, done: Mapping[str, Sequence[Any]], console: Console, *, lang: str = "en") -> None:
    """Print which models were added, which were there, and which could not be read."""
    words = Words(lang)
    rows = [
        (name(str(item["name"])), Cell(words.say(f"catalog.{kind}")), name(str(item.get("error") or "")))
        for kind in ("added", "already", "failed")
        for item in done[kind]
    ]
    title = words.say("catalog.adding", place=place)
    print_sections([titled(table(words, title, "model result note", rows))], console, words)


def print_stats(stats: Any, console: Console, *, lang: str = "en") -> None:
    """Print a catalog in numbers."""
    words = Words(lang)
    facts = {
        "catalog.place": name(stats.place),
        "catalog.entries": count(stats.entries),
        "catalog.failures": count(stats.failures),
        "catalog.fingerprint": figure(words.size(stats.fingerprint_bytes), stats.fingerprint_bytes),
        "catalog.stored": figure(words.size(stats.stored_bytes), stats.stored_bytes),
        "catalog.families": name(", ".join(f"{family} {n:,}" for family, n in stats.families)),
    }
    sections = [titled(facts_table(words, "catalog.stats", facts))]
    for key, items in (("architecture", stats.architectures), ("licence", stats.licences)):
        shown = items[:20]
        rows = [(name(label or words.say("catalog.none_stated")), count(n)) for label, n in shown]
        rest = [Line(words.say("catalog.more", n=len(items) - len(shown)))] if len(items) > len(shown) else []
        title = words.say(f"col.{key}")
        sections.append(titled(table(words, title, f"{key} entries#", rows), *rest))
    print_sections(sections, console, words)


def print_failures(place: str, failures: Sequence[Any], more: int, console: Console, *, lang: str = "en") -> None:
    """Print models that could not be entered, with the reason noted; `more` of them were left out."""
    words = Words(lang)
    rows = [(name(item.name), name(item.revision), name(item.error), Cell(item.added[:10])) for item in failures]
    title = words.say("catalog.failures_title", place=place, n=f"{len(rows) + more:,}")
    further = [Line(words.say("catalog.more", n=f"{more:,}"))] if more else []
    print_sections([titled(table(words, title, "model revision- why added-", rows), *further)], console, words)


def print_check(place: str, checked: int, problems: Sequence[Any], console: Console, *, lang: str = "en") -> None:
    """Print what a check found."""
    words = Words(lang)
    if not problems:
        print_blocks([Line(words.say("catalog.sound", place=place, n=f"{checked:,}"), STRONG)], console, words)
        return
    rows = _problem_rows(problems, words)
    title = words.say("catalog.problems", place=place, n=f"{len(problems):,}")
    advice = [Line(words.say("catalog.repair"), WARNING)] if any(item.name for item in problems) else []
    if any(item.file for item in problems):
        advice = [Line(words.say("catalog.repair_file"), WARNING)]
    print_sections([titled(table(words, title, "model key why", rows), *advice)], console, words)


def print_exchange(done: Any, console: Console, *, lang: str = "en") -> None:
    """Print what was exported or imported, and what its digest and signature are worth."""
    words = Words(lang)
    imported = hasattr(done, "signature")
    facts = {"col.file": name(done.file), "catalog.entries": count(done.entries)}
    facts |= {"catalog.added": count(done.added)} if imported else {"col.bytes": count(done.bytes)}
    facts |= {"catalog.digest": name(f"sha256:{done.digest}")}
    state = done.signature if imported else "made" if done.signed else "none"
    shown = facts_table(words, "catalog.imported" if imported else "catalog.exported", facts)
    said = Line(
        words.say(f"catalog.signature.{state.replace(' ', '_')}"), "" if state in ("valid", "made") else WARNING
    )
    sections = [titled(shown, said)]
    if not imported and done.skipped:
        title = words.say("catalog.skipped", n=f"{len(done.skipped):,}")
        sections.append(titled(table(words, title, "model key why", _problem_rows(done.skipped, words))))
    print_sections(sections, console, words)


def _problem_rows(problems: Sequence[Any], words: Words) -> list[tuple[Cell, ...]]:
    return [(name(item.name), Cell((item.key or DASH)[:_SHORT]), sentence(words, item.what)) for item in problems]
