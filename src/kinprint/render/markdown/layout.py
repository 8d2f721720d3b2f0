"""Lay out blocks as GitHub-flavoured Markdown. Names come from untrusted files: shown as they are, never as markup."""

import re
from collections.abc import Iterable

from kinprint._util.plain import printable
from kinprint.render.content.blocks import CODE, FIGURE, LINES, NAME, STRONG, Block, Cell, Line, Section, Table
from kinprint.render.texts.words import DASH, Words

LONGEST_NAME, LONGEST = 200, 700  # characters shown of a name, and of a sentence
MOST_ROWS = 80
_PLAIN_NAME = re.compile(r"[A-Za-z0-9 ._/@:+=,-]*[A-Za-z0-9._/-]")
_SPECIAL = re.compile(r"([\\`*\[\]|~#!${}])")
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_START = re.compile(r"^(\s*\d*)([-+=]|(?<=\d)[.)](?=\s|$))")  # of a list, a rule, a heading
_MENTION = re.compile(r"(?<![A-Za-z0-9])@")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def prose(text: str, limit: int = LONGEST) -> str:
    """Return a sentence, escaped for any place in a line or a table."""
    shown = _SPECIAL.sub(r"\\\1", printable(text, limit)).translate(_ENTITIES)
    shown = _EDGE.sub(r"\\_", _START.sub(r"\1\\\2", shown))
    # what GitHub would turn into links, or a notice to somebody
    shown = shown.replace("://", "\\://").replace("www.", "www\\.")
    return _MENTION.sub("`@`", shown).strip()


def name(text: str, limit: int = LONGEST_NAME) -> str:
    """Return a name: as code if it looks like one, else as a sentence."""
    return f"`{text}`" if len(text) <= limit and _PLAIN_NAME.fullmatch(text) else prose(text, limit) or DASH


def fenced(text: str) -> str:
    """Return a command as a block of code, with a fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def markdown_sections(sections: Iterable[Section], words: Words) -> list[str]:
    """Return sections as paragraphs under headings; one without content is left out."""
    found = []
    for section in sections:
        if section.blocks:
            found += [f"## {prose(section.title)}", *(_block(block, words) for block in section.blocks)]
    return found


def _block(block: Block, words: Words) -> str:
    if isinstance(block, Table):
        return _table(block, words)
    if isinstance(block, Line):
        text = prose(block.text, block.limit)
        return f"**{text}**" if block.tone == STRONG else text
    lines = [prose(text) or DASH for text in block.lines[:MOST_ROWS]]
    left = len(block.lines) - MOST_ROWS
    lines += [prose(words.say("and_more_json", n=left))] if left > 0 else []
    listed = "\n".join(f"- {text}" for text in lines)
    return f"{prose(block.heading)}\n\n{listed}" if block.title else listed


def _table(content: Table, words: Words) -> str:
    head = [prose(column.label) or " " for column in content.columns]
    rule = ["---:" if column.figures else ":---" for column in content.columns]
    rows = [[_cell(cell) for cell in row] for row in content.rows[:MOST_ROWS]]
    made = "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
    left = len(content.rows) - MOST_ROWS
    return f"{made}\n\n{prose(words.say('and_more_json', n=left))}" if left > 0 else made


def _cell(cell: Cell) -> str:
    text = cell.full if cell.full and cell.kind != CODE else cell.text
    if cell.kind in (NAME, CODE):
        return name(text)
    if cell.kind == FIGURE:
        return text
    said = prose(text.replace("\n", "; ") if cell.kind == LINES else text)
    return (f"{said} ({name(cell.code)})" if cell.code else said) or DASH
