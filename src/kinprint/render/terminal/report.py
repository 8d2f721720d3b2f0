"""Print comparisons of two and of many models, and one model; the verdict comes last, next to the prompt."""

from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content import report as content
from kinprint.render.content.blocks import Line, Section
from kinprint.render.content.evidence import evidence_sections, methods_section, towers_section
from kinprint.render.content.inspection import inspection_sections
from kinprint.render.content.pairs import pairs_sections
from kinprint.render.terminal.layout import print_blocks, print_sections
from kinprint.render.terminal.lines import CLASS_STYLES, line
from kinprint.render.terminal.tree import print_tree
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport

MOST_NAMES = 500  # a line takes 0.2 ms, and nobody reads a thousand; a model may have a quarter of a million


def print_report(
    report: Report,
    console: Console,
    *,
    details: bool = True,
    measured: bool = True,
    explain: bool = False,
    lang: str = "en",
) -> None:
    """Print a comparison: models, what was `measured`, with `details` in every layer, evidence, rules, and the verdict."""
    words = Words(lang)
    if measured:
        print_sections(_sections(report, words, details=details), console, words)
    elif report.evidence is not None:
        print_sections(evidence_sections(report.evidence, words), console, words)
    if explain and report.verdict is not None and report.evidence is not None:
        print_sections(content.rules_sections(report.verdict, report.evidence, words), console, words)
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
        *([towers_section(report.towers, words)] if report.towers else ()),
        *([methods_section(report.methods, words)] if report.methods else ()),
        Section(words.say("reads.title"), tuple(cost)),
    ]


def _print_verdict(report: Report, console: Console, words: Words) -> None:
    blocks = content.verdict_section(report, words).blocks
    line(console, "")
    if report.verdict is not None and isinstance(blocks[0], Line):
        label = f"{words.say('verdict.title')} {blocks[0].text}"
        print_blocks([Line(label)], console, words, style=CLASS_STYLES.get(report.verdict.class_, "bold"))
        blocks = blocks[1:]
    print_blocks(blocks, console, words)


def print_pairs(report: PairsReport, console: Console, *, details: bool = True, lang: str = "en") -> None:
    """Print the matrix of verdicts, the groups, every pair beside its null, and the tree."""
    words = Words(lang)
    print_sections(pairs_sections(report, words), console, words)
    line(console, "")
    print_tree(report.tree, console, details=details, lang=lang)


def print_inspection(found: Inspection, console: Console, *, lang: str = "en") -> None:
    """Print one model: facts, tensors by role, norms by layer, and tensors without a name."""
    words = Words(lang)
    print_sections(inspection_sections(found, words), console, words)
    unmapped = found.model.unmapped
    line(console, "")
    if unmapped:
        line(console, words.say("inspect.unmapped", n=len(unmapped)), style="yellow")
        for name in unmapped[:MOST_NAMES]:
            line(console, f"  {printable(name)}")
        if len(unmapped) > MOST_NAMES:
            line(console, words.say("inspect.more", n=f"{len(unmapped) - MOST_NAMES:,}"))
    else:
        line(console, words.say("inspect.all_named"))
    read = words.say("inspect.read", read=words.size(found.bytes_read), requests=found.requests)
    line(console, read, style="dim")
