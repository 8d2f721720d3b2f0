"""Lay out blocks as a small HTML fragment: no script, nothing from elsewhere, every name escaped.

Colours follow JupyterLab's theme where there is one, else the reader's preference for light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from kinprint._util.plain import printable
from kinprint.render.content.blocks import FAINT, FIGURE, STRONG, Block, Cell, Line, Points, Table
from kinprint.render.texts.words import Words

MOST_ROWS = 40
_NAME, _PROSE = 240, 700
_STYLE = Markup(
    """<style>
.kinprint-nb{--kp-ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,#1a1a1a));
--kp-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#595959));
--kp-paper:var(--jp-layout-color0,var(--vscode-editor-background,#fff));
--kp-line:var(--jp-border-color1,#c4c4c4);--kp-mark:#0072b2;--kp-past:#b34700;
color:var(--kp-ink);background:var(--kp-paper);padding:.2em .8em;
font-family:var(--jp-content-font-family,system-ui,sans-serif);font-size:14px;line-height:1.45;
max-width:64em;overflow-x:auto}
@media (prefers-color-scheme:dark){.kinprint-nb{
--kp-ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,#ececec));
--kp-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#b0b0b0));
--kp-paper:var(--jp-layout-color0,var(--vscode-editor-background,#16181c));
--kp-line:var(--jp-border-color1,#5a5a5a);--kp-mark:#56b4e9;--kp-past:#e69f00}}
.kinprint-nb p{margin:.35em 0}
.kinprint-nb .kp-class{font-size:1.2em;font-weight:600}
.kinprint-nb .kp-faint,.kinprint-nb caption{color:var(--kp-faint)}
.kinprint-nb table{border-collapse:collapse;margin:.7em 0;font-size:.93em;font-variant-numeric:tabular-nums}
.kinprint-nb caption{text-align:left;font-weight:600;padding:.2em 0}
.kinprint-nb th,.kinprint-nb td{border:0;border-bottom:1px solid var(--kp-line);padding:.2em .6em;text-align:right;
background:none;color:inherit;vertical-align:top}
.kinprint-nb th:first-child,.kinprint-nb td:first-child{text-align:left}
.kinprint-nb td{white-space:nowrap}
.kinprint-nb td:first-child{min-width:10em;white-space:normal;overflow-wrap:anywhere}
.kinprint-nb svg text{fill:currentColor}
</style>"""
)


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
