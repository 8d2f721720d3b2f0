"""Show progress in one line on stderr: stage, share, time left, bytes. Silent for the first second, and when piped."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from kinprint._util.sizes import format_size

if TYPE_CHECKING:
    from kinprint.sources.base import Traffic

QUIET_S = 1.0
INTERVAL_S = 0.15
BAR = 20  # columns
LEAST = 0.05  # share of the work from which on the time that is left can be told
STAGES = {"opening": (0.0, 0.1), "measuring": (0.1, 0.3), "evidence": (0.3, 1.0)}
"""From where to where the stages of a comparison reach, about what they take of two small models; others are a whole each."""


class ProgressLine:
    """Shows the latest state from its own thread, so that time passes on screen while a server is silent."""

    def __init__(self, *, enabled: bool | None = None) -> None:
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._started = time.monotonic()
        self._stage, self._done, self._total = "opening", 0, 0
        self._bytes, self._expected = 0, 0
        self._over = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def stage(self, stage: str, done: int, total: int) -> None:
        """Note how far the work is."""
        self._stage, self._done, self._total = stage, done, total

    def traffic(self, traffic: Traffic) -> None:
        """Note the bytes read so far."""
        self._bytes, self._expected = traffic.bytes_read, max(traffic.expected_bytes, traffic.bytes_read)

    def text(self, columns: int = 80) -> str:
        """Return the line as it would be drawn now, as much of it as fits; no share is told as whole before the end."""
        start, end = STAGES.get(self._stage, (0.0, 1.0))
        share = min(0.99, start + (end - start) * self._done / max(self._total, 1))
        passed = time.monotonic() - self._started
        parts = [f"{self._stage} [{'#' * int(BAR * share):.<{BAR}}] {int(100 * share)} %"]
        if share >= LEAST and passed >= QUIET_S:
            parts.append(f"about {max(1.0, passed * (1 - share) / share):.0f} s left")
        parts += [f"{passed:.0f} s", f"{format_size(self._bytes)} of {format_size(self._expected)} read"]
        while len(" · ".join(parts)) >= columns and len(parts) > 1:
            parts.pop()
        return " · ".join(parts)[: columns - 1]

    def _loop(self) -> None:
        if self._over.wait(QUIET_S):
            return
        while True:
            sys.stderr.write(f"\r\x1b[2K{self.text(_columns())}")
            sys.stderr.flush()
            self._drawn = True
            if self._over.wait(INTERVAL_S):
                return

    def __enter__(self) -> ProgressLine:
        if self._enabled:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._enabled:
            self._thread.join()
            if self._drawn:
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()


def _columns() -> int:
    """Return how wide the terminal is: a line that wrapped could not be drawn over."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
