"""The same models give the same report, whatever the locale, the folder, the seed of hashes and the number of cores."""

import json
import os
import subprocess

import pytest

from support.suspects import files_of, sound, write

HERE = {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
ELSEWHERE = {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Seoul"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_locale_folder_hash_seed_and_cores_change_nothing(environment, command, tmp_path):
    tensors, *rest = sound(experts=2, layers=2)
    pair = [
        write(tmp_path / "a", files_of(tensors, *rest)),
        write(tmp_path / "b", files_of(*sound(1, experts=2, layers=2))),
    ]
    cores, found = sorted(os.sched_getaffinity(0)), []
    for name, more, allowed in (("one", HERE, cores[:1]), ("two", ELSEWHERE, cores)):
        folder = tmp_path / name
        folder.mkdir()
        chosen = ["--metrics", "all", "--deep", "--method", "all", "--quiet", "--out", ".", "--csv", "x.csv"]
        done = subprocess.run(
            [*command, "compare", *map(str, pair), *chosen],
            env=environment | more,
            cwd=folder,
            capture_output=True,
            preexec_fn=lambda allowed=allowed: os.sched_setaffinity(0, allowed),
        )
        assert done.returncode in (0, 7), done.stderr
        report = json.loads((folder / "report.json").read_bytes())
        found.append((report | {"run": None}, (folder / "x.csv").read_bytes()))
    assert found[0] == found[1]
