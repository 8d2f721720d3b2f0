"""The server's side of the benches over HTTP: repositories on disk, and the local hub in a process of its own."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from bench.ways import Endpoint, connect
from support.layouts import from_bf16, write_sparse_glm_air

REPO = "bench/Sparse-Air"
INDEX = "model.safetensors.index.json"
Values = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Repository:
    """A sparse repository, the norms to be read from it, and their values taken from disk."""

    folder: Path
    parameters: int
    tensors: int
    files: int
    norms: Values
    index_bytes: int
    header_bytes: int
    norm_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Bytes no reader that starts from the repository's name can do without."""
        return self.index_bytes + self.header_bytes + self.norm_bytes


def make_repository(folder: Path, *, quick: bool) -> Repository:
    """Write the repository and read its norms from disk, by code that shares nothing with the ways compared."""
    made = write_sparse_glm_air(folder, shards=8, layers=4, experts=16) if quick else write_sparse_glm_air(folder)
    places: dict[str, str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    depth = json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    wanted = [name for name in places if name.endswith("norm.weight") and _layer(name) < depth]
    norms: Values = {}
    header_bytes = norm_bytes = 0
    for file in sorted({places[name] for name in wanted}):
        with (folder / file).open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
            header_bytes += 8 + length
            for name in (name for name in wanted if places[name] == file):
                start, stop = header[name]["data_offsets"]
                stream.seek(8 + length + start)
                norms[name] = from_bf16(np.frombuffer(stream.read(stop - start), "<u2"))
                norm_bytes += stop - start
    index_bytes = (folder / INDEX).stat().st_size
    return Repository(
        folder, made.parameters, len(places), len(made.files), norms, index_bytes, header_bytes, norm_bytes
    )


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


@dataclass(frozen=True)
class Hub:
    """A running hub, and its counters."""

    endpoint: Endpoint

    def reset(self) -> None:
        """Forget what was asked so far."""
        self._ask("POST", "/_reset")

    def stats(self) -> dict[str, int]:
        """Return requests and body bytes since the last reset, both origins together."""
        counted = json.loads(self._ask("GET", "/_stats"))
        return {what: sum(counted[what].values()) for what in ("requests", "bytes")}

    def requests(self) -> dict[str, int]:
        """Return requests since the last reset, by origin: hub and cdn."""
        counted: dict[str, int] = json.loads(self._ask("GET", "/_stats"))["requests"]
        return counted

    def _ask(self, method: str, path: str) -> bytes:
        link = connect(urlsplit(self.endpoint.url), self.endpoint.ca)
        try:
            link.request(method, path)
            return link.getresponse().read()
        finally:
            link.close()


def running_hub(repository: Repository, *, latency_ms: float, tls: bool, scratch: Path) -> AbstractContextManager[Hub]:
    """Run the hub for one repository."""
    return serving({REPO: repository.folder}, latency_ms=latency_ms, tls=tls, scratch=scratch)


@contextmanager
def serving(
    folders: Mapping[str, Path],
    *,
    latency_ms: float,
    tls: bool,
    scratch: Path,
    owners: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[Hub]:
    """Run the hub in a process of its own, so that the client under measurement shares no interpreter with it.

    All folders inside one of `owners` are repositories too. Its endpoint names the first repository.
    """
    command = [sys.executable, "-m", "support.hub"]
    command += [word for name, folder in folders.items() for word in ("--repo", f"{name}={folder}")]
    command += [word for name, folder in owners.items() for word in ("--owner", f"{name}={folder}")]
    command += ["--latency-ms", str(latency_ms)]
    if tls:
        command += ["--tls", "--ca-out", str(scratch / "ca.pem"), "--connect-latency-ms", str(latency_ms)]
    # The hub quits when this pipe closes, so it does not outlive a bench that is killed.
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise RuntimeError(f"the local hub did not start (exit status {server.wait()})")
        ready: dict[str, Any] = json.loads(line)
        first = next(iter(ready["commit"]))
        yield Hub(Endpoint(ready["endpoint"], first, ready["commit"][first], ready.get("ca")))
    finally:
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        assert server.stdout is not None
        server.stdout.close()
