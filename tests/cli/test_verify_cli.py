"""`kinprint verify`, by its pages and exit codes."""

import json
import re
import shutil
import zipfile

import pytest

ROLES = ("--roles", "input_norm", "--metrics", "pearson", "-q")


@pytest.fixture
def bundle(inside, demo, tmp_path):
    target = tmp_path / "evidence.zip"
    done = inside("compare", demo / "base", demo / "finetune", *ROLES, "--bundle", target, "--bundle-bytes")
    assert f"wrote {target}" in done.err
    return target


def test_verify_prints_checks_and_a_sentence(bundle, inside):
    done = inside("verify", bundle, "--allow-local", "--format", "table", "-q")
    assert done.code == 0
    assert done.out.rstrip().splitlines()[-1].startswith("Verified: all ranges are as recorded")
    for word in ("archive", "enclosed bytes", "sources", "figures", "digest of the bundle"):
        assert word in done.out
    offline = inside("verify", "--offline", bundle, "--format", "json")
    assert offline.code == 0
    found = json.loads(offline.out)
    assert (found["schema"], found["outcome"], found["problems"]) == ("kinprint.verification", "verified", [])
    assert found["exact"] == found["figures"]


def test_a_tampered_bundle_is_code_9(bundle, inside, tmp_path):
    target = tmp_path / "tampered.zip"
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "report.json":
                data = data.replace(b'"seed": 0', b'"seed": 3')
            new.writestr(name, data)
    done = inside("verify", "--offline", target, "--format", "table")
    assert done.code == 9
    assert "Verification failed" in done.out
    assert "report.json" in done.out


def test_no_bundle_is_code_6_and_none_code_3(inside, demo, tmp_path):
    done = inside("verify", demo / "base" / "config.json")
    assert (done.code, done.out) == (6, "")
    assert "no evidence bundle" in done.err
    assert inside("verify", tmp_path / "none.zip").code == 3
    assert inside("verify").code == 2


def test_a_folder_and_a_report_are_no_bundles(inside, demo, tmp_path):
    done = inside("verify", demo / "base")
    assert done.code == 2
    assert "is a directory" in done.err
    inside("compare", demo / "base", demo / "finetune", *ROLES, "--out", tmp_path)
    done = inside("verify", tmp_path / "report.json")
    assert done.code == 6
    assert "report.json: a report, not an evidence bundle" in done.err
    assert f"next: kinprint report {tmp_path / 'report.json'} shows it" in done.err


def test_without_bytes(inside, demo, tmp_path):
    target = tmp_path / "lean.zip"
    inside("compare", demo / "base", demo / "finetune", *ROLES, "--bundle", target)
    done = inside("verify", "--offline", target, "--format", "table")
    assert done.code == 7
    assert "holds no bytes" in done.out
    assert inside("verify", target, "--max-size", "1kB").code == 6


def test_the_simple_case_needs_no_leave_and_a_path_elsewhere_does(inside, demo, tmp_path, monkeypatch):
    for name in ("base", "finetune"):
        shutil.copytree(demo / name, tmp_path / "models" / name)
    monkeypatch.chdir(tmp_path)
    inside("compare", "models/base", "models/finetune", *ROLES, "--bundle", "near.zip")
    done = inside("verify", "near.zip", "--no-cache", "--format", "table")
    assert (done.code, done.err) == (0, "")
    assert "read: models/base at models/base" in done.out
    inside("compare", demo / "base", "models/finetune", *ROLES, "--bundle", "far.zip")
    done = inside("verify", "far.zip", "--format", "table")
    assert done.code == 5
    assert "--allow-local" in done.out
    assert inside("verify", "far.zip", "--allow-local").code == 0


def test_servers_and_commits_are_named(inside, demo_hub, tmp_path):
    target, env = tmp_path / "hub.zip", {"HF_ENDPOINT": demo_hub.endpoint}
    inside("compare", "demo/base", "demo/finetune", *ROLES, "--bundle", target, env=env)
    done = inside("verify", target, "--format", "table", "-q", env=env)
    assert done.code == 0
    assert demo_hub.endpoint.removeprefix("http://") in done.err
    assert re.search(rf"read: demo/base at {demo_hub.endpoint}/demo/base; commit [0-9a-f]{{40}}", done.out)
    away = inside(
        "verify", target, "--format", "table", "-q", "--allow-local", env={"HF_ENDPOINT": "http://127.0.0.1:9"}
    )
    assert away.code == 0
    assert "not on your hub" in away.out
    assert away.out.rstrip().endswith("/demo/finetune.")


@pytest.mark.parametrize("content", [None, b"", b"# no archive", b"x" * 100])
def test_what_is_no_archive_is_no_damaged_bundle(inside, tmp_path, content):
    file = tmp_path / "no.zip"
    if content is not None:
        file.write_bytes(content)
    done = inside("verify", file)
    assert done.code == (3 if content is None else 6)
    assert ("no such file" if content is None else "is no zip archive") in done.err
    assert "next: kinprint compare A B --bundle FILE writes a bundle" in done.err
    assert "fetch it again" not in done.err
