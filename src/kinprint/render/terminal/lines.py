"""Print lines of text, and nothing else: what the short answer needs."""

from rich.console import Console
from rich.text import Text

CLASS_STYLES = {
    "identical": "bold magenta",
    "derived": "bold magenta",
    "shares_components": "bold yellow",
    "shares_initialisation": "bold yellow",
    "no_evidence": "bold blue",
}


def line(console: Console, text: str, style: str = "") -> None:
    """Print a line of plain text; a terminal has it wrapped at spaces, below its first word."""
    if console.is_terminal:
        body = text.lstrip(" ·")
        wrapped(console, body, mark=text[: len(text) - len(body)], style=style)
    else:
        whole_line(console, text, style)


def whole_line(console: Console, text: str, style: str = "") -> None:
    """Print a line that is not to be wrapped: a command, say, which people copy."""
    console.print(Text(text, style=style), soft_wrap=True)


def wrapped(console: Console, text: str, *, mark: str = "", style: str = "") -> None:
    """Print a text wrapped at spaces, further lines below its first word."""
    hanging(console, Text(text, style=style), (Text(mark, style=style), " " * len(mark)))


def hanging(console: Console, text: Text, marks: tuple[Text, str]) -> None:
    """Print a text wrapped at spaces, its first line after one mark, further lines after the other."""
    first, further = marks
    room = max(20, console.width - max(len(first), len(further)))
    for number, each in enumerate(text.wrap(console, room) if text else [text]):
        each.rstrip()
        console.print(Text.assemble(further if number else first, each), soft_wrap=True)
