"""All pairs of several models as terminal text: the matrix of verdicts, the groups, a line for each pair, and the tree."""

from __future__ import annotations

from rich.console import Console

from kinprint.render.content.pairs import pairs_sections
from kinprint.render.terminal.layout import line, print_section
from kinprint.render.terminal.tree import print_tree
from kinprint.render.texts.words import Words
from kinprint.results.tree import PairsReport


def print_pairs(report: PairsReport, console: Console, *, details: bool = True, lang: str = "en") -> None:
    """Print matrix, groups, every pair beside its null, and the tree."""
    words = Words(lang)
    for section in pairs_sections(report, words):
        print_section(section, console, words)
    line(console, "")
    print_tree(report.tree, console, details=details, lang=lang)
