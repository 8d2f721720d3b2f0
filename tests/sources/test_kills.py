"""Processes killed with -9 while they fill the range cache: whoever reads next gets the file's own bytes, or fetches them."""

import random
import shutil
import subprocess
import sys

import pytest

from kinprint.refs import ByteRange
from support.campaign import tried

REPO = "owner/Small-Model"
WEIGHTS = "model-00001-of-00002.safetensors"
STEP = 512

_READ_ON = """
import sys
from pathlib import Path
from kinprint.refs import ByteRange
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
with Session(Settings(endpoint=sys.argv[1], range_cache=Path(sys.argv[2]))) as session:
    source = session.open_folder(sys.argv[3]).open(sys.argv[4])
    for start in range(int(sys.argv[5]), source.size, 512):
        end = min(source.size, start + 512)
        source.read_into(ByteRange(start, end), memoryview(bytearray(end - start)))
        print(start, flush=True)
"""


def kills(hub, session_for, model_folder, folder, seed, count):
    """Kill as many readers as that at some point of their work, each with a new cache, and read all with it after that."""
    data, rng = (model_folder / WEIGHTS).read_bytes(), random.Random(seed)
    survived = 0
    for number in range(count):
        cache = folder / str(number)
        arguments = [hub.endpoint, str(cache), REPO, WEIGHTS, str(rng.randrange(0, len(data), STEP))]
        with subprocess.Popen(
            [sys.executable, "-c", _READ_ON, *arguments], stdout=subprocess.PIPE, text=True
        ) as reader:
            for _ in range(rng.randint(1, 6)):
                if not reader.stdout.readline():
                    break
            reader.kill()
        found = bytearray(len(data))
        with session_for(hub, range_cache=cache) as session:
            source = session.open_folder(REPO).open(WEIGHTS)
            for start in range(0, len(data), STEP):
                end = min(len(data), start + STEP)
                source.read_into(ByteRange(start, end), memoryview(found)[start:end])
            assert session.traffic.cache_bytes > 0  # what the killed one had finished is used
        shutil.rmtree(cache)
        survived += found == data
        tried("readers killed while they fill the cache", failed=found != data)
    return survived


def kills_of(seed):
    return pytest.param(seed, 100, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("seed", "count"), [pytest.param(0, 3, marks=pytest.mark.slow), *map(kills_of, range(1, 11))])
def test_readers_killed_while_they_fill_the_cache(hub, session_for, model_folder, tmp_path, seed, count):
    assert kills(hub, session_for, model_folder, tmp_path / "kept", seed, count) == count
