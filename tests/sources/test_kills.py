"""Processes killed with -9 while they fill the range cache: whoever reads next gets the file's own bytes, or fetches them."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

from kinprint.refs import ByteRange
from support.campaign import tried

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"
STEP = 512

# To start Python takes ten times as long as a case: one process that has loaded all is forked for each.
_READERS = """
import json, os, sys
from pathlib import Path
from kinprint.refs import ByteRange
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

def tell(*words):  # at once: under PYTHONUNBUFFERED print writes the end of a line by itself, and may be killed before it
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def read_on(endpoint, cache, repo, name, first):
    with Session(Settings(endpoint=endpoint, range_cache=Path(cache))) as session:
        source = session.open_folder(repo).open(name)
        for start in range(first, source.size, 512):
            end = min(source.size, start + 512)
            source.read_into(ByteRange(start, end), memoryview(bytearray(end - start)))
            tell(start)

reader = None
for line in sys.stdin:
    if reader is not None:
        os.waitpid(reader, 0)  # not before: until then no other process has its number, should it be killed after its end
    reader = os.fork()
    if reader == 0:
        tell(os.getpid())
        read_on(*json.loads(line))
        os._exit(0)
    end = os.waitid(os.P_PID, reader, os.WEXITED | os.WNOWAIT)
    tell("ended", end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)
"""


@pytest.fixture
def readers():
    """Start a reader, let it read so many times, and kill it; return how it ended."""
    with subprocess.Popen(
        [sys.executable, "-c", _READERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(arguments, reads):
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
            reader, said = int(process.stdout.readline()), ""
            while reads and not said.startswith("ended"):
                said, reads = process.stdout.readline(), reads - 1
            if not said.startswith("ended"):
                os.kill(reader, signal.SIGKILL)
            while not said.startswith("ended"):
                said = process.stdout.readline()
            return int(said.split()[1])

        yield run
        process.stdin.close()


def kills(hub, readers, session_for, model_folder, folder, seed, count):
    """Kill as many readers as that at some point of their work, each with a new cache, and read all with it after that.

    One that comes to its end before it is killed does not count.
    """
    data, rng = (model_folder / WEIGHTS).read_bytes(), random.Random(seed)
    survived = killed = 0
    while killed < count:
        cache = folder / str(killed)
        arguments = [hub.endpoint, str(cache), REPO, WEIGHTS, rng.randrange(0, len(data) // 2, STEP)]
        ended = readers(arguments, rng.randint(1, 6))
        assert ended in (0, -signal.SIGKILL)
        found = bytearray(len(data))
        with session_for(hub, range_cache=cache) as session:
            source = session.open_folder(REPO).open(WEIGHTS)
            for start in range(0, len(data), STEP):
                end = min(len(data), start + STEP)
                source.read_into(ByteRange(start, end), memoryview(found)[start:end])
            assert session.traffic.cache_bytes > 0  # what the killed one had finished is used
        shutil.rmtree(cache)
        if ended:
            killed, survived = killed + 1, survived + (found == data)
            tried("readers killed while they fill the cache", failed=found != data)
    return survived


def kills_of(seed):
    return pytest.param(seed, 100, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("seed", "count"), [pytest.param(0, 3, marks=pytest.mark.slow), *map(kills_of, range(1, 11))])
def test_readers_killed_while_they_fill_the_cache(hub, readers, session_for, model_folder, tmp_path, seed, count):
    assert kills(hub, readers, session_for, model_folder, tmp_path / "kept", seed, count) == count
