"""A comparison of two models as terminal text, the verdict last, where the eye ends."""

from __future__ import annotations

from rich.console import Console

from kinprint.render.content import report as content
from kinprint.render.content.blocks import Line, Section
from kinprint.render.content.evidence import evidence_sections, methods_section
from kinprint.render.terminal.layout import line, print_blocks, print_section
from kinprint.render.texts.words import Words
from kinprint.results.report import Report

_STYLES = {
    "identical": "bold magenta",
    "derived": "bold magenta",
    "shares_components": "bold yellow",
    "shares_initialisation": "bold yellow",
    "no_evidence": "bold blue",
}


def print_report(
    report: Report, console: Console, *, details: bool = True, explain: bool = False, lang: str = "en"
) -> None:
    """Print a comparison: differences, every metric by role and layer, evidence, and the verdict."""
    words = Words(lang)
    for section in _sections(report, words, details=details):
        print_section(section, console, words)
    if explain and report.verdict is not None and report.evidence is not None:
        for section in content.rules_sections(report.verdict, report.evidence, words):
            print_section(section, console, words)
    _print_verdict(report, console, words)


def _sections(report: Report, words: Words, *, details: bool) -> list[Section]:
    budget = report.settings.budget_bytes
    cost = [Line(content.read_line(report, words))]
    if budget is not None:
        cost.append(Line(f"{words.say('settings.budget_bytes')}: {words.size(budget)}"))
    return [
        Section(words.say("data.models"), (content.models_table(report, words),)),
        *content.config_sections(report, words),
        *content.declared_sections(report.declared, words),
        *(content.measured_tables(report.comparisons, words) if details else ()),
        content.roles_section(report, words),
        content.untested_section(report, words),
        content.reading_section(report, words),
        *(evidence_sections(report.evidence, words) if report.evidence is not None else ()),
        *([methods_section(report.methods, words)] if report.methods else ()),
        Section(words.say("reads.title"), tuple(cost)),
    ]


def _print_verdict(report: Report, console: Console, words: Words) -> None:
    section = content.verdict_section(report, words)
    blocks = section.blocks
    line(console, "")
    if report.verdict is not None and isinstance(blocks[0], Line):
        label = f"{words.say('verdict.title')} {blocks[0].text}"
        print_blocks([Line(label)], console, words, style=_STYLES.get(report.verdict.class_, "bold"))
        blocks = blocks[1:]
    print_blocks(blocks, console, words)
