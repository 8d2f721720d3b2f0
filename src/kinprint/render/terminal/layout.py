"""Print blocks in a terminal: one style of table, lines of plain text. Names come from untrusted files and are never markup."""

from collections.abc import Iterable

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.content.blocks import CODE, FAINT, LINES, STATE, STRONG, WARNING, Block, Cell, Line, Section, Table
from kinprint.render.texts.words import Words

NARROW = 124  # below so many columns, tables leave out what can be spared
_STYLES = {STRONG: "bold", WARNING: "yellow", FAINT: "dim"}
_STATES = {"passed": "green", "ok": "green", "failed": "red", "not run": "yellow", "not checked": "yellow"}
_MOST = 12  # lines of a list
_CELL, _POINT = 300, 900  # characters


def print_sections(sections: Iterable[Section], console: Console, words: Words) -> None:
    """Print sections, each under its title; one without content is left out."""
    for section in sections:
        if section.blocks:
            line(console, "")
            line(console, printable(section.title), style="bold")
            print_blocks(section.blocks, console, words)


def print_blocks(blocks: Iterable[Block], console: Console, words: Words, *, style: str = "") -> None:
    """Print blocks one after another; `style` is that of lines without a tone."""
    for block in blocks:
        if isinstance(block, Table):
            print_table(block, console)
        elif isinstance(block, Line):
            line(console, printable(block.text, block.limit), style=_STYLES.get(block.tone, style))
        else:
            title = [printable(block.heading, _POINT)] if block.title else []
            left = len(block.lines) - _MOST
            more = [f"  · {words.say('and_more_json', n=left)}"] if left > 0 else []
            for text in (*title, *(f"  · {printable(text, _POINT)}" for text in block.lines[:_MOST]), *more):
                line(console, text)


def print_table(content: Table, console: Console) -> None:
    """Print a table without borders, so that figures fit a narrow terminal and are never cut; headings wrap at spaces."""
    if console.width < NARROW:
        content = content.without(*(column.key for column in content.columns if column.spare))
    shown = rich_table.Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for place, column in enumerate(content.columns):
        cells = [row[place] for row in content.rows]
        whole = column.figures or (bool(cells) and all(cell.kind == CODE for cell in cells))
        least = max([cell_len(word) for word in column.label.split()] + [cell_len(cell.text) for cell in cells])
        shown.add_column(
            column.label,
            justify="right" if column.figures else "left",
            min_width=least if whole and cells else None,
            overflow="fold",
        )
    for row in content.rows:
        shown.add_row(*(_shown(cell) for cell in row))
    console.print(shown)


def _shown(cell: Cell) -> Text:
    if cell.kind == LINES:
        return Text(cell.text)
    return Text(printable(cell.text, _CELL), style=_STATES.get(str(cell.value), "") if cell.kind == STATE else "")


def line(console: Console, text: str, style: str = "") -> None:
    """Print one line of plain text."""
    console.print(Text(text, style=style), soft_wrap=True)
