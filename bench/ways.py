"""Ways to read a repository's norm tensors over HTTP, from the plainest script to kinprint, and the round-trip floor."""

from __future__ import annotations

import http.client
import json
import ssl
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import numpy as np
import requests  # noqa: TID251  the rival in this race
from numpy.typing import NDArray

from kinprint.formats.plan import whole
from kinprint.model.model import open_model
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

Values = dict[str, NDArray[np.float32]]
Get = Callable[..., requests.Response]

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Endpoint:
    """Where the repository is served."""

    url: str
    repo: str
    commit: str
    ca: str | None

    def resolve(self, file: str, revision: str = "main") -> str:
        """Return the address of a file."""
        return f"{self.url}/{self.repo}/resolve/{revision}/{file}"


def _from_bf16(raw: bytes) -> NDArray[np.float32]:
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)


# -- one tensor after another ------------------------------------------------------------------------------------------


def published_scripts(at: Endpoint, names: Sequence[str]) -> Values:
    """Read as the two published scripts do: three ranges for each tensor, a new connection for each request."""
    return _one_by_one(requests.get, at, names)


def published_scripts_with_session(at: Endpoint, names: Sequence[str]) -> Values:
    """Do the same over connections that are kept."""
    with requests.Session() as session:
        return _one_by_one(session.get, at, names)


def _one_by_one(get: Get, at: Endpoint, names: Sequence[str]) -> Values:
    trust = at.ca or True

    def span(url: str, start: int, stop: int) -> bytes:
        reply = get(url, headers={"Range": f"bytes={start}-{stop - 1}"}, verify=trust, timeout=60)
        reply.raise_for_status()
        return reply.content

    index = get(at.resolve(_INDEX), verify=trust, timeout=60)
    index.raise_for_status()
    places: dict[str, str] = index.json()["weight_map"]
    values: Values = {}
    for name in names:
        url = at.resolve(places[name])
        (length,) = struct.unpack("<Q", span(url, 0, 8))
        start, stop = json.loads(span(url, 8, 8 + length))[name]["data_offsets"]
        values[name] = _from_bf16(span(url, 8 + length + start, 8 + length + stop))
    return values


# -- the official client -----------------------------------------------------------------------------------------------


def official(at: Endpoint, names: Sequence[str], cache: Path) -> Values:
    """Read with huggingface_hub: its threaded metadata reader, then its file system from sixteen threads."""
    import httpx2
    from huggingface_hub import HfApi, HfFileSystem, constants, set_client_factory

    # It keeps the index on disk: nothing of this must reach the user's own cache, nor one run help the next.
    constants.HF_HUB_CACHE = str(cache)

    if at.ca is not None:
        trust = ssl.create_default_context(cafile=at.ca)
        set_client_factory(lambda: httpx2.Client(verify=trust, follow_redirects=True, timeout=60))
    found = HfApi(endpoint=at.url, token=False).get_safetensors_metadata(at.repo)
    files = HfFileSystem(endpoint=at.url, token=False, skip_instance_cache=True)
    listed = cast("list[dict[str, Any]]", files.ls(at.repo, detail=True))
    sizes = {entry["name"].rpartition("/")[2]: int(entry["size"]) for entry in listed}
    # The client does not tell how long a header is; the data ends with the file, so the last offset gives its start.
    ends = {f: max(t.data_offsets[1] for t in m.tensors.values()) for f, m in found.files_metadata.items()}

    def one(name: str) -> NDArray[np.float32]:
        file = found.weight_map[name]
        start, stop = found.files_metadata[file].tensors[name].data_offsets
        with files.open(f"{at.repo}/{file}", "rb", cache_type="none") as stream:
            stream.seek(sizes[file] - ends[file] + start)
            return _from_bf16(stream.read(stop - start))

    with ThreadPoolExecutor(16) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


# -- kinprint ----------------------------------------------------------------------------------------------------------


def kinprint(at: Endpoint, cache: Path | None = None) -> Values:
    """Open the model, and read every norm it has by one plan. No list of names is given: the naming finds them."""
    settings = Settings(endpoint=at.url, range_cache=cache, hub_cache=None, ca_file=at.ca)
    with Session(settings) as session:
        model = open_model(at.repo, session)
        parts = [part for part in model.naming.tensors if part.role.info.kind == "norm"]
        arrays = model.checkpoint.read([whole(model.checkpoint.tensors[part.name]) for part in parts])
    return {part.name: np.asarray(array, np.float32) for part, array in zip(parts, arrays, strict=True)}


# -- the floor ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """What the floor asks for: one file, its header, one tensor in it. Known beforehand, so nothing is guessed."""

    file: str
    header: tuple[int, int]
    data: tuple[int, int]


def make_chain(folder: Path, name: str) -> Chain:
    """Look one tensor up on disk."""
    file: str = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"][name]
    with (folder / file).open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        start, stop = json.loads(stream.read(length))[name]["data_offsets"]
    return Chain(file, (0, 8 + length), (8 + length + start, 8 + length + stop))


def trust_of(ca: str | None) -> ssl.SSLContext | None:
    """Return the TLS context for a throw-away authority."""
    return ssl.create_default_context(cafile=ca) if ca else None


def connect(address: SplitResult, ca: str | None, trust: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    """Open one kept-alive connection."""
    assert address.hostname is not None
    if address.scheme == "https":
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=60, context=trust or trust_of(ca))
    return http.client.HTTPConnection(address.hostname, address.port, timeout=60)


def floor(at: Endpoint, chain: Chain, trust: ssl.SSLContext | None) -> bytes:
    """Do the least that reading one tensor takes: five requests, each of which needs the answer to the one before.

    Description, index, look-up (a redirect), header, tensor; over one connection to the hub and one to the CDN. Only
    what the next request needs is parsed.
    """
    hub = connect(urlsplit(at.url), at.ca, trust)

    def ask(link: http.client.HTTPConnection, path: str, span: tuple[int, int] | None = None) -> tuple[str, bytes]:
        link.request("GET", path, headers={"Range": f"bytes={span[0]}-{span[1] - 1}"} if span else {})
        reply = link.getresponse()
        return reply.headers.get("Location", ""), reply.read()

    try:
        commit = json.loads(ask(hub, f"/api/models/{at.repo}/revision/main")[1])["sha"]
        ask(hub, f"/{at.repo}/resolve/{commit}/{_INDEX}")
        target = urlsplit(ask(hub, f"/{at.repo}/resolve/{commit}/{chain.file}", (0, 1))[0])
        cdn = connect(target, at.ca, trust)
        try:
            place = f"{target.path}?{target.query}"
            ask(cdn, place, chain.header)
            return ask(cdn, place, chain.data)[1]
        finally:
            cdn.close()
    finally:
        hub.close()
