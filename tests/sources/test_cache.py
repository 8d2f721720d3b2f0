"""The range cache: second runs, damage, other processes, full disks."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kinprint.errors import SourceChanged, StorageError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.refs import ByteRange
from kinprint.sources.base import read_whole
from kinprint.sources.cache import RangeCache, cache_key
from support.hub import Fault, HubServer

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"
KEY = cache_key({"a": 1})


@pytest.fixture
def cache(ranges):
    return RangeCache(ranges, 1 << 30)


def put(cache, start, data, key=KEY):
    cache.write(key, ByteRange(start, start + len(data)), memoryview(data))


def get(cache, start, end, key=KEY):
    buffer = bytearray(end - start)
    return bytes(buffer) if cache.read_into(key, ByteRange(start, end), memoryview(buffer)) else None


def stored_bytes(cache):
    return sum(file.stored_bytes for file in cache.files())


def entries(root):
    return sorted(path for path in root.rglob("*-*") if path.is_file())


# ---- as a store ----


def test_what_was_stored_comes_back(cache):
    data = bytes(range(200))
    put(cache, 0, data[:100])
    put(cache, 100, data[100:150])
    put(cache, 120, data[120:])
    assert get(cache, 0, 200) == data
    assert get(cache, 90, 130) == data[90:130]
    assert get(cache, 199, 200) == data[199:]
    assert get(cache, 0, 201) is None
    assert get(cache, 0, 10, key=cache_key({"a": 2})) is None


def test_a_range_asked_for_again_is_opened_by_its_name(cache, monkeypatch):
    put(cache, 0, b"a" * 100)
    put(cache, 100, b"b" * 100)
    listed = []
    monkeypatch.setattr(os, "listdir", lambda folder, list_it=os.listdir: listed.append(folder) or list_it(folder))
    assert get(cache, 100, 200) == b"b" * 100
    assert not listed
    assert get(cache, 50, 150) == b"a" * 50 + b"b" * 50
    assert len(listed) == 1


def test_a_name_that_claims_too_much_takes_no_memory(cache, ranges):
    put(cache, 0, b"a" * 100)
    (entry,) = entries(ranges)
    liar = entry.rename(entry.with_name(f"0-{1 << 60}"))
    assert get(cache, 10, 20) is None
    assert not liar.exists()


def test_a_hole_is_not_bridged(cache):
    put(cache, 0, bytes(10))
    put(cache, 20, bytes(10))
    assert get(cache, 5, 25) is None


def test_random_ranges_never_lie(cache):
    rng = np.random.default_rng(8)
    data = rng.bytes(3000)
    for _ in range(40):
        start, end = sorted(int(at) for at in rng.integers(0, 3000, 2))
        if start < end:
            put(cache, start, data[start:end])
        start, end = sorted(int(at) for at in rng.integers(0, 3000, 2))
        assert get(cache, start, end) in (None, data[start:end])
    assert cache.problem is None


@pytest.mark.parametrize("damage", ["flip-payload", "flip-head", "truncate", "empty", "longer"])
def test_damage_is_noticed_and_dropped(cache, ranges, damage):
    put(cache, 0, b"x" * 100)
    (path,) = entries(ranges)
    raw = bytearray(path.read_bytes())
    if damage.startswith("flip"):
        raw[-1 if damage == "flip-payload" else 10] ^= 1
    elif damage == "longer":
        raw += b"x"
    else:
        raw = raw[: 0 if damage == "empty" else -1]
    path.write_bytes(raw)
    assert get(cache, 0, 100) is None
    assert not path.exists()


def test_damaged_range_beside_a_sound_one(cache, ranges):
    put(cache, 0, b"x" * 100)
    put(cache, 0, b"x" * 50)
    long = next(path for path in entries(ranges) if path.name == "0-100")
    long.write_bytes(long.read_bytes()[:-1] + b"y")
    assert get(cache, 0, 50) == b"x" * 50


def test_a_renamed_or_swapped_range_is_not_believed(cache, ranges):
    put(cache, 0, b"a" * 10)
    put(cache, 10, b"b" * 10)
    first, second = entries(ranges)
    aside = first.with_name("aside")
    first.rename(aside), second.rename(first), aside.rename(second)  # both checksums hold, at the wrong place
    assert get(cache, 0, 10) is None
    assert get(cache, 10, 20) is None


def test_a_range_of_another_file_is_not_believed(cache, ranges):
    other = cache_key({"a": 2})
    put(cache, 0, b"a" * 10)
    cache.note(KEY, {"size": 10})
    folder = entries(ranges)[0].parent
    moved = folder.parent.parent / other[:2] / other
    moved.parent.mkdir(exist_ok=True)
    folder.rename(moved)
    assert get(cache, 0, 10, key=other) is None
    assert cache.about(other) is None


def test_a_cache_that_cannot_be_written_to_is_read(cache, monkeypatch):
    put(cache, 0, b"a" * 10)

    def refuse(*_):
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert get(cache, 0, 10) == b"a" * 10


def test_foreign_files_are_ignored(cache, ranges):
    put(cache, 0, b"x" * 10)
    folder = entries(ranges)[0].parent
    for name in ("5-2", "a-b", "7-7", "0-99999999999999999999999", "notes.txt", ".tmp-1-x"):
        (folder / name).write_bytes(b"?")
    assert get(cache, 0, 10) == b"x" * 10
    assert get(cache, 0, 11) is None


def test_facts(cache, ranges):
    cache.note(KEY, {"size": 5, "path": "ü"})
    assert cache.about(KEY) == {"size": 5, "path": "ü"}
    path = next(ranges.rglob("about.json"))
    path.write_bytes(path.read_bytes().replace(b'"size":5', b'"size":6'))
    assert cache.about(KEY) is None  # a wrong size would make a sound model look damaged
    for text in (b"", b"[]", b"{}", b'{"facts": 5}', b"\xff"):
        path.write_bytes(text)
        assert cache.about(KEY) is None


def test_listing_and_clearing(cache):
    put(cache, 0, bytes(1000))
    cache.note(KEY, {"path": "x"})
    (file,) = cache.files()
    assert (file.about, file.ranges, file.stored_bytes) == ({"path": "x"}, 1, 1040)
    assert cache.clear() == stored_bytes(cache) + 1040
    assert cache.files() == []
    assert cache.clear() == 0
    put(cache, 0, b"again")
    assert get(cache, 0, 5) == b"again"


def test_clearing_that_fails(cache, monkeypatch):
    put(cache, 0, bytes(10))

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match=r"cannot be cleared: Permission denied"):
        cache.clear()


def test_least_recently_used_goes_first(ranges):
    cache = RangeCache(ranges, 10_000)
    for number in range(9):
        put(cache, 0, bytes(960), key=cache_key({"n": number}))  # 1,000 bytes each with its head
    now = time.time()
    for number in range(9):
        (path,) = entries(cache._folder(cache_key({"n": number})))
        os.utime(path, (now - 100 + number, now - 100 + number))
    assert get(cache, 0, 10, key=cache_key({"n": 0})) is not None  # used now
    assert cache.trim(5000) == 5000
    left = {number for number in range(9) if get(cache, 0, 10, key=cache_key({"n": number})) is not None}
    assert left == {0, 6, 7, 8}
    assert cache.trim(5000) == 0


def test_cap_holds_while_writing(ranges):
    cache = RangeCache(ranges, 3 << 20)
    for number in range(12):
        put(cache, 0, bytes(1 << 20), key=cache_key({"n": number}))
        assert stored_bytes(cache) <= (5 << 20)
    cache.settle()
    assert stored_bytes(cache) <= 3 << 20


def test_cap_holds_over_many_short_runs(hub, session_for, ranges):
    for _ in range(3):
        session = session_for(hub, range_cache=ranges, range_cache_cap_bytes=20_000)
        checkpoint = open_checkpoint(REPO, session)
        checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])
        session.close()
        assert stored_bytes(session.cache) <= 20_000


def test_stale_temporary_files_are_cleaned(cache, ranges):
    put(cache, 0, bytes(10))
    folder = entries(ranges)[0].parent
    old, new = folder / ".tmp-1-aa", folder / ".tmp-1-bb"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.trim()
    assert (old.exists(), new.exists()) == (False, True)


# ---- disks ----


def test_full_disk(cache, ranges, monkeypatch):
    real = Path.open

    def full(self, mode="r", *args, **kwargs):
        if "w" in mode and ranges in self.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    put(cache, 0, bytes(10))
    assert "off for this run: No space left on device" in cache.problem
    monkeypatch.undo()
    put(cache, 0, bytes(10))
    assert entries(ranges) == []  # off for good, not tried again and again


def test_cache_below_a_file(tmp_path, hub, session_for):
    (tmp_path / "file").write_bytes(b"")
    session = session_for(hub, range_cache=tmp_path / "file" / "ranges")
    checkpoint = open_checkpoint(REPO, session)
    assert len(checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])) == 4
    assert "is off for this run" in session.cache.problem
    assert session.cache.files() == []


def test_run_goes_on_without_room(hub, session_for, ranges, tmp_path):
    """A limit on file size makes the system itself refuse the write."""
    script = """
