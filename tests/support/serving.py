"""`kinprint serve` in a process of its own, for tests."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Reply:
    """What a server answered."""

    status: int
    headers: Any
    body: bytes
    url: str

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class Server:
    """`kinprint serve` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "kinprint", "serve", "--port", "0", "--folder", str(folder), *arguments]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "KINPRINT_"))}
        kept |= {"KINPRINT_CACHE": "off", "HF_HUB_OFFLINE": "0", "OPENBLAS_NUM_THREADS": "1", **environment}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept)
        self.lines: list[str] = []
        told: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                self.lines.append(line)
                told.put(line)
            told.put("")

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        while True:
            line = told.get(timeout=60)
            assert line, "".join(self.lines)
            if line.startswith("kinprint serves"):
                self.base = line.split()[-1].rstrip("/")
                break

    def ask(self, path: str, data: Any = None, *, form: Any = None, method: str | None = None, **headers: str) -> Reply:
        """Send one request; redirects are not followed."""
        body = None if form is None else urllib.parse.urlencode(form).encode()
        if data is not None:
            body = data if isinstance(data, bytes) else json.dumps(data).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.base + path, body, headers, method=method)
        opener = urllib.request.build_opener(_Stay, urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as reply:
                return Reply(reply.status, reply.headers, reply.read(), reply.url)
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, error.read(), error.url)

    def start(self, a: str, b: str) -> str:
        """Queue a comparison from the page's form; return the job's id."""
        reply = self.ask("/compare", form={"a": a, "b": b})
        assert reply.status == 303, reply.text
        return str(reply.headers["Location"]).partition("?")[0].rpartition("/")[2]

    def ended(self, id_: str, within_s: float = 60.0) -> dict[str, Any]:
        """Wait until a job has ended, by the stream of what it tells; return it."""
        due = time.monotonic() + within_s
        while time.monotonic() < due:
            self.ask(f"/api/jobs/{id_}/events")
            job: dict[str, Any] = self.ask(f"/api/jobs/{id_}").json
            if job["state"] in ("done", "failed", "cancelled"):
                return job
        raise AssertionError(f"the job {id_} has not ended")

    def key(self, name: str = "tests") -> str:
        """Make a key."""
        command = [sys.executable, "-m", "kinprint", "serve", "keys", "add", name, "--folder", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the server, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
