"""Write text and JSON to stdout; messages go to stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 140  # columns for tables without a terminal


def terminal(piped_width: int | None = PIPED_WIDTH) -> Console:
    """Return the console for stdout; without a terminal it has as many columns as COLUMNS says, else `piped_width`, else 80."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            silence_stdout()

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Terminal(highlight=False, width=None if known else piped_width)


def write_json(data: bytes) -> None:
    """Write JSON to stdout, and nothing else there; to a terminal, with what could steer it escaped."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in data.decode())
        data = text.encode()
    try:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


def silence_stdout() -> None:
    """Write nothing more to a stdout that fails: where its reader went away, as `| head` does, the exit code still tells."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