import resource, signal, sys
sys.dont_write_bytecode = True  # the limit would leave cut bytecode behind, which breaks every later start
from pathlib import Path
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
with Session(Settings(endpoint=sys.argv[1], range_cache=Path(sys.argv[2]))) as session:
    checkpoint = open_checkpoint(sys.argv[3], session)
    print(len(checkpoint.read([whole(t) for t in checkpoint.tensors.values()])), session.cache.problem)
"""
    done = run_python(script, hub.endpoint, str(ranges), REPO)
    assert done.stdout.startswith("4 the range cache at"), done.stderr
    assert "File too large" in done.stdout
    assert not list(ranges.rglob(".tmp-*"))


def run_python(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


# ---- second runs ----


def read_model(reference, session):
    checkpoint = open_checkpoint(reference, session)
    return checkpoint.read([whole(tensor) for tensor in checkpoint.tensors.values()])


def test_second_run_asks_for_the_revision_only(hub, session_for, ranges):
    first = read_model(REPO, session_for(hub, range_cache=ranges))
    hub.reset()
    session = session_for(hub, range_cache=ranges)
    second = read_model(REPO, session)
    assert [(r.path.rpartition("/")[0], r.file) for r in hub.requests] == [(f"/api/models/{REPO}/revision", "")]
    assert session.traffic.cache_bytes > 60_000
    assert all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))
    hub.reset()
    third = read_model(f"{REPO}@{hub.commit}", session_for(hub, range_cache=ranges))
    assert hub.requests == []
    assert all(np.array_equal(one, two) for one, two in zip(first, third, strict=True))


def test_second_run_of_a_web_folder_only_probes(web, session_for, ranges):
    first = read_model(web.url, session_for(range_cache=ranges))
    web.log.clear()
    second = read_model(web.url, session_for(range_cache=ranges))
    assert {asked for _, asked in web.log} == {"bytes=0-0"}
    assert all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))


def test_web_file_that_changed_between_runs(web, session_for, ranges, model_folder):
    read_model(web.url, session_for(range_cache=ranges))
    path = model_folder / WEIGHTS
    raw = bytearray(path.read_bytes())
    raw[-8:] = bytes(8)
    path.write_bytes(raw)
    source = session_for(range_cache=ranges).open_folder(web.url).open(WEIGHTS)
    assert read_whole(source) == bytes(raw)


def test_web_file_without_a_tag_is_not_cached(web, session_for, ranges):
    web.tags = False
    read_model(web.url, session_for(range_cache=ranges))
    assert entries(ranges) == []


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_damaged_ranges_are_fetched_again(hub, session_for, ranges, damage):
    first = read_model(REPO, session_for(hub, range_cache=ranges))
    for path in entries(ranges):
        raw = bytearray(path.read_bytes())
        raw[-3] ^= 64
        if damage == "delete":
            path.unlink()
        else:
            path.write_bytes(raw if damage == "flip" else raw[:-5])
    second = read_model(REPO, session_for(hub, range_cache=ranges))
    assert all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))
    hub.reset()
    read_model(f"{REPO}@{hub.commit}", session_for(hub, range_cache=ranges))
    assert hub.requests == []  # repaired


def test_small_file_behind_a_redirect_survives_trimming(hub, session_for, ranges, tmp_path, model_folder):
    """Its tag must be the same whether it was read whole or by range, or trimming would look like a change."""
    (model_folder / "tokenizer.json").write_bytes(b'{"model": "' + b"x" * 12_000_000 + b'"}')  # stored like weights
    commit = hub.add_revision(REPO, "big", model_folder)
    folder = session_for(hub, range_cache=ranges).open_folder(f"{REPO}@{commit}")
    body = folder.read_small("tokenizer.json")
    assert any(r.origin == "cdn" for r in hub.requests)
    for path in entries(ranges):
        path.unlink()
    assert session_for(hub, range_cache=ranges).open_folder(f"{REPO}@{commit}").read_small("tokenizer.json") == body


def test_small_file_behind_the_hubs_own_redirect(model_folder, session_for, ranges):
    with HubServer(resolve_cache=True) as hub:
        reference = f"{REPO}@{hub.add_repo(REPO, model_folder)}"
        body = session_for(hub, range_cache=ranges).open_folder(reference).read_small("config.json")
        for path in entries(ranges):
            path.unlink()
        assert session_for(hub, range_cache=ranges).open_folder(reference).read_small("config.json") == body
        hub.reset()
        assert session_for(hub, range_cache=ranges).open_folder(reference).read_small("config.json") == body
        assert hub.requests == []


def test_other_content_behind_a_pinned_name(hub, session_for, ranges):
    checkpoint = open_checkpoint(REPO, session_for(hub, range_cache=ranges))
    assert entries(ranges)
    hub.add_fault(Fault(kind="changed-etag", match=WEIGHTS, times=None))
    session = session_for(hub, range_cache=ranges)
    source = session.open_folder(REPO).open(WEIGHTS)
    span = ByteRange(checkpoint.files[0].header_bytes + 100, checkpoint.files[0].size)
    with pytest.raises(SourceChanged, match=r"not the one whose ranges are in the cache") as caught:
        source.read_into(span, memoryview(bytearray(len(span))))
    assert "old ranges have been dropped" in caught.value.hint
    kept = [file.about.get("path") for file in session.cache.files()]
    assert WEIGHTS not in kept
    assert "model-00002-of-00002.safetensors" in kept


# ---- other processes ----

_SHARE = """
import sys
from pathlib import Path
import numpy as np
from kinprint.refs import ByteRange
from kinprint.sources.cache import RangeCache, cache_key
root, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cache = RangeCache(root, 200_000)  # small, so that they trim under each other's feet
rng = np.random.default_rng(seed)
content = {n: np.random.default_rng(n).bytes(50_000) for n in range(4)}
print("ready", flush=True)
hits = 0
for turn in range(rounds):
    n = int(rng.integers(4)); key = cache_key({"n": n})
    start, end = sorted(int(x) for x in rng.integers(0, 50_000, 2))
    if start == end: continue
    buffer = bytearray(end - start)
    if cache.read_into(key, ByteRange(start, end), memoryview(buffer)):
        hits += 1
        assert bytes(buffer) == content[n][start:end], "wrong bytes"
    else:
        cache.write(key, ByteRange(start, end), memoryview(content[n][start:end]))
    if turn % 40 == seed: cache.trim(100_000)
    if turn % 97 == seed: cache.forget(key)
