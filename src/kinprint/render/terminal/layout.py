"""Print blocks in a terminal: one style of table, lines of plain text. Names come from untrusted files and are never markup."""

from collections.abc import Iterable, Sequence

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.content import blocks as content
from kinprint.render.content.blocks import Block, Cell, Column, Line, Section, Table
from kinprint.render.terminal.lines import line, wrapped
from kinprint.render.texts.words import Words

NARROW = 124  # below so many columns, tables leave out what can be spared
_STYLES = {content.STRONG: "bold", content.WARNING: "yellow", content.FAINT: "dim"}
_STATES = {"passed": "green", "ok": "green", "failed": "red", "not run": "yellow", "not checked": "yellow"}
_MOST = 12  # lines of a list
_CELL, _POINT = 300, 900  # characters
_GAP = 2  # columns between two of a table
_WORD = 30  # columns: longer words, such as digests, may be broken in a table


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


def print_table(table: Table, console: Console) -> None:
    """Print a table without borders, so that figures fit a narrow terminal and are never cut; headings wrap at spaces."""
    if console.width < NARROW:
        table = table.without(*(column.key for column in table.columns if column.spare))
    ranges = [_widths(column, [row[place] for row in table.rows]) for place, column in enumerate(table.columns)]
    room = console.width - _GAP * (len(ranges) - 1) - sum(least for least, _ in ranges)
    if room < 0:
        _print_rows(table, console)
        return
    shown = rich_table.Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column, (least, most) in zip(table.columns, ranges, strict=True):
        # rich would take the room that is missing from the widest column alone, and then cut the last one
        more, justify = min(most - least, room), "right" if column.figures else "left"
        shown.add_column(column.label, justify=justify, width=least + more, overflow="fold")  # type: ignore[arg-type]
        room -= more
    for row in table.rows:
        shown.add_row(*(_shown(cell) for cell in row))
    console.print(shown)


def _widths(column: Column, cells: Sequence[Cell]) -> tuple[int, int]:
    """Return the least width of a column that breaks no figure and no word, and the width that wraps nothing."""
    texts = [part for cell in cells for part in _shown(cell).plain.split("\n")]
    most = max(map(cell_len, (column.label, *texts)))
    words = [word for text in texts for word in text.split()]
    if column.figures or (cells and all(cell.kind == content.CODE for cell in cells)):
        return max(map(cell_len, (*column.label.split(), *texts)), default=0), most
    return min(max(map(cell_len, (*column.label.split(), *words)), default=0), _WORD), most


def _print_rows(table: Table, console: Console) -> None:
    """Print what is too wide for a table row by row, so that no figure is cut: the first cell, and below it the others by name."""
    for first, *others in table.rows:
        wrapped(console, printable(first.text, _CELL), style="bold")
        for column, cell in zip(table.columns[1:], others, strict=True):
            if cell.text:
                wrapped(console, printable(f"{column.label}: {cell.text}", _CELL), mark="  ")


def _shown(cell: Cell) -> Text:
    if cell.kind == content.LINES:
        return Text(cell.text)
    style = _STATES.get(str(cell.value), "") if cell.kind == content.STATE else ""
    return Text(printable(cell.text, _CELL), style=style)
