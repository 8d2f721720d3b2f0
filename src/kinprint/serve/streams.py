"""Stream what a job tells (server-sent events): all that is stored, then what comes, until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson

from kinprint.serve.service import Service
from kinprint.serve.state import Busy
from kinprint.text import Text

LOOK_S = 0.15
ALIVE_S = 15.0  # a comment keeps proxies from closing a silent stream


def open_stream(service: Service, client: str) -> None:
    """Take a place among the open streams; raise Busy if there is none left."""
    limits, streams = service.options.limits, service.streams
    if sum(streams.values()) >= limits.streams or streams.get(client, 0) >= limits.streams_of_client:
        raise Busy(
            Text("too many streams of progress are open"), hint="reload the page in a moment, or ask for the job"
        )
    streams[client] = streams.get(client, 0) + 1


async def progress(service: Service, id_: str, after: int, client: str) -> AsyncIterator[bytes]:
    """Yield the events of a job after the one of this number; a browser that comes back names the last it has seen."""
    silent = 0.0
    try:
        while not service.stopping:
            job = service.state.job(id_)
            events = service.state.events(id_, after)
            for event in events:
                after, silent = event.number, 0.0
                data = orjson.dumps({"at": event.at, **event.told})
                yield b"id: %d\ndata: %b\n\n" % (event.number, data)
            if job is None or (job.ended and not events):
                return
            if silent >= ALIVE_S:
                silent = 0.0
                yield b": still there\n\n"
            await asyncio.sleep(LOOK_S)
            silent += LOOK_S
    finally:
        service.streams[client] -= 1
        if not service.streams[client]:
            del service.streams[client]