assert cache.problem is None, cache.problem
print("hits", hits)
"""


def start_sharing(ranges, seed, rounds):
    return subprocess.Popen(
        [sys.executable, "-c", _SHARE, str(ranges), str(seed), str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_four_processes_share(ranges):
    workers = [start_sharing(ranges, seed, 300) for seed in range(4)]
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        assert int(out.split()[-1]) > 0


@pytest.mark.slow
def test_killed_writers_leave_nothing_wrong(ranges):
    rng = np.random.default_rng(12)
    content = {n: np.random.default_rng(n).bytes(50_000) for n in range(4)}
    for turn in range(20):
        worker = start_sharing(ranges, turn, 1_000_000)
        assert worker.stdout.readline() == "ready\n"
        time.sleep(float(rng.uniform(0.0, 0.1)))
        worker.kill()
        worker.communicate(timeout=10)
        cache = RangeCache(ranges, 1 << 30)
        for n, data in content.items():
            key = cache_key({"n": n})
            for span, _ in cache._stored(cache._folder(key)):
                assert get(cache, span.start, span.end, key=key) in (None, data[span.start : span.end])
    for path in ranges.rglob(".tmp-*"):
        os.utime(path, (1, 1))
    cache.trim()
    assert not list(ranges.rglob(".tmp-*"))
