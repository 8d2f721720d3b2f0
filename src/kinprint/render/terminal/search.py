"""Print the outcome of a search: the answer and what was found; all tables on request."""

from rich.console import Console

from kinprint._util.plain import printable
from kinprint.render.content import search as content
from kinprint.render.terminal.layout import print_blocks, print_sections, print_table
from kinprint.render.terminal.lines import line, whole_line
from kinprint.render.texts.words import Words
from kinprint.results.search import SearchReport

_COMMANDS, _REASONS = 3, 3


def print_search(report: SearchReport, console: Console, *, full: bool = False, lang: str = "en") -> None:
    """Print the answer first; with `full` every section."""
    words = Words(lang)
    if full:
        print_sections(content.search_sections(report, words), console, words)
        return
    question = words.say("search.question", name=content.title(report), entries=f"{report.entries:,}")
    line(console, question, style="dim")
    print_blocks(content.answer_lines(report, words), console, words)
    if report.found:
        line(console, "")
        print_table(content.found_table(report, words).without("built", "licence"), console)
    for text in content.verified_lines(report, words):
        line(console, f"· {printable(text, 900)}")
    for text in content.missing_lines(report, words, _REASONS):
        line(console, f"{words.say('search.missing')}: {printable(text, 600)}", style="yellow")
    for note in report.notes:
        line(console, printable(words.engine(note).text, 600), style="dim")
    if needed := content.needed(report, words, _COMMANDS):
        line(console, f"{words.say('search.next')}:")
        for text in needed:
            whole_line(console, f"  {printable(text, 4000)}")
