"""Write tables and JSON to stdout; messages go to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 140  # columns for tables asked for without a terminal


class ReaderGone(Exception):
    """The reader of our output went away, as `| head` does. No OSError: click would end those with exit code 1."""


def terminal() -> Console:
    """Return the console for tables on stdout."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise ReaderGone

    return Terminal(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def write_json(data: bytes) -> None:
    """Write JSON to stdout, and nothing else there; to a terminal, with what could steer it escaped."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in data.decode())
        data = text.encode()
    try:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error
