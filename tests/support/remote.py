"""Read a file of the local hub by ranges, and give it faults."""

from __future__ import annotations

from typing import Any

from kinprint.refs import ByteRange
from support.hub import Fault, HubServer

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"


def read(source: Any, start: int = 0, end: int = 1000) -> bytes:
    """Return bytes of a source."""
    buffer = bytearray(end - start)
    source.read_into(ByteRange(start, end), memoryview(buffer))
    return bytes(buffer)


def fault(hub: HubServer, kind: Any, **fields: Any) -> Fault:
    """Put a fault of the weights in force."""
    return hub.add_fault(Fault(kind=kind, match=WEIGHTS, **fields))
