"""All pairs of several models, and family trees, as fragments for notebooks."""

from __future__ import annotations

from base64 import b64encode

from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint.render.content.blocks import Block, Line
from kinprint.render.content.pairs import pairs_sections
from kinprint.render.content.tree import summary
from kinprint.render.drawing.tree_svg import tree_svg
from kinprint.render.notebook.layout import fragment
from kinprint.render.texts.words import Words
from kinprint.results.tree import FamilyTree, PairsReport


def pairs_notebook(report: PairsReport, lang: str = "en") -> str:
    """Return the matrix of verdicts, the groups, each pair beside its null, then the tree."""
    words = Words(lang)
    blocks = [block for section in pairs_sections(report, words) for block in section.blocks]
    return fragment([*blocks, *_drawn(report.tree, words)], f"kinprint: {words.say('many.matrix')}", words)


def tree_notebook(tree: FamilyTree, lang: str = "en") -> str:
    """Return the drawing of a family tree, as an image, so that nothing in it can act or clash with the page."""
    words = Words(lang)
    return fragment(_drawn(tree, words), f"kinprint: {words.say('many.nav.tree')}", words)


def _drawn(tree: FamilyTree, words: Words) -> list[Block | Markup]:
    picture = Markup('<img src="data:image/svg+xml;base64,{}" alt="{}" style="max-width:100%;background:#fff">')
    image = picture.format(b64encode(tree_svg(tree, words.lang)).decode(), printable(summary(tree, words), 700))
    return [image, *(Line(words.engine(note).text) for note in tree.notes)]
