"""What all terminal pages share: one style of table, lines of plain text, and numbers of a readable length."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kinprint._util.plain import printable

DASH = "–"
BOUND = "upper bound"  # what the method of a p-value says where the true one may be smaller
NARROW = 124  # below so many columns, tables leave out what can be spared


def table(*, header: bool = True) -> Table:
    """Return an empty table in the one style used here: light, so that figures fit a narrow terminal."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, show_header=header)


def show(console: Console, title: str, content: Table) -> None:
    """Print a table under its title."""
    line(console, "")
    line(console, printable(title), style="bold")
    console.print(content)


def figures(content: Table, *names: str) -> None:
    """Add columns of numbers, which are never cut."""
    for name in names:
        content.add_column(name, justify="right", no_wrap=True, min_width=min(len(name), 6))


def line(console: Console, text: str, style: str = "") -> None:
    """Print one line of plain text."""
    console.print(Text(text, style=style), soft_wrap=True)


def number(value: float | None) -> str:
    """Write a number with about four digits, or a dash for one that does not exist."""
    if value is None:
        return DASH
    if abs(value) < 1e-12:
        return "0"
    if 100 <= abs(value) < 1e5:
        return f"{value:.1f}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 100 else f"{value:.2e}"
