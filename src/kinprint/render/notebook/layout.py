"""Lay out blocks as a small HTML fragment: no script, nothing from elsewhere, every name escaped.

Colours follow JupyterLab's theme where there is one, else the reader's preference for light or dark.
"""

from collections.abc import Iterable
from importlib.resources import files

from markupsafe import Markup, escape

from kinprint._util.plain import printable
from kinprint.render.content.blocks import FAINT, FIGURE, STRONG, Block, Cell, Line, Points, Table
from kinprint.render.texts.words import Words

MOST_ROWS = 40
_NAME, _PROSE = 240, 700
_CSS = files("kinprint.render.notebook").joinpath("style.css").read_text(encoding="utf-8")
_STYLE = Markup(f"<style>\n{_CSS}</style>")  # noqa: S704 - a file of this package, which holds no untrusted text


def fragment(blocks: Iterable[Block | Markup], title: str, words: Words) -> str:
    """Return blocks, and what is markup already, as one element with a title for screen readers."""
    content = Markup("").join(block if isinstance(block, Markup) else _block(block, words) for block in blocks)
    opening = Markup('<div class="kinprint-nb" role="group" lang="{}" aria-label="kinprint: {}">').format(
        words.lang, title
    )
    return str(opening + _STYLE + content + Markup("</div>"))


def shown(text: str, limit: int = _NAME) -> Markup:
    """Return text as HTML (not for attributes), with text that may run from right to left isolated."""
    safe = printable(text, limit)
    return escape(safe) if safe.isascii() else Markup("<bdi>{}</bdi>").format(safe)


def _block(block: Block, words: Words) -> Markup:
    if isinstance(block, Table):
        return _table(block, words)
    if isinstance(block, Points):
        block = Line(f"{block.heading} {'; '.join(block.lines)}", FAINT, _PROSE)
    tone = {STRONG: " class=kp-class", FAINT: " class=kp-faint"}.get(block.tone, "")
    return Markup("<p{}>{}</p>").format(Markup(tone), shown(block.text, block.limit))  # noqa: S704 - one of two words


def _cell(cell: Cell) -> Markup:
    return escape(cell.text) if cell.kind == FIGURE or len(cell.text) < 2 else shown(cell.text)


def _table(content: Table, words: Words) -> Markup:
    if not content.rows:
        return Markup("")
    head = Markup("").join(Markup("<th scope=col>{}</th>").format(column.label) for column in content.columns)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_cell(cell)) for cell in row))
        for row in content.rows[:MOST_ROWS]
    )
    made = Markup("<table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        content.title, head, body
    )
    left = len(content.rows) - MOST_ROWS
    return made + Markup("<p>{}</p>").format(words.say("and_more_json", n=left)) if left > 0 else made
