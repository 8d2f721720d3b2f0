"""Tasks for workers in tests: what models do to a process, on purpose."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kinprint.errors import FormatError
from kinprint.scan.frames import Message
from kinprint.scan.worker import Parent


def echo(task: Message, parent: Parent) -> Message:
    """Give back what came, and who did it; or misbehave as the task says."""
    head = task.head
    match head.get("do"):
        case "refuse":
            raise FormatError("broken weights", hint="fetch them again")
        case "bug":
            raise KeyError("surprise")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            mark = Path(head["mark"])
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "eat":
            return Message({"size": len(bytearray(head["bytes"]))})
        case "print":
            os.write(1, b"noise\n" * 1000)
        case "sleep":
            time.sleep(head["seconds"])
        case "turn":
            return Message({"wait": parent.turn_s(head["host"])})
        case "hold":
            parent.hold(head["host"], head["seconds"])
            return Message({"wait": parent.held_s(head["host"])})
        case _:
            pass
    return Message({"pid": os.getpid(), "number": head.get("number")}, task.parts)
