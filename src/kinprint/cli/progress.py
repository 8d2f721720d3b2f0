"""Show progress in one line on stderr: stage, bytes, time. Silent for the first second, and when piped."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from kinprint._util.sizes import format_size

if TYPE_CHECKING:
    from kinprint.sources.base import Traffic

QUIET_S = 1.0
INTERVAL_S = 0.15


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

    def text(self) -> str:
        """Return the line as it would be drawn now."""
        count = f" {self._done}/{self._total}" if self._total > 1 else ""
        amount = f"{format_size(self._bytes)} of {format_size(self._expected)}"
        return f"{self._stage}{count} · {amount} read · {time.monotonic() - self._started:.0f} s"

    def _loop(self) -> None:
        if self._over.wait(QUIET_S):
            return
        while True:
            sys.stderr.write(f"\r\x1b[2K{self.text()}")
            sys.stderr.flush()
            self._drawn = True
            if self._over.wait(INTERVAL_S):
                return

    def __enter__(self) -> ProgressLine:
        if self._enabled:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._enabled:
            self._thread.join()
            if self._drawn:
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()
