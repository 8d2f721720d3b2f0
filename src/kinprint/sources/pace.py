"""Keep requests to a host at a pace that all workers share: so many a second, and none while the host asks to be left alone."""

import email.utils
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kinprint.sources.private_network import is_private

PUBLIC_PER_S = 10.0  # the hub gives 3,000 look-ups in 300 s to users who are not signed in
BURST = 32  # requests that may be sent at once after a pause
LONGEST_HOLD_S = 900.0  # what a server may ask for; its windows have 300 s
FIRST_HOLD_S, FORGET_S = 1.0, 120.0  # a refusal without a time: a second, then twice as long, until it is long ago
_QUOTA = re.compile(r"\br=([0-9]{1,9})\s*;\s*t=([0-9]{1,9})\b")


class Gate(Protocol):
    """Whom a client asks before every request. Safe to call from several threads."""

    def turn_s(self, host: str) -> float:
        """Take a place in the line to a host; return the seconds until its turn."""

    def held_s(self, host: str) -> float:
        """Return for how many seconds more the host wants no requests."""

    def hold(self, host: str, seconds: float | None) -> None:
        """Keep everybody's requests back for as long as a host asks, or has to be given where it does not say."""


@dataclass
class _Host:
    next_at: float = float("-inf")  # when the next request would be due, one after the other at the pace
    closed_until: float = float("-inf")
    limit: float | None = None  # requests a second
    refusals: int = 0
    refused_at: float = float("-inf")


class Pace:
    """The gate itself: one for all workers of a run."""

    def __init__(
        self, per_s: float | None = None, *, burst: int = BURST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._hosts: dict[str, _Host] = {}
        self._lock = threading.Lock()
        self.waited_s = 0.0  # by all requests together

    def _line(self, host: str) -> _Host:
        if host not in self._hosts:
            # as chosen, else what the public hub allows; servers of the own network set no limit
            self._hosts[host] = _Host(limit=self._per_s or (None if is_private(host) else PUBLIC_PER_S))
        return self._hosts[host]

    def turn_s(self, host: str) -> float:
        """Take a place in the line to a host; return the seconds until its turn."""
        with self._lock:
            line = self._line(host)
            now, limit = self._clock(), line.limit
            at = max(now, line.closed_until)
            if limit is not None:
                at = max(at, line.next_at - (self._burst - 1) / limit)
                line.next_at = max(line.next_at, at) + 1.0 / limit
            self.waited_s += at - now
            return at - now

    def held_s(self, host: str) -> float:
        """Return for how many seconds more the host wants no requests."""
        with self._lock:
            line = self._hosts.get(host)
            return 0.0 if line is None else max(0.0, line.closed_until - self._clock())

    def hold(self, host: str, seconds: float | None) -> None:
        """Keep everybody's requests back; without `seconds` longer with every refusal that follows soon."""
        with self._lock:
            now, line = self._clock(), self._line(host)
            if seconds is None:
                if now < line.closed_until:  # requests that were under way: one refusal, seen by several
                    return
                line.refusals = line.refusals + 1 if now - line.refused_at < FORGET_S else 1
                seconds = FIRST_HOLD_S * 2.0 ** min(line.refusals - 1, 16)
            line.refused_at = now
            line.closed_until = max(line.closed_until, now + min(seconds, LONGEST_HOLD_S))
            line.next_at = max(line.next_at, line.closed_until)


def quota_spent_s(header: str) -> float | None:
    """Read a RateLimit header: the seconds until there are requests again, if none is left."""
    waits = [float(found[2]) for found in _QUOTA.finditer(header) if int(found[1]) == 0]
    return max(waits, default=None)


def retry_after_s(text: str) -> float | None:
    """Read Retry-After in either of its forms, seconds or a date."""
    if re.fullmatch(r"[0-9]{1,19}(\.[0-9]{1,9})?", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):  # no date, or one beyond the calendar
        return None
