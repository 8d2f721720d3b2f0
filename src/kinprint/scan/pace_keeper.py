"""The part of a scan that runs inside a Dask scheduler: one pace for all workers. Needs the extra `cluster`."""

from typing import Any

from distributed import SchedulerPlugin

from kinprint.scan.cluster import HANDLER
from kinprint.sources.pace import Pace


class PaceKeeper(SchedulerPlugin):  # type: ignore[misc,unused-ignore]
    """Answers the workers' questions, as Dask's own locks and semaphores do: by a handler of the scheduler."""

    idempotent = False

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s

    async def start(self, scheduler: Any) -> None:
        """Answer from now on."""
        pace = Pace(self._per_s)

        def handle(ask: str, host: str, seconds: float | None = None) -> float:
            if ask == "hold":
                pace.hold(host, seconds)
                return 0.0
            return pace.turn_s(host) if ask == "turn" else pace.held_s(host)

        scheduler.handlers[HANDLER] = handle
