"""The range cache among others: what it may delete, who may write meanwhile, and what a key stands for."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from kinprint.errors import TransferError
from kinprint.refs import ByteRange
from kinprint.sources.base import read_whole
from kinprint.sources.cache import RangeCache, cache_key
from support.hub import Fault

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"
KEY = cache_key({"a": 1})


def put(cache, data, key=KEY):
    cache.write(key, ByteRange(0, len(data)), memoryview(data))


# ---- what is ours ----


def test_clearing_leaves_what_is_not_ours(ranges):
    cache = RangeCache(ranges, 1 << 30)
    put(cache, bytes(100))
    cache.note(KEY, {"path": "x"})
    own = cache._folder(KEY)
    (own / ".tmp-1-aa").write_bytes(b"half")
    base = ranges / "v1"
    foreign = [
        ranges / "notes.txt",
        base / "notes.txt",
        base / "photos" / "1-2",
        base / KEY[:2] / "notes.txt",
        base / KEY[:2] / "not-a-key" / "1-2",
        own / "thesis.tex",
        own / "5-9" / "inside.txt",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"dear to somebody")
    assert cache.clear() == 140
    assert [path for path in foreign if not path.exists()] == []
    assert sorted(path.name for path in own.iterdir()) == ["5-9", "thesis.tex"]
    assert cache.trim(0) == 0
    assert [path for path in foreign if not path.exists()] == []


def test_clearing_follows_no_links(ranges, tmp_path):
    cache = RangeCache(ranges, 1 << 30)
    put(cache, bytes(100))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1-2").write_bytes(b"dear to somebody")
    (ranges / "v1" / "ab").mkdir(exist_ok=True)
    (ranges / "v1" / "ab" / ("ab" * 32)).symlink_to(elsewhere)
    cache.clear()
    cache.trim(0)
    assert (elsewhere / "1-2").exists()


def test_a_cleared_cache_leaves_no_folders(ranges):
    cache = RangeCache(ranges, 1 << 30)
    put(cache, bytes(100))
    cache.clear()
    assert list(ranges.iterdir()) == []


def test_clearing_where_there_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert RangeCache(tmp_path / "file", 1 << 30).clear() == 0
    assert RangeCache(tmp_path / "none", 1 << 30).clear() == 0


# ---- at the same time ----


def test_writers_survive_clearing_and_trimming(ranges):
    """Each has a cache object of its own, as processes have; none may fail, and none may switch itself off."""
    written = threading.Event()
    caches = [RangeCache(ranges, 1 << 30) for _ in range(6)]

    def write(number):
        cache = caches[number]
        for turn in range(150):
            key = cache_key({"n": turn % 3})
            put(cache, b"x" * 50, key=key)
            cache.note(key, {"turn": turn, "by": number})
            buffer = bytearray(50)
            if cache.read_into(key, ByteRange(0, 50), memoryview(buffer)):
                assert bytes(buffer) == b"x" * 50

    def clear(number):
        while not written.is_set():
            caches[number].clear()
            caches[number].files()

    def trim(number):
        while not written.is_set():
            caches[number].trim(0)
            caches[number].forget(cache_key({"n": 1}))

    with ThreadPoolExecutor(6) as pool:
        cleaners = [pool.submit(*job) for job in ((clear, 3), (clear, 4), (trim, 5))]
        writers = [pool.submit(write, number) for number in range(3)]
        wait(writers)
        written.set()
    for job in (*writers, *cleaners):
        job.result()
    assert [cache.problem for cache in caches] == [None] * 6


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
@pytest.mark.parametrize("times", [1, 2])
def test_a_folder_that_vanishes_while_it_is_made(ranges, monkeypatch, error, times):
    cache, real, failed = RangeCache(ranges, 1 << 30), Path.mkdir, []

    def flaky(self, *args, **more):
        if len(failed) < times:
            failed.append(self)
            raise error(17, "as if somebody cleared the cache")
        return real(self, *args, **more)

    monkeypatch.setattr(Path, "mkdir", flaky)
    put(cache, b"x" * 10)
    assert cache.problem is None
    assert len(failed) == times
    assert len(cache.files()) == (1 if times == 1 else 0)  # tried once more, then given up without a word
    put(cache, b"x" * 10)
    assert len(cache.files()) == 1


# ---- what a key stands for ----


def test_addresses_that_differ_in_the_query_share_nothing(web, session_for, ranges, model_folder):
    """One path may serve many files, with one tag if the server is careless."""
    contents = {"id=one": b"1" * 500, "id=two": b"2" * 500}

    def spoil(request):
        body = contents[request.path.partition("?")[2]]
        first, last = (int(text) for text in request.headers["Range"].removeprefix("bytes=").split("-"))
        stated = f"bytes {first}-{last}/500"
        web.reply(request, 206, body[first : last + 1], Content_Range=stated, ETag='"same"')
        return True

    web.spoil = spoil
    for _ in range(2):
        for query, body in contents.items():
            folder = session_for(range_cache=ranges).open_folder(f"{web.url}/get.safetensors?{query}")
            assert read_whole(folder.open("get.safetensors")) == body
    assert len([asked for _, asked in web.log if asked != "bytes=0-0"]) == 2  # the second time from the cache
    stored = b"".join(path.read_bytes() for path in ranges.rglob("about.json"))
    assert stored.count(b"url_sha256") == 2
    assert b"id=" not in stored


def test_weak_tags_are_no_ground_for_caching(web, session_for, ranges, model_folder):
    data = (model_folder / WEIGHTS).read_bytes()

    def spoil(request):
        first, last = (int(text) for text in request.headers["Range"].removeprefix("bytes=").split("-"))
        stated = f"bytes {first}-{last}/{len(data)}"
        web.reply(request, 206, data[first : last + 1], Content_Range=stated, ETag='W/"weak"')
        return True

    web.spoil = spoil
    source = session_for(range_cache=ranges).open_folder(web.url).open(WEIGHTS)
    assert read_whole(source) == data
    assert not list(ranges.rglob("*-*"))


@pytest.mark.parametrize("ask", ["size", "identity", "prefetch"])
def test_a_look_up_is_noted(hub, session_for, ranges, ask):
    reference = f"{REPO}@{hub.commit}"

    def look():
        source = session_for(hub, range_cache=ranges).open_folder(reference).open(WEIGHTS)
        if ask == "prefetch":
            source.prefetch()
        else:
            getattr(source, ask)
        return source

    first = look()
    hub.reset()
    again = look()
    assert (again.size, again.identity) == (first.size, first.identity)
    assert hub.requests == []
    assert read_whole(again)  # the bytes themselves are still to be had


def test_a_failed_look_up_is_not_noted(hub, session_for, ranges):
    hub.add_fault(Fault(kind="drop", match=WEIGHTS, times=3))
    folder = session_for(hub, range_cache=ranges).open_folder(REPO)
    with pytest.raises(TransferError, match="gave up"):
        folder.open(WEIGHTS).prefetch()
    assert folder.open(WEIGHTS).size > 0
