"""What other HTTP clients give where they send the very waves of requests that kinprint sends: the race of readers alone.

Each client is a function from requests to replies; `by_waves` does the rest: description, then index and look-ups, headers, norms.
`make bench` installs pycurl and obstore (requirements/bench.txt); where one is not installed its row says so.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from bench.ways import _INDEX, Endpoint, Values, _from_bf16
from kinprint.refs import ByteRange
from kinprint.sources.base import Traffic
from kinprint.sources.http import HttpClient, read_some
from kinprint.sources.settings import Settings

Range = tuple[int, int]
Ask = Callable[[Sequence[tuple[str, Range | None]]], list[tuple[str, bytes]]]
"""From addresses and ranges, sent at once, to where each reply leads, if it leads elsewhere, and its body."""

FIRST = 1 << 16  # bytes of a shard that hold most headers
AT_ONCE = 48


def by_waves(ask: Ask, at: Endpoint, names: Sequence[str]) -> Values:
    """Read the tensors in as few waves as there can be."""
    ((_, raw),) = ask([(f"{at.url}/api/models/{at.repo}/revision/main", None)])
    described = json.loads(raw)
    commit = described["sha"]
    shards = [one["rfilename"] for one in described["siblings"] if one["rfilename"].endswith(".safetensors")]
    wanted: list[tuple[str, Range | None]] = [(at.resolve(shard, commit), (0, 2)) for shard in shards]
    (_, index), *found = ask([(at.resolve(_INDEX, commit), None), *wanted])
    places: dict[str, str] = json.loads(index)["weight_map"]
    leads = zip(shards, found, wanted, strict=True)
    urls = {shard: location or asked for shard, (location, _), (asked, _) in leads}
    needed = sorted({places[name] for name in names})
    heads = dict(zip(needed, ask([(urls[shard], (0, FIRST)) for shard in needed]), strict=True))
    lengths = {shard: struct.unpack("<Q", head[:8])[0] for shard, (_, head) in heads.items()}
    long = [shard for shard in needed if lengths[shard] + 8 > FIRST]
    more = ask([(urls[shard], (FIRST, 8 + lengths[shard])) for shard in long]) if long else []
    rest = {shard: body for shard, (_, body) in zip(long, more, strict=True)}
    tensors = {shard: json.loads((heads[shard][1] + rest.get(shard, b""))[8 : 8 + lengths[shard]]) for shard in needed}

    def span(name: str) -> Range:
        start, stop = tensors[places[name]][name]["data_offsets"]
        return 8 + lengths[places[name]] + start, 8 + lengths[places[name]] + stop

    bodies = ask([(urls[places[name]], span(name)) for name in names])
    return {name: _from_bf16(body) for name, (_, body) in zip(names, bodies, strict=True)}


def _header(span: Range | None) -> dict[str, str]:
    return {"Range": f"bytes={span[0]}-{span[1] - 1}"} if span else {}


@contextmanager
def kinprint(at: Endpoint) -> Iterator[Ask]:
    """Use our own GET (`sources/http.py` and `http_connection.py`), with its checks of every address and reply."""
    settings = Settings(endpoint=at.url, range_cache=None, hub_cache=None, ca_file=at.ca)
    client = HttpClient(settings, Traffic(), threading.Event())

    def one(asked: tuple[str, Range | None]) -> tuple[str, bytes]:
        reply = client.send(asked[0], begun_at=asked[0], span=ByteRange(*asked[1]) if asked[1] else None)
        return reply.headers.get("Location", ""), b"".join(iter(lambda: read_some(reply, 1 << 20), b""))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield lambda asked: list(threads.map(one, asked))
    client.close()


@contextmanager
def urllib3_alone(at: Endpoint) -> Iterator[Ask]:
    """Use its pool from threads."""
    import urllib3

    with (
        urllib3.PoolManager(4, maxsize=AT_ONCE, ca_certs=at.ca, retries=False) as pool,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):

        def one(asked: tuple[str, Range | None]) -> tuple[str, bytes]:
            reply = pool.request("GET", asked[0], headers=_header(asked[1]), redirect=False)
            return reply.headers.get("Location", ""), reply.data

        yield lambda asked: list(threads.map(one, asked))


@contextmanager
def pycurl(at: Endpoint) -> Iterator[Ask]:
    """Use libcurl's multi interface from one thread, with handles that are used again."""
    import pycurl as curl

    multi, idle = curl.CurlMulti(), [curl.Curl() for _ in range(AT_ONCE)]
    multi.setopt(curl.M_MAXCONNECTS, 2 * AT_ONCE)

    def begin(handle: Any, number: int, url: str, span: Range | None) -> None:
        handle.reset()
        handle.body, handle.number = io.BytesIO(), number
        handle.setopt(curl.URL, url)
        handle.setopt(curl.WRITEDATA, handle.body)
        handle.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_1_1)
        if span:
            handle.setopt(curl.RANGE, f"{span[0]}-{span[1] - 1}")
        if at.ca:
            handle.setopt(curl.CAINFO, at.ca)
        multi.add_handle(handle)

    def ask(asked: Sequence[tuple[str, Range | None]]) -> list[tuple[str, bytes]]:
        waiting, found = list(enumerate(asked))[::-1], dict[int, tuple[str, bytes]]()
        while len(found) < len(asked):
            while waiting and idle:
                number, (url, span) = waiting.pop()
                begin(idle.pop(), number, url, span)
            multi.perform()
            _, good, bad = multi.info_read()
            if bad:
                raise SystemExit(f"pycurl: {bad[0][2]}")
            for handle in good:
                found[handle.number] = handle.getinfo(curl.REDIRECT_URL) or "", handle.body.getvalue()
                multi.remove_handle(handle)
                idle.append(handle)
            if not good:
                multi.select(1.0)
        return [found[number] for number in range(len(asked))]

    yield ask
    multi.close()


@contextmanager
def obstore(at: Endpoint) -> Iterator[Ask]:
    """Use its asynchronous reads; it follows redirects itself and tells nobody where they led."""
    from obstore.store import HTTPStore

    options: Any = {"allow_http": True, "allow_invalid_certificates": at.ca is not None}
    stores: dict[str, Any] = {}

    async def one(url: str, span: Range | None) -> tuple[str, bytes]:
        place = urlsplit(url)
        origin = f"{place.scheme}://{place.netloc}"
        store = stores.setdefault(origin, HTTPStore.from_url(origin, client_options=options))
        if span is None:
            reply = await store.get_async(place.path.lstrip("/"))
            return "", bytes(await reply.bytes_async())
        return "", bytes(await store.get_range_async(place.path.lstrip("/"), start=span[0], end=span[1]))

    async def several(asked: Sequence[tuple[str, Range | None]]) -> list[tuple[str, bytes]]:
        return await asyncio.gather(*(one(*each) for each in asked))

    with asyncio.Runner() as runner:
        yield lambda asked: runner.run(several(asked))


CLIENTS = {"kinprint": kinprint, "urllib3": urllib3_alone, "pycurl": pycurl, "obstore": obstore}


def read(client: str, at: Endpoint, names: Sequence[str]) -> Values:
    """Read the tensors with one of the clients."""
    with CLIENTS[client](at) as ask:
        return by_waves(ask, at, names)


def installed(client: str) -> str | None:
    """Return the version of a client, None where it is not installed."""
    try:
        return version(client)
    except ImportError:
        return None
