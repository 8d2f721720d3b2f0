"""All pairs of several models as Markdown: the matrix, the groups, every pair beside its null, and the proposed tree."""

from __future__ import annotations

from kinprint.render.content.blocks import Line, Points, Section
from kinprint.render.content.pairs import pairs_sections
from kinprint.render.content.tree import edges_table
from kinprint.render.markdown.layout import markdown_sections, prose
from kinprint.render.texts.words import Words
from kinprint.results.tree import PairsReport


def pairs_markdown(report: PairsReport, lang: str = "en") -> str:
    """Return the report as Markdown, ending in a newline."""
    words = Words(lang)
    tree = report.tree
    notes = tuple(words.engine(note).text for note in tree.notes)
    limits = [words.say(f"many.reading.{key}") for key in ("corrected", "direction", "absence")]
    sections = [
        *pairs_sections(report, words),
        Section(
            words.say("many.nav.tree"),
            (edges_table(tree, words), Line(words.say("many.tree.limits"))) if tree.edges else (),
        ),
        Section(words.say("nav.reading"), (Points("", (*limits, *notes)),)),
    ]
    title = prose(words.say("many.title", n=len(tree.models)))
    return "\n\n".join([f"# {title}", *markdown_sections(sections, words)]) + "\n"
