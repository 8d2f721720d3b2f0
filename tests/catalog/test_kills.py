"""Writers killed with -9 while they add to a catalog: nothing that was confirmed is lost, and nothing is there by half."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinprint.catalog.sqlite import SqliteCatalog
from support.campaign import tried
from support.catalogs import make_item
from support.places import ROOT

PART = "writers of a catalog killed"
MANY = 60  # entries that a writer would add if nobody killed it

# To start Python takes ten times as long as a case: one process that has loaded all is forked for each.
_WRITERS = """
import json, os, sys
from pathlib import Path
from kinprint.catalog import sqlite
from support.catalogs import make_item

sqlite._TAIL = 3
items = [make_item(seed) for seed in range(80)]
others = [make_item(seed + 1000, name=f"maker/model-{seed}", revision=f"{seed:040x}") for seed in range(80)]

def tell(*words):  # at once: under PYTHONUNBUFFERED print writes the end of a line by itself, and may be killed before it
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def write_on(path, first, mode):
    with sqlite.SqliteCatalog(Path(path)) as catalog:
        for seed in range(first, first + 60):
            item = (others if mode == "replace" else items)[seed % 80]
            if mode == "remove":
                catalog.remove(items[seed % 80].entry.key)
            else:
                catalog.add(*item, replace=mode == "replace")
            tell(seed % 80)
            if mode == "index":
                catalog.nearest(item.vectors, 1)

writer = None
for line in sys.stdin:
    if writer is not None:
        os.waitpid(writer, 0)  # not before: until then no other process has its number, should it be killed after its end
    writer = os.fork()
    if writer == 0:
        tell(os.getpid())
        write_on(*json.loads(line))
        os._exit(0)
    end = os.waitid(os.P_PID, writer, os.WEXITED | os.WNOWAIT)
    tell("ended", end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)
"""


@pytest.fixture
def writers():
    """Start a writer, kill it some time after it confirmed so many, and return what it confirmed and how it ended."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(
        [sys.executable, "-c", _WRITERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:

        def run(arguments, confirmations, wait_s):
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
            writer, said = int(process.stdout.readline()), []
            while len(said) < confirmations and not (said and said[-1].startswith("ended")):
                said.append(process.stdout.readline())
            time.sleep(wait_s)  # into the middle of the next transaction, somewhere
            if not (said and said[-1].startswith("ended")):
                os.kill(writer, signal.SIGKILL)
            while not (said and said[-1].startswith("ended")):
                said.append(process.stdout.readline())
            return [int(line) for line in said[:-1]], int(said[-1].split()[1])

        yield run
        process.stdin.close()


def judge(path: Path, before: dict[int, object], mode: str, confirmed: list[int]) -> None:
    """Hold the catalog against what was there and what was confirmed; one more may have been stored before its confirmation."""
    with SqliteCatalog(path, wait_s=10.0) as catalog:
        assert list(catalog.check()) == []
        found = {int(entry.name.rpartition("-")[2]): entry.key for entry in catalog.entries()}
        own = {seed: make_item(seed).entry.key for seed in range(80)}
        if mode == "remove":
            assert not found.keys() & set(confirmed)
            assert len(found) >= len(before) - len(confirmed) - 1
        else:
            assert found.keys() >= before.keys() | set(confirmed)
            assert len(found) <= len(before.keys() | set(confirmed)) + 1
        if mode == "replace":
            assert all(found[seed] != own[seed] for seed in confirmed)
            assert sum(found[seed] != own[seed] for seed in found) <= len(confirmed) + 1
        for key in found.values():
            assert catalog.fingerprint(key)
        item = make_item(500)
        assert catalog.add(*item)  # the next writer goes on
        assert catalog.nearest(item.vectors, 1)[0].key == item.entry.key


def kills(writers, folder, seed, count):
    """Kill as many writers as that; one that comes to its end before it is killed does not count."""
    rng, killed = random.Random(seed), 0
    while killed < count:
        path, mode = folder / f"{killed}.db", ("add", "replace", "remove", "index")[killed % 4]
        there = range(80) if mode in ("replace", "remove") else range(rng.randrange(0, 8))
        with SqliteCatalog(path) as catalog:
            catalog.add_all([make_item(n) for n in there])
            before = {int(entry.name.rpartition("-")[2]): entry.key for entry in catalog.entries()}
        first = 0 if mode in ("replace", "remove") else 10
        confirmed, ended = writers([str(path), first, mode], rng.randint(0, 4), rng.uniform(0, 0.02))
        assert ended in (0, -signal.SIGKILL)
        judge(path, before, mode, confirmed)
        for file in folder.glob(f"{killed}.db*"):
            file.unlink()
        killed += ended != 0
    return killed


@pytest.mark.slow
def test_fifty_kills(writers, tmp_path):
    tried(PART, kills(writers, tmp_path, 21, 50))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_kills(writers, tmp_path, seed):
    tried(PART, kills(writers, tmp_path, 100 + seed, 250))


@pytest.mark.slow
def test_writers_in_several_processes_enter_each_model_once(tmp_path):
    path = tmp_path / "c.db"
    script = _WRITERS.partition("writer = None")[0] + "write_on(sys.argv[1], int(sys.argv[2]), 'index')"
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(first)],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for first in (0, 20, 40)
    ]  # fmt: skip
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    with SqliteCatalog(path) as catalog:
        assert sorted(entry.key for entry in catalog.entries()) == sorted(make_item(n).entry.key for n in range(80))
        assert list(catalog.check()) == []
