"""What a bundle holds, and that it depends on nothing but the comparison."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import orjson
import pytest

from kinprint.bundle import report_of, verify_bundle, write_bundle
from kinprint.bundle.members import CAPS, MAY_DIFFER
from kinprint.errors import BadSelection, FormatError, StorageError
from kinprint.results.report import Report
from kinprint.sources.ledger import Ledger
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.places import ROOT


def members(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_is_in_it(made):
    found = members(made.full)
    assert {name for name in found if not name.startswith("bytes/")} == {
        "bundle.json",
        "report.json",
        "sources.json",
        "ranges.jsonl",
        "README.txt",
    }
    assert Report.from_json(found["report.json"]) == made.report
    manifest = orjson.loads(found["bundle.json"])
    assert {item["name"]: (item["size"], item["sha256"]) for item in manifest["members"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in found.items() if name != "bundle.json"
    }
    assert {"kinprint", "python", "numpy"} <= {item["name"] for item in manifest["software"]}
    assert manifest["may_differ"] == ["run"] == list(MAY_DIFFER)
    assert report_of(made.full) == found["report.json"]


def test_ranges_are_those_of_the_files(made):
    found = members(made.full)
    sources = orjson.loads(found["sources.json"])["record"]["sources"]
    lines = [orjson.loads(line) for line in found["ranges.jsonl"].splitlines()]
    assert len(lines) >= 6
    for item in lines:
        path = Path(sources[item["source"]]["provenance"]["location"]) / item["file"]
        with path.open("rb") as file:
            file.seek(item["start"])
            assert hashlib.sha256(file.read(item["end"] - item["start"])).hexdigest() == item["sha256"]
    assert {item["file"] for item in lines} >= {"config.json", "model.safetensors"}
    enclosed = sum(len(data) for name, data in found.items() if name.startswith("bytes/"))
    assert enclosed == sum(item.bytes_read for item in made.report.reads)


def test_the_example_in_the_readme_is_true(made):
    text = members(made.lean)["README.txt"].decode()
    command, expected = re.search(r"\n {7}(.+)\n\n {5}must print ([0-9a-f]{64})", text).groups()
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert done.stdout.split()[0].decode() == expected


def test_digests_can_be_made_from_the_readme_alone(made, tmp_path):
    found = members(made.lean)
    for name, data in found.items():
        (tmp_path / name).write_bytes(data)
    text = found["README.txt"].decode()
    ranges, expected = re.search(r"\n {7}(grep .+)\n\n {5}must print ([0-9a-f]{64})", text).groups()
    done = subprocess.run(["sh", "-c", ranges], capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.split()[0].decode() == expected
    assert expected in {item.sha256 for item in made.report.reads}
    whole = re.search(r"\n {7}python3 -c '(.+)'\n", text)[1]
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.decode().strip() == orjson.loads(found["bundle.json"])["digest"]


@pytest.mark.parametrize("changed", [None, "digest", "evidence", "reads"])
def test_digests_can_be_made_as_the_documentation_says(made, tmp_path, changed):
    found = members(made.lean)
    if changed in ("digest", "evidence"):
        stated = orjson.loads(found["bundle.json"])[changed]
        found["bundle.json"] = found["bundle.json"].replace(stated.encode(), b"0" * 64)
    elif changed == "reads":
        found["report.json"] = found["report.json"].replace(made.report.reads[0].sha256.encode(), b"0" * 64)
    for name, data in found.items():
        (tmp_path / name).write_bytes(data)
    text = (ROOT / "docs" / "bundles.md").read_text(encoding="utf-8")
    recipe = re.search(r"```python\n(import hashlib, pathlib\n.+?)```", text, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", recipe], capture_output=True, cwd=tmp_path)
    assert (done.returncode == 0) == (changed is None), done.stderr
    assert changed is None or b"AssertionError" in done.stderr


def test_two_runs_differ_in_the_run_alone(made, bundler, tmp_path):
    bundler(tmp_path / "again.zip", made.a, made.b)
    first, second = members(made.full), members(tmp_path / "again.zip")
    assert {name for name in first if first[name] != second.get(name)} == {"report.json", "bundle.json"}
    reports = [orjson.loads(item["report.json"]) for item in (first, second)]
    assert reports[0].pop("run") != reports[1].pop("run")
    assert reports[0] == reports[1]
    manifests = [orjson.loads(item["bundle.json"]) for item in (first, second)]
    assert manifests[0]["evidence"] == manifests[1]["evidence"]
    assert manifests[0]["digest"] != manifests[1]["digest"]


def test_the_same_report_gives_the_same_file(made, tmp_path, fast_options):
    from kinprint.comparison.pipeline import compare

    with Ledger(keep=True) as ledger:
        with Session(Settings(), ledger=ledger) as run:
            report = compare(str(made.a), str(made.b), fast_options, session=run)
        for name in ("one.zip", "two.zip"):
            write_bundle(tmp_path / name, report, ledger, enclose=True)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["one.zip", "two.zip"]


def test_a_target_that_cannot_be_written(made, tmp_path, bundler):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        bundler(tmp_path / "file" / "below.zip", made.a, made.b, enclose=False)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="cannot write"):
        bundler(tmp_path / "folder", made.a, made.b, enclose=False)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "folder"]


def test_a_ledger_of_another_comparison_is_refused(made, tmp_path):
    with pytest.raises(ValueError, match="not of the comparison"):
        write_bundle(tmp_path / "x.zip", made.report, Ledger())


def test_no_bytes_were_kept(made, tmp_path, fast_options):
    from kinprint.comparison.pipeline import compare

    ledger = Ledger()
    with Session(Settings(), ledger=ledger) as run:
        report = compare(str(made.a), str(made.b), fast_options, session=run)
    with pytest.raises(ValueError, match="has not kept"):
        write_bundle(tmp_path / "x.zip", report, ledger, enclose=True)


def test_signed_addresses_do_not_enter(web, bundler, tmp_path, fast_options, small_model):
    web.root = small_model(tmp_path / "served", 3).parent
    small_model(tmp_path / "other", 4)
    address = f"{web.url}/served/model.safetensors?signature=hf_secret"
    bundler(tmp_path / "signed.zip", address, tmp_path / "other")
    assert not [name for name, data in members(tmp_path / "signed.zip").items() if b"hf_secret" in data]
    with pytest.raises(BadSelection, match="could not tell them apart"):
        bundler(tmp_path / "twins.zip", address, f"{web.url}/served/model.safetensors?signature=other")
    assert verify_bundle(tmp_path / "signed.zip", offline=True).outcome == "verified"


def test_report_of_a_changed_bundle(made, forged):
    def change(found):
        found["report.json"] = found["report.json"].replace(b'"ok"', b'"OK"', 1)

    with pytest.raises(FormatError, match="not the one that was put in"):
        report_of(forged(made.full, change, seal=False))


def test_signed_addresses_of_controls_do_not_enter(web, bundler, tmp_path, small_model):
    web.root = small_model(tmp_path / "served", 3).parent
    one, two = small_model(tmp_path / "one", 4), small_model(tmp_path / "two", 5)
    address = f"{web.url}/served/model.safetensors?signature=hf_secret"
    bundler(tmp_path / "signed.zip", one, two, controls=address, parents=address)
    assert not [name for name, data in members(tmp_path / "signed.zip").items() if b"hf_secret" in data]
    assert verify_bundle(tmp_path / "signed.zip", offline=True).outcome == "verified"


@pytest.mark.parametrize(("limit", "least"), [("CAPS", {**CAPS, "ranges.jsonl": 100}), ("MOST_MEMBERS", 3)])
def test_a_bundle_that_could_not_be_opened_again_is_not_written(made, bundler, tmp_path, monkeypatch, limit, least):
    monkeypatch.setattr(f"kinprint.bundle.container.{limit}", least)
    with pytest.raises(BadSelection, match=r"could not be opened again: .*expected at most"):
        bundler(tmp_path / "large.zip", made.a, made.b)
    assert not list(tmp_path.glob("*large.zip*"))
