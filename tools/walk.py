"""The walk of `kinprint compare A B --html FILE`: modules in the order in which each is first entered, and hops between them.

    python tools/walk.py demo/models/base demo/models/finetune

ARCHITECTURE.md shows the walk; this counts it, so that "fewer hops" is a number.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType


def main() -> int:
    import kinprint

    home = str(Path(kinprint.__file__).parent) + os.sep
    entered: dict[str, str] = {}
    hops: set[tuple[str, str]] = set()

    def name(frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        return file[len(home) : -3].replace(os.sep, ".") if file.startswith(home) else None

    def watch(frame: FrameType, event: str, _: object) -> None:
        function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # bodies of modules and classes are not
        if event != "call" or not function or not (here := name(frame)):
            return
        above = frame.f_back
        while above is not None and name(above) is None:
            above = above.f_back
        there = name(above) if above is not None else None
        entered.setdefault(here, frame.f_code.co_qualname)
        if there and there != here:
            hops.add((there, here))

    from kinprint.cli.main import main as command

    with tempfile.TemporaryDirectory() as folder:
        line = [
            "compare",
            *sys.argv[1:3],
            "--html",
            f"{folder}/page.html",
            "--no-cache",
            "-q",
            "--format",
            "table",
            "--summary",
        ]
        sys.setprofile(watch)
        threading.setprofile(watch)
        try:
            command.main(line, standalone_mode=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    print(
        "\n".join(f"{number:3} {module:40} {function}" for number, (module, function) in enumerate(entered.items(), 1)),
        file=sys.stderr,
    )
    print(f"{len(entered)} modules, {len(hops)} different hops from module to module", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
