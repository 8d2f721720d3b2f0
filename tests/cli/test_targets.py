"""What may not be written to: devices are not replaced, files of models not destroyed, folders not made in silence."""

import os
import shutil
import stat
import threading
import zipfile

import pytest

from kinprint._util.files import write_whole
from kinprint.comparison.pipeline import compare
from kinprint.errors import StorageError
from support.reports import empty_report

FAST = ("--metrics", "pearson", "--quiet", "--format", "json")
FORMS = ("--html", "--markdown", "--csv", "--sarif", "--bundle")


@pytest.fixture
def pair(tmp_path, demo):
    for name in ("base", "finetune"):
        shutil.copytree(demo / name, tmp_path / name)
    return tmp_path / "base", tmp_path / "finetune"


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "report.json").write_bytes(empty_report().to_json())
    return tmp_path / "saved" / "report.json"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_device_is_written_through_and_stays_a_device(inside, saved, tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        device = tmp_path / "link"
        device.symlink_to(os.devnull)
    assert inside("report", saved, "--html", device).code == 0
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize("option", ["--html", "--bundle"])
def test_a_pipe_is_written_through(inside, demo, tmp_path, option):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = inside("compare", demo / "base", demo / "finetune", *FAST, option, pipe)
    assert done.code == 0, done.err
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "copy").write_bytes(got[0])
    assert b"</html>" in got[0] if option == "--html" else zipfile.is_zipfile(tmp_path / "copy")


def test_what_is_neither_file_nor_device_is_refused(inside, saved, tmp_path):
    import socket

    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(place))
        done = inside("report", saved, "--html", place)
        assert stat.S_ISSOCK(place.stat().st_mode)
    assert done.code == 8
    assert "neither a file, a terminal nor a pipe" in done.err


def test_a_link_stays_a_link(inside, saved, tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    assert inside("report", saved, "--html", tmp_path / "link.html").code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "</html>" in (tmp_path / "real.html").read_text()
    (tmp_path / "loop").symlink_to("loop")
    done = inside("report", saved, "--html", tmp_path / "loop")
    assert done.code == 8
    assert "cannot write" in done.err


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("option", FORMS)
def test_files_of_a_model_are_not_written_over(inside, pair, option, name):
    before = contents(pair[0])
    done = inside("compare", *pair, *FAST, option, pair[0] / name)
    assert done.code == 8, done.err
    assert "it is a file of a model" in done.err
    assert contents(pair[0]) == before


def test_no_command_writes_over_files_of_a_model(inside, pair, saved, tmp_path):
    weights = pair[0] / "model.safetensors"
    (tmp_path / "x.kfp").symlink_to(weights)
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("report.json", "tree.json", "RESULTS.md", "lineage.svg", "red-team.csv"):
        (linked / name).symlink_to(weights)
    before = weights.read_bytes()
    for given in (
        ("report", saved, "--html", weights),
        ("report", saved, "--out", linked),
        ("compare", *pair, "--out", linked),
        ("compare", *pair, pair[0], "--out", linked),
        ("calibrate", *pair, "--out", weights),
        ("fingerprint", pair[0], "--out", tmp_path / "x.kfp"),
        ("tree", *pair, "--out", linked),
        ("study", "sanity", "--models", str(pair[0]), "--out", linked),
        ("bench", "lineage", "--out", linked),
        ("bench", "red-team", "--out", linked),
    ):
        done = inside(*given)
        assert (done.code, "it is a file of a model" in done.err) == (8, True), (given, done.err)
        assert weights.read_bytes() == before


def test_a_file_that_was_read_is_known_by_its_path_and_not_by_its_name(pair, tmp_path):
    store = tmp_path / "models--a--b" / "blobs" / "5f2c"  # as the hub's client keeps files
    store.parent.mkdir(parents=True)
    (pair[0] / "model.safetensors").rename(store)
    (pair[0] / "model.safetensors").symlink_to(store)
    before = store.read_bytes()
    report = compare(pair[0], pair[1], metrics=("pearson",))
    with pytest.raises(StorageError, match="a file of a model that is read"):
        report.save(store, form="json")
    assert store.read_bytes() == before


def test_the_null_that_is_read_is_not_written_over(inside, pair, tmp_path):
    (tmp_path / "null.json").write_text("{}")
    done = inside("compare", *pair, "--null", tmp_path / "null.json", "--sarif", tmp_path / "null.json")
    assert done.code == 2
    assert "--sarif would overwrite" in done.err


def test_folders_are_not_made_on_the_way_to_a_file(inside, saved, demo, tmp_path):
    for option in FORMS[:4]:
        done = inside("report", saved, option, tmp_path / "typo" / "x")
        assert done.code == 8
        assert f"there is no folder {tmp_path / 'typo'}\n  next: mkdir -p {tmp_path / 'typo'}" in done.err
    done = inside("compare", demo / "base", tmp_path / "no such model", "--bundle", tmp_path / "typo" / "x")
    assert done.code == 8
    assert inside("fingerprint", demo / "base", "--out", tmp_path / "typo" / "x.kfp").code == 8
    assert inside("calibrate", demo / "base", demo / "unrelated", "--out", tmp_path / "typo" / "x").code == 8
    with pytest.raises(StorageError, match="there is no folder"):
        write_whole(tmp_path / "typo" / "x", b"")
    assert not (tmp_path / "typo").exists()


def test_the_folder_asked_for_is_made_and_that_is_said(inside, saved, tmp_path):
    made = tmp_path / "new" / "out"
    done = inside("report", saved, "--out", made, "--html", made / "x.html", "--markdown", tmp_path / "new" / "x.md")
    assert done.code == 0, done.err
    assert f"made the folder {made}\n" in done.err
    assert (made / "x.html").exists()


def test_a_bundle_in_the_folder_asked_for(inside, demo, tmp_path):
    """It is written before the report, for which the folder is made."""
    made = tmp_path / "new" / "out"
    done = inside("compare", demo / "base", demo / "finetune", *FAST, "--out", made, "--bundle", made / "b.zip")
    assert done.code == 0, done.err
    assert done.err.count(f"made the folder {made}\n") == 1
    assert zipfile.is_zipfile(made / "b.zip")
